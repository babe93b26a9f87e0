"""Experiment files: what they say, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.errors import UsageError
from ordercast.spark.experiment import load_experiment

SCENARIO = 'name = "base"\nprocesses = 3\nduration = "1s"\nquiet = "1s"\n'


def written(folder: Path, text: str) -> Path:
    (folder / "base.toml").write_text(SCENARIO, encoding="utf-8")
    path = folder / "e.toml"
    path.write_text(f'name = "e"\nscenario = "base.toml"\n{text}', encoding="utf-8")
    return path


def test_every_combination_with_every_seed_is_a_trial(tmp_path: Path) -> None:
    text = 'seeds = 2\n[grid]\n"workload.rate" = [1, 2]\n"network.loss" = [0.0, 0.1, 0.2]\n'
    experiment, trials = load_experiment(written(tmp_path, text))
    assert experiment.keep.traces == "failures"
    assert len(trials) == 2 * 3 * 2
    assert [trial.seed for trial in trials[:4]] == [1, 2, 1, 2]
    assert trials[0].settings == {"workload.rate": 1, "network.loss": 0.0}
    assert trials[0].document["network"] == {"loss": 0.0}
    assert len({trial.id for trial in trials}) == len(trials)


def test_the_id_of_a_trial_depends_on_what_it_runs(tmp_path: Path) -> None:
    wide = load_experiment(written(tmp_path, '[grid]\n"workload.rate" = [1, 2, 3]\n'))[1]
    narrow = load_experiment(written(tmp_path, '[grid]\n"workload.rate" = [3]\n'))[1]
    assert narrow[0].id == wide[2].id


def test_a_label_is_a_setting_for_readers_alone(tmp_path: Path) -> None:
    text = '[grid]\n"label.load, workload.rate" = [["low", 1], ["high", 9]]\n'
    text += '[[figure]]\ntitle = "t"\nx = "label.load"\ny = "submitted"\n'
    labelled = load_experiment(written(tmp_path, text))[1]
    plain = load_experiment(written(tmp_path, '[grid]\n"workload.rate" = [1, 9]\n'))[1]
    assert [trial.settings["label.load"] for trial in labelled] == ["low", "high"]
    assert [trial.id for trial in labelled] == [trial.id for trial in plain]  # the same runs


def test_without_a_grid_there_is_one_combination(tmp_path: Path) -> None:
    _, trials = load_experiment(written(tmp_path, ""))
    assert [trial.settings for trial in trials] == [{}]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seed = 3\n", "e.toml:3: unknown key of an experiment 'seed': did you mean 'seeds'?"),
        ("seeds = 0\n", "e.toml:3: seeds: give a number that is >= 1"),
        ('[grid]\n"workload.rate" = []\n', "grid.workload.rate has no values"),
        ('[grid]\n"workload.rat" = [1]\n', "base.toml: unknown key of workload 'rat'"),
        ('[grid]\n"name.rate" = [1]\n', "name is not a table there"),
        ('[keep]\ntraces = "some"\n', "unknown word 'some'"),
        (
            "seeds = 100000\n[grid]\n" + '"workload.rate" = [' + "1," * 11 + "]\n",
            "11 combinations of 100000 seeds: at most",
        ),
    ],
)
def test_a_wrong_experiment_is_rejected_before_anything_runs(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(UsageError) as raised:
        load_experiment(written(tmp_path, text))
    assert told in str(raised.value)


def test_a_missing_scenario_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text('name = "e"\nscenario = "none.toml"\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"none\.toml: cannot be read"):
        load_experiment(path)

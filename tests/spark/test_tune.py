"""Tuning: a round that is searched for each run; and how an experiment says what varies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.errors import UsageError
from ordercast.kernel.family import Family, Plan, by_machine
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.spark.experiment import load_experiment
from ordercast.spark.tune import StatusAnswers, Tune, carried, settled, tuned
from ordercast.units import Duration

DOCUMENT: dict[str, Any] = {
    "name": "tuned",
    "family": "gossip",
    "processes": 6,
    "options": {"fan_out": 3, "hops": 2, "eager": False, "transport": "status"},
    "workload": {"per_round": 1, "payload": 500},
    "network": {"bandwidth": "250kB/s", "delay": "1ms"},
}
TUNE = Tune(
    key="options.round",
    at=0.02,
    low=Duration.parse("1ms"),
    high=Duration.parse("1s"),
    steps=7,
    times={"network.answer_within": 1, "duration": 20, "quiet": 3},
)


def failed_share(document: dict[str, Any], seed: int) -> float:
    answers = StatusAnswers()
    scenario = parse_scenario(document)
    Simulation(scenario, seed, families=answers.watch(scenario)).run()
    assert answers.failed_share is not None
    return answers.failed_share


def shorter(document: dict[str, Any], factor: float) -> dict[str, Any]:
    fixed = Duration.parse(document["options"]["round"])
    low = Duration(round(fixed * factor))
    return tuned(document, 1, msgspec.structs.replace(TUNE, low=Duration(low - 1), high=low))


def test_the_round_is_as_short_as_connections_allow() -> None:
    found = tuned(DOCUMENT, 1, TUNE)
    assert 0 < failed_share(found, 1) <= TUNE.at
    assert failed_share(shorter(found, 0.7), 1) > TUNE.at


def test_families_that_share_a_machine_still_share_it_when_watched() -> None:
    def machines(families: dict[str, Family]) -> list[tuple[str, ...]]:
        plans = [
            (families[name], Plan(name, ("n1",), families[name].options()))
            for name in ("total", "sequenced", "atomic", "fifo")
        ]
        return [tuple(plan.group for plan in served) for _, served in by_machine(plans)]

    assert machines(FAMILIES) == [("total", "sequenced", "atomic"), ("fifo",)]
    assert machines(StatusAnswers().watch(parse_scenario(DOCUMENT))) == machines(FAMILIES)


def test_the_status_answers_of_a_family_from_elsewhere_are_counted() -> None:
    options = {"fan_out": 3, "hops": 2, "transport": "status", "tickets": 2, "lease": "400ms"}
    ring = {**DOCUMENT, "family": "ordercast.studies.published_ring:FAMILY", "options": options}
    assert 0 <= failed_share({**ring, "duration": "1s", "quiet": "1s"}, 1) < 1


def test_settings_that_depend_on_the_round_follow_it() -> None:
    found = tuned(DOCUMENT, 1, TUNE)
    unit = Duration.parse(found["options"]["round"])
    assert Duration.parse(found["network"]["answer_within"]) == unit
    assert Duration.parse(found["duration"]) == 20 * unit
    assert "duration" not in DOCUMENT  # what was given is left alone


def test_longer_messages_need_a_longer_round() -> None:
    long = {**DOCUMENT, "workload": {"per_round": 1, "payload": 3000}}
    rounds = [
        Duration.parse(tuned(document, 1, TUNE)["options"]["round"])
        for document in (DOCUMENT, long)
    ]
    assert rounds[1] > 3 * rounds[0]


def test_a_trial_carries_its_rules_and_finds_the_same_again() -> None:
    trial = msgspec.json.decode(msgspec.json.encode(carried(DOCUMENT, TUNE)))
    assert settled(trial, 1) == settled(trial, 1) == tuned(DOCUMENT, 1, TUNE)
    assert settled(DOCUMENT, 1) is DOCUMENT


def test_tuning_without_connections_is_rejected() -> None:
    datagrams = {**DOCUMENT, "options": {"fan_out": 3}}
    with pytest.raises(UsageError, match="no status sends"):
        tuned(datagrams, 1, TUNE)


def test_an_empty_range_is_rejected() -> None:
    with pytest.raises(UsageError, match="is no range"):
        tuned(DOCUMENT, 1, msgspec.structs.replace(TUNE, high=Duration(1)))


def written(folder: Path, text: str) -> Path:
    (folder / "base.toml").write_text('name = "base"\nfamily = "gossip"\n', encoding="utf-8")
    path = folder / "e.toml"
    path.write_text(f'name = "e"\nscenario = "base.toml"\n{text}', encoding="utf-8")
    return path


def test_a_tuned_experiment_hands_its_rules_to_every_trial(tmp_path: Path) -> None:
    text = '[tune]\nkey = "options.round"\nat = 0.002\nfrom = "5ms"\nto = "1s"\n'
    tuned_trials = load_experiment(written(tmp_path, text))[1]
    plain_trials = load_experiment(written(tmp_path, ""))[1]
    assert tuned_trials[0].document["tune"]["from"] == "5ms"
    assert "tune" not in plain_trials[0].document
    assert tuned_trials[0].id != plain_trials[0].id


def test_variants_set_several_keys_and_the_grid_comes_after_them(tmp_path: Path) -> None:
    text = (
        '[grid]\nvariant = ["gossip", "causal"]\n"workload.rate" = [1, 2]\n'
        '[variants.gossip]\n"options.hops" = 3\n'
        '[variants.causal]\nfamily = "causal"\n"options.tickets" = 2\n"workload.rate" = 9\n'
    )
    _, trials = load_experiment(written(tmp_path, text))
    assert [trial.document["family"] for trial in trials] == [
        "gossip",
        "gossip",
        "causal",
        "causal",
    ]
    assert [trial.document["workload"]["rate"] for trial in trials] == [1, 2, 1, 2]
    assert trials[2].settings == {"variant": "causal", "workload.rate": 1}
    assert trials[2].document["options"] == {"tickets": 2}


def test_keys_that_go_together_are_one_line_of_the_grid(tmp_path: Path) -> None:
    text = '[grid]\n"processes, workload.rate" = [[3, 1], [4, 2]]\n'
    _, trials = load_experiment(written(tmp_path, text))
    assert [trial.settings for trial in trials] == [
        {"processes": 3, "workload.rate": 1},
        {"processes": 4, "workload.rate": 2},
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[grid]\n"processes, workload.rate" = [[3]]\n', "[3] is not a list of 2 values"),
        ('[grid]\nvariant = ["b"]\n[variants.a]\n', "unknown variant 'b'"),
        ('[grid]\nvariant = ["a"]\n[variants.a]\n"name.x" = 1\n', "name is not a table there"),
        ('[tune]\nkey = "options.round"\nat = 2.0\nfrom = "1ms"\nto = "2ms"\n', "tune.at: give"),
        ('[tune]\nkey = "options.roun"\nat = 0.1\nfrom = "1ms"\nto = "2ms"\n', "'roun'"),
        ('[tune]\nkey = "options.round"\nat = 0.1\nfrom = "3ms"\nto = "2ms"\n', "no range"),
        ('[tune]\nkey = "options.round"\nat = 0.1\nfrom = "3"\nto = "2ms"\n', "tune.from: '3' is"),
    ],
)
def test_a_wrong_experiment_is_rejected_before_anything_runs(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(UsageError) as raised:
        load_experiment(written(tmp_path, text))
    assert told in str(raised.value)

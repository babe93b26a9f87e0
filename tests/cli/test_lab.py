"""`ordercast lab`: what it writes and says. Sweeps themselves are in tests/spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ordercast.cli.lab import exit_code, print_results
from ordercast.spark.trials import Manifest
from ordercast.trace.parquet import load_pyarrow

BASE = """name = "base"
family = "causal"
processes = 3
duration = "1s"
quiet = "1s"
options = { tickets = 2, join_wait = "50ms", ownership = "fixed" }
"""


def written(folder: Path, text: str = "") -> Path:
    (folder / "base.toml").write_text(BASE, encoding="utf-8")
    path = folder / "e.toml"
    path.write_text(f'name = "e"\nscenario = "base.toml"\nseeds = 2\n{text}', encoding="utf-8")
    return path


@pytest.mark.slow
def test_an_experiment_becomes_a_table_and_a_file(ordercast, tmp_path: Path) -> None:
    path = written(tmp_path, '[grid]\n"network.loss" = [0.0, 0.1]\n')
    ran = ordercast("lab", path, "--out", tmp_path / "out", "--master", "local[2,4]")
    assert ran.code == 0, ran.err
    assert "lost" in ran.out
    assert "share" in ran.out
    assert (tmp_path / "out" / "results.parquet").is_file()
    again = ordercast("lab", path, "--out", tmp_path / "out", "--json", "--master", "local[1,4]")
    assert again.code == 0, again.err
    told = [json.loads(line) for line in again.out.splitlines()]
    assert [one["settings"] for one in told] == [{"network.loss": 0.0}, {"network.loss": 0.1}]
    assert all(one["runs"] == 2 and one["broken"] == 0 for one in told)


@pytest.mark.slow
def test_laws_that_were_not_asked_are_counted_and_named(ordercast, tmp_path: Path) -> None:
    path = written(tmp_path, "[grid]\nprocesses = [3, 4]\n")
    with (tmp_path / "base.toml").open("a", encoding="utf-8") as base:
        base.write('fault = [{ kind = "leave", nodes = ["n3"], at = "500ms" }]\n')
    to_one_place = ("--out", tmp_path / "out", "--master", "local[1,4]")
    ran = ordercast("lab", path, *to_one_place)
    assert ran.code == 0, ran.err
    sentence = (
        "4 of 4 runs, the first with seed 1. The laws completeness and causal were not asked: the "
        "family causal promises them only while nothing fails, and here n3 left g."
    )
    assert sentence in ran.out.splitlines()
    assert sentence in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    told = ordercast("lab", path, *to_one_place, "--json").out.splitlines()
    assert [json.loads(line)["not_asked"] for line in told] == [2, 2]
    table = load_pyarrow().parquet.read_table(tmp_path / "out" / "results.parquet")
    assert table.column("not_asked").to_pylist() == ["completeness; causal"] * 4


def test_a_setting_in_brackets_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"variant": "R4 [eager]"}
    print_results([Manifest(id="r", place=0, seed=1, settings=settings, ending="finished")])
    assert "R4 [eager]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answers", "error", "code"),
    [
        (["holds", "holds"], None, 0),
        (["holds", "unknown"], None, 3),
        (["unknown", "broken"], None, 1),
        (["unknown"], "AssertionError", 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst_run(
    answers: list[str], error: str | None, code: int
) -> None:
    runs = [
        Manifest(
            id=f"r-{seed}",
            place=0,
            seed=seed,
            settings={},
            ending="finished",
            laws={"fifo": answer},
            broken=["fifo: it fell"] if answer == "broken" else [],
            error=error,
        )
        for seed, answer in enumerate(answers)
    ]
    assert exit_code(runs) == code


def test_a_wrong_experiment_is_reported_in_one_sentence(ordercast, tmp_path: Path) -> None:
    ran = ordercast("lab", written(tmp_path, '[grid]\n"network.los" = [1]\n'))
    assert ran.code == 2
    assert "did you mean 'loss'?" in ran.err


def test_an_unreachable_cluster_exits_4(ordercast, tmp_path: Path) -> None:
    ran = ordercast("lab", written(tmp_path), "--master", "spark://127.0.0.1:1")
    assert ran.code == 4
    assert "no Spark at 127.0.0.1:1" in ran.err

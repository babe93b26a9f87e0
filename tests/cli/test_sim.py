"""`ordercast sim`: rows, laws, replay, lakes, and what it says to wrong usage."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from ordercast.cli.sim import RUNS_WORTH_A_POOL

CALM = "scenarios/calm.toml"
CHAOS = "scenarios/chaos.toml"


def test_every_run_prints_a_row_and_the_command_exits_0(ordercast) -> None:
    ran = ordercast("sim", CALM, "--seed", 1, "--runs", 3)
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 4  # a heading and three rows
    assert ran.out.count("5 hold") == 3
    assert "3 runs: 3 kept every law" in ran.err


def test_json_is_one_object_per_line(ordercast) -> None:
    ran = ordercast("sim", CALM, "--seed", 7, "--runs", 2, "--json")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [row["seed"] for row in rows] == [7, 8]
    assert all(law["answer"] == "holds" for row in rows for law in row["laws"])
    assert "replay" not in rows[0]


def test_a_planted_bug_exits_1_names_the_law_and_can_be_replayed(ordercast) -> None:
    ran = ordercast("sim", CHAOS, "--seed", 1, "--runs", 20, "--mutant", "forgets-the-dead")
    assert ran.code == 1
    assert "agreement is broken" in ran.out
    replay = next(line for line in ran.out.splitlines() if "again: " in line)
    again = ordercast(*shlex.split(replay.partition("again: ")[2])[1:])
    assert again.code == 1
    told = ran.out[ran.out.index("agreement is broken") : ran.out.index("again: ")]
    assert told in again.out


def test_laws_that_were_not_asked_are_named_with_the_reason(ordercast, tmp_path: Path) -> None:
    path = tmp_path / "leaving.toml"
    leaves = '[[fault]]\nkind = "leave"\nnodes = ["n2"]\nat = "500ms"\n'
    text = 'name = "leaving"\nfamily = "causal"\nduration = "1s"\nquiet = "1s"\n'
    path.write_text(text + leaves)
    sentence = (
        "The laws completeness and causal were not asked: the family causal promises them only "
        "while nothing fails, and here n2 left g."
    )
    assert ordercast("sim", path, "--seed", 1).out.splitlines()[2] == sentence
    several = ordercast("sim", path, "--seed", 1, "--runs", 2).out
    assert several.splitlines()[3] == f"2 of 2 runs, the first with seed 1. {sentence}"
    (left_out,) = json.loads(ordercast("sim", path, "--seed", 1, "--json").out)["not_asked"]
    laws = ["completeness", "causal"]
    assert left_out == {"family": "causal", "laws": laws, "why": "n2 left g"}
    lake = tmp_path / "lake"
    ordercast("sim", path, "--seed", 1, "--out", lake)
    assert ordercast("check", lake).out.splitlines()[1] == f"    {sentence}"
    assert json.loads(ordercast("check", lake, "--json").out)["not_asked"] == [left_out]


def test_too_short_a_quiet_phase_is_told_from_a_broken_law(ordercast, tmp_path: Path) -> None:
    path = tmp_path / "hasty.toml"
    path.write_text('name = "hasty"\nduration = "2s"\nquiet = "1ms"\n')
    hasty = ordercast("sim", path, "--seed", 172)
    assert hasty.code == 1
    hint = (
        "quiet = 1ms is too short: with quiet = 10s the same run keeps agreement and completeness."
    )
    assert hint in hasty.out.splitlines()
    assert json.loads(ordercast("sim", path, "--seed", 172, "--json").out)["hint"] == hint
    broken = ordercast("sim", CHAOS, "--seed", 1, "--runs", 20, "--mutant", "forgets-the-dead")
    assert "too short" not in broken.out


def test_several_jobs_print_what_one_prints(ordercast, tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    path.write_text('name = "short"\nprocesses = 2\nduration = "1s"\nquiet = "1s"\n')
    runs = ("sim", path, "--seed", 1, "--runs", RUNS_WORTH_A_POOL)
    one, two = (ordercast(*runs, "--jobs", jobs) for jobs in (1, 2))
    assert one.out == two.out
    assert one.out.count("5 hold") == RUNS_WORTH_A_POOL
    assert two.code == 0


def test_out_writes_a_lake_that_check_judges(ordercast, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ran = ordercast("sim", CALM, "--seed", 1, "--runs", 2, "--out", lake, "--trace", "wire")
    assert ran.code == 0
    assert sorted(folder.name for folder in lake.iterdir()) == ["run=calm-1", "run=calm-2"]
    judged = ordercast("check", lake)
    assert judged.code == 0
    assert judged.out.count("5 hold") == 2


def test_an_existing_run_is_never_written_over(ordercast, tmp_path: Path) -> None:
    ordercast("sim", CALM, "--seed", 1, "--out", tmp_path)
    before = (tmp_path / "run=calm-1" / "run.json").read_bytes()
    ran = ordercast("sim", CALM, "--seed", 1, "--out", tmp_path)
    assert ran.code == 2
    assert "exists already" in ran.err
    assert (tmp_path / "run=calm-1" / "run.json").read_bytes() == before


def test_without_a_trace_every_law_is_unknown(ordercast) -> None:
    ran = ordercast("sim", CALM, "--seed", 1, "--trace", "off")
    assert ran.code == 3
    assert "not judged" in ran.out


def test_the_round_trip_is_part_of_the_replay(ordercast) -> None:
    ran = ordercast("sim", CHAOS, "--seed", 1, "--round-trip", "--mutant", "shuffles")
    assert "--round-trip --mutant shuffles" in ran.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sim", "nowhere.toml", "--seed", "1"], "nowhere.toml: cannot be read"),
        (["sim", "scenarios", "--seed", "1"], "scenarios: cannot be read"),
        (["sim", CALM, "--seed", "-1"], "--seed is -1"),
        (["sim", CALM, "--seed", "1", "--runs", "0"], "--runs is 0"),
        (["sim", CALM, "--seed", "1", "--jobs", "0"], "--jobs is 0"),
        (["sim", CALM, "--seed", "1", "--mutant", "forget-the-dead"], "'forgets-the-dead'"),
        (["sim", CALM, "--seed", "1", "--trace", "off", "--out", "x"], "--out needs a trace"),
        (["sim", CALM], "--seed"),
        (["sim", CALM, "--seed", "one"], "invalid int value"),
        (["simulate", CALM], "unknown command 'simulate': did you mean 'sim'?"),
        ([], "COMMAND"),
    ],
)
def test_wrong_usage_exits_2_with_a_sentence(
    ordercast, arguments: list[str], sentence: str
) -> None:
    ran = ordercast(*arguments)
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.out == ""
    assert "Traceback" not in ran.err


def test_a_scenario_error_names_file_line_and_nearest_key(ordercast, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('name = "x"\n\n[workload]\nrat = 5\n', encoding="utf-8")
    ran = ordercast("sim", path, "--seed", 1)
    assert ran.code == 2
    assert f"{path}:4: unknown key of workload 'rat': did you mean 'rate'?" in ran.err

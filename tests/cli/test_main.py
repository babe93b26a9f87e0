"""What all commands have in common: their names, and where modules of families are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SCENARIO = 'name = "beside"\nfamily = "{}:FAMILY"\nprocesses = 2\nduration = "1s"\nquiet = "1s"\n'


def test_a_mistyped_command_is_rejected_with_the_nearest_one(ordercast) -> None:
    ran = ordercast("simm", "scenarios/calm.toml")
    assert (ran.code, ran.err) == (2, "ordercast: unknown command 'simm': did you mean 'sim'?\n")


@pytest.mark.parametrize("command", [("sim", "--seed", 1), ("live",)])
def test_a_family_may_be_in_a_module_beside_its_scenario(
    ordercast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[object, ...]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"family_for_{command[0]}"
    (tmp_path / f"{module}.py").write_text("from ordercast.protocol.fifo import FAMILY\n")
    path = tmp_path / "beside.toml"
    path.write_text(SCENARIO.format(module))
    name, *more = command
    ran = ordercast(name, path, *more)
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["experiments", "scenarios"])
def test_in_a_sweep_a_family_may_be_in_a_module_beside_the_experiment_or_its_scenario(
    ordercast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder in ("experiments", "scenarios"):
        (tmp_path / folder).mkdir()
    module = f"family_beside_{beside}"
    (tmp_path / beside / f"{module}.py").write_text("from ordercast.protocol.fifo import FAMILY\n")
    (tmp_path / "scenarios" / "base.toml").write_text(SCENARIO.format(module))
    path = tmp_path / "experiments" / "e.toml"
    path.write_text('name = "e"\nscenario = "../scenarios/base.toml"\n')
    ran = ordercast("lab", path, "--out", tmp_path / "out", "--master", "local[1,4]")
    assert ran.code == 0, ran.out + ran.err


def test_a_scenario_and_an_experiment_are_told_apart(ordercast) -> None:
    ran = ordercast("sim", "experiments/small.toml", "--seed", 1)
    assert ran.code == 2
    assert "small.toml is an experiment, and not a scenario: use ordercast lab" in ran.err
    ran = ordercast("lab", "scenarios/calm.toml")
    assert ran.code == 2
    assert "calm.toml is a scenario, and not an experiment: use ordercast sim" in ran.err


def test_a_file_that_is_no_socket_is_rejected_with_what_to_give(ordercast, tmp_path: Path) -> None:
    path = tmp_path / "n1.toml"
    path.write_text('name = "n1"\n')
    ran = ordercast("members", path)
    assert ran.code == 2
    assert "is a file, and not a socket: give the path that is `control`" in ran.err

"""Sweeps that are killed in the middle, and trials that kill their workers: nothing is lost.

The programs are real: `ordercast lab` in a process of its own, and Spark's workers below it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

# Python runs this when it starts. A simulation with one of these seeds takes its process with it.
DEADLY = """
import os
from ordercast.sim.world import Simulation

def run(world, real=Simulation.run):
    if world.seed in (2, 5):
        os._exit(13)
    return real(world)

Simulation.run = run
"""


@pytest.mark.slow(40)
def test_a_killed_sweep_resumes(lab, undisturbed: bytes) -> None:
    """Two cores, killed; then one core: the same bytes, and what was done is not touched."""
    with lab.start("out", "--master", "local[2]") as program:
        lab.wait_for("out", 3, program)
        program.kill()
    before = lab.manifests("out")
    assert 3 <= len(before) < lab.runs
    code, _, narrated = lab.run("out", "--master", "local[1]")
    assert code == 0, narrated
    after = lab.manifests("out")
    assert len(after) == lab.runs
    assert {name: after[name] for name in before} == before
    assert lab.results("out") == undisturbed
    assert not list((lab.folder / "out").rglob("*.tmp"))
    assert not list((lab.folder / "out" / "lake").glob(".writing-*"))


@pytest.mark.long
def test_trials_that_kill_their_workers_are_reported_and_the_others_finish(
    lab, spark: Any, tmp_path: Path, undisturbed: bytes
) -> None:
    """Four of fourteen die each time; the rest is done, and the next sweep does those four."""
    faulty = tmp_path / "faulty"
    faulty.mkdir()
    (faulty / "sitecustomize.py").write_text(DEADLY, encoding="utf-8")
    code, _, narrated = lab.run("out", "--master", "local[2]", PYTHONPATH=str(faulty))
    assert code == 1, narrated
    assert narrated.count("its process ended in the middle of it, 3 times") == 4
    assert narrated.count("again: ordercast sim") == 4
    assert len(lab.manifests("out")) == lab.runs
    assert not (lab.folder / "out" / "started").exists()
    assert len(list((lab.folder / "out" / "lake").iterdir())) == lab.runs - 4
    lab.go_on("out", spark)
    assert lab.results("out") == undisturbed

"""The same sweep on a standalone cluster and over Connect, and when these die in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ordercast.spark.clusters import connect_server, standalone

pytestmark = pytest.mark.slow

EXECUTOR = b"CoarseGrainedExecutorBackend"


def executors(programs: list[subprocess.Popen[bytes]]) -> list[int]:
    """The processes that these workers have started for an application."""
    parents = {program.pid for program in programs}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in parents and EXECUTOR in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:  # it ended while we looked
            continue
    return sorted(found)


@pytest.mark.long
def test_a_standalone_cluster_loses_an_executor_and_then_everything(
    lab, spark: Any, undisturbed: bytes
) -> None:
    """An executor's death costs nothing; the cluster's ends with 4, and another does the rest."""
    with standalone(workers=2) as cluster:
        with lab.start("one", "--master", cluster.url) as program:
            lab.wait_for("one", 2, program)
            os.kill(executors(cluster.programs)[0], signal.SIGKILL)
            _, narrated = program.communicate(timeout=300)
            assert program.returncode == 0, narrated
        assert lab.results("one") == undisturbed
        with lab.start("two", "--master", cluster.url) as program:
            lab.wait_for("two", 2, program)
            alive = executors(cluster.programs)
            for each in cluster.programs:
                each.kill()
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
            _, narrated = program.communicate(timeout=300)
            assert program.returncode == 4, narrated
            assert "Spark ended in the middle" in narrated
            assert "the same command goes on with the others" in narrated
    before = lab.manifests("two")
    assert 2 <= len(before) < lab.runs
    lab.go_on("two", spark)
    assert {name: lab.manifests("two")[name] for name in before} == before
    assert lab.results("two") == undisturbed


def test_connect_gives_the_same_and_its_death_is_told(lab, undisturbed: bytes) -> None:
    with connect_server() as cluster:
        code, _, narrated = lab.run("one", "--master", cluster.url)
        assert code == 0, narrated
        assert lab.results("one") == undisturbed
        with lab.start("two", "--master", cluster.url) as program:
            lab.wait_for("two", 2, program)
            cluster.programs[0].kill()
            _, narrated = program.communicate(timeout=300)
            assert program.returncode == 4, narrated
            assert "Spark ended in the middle" in narrated
    assert 2 <= len(lab.manifests("two")) < lab.runs

"""What the tests of Spark share: quick queries, `ordercast lab` as a process, a small disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ordercast.spark.experiment import load_experiment
from ordercast.spark.results import write_results
from ordercast.spark.sweep import sweep
from ordercast.spark.trials import Manifest

ROOT = Path(__file__).resolve().parents[2]
LOOK_SECONDS = 0.05


QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""The rows here are few: compiling the queries would take far longer than running them."""


@pytest.fixture
def quick(spark: Any) -> Iterator[Any]:
    before = {name: spark.conf.get(name, None) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


class Lab:
    """`ordercast lab` in a process of its own, and the folder that it writes."""

    def __init__(self, folder: Path) -> None:
        (folder / "base.toml").write_text(
            'name = "base"\nfamily = "causal"\nprocesses = 6\nduration = "3s"\nquiet = "1s"\n'
            'options = { tickets = 2, join_wait = "50ms", ownership = "fixed" }\n',
            encoding="utf-8",
        )
        self.file = folder / "e.toml"
        self.file.write_text(
            'name = "e"\nscenario = "base.toml"\nseeds = 7\n[grid]\n"network.loss" = [0.0, 0.1]\n'
            '[keep]\ntraces = "all"\n',
            encoding="utf-8",
        )
        self.folder = folder
        self.runs = 14

    def start(self, out: str, *more: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ordercast", "lab", str(self.file)]
        return subprocess.Popen(
            [*command, "--out", str(self.folder / out), *more],
            cwd=ROOT,
            env={**os.environ, "NO_COLOR": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, out: str, *more: str, **environment: str) -> tuple[int, str, str]:
        with self.start(out, *more, **environment) as program:
            said, narrated = program.communicate(timeout=300)
            return program.returncode, said, narrated

    def manifests(self, out: str) -> dict[str, int]:
        """Each that is there, and when it was written."""
        found = {}
        for path in (self.folder / out / "trials").glob("*.json"):
            found[path.name] = path.stat().st_mtime_ns
        return found

    def wait_for(self, out: str, count: int, program: subprocess.Popen[str]) -> dict[str, int]:
        """The manifests, as soon as there are so many of them."""
        until(lambda: len(self.manifests(out)) >= count, program)
        return self.manifests(out)

    def go_on(self, out: str, spark: Any, traces: str = "all") -> list[Manifest]:
        """What the same command would do, in this process."""
        _, trials = load_experiment(self.file)
        manifests = sweep(spark, trials, self.folder / out, traces)
        write_results(self.folder / out, manifests)
        return manifests

    def results(self, out: str) -> bytes:
        return (self.folder / out / "results.parquet").read_bytes()


def until(condition: Callable[[], object], program: subprocess.Popen[str]) -> None:
    """Waits until it is so, as long as the program runs. The bound is that of the test run."""
    while not condition():
        try:
            program.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"ended with {program.returncode}: {program.stderr.read()[-2000:]}")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture(scope="session")
def undisturbed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The results of Lab's experiment when nothing happens, on two cores of this machine."""
    lab = Lab(tmp_path_factory.mktemp("undisturbed"))
    assert [one.error for one in lab.go_on("out", spark, "none")] == [None] * lab.runs
    return lab.results("out")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a small disk can be had only where mounting is allowed")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)

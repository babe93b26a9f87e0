"""Gossip to millions of processes as rounds: numpy in one process against Spark embedded here.

Each row is a process of its own, with its children: what is counted of CPU and memory is the whole
tree, JVM and Python together. Memory is the largest sum seen (proportional: pages that workers
share count once), looked at four times a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.table import Table
from ordercast.spark.rounds import reach
from ordercast.spark.session import open_session

SIZES = {1_000_000: 10, 10_000_000: 12}  # hops: what the planner says for 0.1 % missed
FAN_OUT = 4
SETTINGS: dict[str, dict[str, Any]] = {
    "everybody known": {"loss": 0.01, "crash": 0.05},
    "views of 20 for ever": {"loss": 0.01, "crash": 0.05, "view_size": 20},
}
SPARK = {"spark.driver.memory": "640m"}
MASTER = "local[2,4]"
LOOK_SECONDS = 0.25
LONGEST_SECONDS = 600


class Cost(NamedTuple):
    curve: list[int]
    wall: float  # from the start of the interpreter, session and all
    rounds_wall: float  # of the rounds alone
    cpu: float
    peak: float  # MB


def measure() -> list[Table]:
    rows: list[tuple[str, ...]] = []
    for processes, hops in SIZES.items():
        for label in SETTINGS:
            costs = {engine: _cost(engine, processes, hops, label) for engine in ("numpy", "spark")}
            assert costs["numpy"].curve == costs["spark"].curve, "the engines differ"
            for engine, cost in costs.items():
                rows.append(
                    (
                        f"{engine}, {label}",
                        f"{processes:,}",
                        f"{cost.curve[-1] / (processes * 0.95):.2%}",
                        f"{cost.wall:.1f}",
                        f"{cost.rounds_wall:.1f}",
                        f"{cost.cpu:.1f}",
                        f"{cost.peak:,.0f}",
                    )
                )
    columns = ("", "processes", "reached", "s in all", "s of rounds", "CPU s", "peak MB")
    note = (
        f"Fan-out {FAN_OUT}, {' and '.join(map(str, SIZES.values()))} hops, 1 % loss, 5 % crashed, "
        "in step. In all: interpreter, JVM and session included, CPU and memory of the whole "
        "process tree. Both engines gave the same curve."
    )
    return [Table("Gossip as rounds", columns, rows, note)]


def _cost(engine: str, processes: int, hops: int, label: str) -> Cost:
    begin = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.rounds", engine, str(processes), str(hops), label],
        stdout=subprocess.PIPE,
        text=True,
    )
    peak = 0.0
    cpu: dict[int, float] = {}  # by process; who ends keeps what he had when last seen
    while child.poll() is None and time.monotonic() - begin < LONGEST_SECONDS:
        tree = _tree(child.pid)
        peak = max(peak, sum(map(_proportional_mb, tree)))
        for pid in tree:
            cpu[pid] = max(cpu.get(pid, 0.0), _cpu_seconds(pid))
        time.sleep(LOOK_SECONDS)
    child.kill()
    told, _ = child.communicate()
    wall = time.monotonic() - begin
    if child.returncode != 0:
        raise RuntimeError(f"{engine} with {processes} processes ended with {child.returncode}")
    answer = json.loads(told.splitlines()[-1])
    cpu[child.pid] = answer["cpu"]
    return Cost(answer["curve"], wall, answer["seconds"], sum(cpu.values()), peak)


def _tree(root: int) -> list[int]:
    """A process and its children, and theirs."""
    found = [root]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:  # it ended
                continue
    return found


def _proportional_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _cpu_seconds(pid: int) -> float:
    """Of itself alone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _run(engine: str, processes: int, hops: int, label: str) -> None:
    if engine == "numpy":
        curve, seconds = _timed(processes, hops, label, None)
    else:
        with open_session(MASTER, light=True, **SPARK) as spark:
            curve, seconds = _timed(processes, hops, label, spark)
    print(json.dumps({"curve": curve, "seconds": seconds, "cpu": time.process_time()}))


def _timed(processes: int, hops: int, label: str, spark: object) -> tuple[list[int], float]:
    begin = time.monotonic()
    curve = reach(processes, FAN_OUT, hops, spark=spark, **SETTINGS[label])
    return curve, time.monotonic() - begin


if __name__ == "__main__":
    _run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])

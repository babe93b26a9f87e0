"""Joining: how long after `open` a node is in its group, if all nodes start at once with one seed.

All nodes are in one process, on loopback, so large groups share one core. The founder is there
before. `python -m bench joining`, or `python -m bench.joining 3 10` for other sizes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import uvloop

from bench.table import Table
from ordercast import Causal, Fifo, Total
from ordercast import open as open_node
from ordercast.kernel.family import Level
from ordercast.net.group import Group
from ordercast.net.node import Node

SIZES = (3, 10, 50)
LEVELS: dict[str, Level] = {"fifo": Fifo(), "causal": Causal(updaters=["n00"]), "total": Total()}
GROUP = "joining"
REPEATS = 3
LONGEST_SECONDS = 120.0
LOOK_SECONDS = 0.01


class Times(NamedTuple):
    """Seconds from the call of `open`."""

    opened: float  # the median of those that joined
    first: float  # in the group, or the first view: the median
    last: float  # the same of the last of them
    whole: float  # until each of them knows all members


class Start:
    """A cluster that starts: its nodes and groups, in the order in which they are opened."""

    def __init__(self, level: Level, folder: Path) -> None:
        self._level = level
        self._folder = folder
        self.nodes: list[Node] = []
        self.groups: list[Group] = []

    async def join(self, number: int, seeds: list[str]) -> tuple[float, float]:
        """Opens a node. Returns when it was open, and when it was in the group."""
        begin = time.monotonic()
        name = f"n{number:02}"
        node = open_node(name=name, data=str(self._folder / name), seeds=seeds)
        await node.__aenter__()
        self.nodes.append(node)
        opened = time.monotonic() - begin
        group = node.join(GROUP, self._level)
        self.groups.append(group)
        await group.ready()
        return opened, time.monotonic() - begin

    async def run(self, members: int) -> Times:
        await self.join(0, [])
        seeds = [f"127.0.0.1:{self.nodes[0].mesh.port}"]
        begin = time.monotonic()
        joined = await asyncio.gather(*(self.join(each, seeds) for each in range(1, members)))
        while any(len(group.members) < members for group in self.groups):
            await asyncio.sleep(LOOK_SECONDS)
        whole = time.monotonic() - begin
        opened, ready = zip(*joined, strict=True)
        return Times(median(opened), median(ready), max(ready), whole)

    async def end(self) -> None:
        """As if all were killed: that they leave one after the other is not measured."""
        await asyncio.gather(*(node.abort() for node in self.nodes))


async def _start(members: int, level: Level, folder: Path) -> Times:
    start = Start(level, folder)
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            return await start.run(members)
    finally:
        await start.end()


def measure_start(family: str, members: int) -> tuple[str, ...]:
    runs = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            try:
                runs.append(uvloop.run(_start(members, LEVELS[family], Path(folder))))
            except TimeoutError:
                late = f"not within {LONGEST_SECONDS:.0f} s"
                return (family, f"{members}", late, "", "", "")
    times = [median(each) for each in zip(*runs, strict=True)]
    return (family, f"{members}", *(f"{seconds:.2f}" for seconds in times))


def measure(sizes: tuple[int, ...] = SIZES) -> list[Table]:
    rows = [measure_start(family, members) for family in LEVELS for members in sizes]
    columns = ("level", "members", "opened", "first view", "of the last", "all know all")
    note = (
        f"Seconds since a node was opened, medians of {REPEATS} starts; the first three columns of "
        "the nodes that joined. A causal group has no views: until the node is in. All nodes share "
        "one process."
    )
    return [Table("From open to the first view, all at once with one seed", columns, rows, note)]


if __name__ == "__main__":
    for table in measure(tuple(map(int, sys.argv[1:])) or SIZES):
        for shown in (table.columns, *table.rows):
            print("  ".join(word.rjust(12) for word in shown))

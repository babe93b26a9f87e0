"""View changes of live groups with virtual synchrony, under load or without: how long they take.

All nodes are in one process, on loopback, so they share one core. A node crashes as if it were
killed; the network is cut at both ends of each path. Times are of the application: until the last
of those who are there has read the view.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from ordercast import Synchrony, View
from ordercast import open as open_node
from ordercast.net.group import Group
from ordercast.net.node import Node
from ordercast.types import Event

GROUP = "changes"
BURST = [bytes(100)] * 100
LONGEST_SECONDS = 30.0
LOOK_SECONDS = 0.001
STEADY_SECONDS = 1.0
"""Of load before a change: what flows then is the full throughput."""


class Flow(NamedTuple):
    """What the members that stay saw of one change under load."""

    seconds: float  # from the fault, or its end, to the view
    share: float  # of the full throughput, delivered meanwhile
    pause: float  # the longest time without a delivery, in seconds
    wait: float  # the longest time that a submission waited for room, in seconds


class Reader:
    """One member: what it reads, and what it sends."""

    def __init__(self, name: str, node: Node, group: Group) -> None:
        self.name = name
        self.node = node
        self.group = group
        self.members: tuple[str, ...] = ()  # of its view
        self.viewed_at = 0.0
        self.deliveries: list[tuple[float, int]] = []  # when, and how many messages
        self.waits: list[tuple[float, float]] = []  # submissions: from when, until when
        self.tasks = [asyncio.create_task(self._read())]

    async def _read(self) -> None:
        while True:
            item = await self.group.next_batch()
            if isinstance(item, Event):
                self.deliveries.append((time.monotonic(), len(item.payloads)))
            elif isinstance(item, View) and not item.transitional:
                self.members = tuple(member.name for member in item.members)
                self.viewed_at = time.monotonic()

    def load(self) -> None:
        """Sends as fast as flow control lets it."""
        self.tasks.append(asyncio.create_task(self._send()))

    async def _send(self) -> None:
        while True:
            begin = time.monotonic()
            await self.group.send_many(BURST)
            self.waits.append((begin, time.monotonic()))
            await asyncio.sleep(0)

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()


class ViewChanges:
    """The members of one group, and what happens to them."""

    def __init__(self, level: Synchrony, folder: Path) -> None:
        self._level = level
        self._folder = folder
        self.readers: dict[str, Reader] = {}

    async def start(self, members: int, port: int) -> None:
        names = [f"n{number:02}" for number in range(members)]
        places = {name: f"127.0.0.1:{port + number}" for number, name in enumerate(names)}
        for name in names:
            peers = {one: place for one, place in places.items() if one != name}
            folder = str(self._folder / name)
            node = open_node(name=name, listen=places[name], peers=peers, data=folder)
            await node.__aenter__()
            group = node.join(GROUP, self._level, names)
            self.readers[name] = Reader(name, node, group)
        await self.view_of(names)

    async def end(self) -> None:
        for reader in self.readers.values():
            reader.stop()
        await asyncio.gather(*(reader.node.abort() for reader in self.readers.values()))

    async def view_of(self, *sides: Iterable[str]) -> float:
        """Waits until the members of each side are in a view of it. When the last one was."""
        wanted = [tuple(side) for side in sides]
        while any(self.readers[name].members != side for side in wanted for name in side):
            await asyncio.sleep(LOOK_SECONDS)
        return max(self.readers[name].viewed_at for side in wanted for name in side)

    def cut(self, *sides: Iterable[str]) -> None:
        """Nothing passes between the sides. One side: the network is whole."""
        for side in map(tuple, sides):
            away = frozenset(self.readers) - frozenset(side)
            for name in side:
                self.readers[name].node.mesh.set_cuts(away, away)

    async def crash(self, victim: str) -> tuple[float, float]:
        """When it crashed, and when the others were in a view without it."""
        reader = self.readers.pop(victim)
        reader.stop()
        begin = time.monotonic()
        await reader.node.abort()
        return begin, await self.view_of(self.readers)

    async def leave(self, victim: str) -> tuple[float, float]:
        reader = self.readers.pop(victim)
        reader.stop()
        begin = time.monotonic()
        await reader.group.leave()
        found = begin, await self.view_of(self.readers)
        await reader.node.abort()
        return found

    async def split_and_merge(self) -> tuple[float, float]:
        """When the network healed after halves had their views, and when all were in one view."""
        names = tuple(self.readers)
        halves = names[: len(names) // 2], names[len(names) // 2 :]
        self.cut(*halves)
        await self.view_of(*halves)
        await asyncio.sleep(STEADY_SECONDS)  # each half goes on by itself
        begin = time.monotonic()
        self.cut(names)
        return begin, await self.view_of(names)

    def flow(self, begin: float, end: float) -> Flow:
        """What flowed between these times, beside the second before."""
        readers = list(self.readers.values())
        full = sum(delivered(one, begin - STEADY_SECONDS, begin) for one in readers)
        meanwhile = sum(delivered(one, begin, end) for one in readers)
        share = meanwhile / (end - begin) / (full / STEADY_SECONDS)
        pause = max(longest_pause(one, begin, end) for one in readers)
        waits = (until - since for one in readers for since, until in one.waits if until >= begin)
        return Flow(end - begin, share, pause, max(waits, default=0.0))


def delivered(reader: Reader, begin: float, end: float) -> int:
    return sum(count for at, count in reader.deliveries if begin <= at < end)


def longest_pause(reader: Reader, begin: float, end: float) -> float:
    """Without a delivery, in a time that overlaps with this one."""
    times = [at for at, _ in reader.deliveries]
    pairs = zip([*times[:1], *times], [*times, max([end, *times[-1:]])], strict=True)
    return max((two - one for one, two in pairs if two > begin and one < end), default=0.0)


Happens = Callable[[ViewChanges], Coroutine[Any, Any, tuple[float, float]]]


def seconds_of(
    happens: Happens, members: int, port: int, level: Synchrony, is_loaded: bool = False
) -> Flow:
    """One change in a group that has just started, with or without load."""

    async def run(folder: Path) -> Flow:
        changes = ViewChanges(level, folder)
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await changes.start(members, port)
                if is_loaded:
                    for reader in changes.readers.values():
                        reader.load()
                await asyncio.sleep(STEADY_SECONDS)
                begin, end = await happens(changes)
                if not is_loaded:
                    return Flow(end - begin, 0.0, 0.0, 0.0)
                await asyncio.sleep(STEADY_SECONDS / 4)  # submissions that waited are through
                return changes.flow(begin, end)
        finally:
            await changes.end()

    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(run(Path(folder)))

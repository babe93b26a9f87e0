"""Totally ordered groups of real nodes: joined, read, cut in parts, and judged by their traces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from tests.net.nodes import GROUP, Cluster, introduce

from ordercast import Atomic, Group, Message, Node, Total, View
from ordercast.check.laws import check
from ordercast.check.verdict import Answer
from ordercast.trace.log import read_log
from ordercast.trace.schema import Ending, Header, Trace

QUICK = Total(prompt_after="5ms", silence_limit="50ms", suspicion_limit="400ms")
"""Notices within half a second who is gone."""
PATIENT = Total(prompt_after="5ms", silence_limit="50ms", suspicion_limit="20s")
"""Suspects nobody while a test runs."""


async def traced(cluster: Cluster, *names: str) -> list[Node]:
    """Nodes that know each other, and write down what they do."""
    nodes = [await cluster.open(name, trace=str(cluster.folder / f"{name}.rows")) for name in names]
    introduce(*nodes)
    return nodes


def join_all(
    *nodes: Node, name: str = GROUP, level: Total | Atomic = QUICK, **hooks: Any
) -> list[Group]:
    names = [node.me.name for node in nodes]
    return [node.join(name, level, names, **hooks) for node in nodes]


async def first_view(group: Group) -> View:
    """The first thing in a stream: the group has formed."""
    view = await anext(group)
    assert isinstance(view, View), view
    return view


async def formed(*nodes: Node, name: str = GROUP, level: Total | Atomic = QUICK) -> list[Group]:
    groups = join_all(*nodes, name=name, level=level)
    views = [await first_view(group) for group in groups]
    assert {view.members for view in views} == {tuple(sorted(node.me for node in nodes))}
    return groups


class Reader:
    """An application that keeps what it is handed; its state is the list of messages."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.views: list[View] = []
        self.others: list[object] = []
        self.error: BaseException | None = None

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.data)

    def restore(self, state: bytes) -> None:
        self.data = msgspec.msgpack.decode(state, type=list[bytes])

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.views[-1].members] if self.views else []

    async def read(self, group: Group) -> None:
        try:
            async for item in group:
                if isinstance(item, Message):
                    self.data.append(item.data)
                elif isinstance(item, View):
                    self.views.append(item)
                else:
                    self.others.append(item)
        except Exception as error:
            self.error = error


class Readers:
    """One a node, each with a task. They end when their groups do."""

    def __init__(self, *nodes: Node, name: str = GROUP, level: Total | Atomic = QUICK) -> None:
        self.readers: list[Reader] = []
        self.groups: list[Group] = []
        self._tasks: list[asyncio.Task[None]] = []
        names = [node.me.name for node in nodes]
        for node in nodes:
            self.add(node, names, name, level)

    def add(
        self, node: Node, names: list[str], name: str = GROUP, level: Total | Atomic = QUICK
    ) -> tuple[Group, Reader]:
        reader = Reader()
        hooks = {"snapshot": reader.snapshot, "restore": reader.restore}
        group = node.join(name, level, names, **hooks)
        self.readers.append(reader)
        self.groups.append(group)
        self._tasks.append(asyncio.create_task(reader.read(group)))
        return group, reader

    async def close(self) -> None:
        for group in self.groups:
            await group.leave()
        await asyncio.gather(*self._tasks)


def part(*sides: list[Node]) -> None:
    """Nothing passes between the sides any more. One side: all is mended."""
    for side in sides:
        others = frozenset(node.me.name for other in sides if other is not side for node in other)
        for node in side:
            node.mesh.set_cuts(others, others)


def judged(folder: Path, family: str = "total") -> dict[str, str]:
    """What the laws say about all that the nodes have written down. None may be broken."""
    rows = [row for path in sorted(folder.glob("*.rows")) for row in read_log(path)]
    header = Header(
        run="nodes",
        family=family,
        parameters={},
        seed=0,
        version="0",
        start=min(row.at for row in rows),
        end=max(row.at for row in rows),
        ending=Ending.FINISHED,
    )
    verdicts = check(Trace(header, rows))
    broken = [verdict for verdict in verdicts if verdict.answer is Answer.BROKEN]
    assert not broken, broken
    return {verdict.law: str(verdict.answer) for verdict in verdicts}

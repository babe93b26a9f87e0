"""Many live nodes in one process, each with its own sockets, told what to do by lines.

    python -m bench.crowd_host FIRST COUNT SEED KEYS

It opens COUNT nodes, numbered from FIRST on, that join one open group. SEED is the address of the
first node; `-`: this process has it. KEYS is a folder with the certificates of all nodes; `-`:
there are none. A driver speaks to it by lines:

    host   -> OPEN address        of its first node; all of its nodes have joined
    driver -> READY
    host   -> READY in why        how many of them are in the group; of one that is not: why
    driver -> SEND count          the updaters among its nodes send so many messages each
    host   -> SENT count          by all of them
    driver -> COUNT
    host   -> COUNTED delivered lost
    driver -> LINKS
    host   -> LINKS count ...     open connections of each node
    driver -> QUIT
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import uvloop

from ordercast import Causal
from ordercast import open as open_node
from ordercast.errors import OrdercastError
from ordercast.net.group import Group
from ordercast.net.message import Message
from ordercast.net.node import Node
from ordercast.net.readiness import waiting_text
from ordercast.units import SECOND, Duration

GROUP = "crowd"
UPDATERS = 5
ROUND = Duration(SECOND)
"""Of gossip. With the default of 50 ms a thousand idle members would be more than two cores do."""
OPENING = 25
"""Nodes that are opened at the same time."""


def name_of(number: int) -> str:
    return f"n{number:04}"


class Crowd:
    def __init__(self, first: int, count: int, seed: str, keys: str, folder: Path) -> None:
        self._numbers = range(first, first + count)
        self._updaters = [name_of(number) for number in range(UPDATERS)]
        self._seed = seed
        self._keys = None if keys == "-" else Path(keys)
        self._folder = folder
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self.nodes: list[Node] = []
        self.groups: list[Group] = []
        self.delivered = 0

    async def open(self) -> None:
        first, *others = self._numbers
        await self._open(first)
        if self._seed == "-":
            self._seed = address_of(self.nodes[0])
        for begin in range(0, len(others), OPENING):
            await asyncio.gather(*map(self._open, others[begin : begin + OPENING]))

    async def _open(self, number: int) -> None:
        name = name_of(number)
        seeds = [] if self._seed == "-" else [self._seed]
        folder = self._folder / name
        tls = {"tls": certificate_of(name, self._keys)} if self._keys is not None else {}
        node = await self._stack.enter_async_context(
            open_node(name=name, data=str(folder), seeds=seeds, **tls)
        )
        group = node.join(GROUP, Causal(updaters=self._updaters, round=ROUND))
        self.nodes.append(node)
        self.groups.append(group)
        self._tasks.append(asyncio.create_task(self._read(group)))

    async def _read(self, group: Group) -> None:
        with suppress(OrdercastError):
            async for item in group:
                self.delivered += isinstance(item, Message)

    async def send(self, count: int) -> int:
        updaters = [group for group in self.groups if group.may_send]
        for number in range(count):
            await asyncio.gather(*(group.send(b"%d" % number) for group in updaters))
        return count * len(updaters)

    def ready(self) -> list[object]:
        out = [group for group in self.groups if not group.readiness.is_in]
        why = [f"{out[0].node.me} {waiting_text(out[0].waiting)}"] if out and out[0].waiting else []
        return [len(self.groups) - len(out), *why]

    def count(self) -> list[int]:
        return [self.delivered, sum(group.status()["counters"]["lost"] for group in self.groups)]

    def links(self) -> list[int]:
        return [len(node.mesh.connections) for node in self.nodes]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(node.abort() for node in self.nodes), return_exceptions=True)


def certificate_of(name: str, keys: Path) -> dict[str, str]:
    files = {"authority": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
    return {what: str(keys / file) for what, file in files.items()}


def address_of(node: Node) -> str:
    return f"127.0.0.1:{node.mesh.port}"


async def main(first: int, count: int, seed: str, keys: str) -> None:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(first, count, seed, keys, Path(folder))
        await crowd.open()
        print("OPEN", address_of(crowd.nodes[0]), flush=True)
        while words := (await loop.run_in_executor(None, sys.stdin.readline)).split():
            match words:
                case ["READY"]:
                    print("READY", *crowd.ready(), flush=True)
                case ["SEND", count]:
                    print("SENT", await crowd.send(int(count)), flush=True)
                case ["COUNT"]:
                    print("COUNTED", *crowd.count(), flush=True)
                case ["LINKS"]:
                    print("LINKS", *crowd.links(), flush=True)
                case _:
                    break
        await crowd.close()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))

"""Live nodes of a feed in one process, each with its own sockets and folder, told by lines of JSON.

python -m bench.feed_host

{"open": {"name", "data", "parent", "seed", "fan_out"}}   a node joins the feed; seed "": it has
                                    none, parent "": it asks anybody. Answers where it listens
{"placed": NAME}                    answers the path to the root, once it has a parent or is it
{"follow": []}                      all nodes here read what comes from now on
{"post": [NAME, COUNT, IN_FLIGHT, PAUSE]}   posts messages that begin with their time; so many
                                    tasks, each pauses between two posts. Answers when it began
{"read": [NAME, COUNT]}             once a node has read so many more messages: when the last of
                                    them came, and how long each took. Nanoseconds
{"level": [NAME, TAIL]}             once its log has so much: when
{"close": NAME}                     the node is closed
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvloop

import ordercast
from ordercast import Feed, LoggedGroup, Node
from ordercast.errors import OrdercastError
from ordercast.types import Event

GROUP = "bench"
STAMP = struct.Struct("<q")
SIZE = 100
LONGEST = 120.0
"""Seconds, for anything that is waited for."""


class Member:
    """One node, and what it has read."""

    def __init__(self, node: Node, feed: LoggedGroup) -> None:
        self.node = node
        self.feed = feed
        self.latencies = array("q")
        self.last = 0  # when the last message came
        self._read = asyncio.Event()
        self._wanted = 0
        self._task: asyncio.Task[None] | None = None

    def follow(self) -> None:
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        reader = self.feed.since("latest")
        with suppress(OrdercastError):
            while True:
                item = await reader.next_batch()
                if isinstance(item, Event):
                    self.last = now = time.monotonic_ns()
                    for data in item.payloads:
                        self.latencies.append(now - STAMP.unpack_from(data)[0])
                    if len(self.latencies) >= self._wanted:
                        self._read.set()

    async def read(self, count: int) -> dict[str, Any]:
        self._wanted = count
        while len(self.latencies) < count:
            self._read.clear()
            await self._read.wait()
        latencies, self.latencies = self.latencies, array("q")
        return {"last": self.last, "latencies": latencies.tolist()}

    async def post(self, count: int, in_flight: int, pause: float) -> dict[str, Any]:
        rest, left, begin = bytes(SIZE - STAMP.size), count, time.monotonic_ns()

        async def go_on() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self.feed.post(STAMP.pack(time.monotonic_ns()) + rest)
                if pause:
                    await asyncio.sleep(pause)

        await asyncio.gather(*(go_on() for _ in range(in_flight)))
        return {"begin": begin}

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self.feed.changed.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await self.node.__aexit__(None, None, None)


class FeedHost:
    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    async def open(
        self, name: str, data: str, parent: str, seed: str, fan_out: int, window: int
    ) -> str:
        seeds = [seed] if seed else []
        node = ordercast.open(name=name, data=data, listen="127.0.0.1:0", seeds=seeds)
        await node.__aenter__()
        feed = node.join(
            GROUP,
            Feed(
                parent=parent,
                fan_out=fan_out,
                moves="none",
                window=int(__import__("os").environ.get("W", "1024")),
            ),
        )
        assert isinstance(feed, LoggedGroup)
        self._members[name] = Member(node, feed)
        return f"127.0.0.1:{node.mesh.port}"

    async def answer(self, what: str, of: Any) -> Any:
        if what == "open":
            return await self.open(**of)
        if what == "follow":
            for member in self._members.values():
                member.follow()
            return None
        if what == "close":
            return await self._members.pop(of).close()
        name, *more = of if isinstance(of, list) else [of]
        member = self._members[name]
        if what == "post":
            return await member.post(*more)
        if what == "read":
            return await member.read(*more)
        if what == "level":
            await member.until(lambda: member.feed.tail >= more[0])
            return time.monotonic_ns()
        assert what == "placed", what
        await member.until(lambda: _is_placed(member.feed))
        return member.feed.status()["place"]["path"]

    async def close(self) -> None:
        for name in list(self._members):
            await self._members.pop(name).node.abort()


def _is_placed(feed: LoggedGroup) -> bool:
    place = feed.status()["place"]
    return bool(place["parent"] or place["is_root"])


async def main() -> None:
    loop, host = asyncio.get_running_loop(), FeedHost()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        ((what, of),) = json.loads(line).items()
        async with asyncio.timeout(LONGEST):
            print(json.dumps(await host.answer(what, of)), flush=True)
    await host.close()


if __name__ == "__main__":
    uvloop.run(main())

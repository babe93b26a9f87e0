"""Several real nodes in one process, on loopback, at ports that the system chose.

    @live
    async def test_something(cluster: Cluster) -> None:
        n1, n2 = await cluster.nodes("n1", "n2")
        first, second = await cluster.join(n1, n2)
        await first.send(b"hello")
        assert await data_of(second, 1) == [b"hello"]

A live test runs on asyncio's own event loop and on uvloop. When it has ended no task may be left,
and nothing may have gone wrong in a callback where nobody would see it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

import ordercast
from ordercast import Fifo, Group, Message, Node, View
from ordercast.net.identity import number_from_zero
from ordercast.types import NodeId
from ordercast.units import MILLISECOND, Duration
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind, FrameReader, frame
from ordercast.wire.greeting import PROTOCOL_VERSION, Hello

GENEROUS = 60  # seconds, for what takes a fraction of one, beside others that start processes
TURNS = 50  # of the loop, without a pause
LOOK_SECONDS = 0.002
GROUP = "orders"
QUICK = Fifo(heartbeat=Duration(10 * MILLISECOND), suspicion_limit=Duration(400 * MILLISECOND))
"""Notices within half a second who is gone."""
PATIENT = Fifo(heartbeat=Duration(10 * MILLISECOND), suspicion_limit=Duration(20_000_000_000))
"""Suspects nobody while a test runs."""


class Cluster:
    def __init__(self, folder: Path, log: pytest.LogCaptureFixture) -> None:
        self.folder = folder
        self.log = log  # what the nodes say at the level of warnings and above
        self._numbered: set[str] = set()
        self._stack = AsyncExitStack()

    async def open(self, name: str, **settings: Any) -> Node:
        """A node that listens, known by nobody yet. The same name again: its next incarnation.

        The first one is 0, unless the test says where its data is.
        """
        if name not in self._numbered and "data" not in settings:
            self._numbered.add(name)
            number_from_zero(self.folder / name)
        settings = {"data": str(self.folder / name), "listen": "127.0.0.1:0"} | settings
        return await self._stack.enter_async_context(ordercast.open(name=name, **settings))

    async def nodes(self, *names: str, **settings: Any) -> list[Node]:
        """Nodes that all know each other."""
        opened = [await self.open(name, **settings) for name in names]
        introduce(*opened)
        return opened

    async def join(self, *nodes: Node, name: str = GROUP, level: Fifo = QUICK) -> list[Group]:
        """All of them join, and have seen the view with everybody."""
        members = [node.me.name for node in nodes]
        groups = [node.join(name, level, members) for node in nodes]
        for group in groups:
            await view_of(group, *members)
        return groups

    async def dial(self, node: Node) -> Caller:
        """A connection to a node with nobody at the other end but the test."""
        caller = Caller(*await asyncio.open_connection("127.0.0.1", node.mesh.port))
        self._stack.push_async_callback(caller.close)
        return caller

    async def open_met_by(self, name: str, **greeting: Any) -> tuple[Node, Caller]:
        """A node n1, to which the test is connected by this name."""
        node = await self.open("n1")
        caller = await self.dial(node)
        await caller.connect(name, **greeting)
        return node, caller

    async def close(self) -> None:
        await self._stack.aclose()


Story = Callable[[Cluster], Awaitable[None]]


def live(test: Story) -> Callable[[str, Path, pytest.LogCaptureFixture], None]:
    """Makes a plain test of one that awaits, to be run on both event loops."""

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def plain(loop: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        cluster = Cluster(tmp_path, caplog)

        async def staged() -> None:
            try:
                await test(cluster)
            finally:
                await cluster.close()

        with caplog.at_level(logging.WARNING, "ordercast.net"):
            run(loop, staged)

    plain.__name__, plain.__doc__, plain.__module__ = test.__name__, test.__doc__, test.__module__
    return plain


def run(loop: str, test: Callable[[], Awaitable[None]]) -> None:
    """Runs to the end, within a generous bound, and leaves nothing behind."""
    unseen: list[dict[str, Any]] = []

    async def bounded() -> None:
        running = asyncio.get_running_loop()
        running.set_exception_handler(lambda _, context: unseen.append(context))
        async with asyncio.timeout(GENEROUS):
            await test()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks that nobody ended: {left}"

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        runner.run(bounded())
    assert not unseen, f"went wrong where nobody looked: {unseen}"


# --- waiting ---------------------------------------------------------------------------------


async def until(condition: Callable[[], object]) -> None:
    """Gives way until it is so. The bound is that of the test.

    What takes more than a few turns of the loop waits for sockets, threads or processes, and these
    need the processor that looking again at once would keep.
    """
    for _ in range(TURNS):
        if condition():
            return
        await asyncio.sleep(0)
    while not condition():
        again = asyncio.Event()
        asyncio.get_running_loop().call_later(LOOK_SECONDS, again.set)
        await again.wait()


async def view_of(group: Group, *names: str) -> View:
    """The next view with exactly these members; messages before it are skipped."""
    async for item in group:
        if isinstance(item, View) and [member.name for member in item.members] == sorted(names):
            return item
    raise AssertionError(f"the stream ended without a view of {names}")


async def messages_of(group: Group, count: int) -> list[Message]:
    """So many messages of the stream, whatever the views between them."""
    found: list[Message] = []
    while len(found) < count:
        item = await anext(group)
        if isinstance(item, Message):
            found.append(item)
    return found


async def data_of(group: Group, count: int) -> list[bytes]:
    return [message.data for message in await messages_of(group, count)]


# --- doing -----------------------------------------------------------------------------------


def place_of(node: Node) -> str:
    return f"127.0.0.1:{node.mesh.port}"


def introduce(*nodes: Node) -> None:
    for node in nodes:
        for other in nodes:
            node.mesh.know(other.me.name, place_of(other))


def limit(*groups: Group, most_unread: int | None = None, **changed: int) -> None:
    """Of what may wait to be sent, and `most_unread`: messages that may wait to be read."""
    for group in groups:
        outbox, inbox = group.queue.outbox, group.stream.inbox
        outbox.limits = msgspec.structs.replace(outbox.limits, **changed)
        inbox.most_count = most_unread or inbox.most_count


def connected(one: Node, other: Node) -> bool:
    """Both think that they are connected, each with this incarnation of the other."""
    return all(
        (contact := here.mesh.contacts.get(there.me.name)) is not None
        and contact.connection is not None
        and contact.node == there.me
        for here, there in ((one, other), (other, one))
    )


def cut_off(node: Node) -> None:
    """Every connection breaks, as when a cable is pulled for a moment."""
    for connection in list(node.mesh.connections):
        connection.transport.abort()


async def kill(node: Node) -> None:
    """The process is gone: no peer is notified, and its sockets just end."""
    await node.abort()


# --- somebody who speaks the protocol by hand --------------------------------------------------


class Caller:
    """One connection to a node, with no node of ours at the other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader(1 << 26)
        self._waiting: list[tuple[int, bytes]] = []

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def say(self, kind: int, body: bytes = b"") -> None:
        self.write(frame(FrameKind(kind), body))

    def greet(self, name: str, incarnation: int = 0, **changed: Any) -> None:
        fields = {"version": PROTOCOL_VERSION, "cluster": "ordercast", "port": 0} | changed
        self.say(FrameKind.HELLO, greeting.encode(Hello(node=NodeId(name, incarnation), **fields)))

    async def hear(self, *kinds: int) -> tuple[int, bytes] | None:
        """The next frame of these kinds (any, if none is named), or None at the end."""
        while True:
            while self._waiting:
                kind, body = self._waiting.pop(0)
                if not kinds or kind in kinds:
                    return kind, body
            try:
                data = await self._reader.read(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self._waiting += [(kind, bytes(body)) for kind, body in self._frames.feed(data)]

    async def connect(
        self, name: str, incarnation: int = 0, received: int = 0, **changed: Any
    ) -> Hello:
        """The whole handshake, from the dialler's side."""
        self.greet(name, incarnation, **changed)
        heard = await self.hear(FrameKind.HELLO)
        assert heard is not None
        self.say(FrameKind.RESUME, greeting.encode(greeting.Resume(received)))
        return greeting.decode(heard[1], Hello)

    async def drain(self) -> None:
        await self._writer.drain()

    def abort(self) -> None:
        """Hangs up in the middle, without a word."""
        self._writer.transport.abort()

    async def refuse(self) -> greeting.Refuse:
        """What the node says before it hangs up."""
        heard = await self.hear(FrameKind.REFUSE)
        assert heard is not None, "it hung up without a reason"
        return greeting.decode(heard[1], greeting.Refuse)

    async def refusal(self) -> str:
        return (await self.refuse()).reason

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

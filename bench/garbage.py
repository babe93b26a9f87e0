"""A node under load from its group while strangers throw garbage at it: `python -m bench.garbage`.

Three processes on loopback. This one is the node that is attacked; a peer in its group sends as
fast as flow control lets it; and an attacker makes 10,000 connections, at most 50 at a time and
from many addresses, so that most of them pass the gate, and sends 1,000,000 datagrams. Printed
are the memory that the node grew by, what its group delivered before and meanwhile, how many of
the peer's heartbeats got through, what the system dropped, and what was refused. Nothing of it
leaves this machine.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

import uvloop

from ordercast import Event, Fifo, Group, Node
from ordercast import open as open_node
from ordercast.net.datagrams import MARK_PLAIN
from ordercast.types import NodeId
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind, frame
from ordercast.wire.greeting import PROTOCOL_VERSION, Hello

CONNECTIONS = 10_000
AT_ONCE = 50
SOURCES = 200  # 127.0.0.2 and so on
DATAGRAMS = 1_000_000
MESSAGE = bytes(100)
BURST = 100
SECONDS = 4.0  # that are measured before and after
MOST_GROWTH = 10 << 20


# --- the peer and the attacker -------------------------------------------------------------------


async def peer(port: int) -> None:
    """Sends to its group for as long as it runs, and takes what comes."""
    with tempfile.TemporaryDirectory() as folder:
        place = {"node": f"127.0.0.1:{port}"}
        async with (
            open_node(name="peer", data=folder, peers=place) as node,
            node.join("bench", Fifo()) as group,
        ):
            reading = asyncio.create_task(drain(group))
            while not reading.done():
                await group.send_many([MESSAGE] * BURST)
                await asyncio.sleep(0)


async def drain(group: Group) -> None:
    while True:
        await group.next_batch()


def greetings(chance: Random) -> list[bytes]:
    """What the strangers say: noise, lies, the beginnings of frames, and nothing at all."""
    stranger = NodeId("stranger")
    foreign = Hello(PROTOCOL_VERSION, "elsewhere", stranger, 1)
    newer = Hello(PROTOCOL_VERSION + 1, "ordercast", stranger, 1)
    return [
        b"",
        chance.randbytes(400),
        b"GET / HTTP/1.1\r\n\r\n",
        frame(FrameKind.HELLO, chance.randbytes(200)),
        frame(FrameKind.HELLO, greeting.encode(foreign)),
        frame(FrameKind.HELLO, greeting.encode(newer)),
        frame(FrameKind.DATA, chance.randbytes(5000)),
        frame(FrameKind.HELLO, bytes(16 << 10))[:10_000],
        b"\xff\xff\xff\xff\x04",
    ]


async def knock(port: int, number: int, data: bytes, slots: asyncio.Semaphore) -> None:
    async with slots:
        source = f"127.0.0.{2 + number % SOURCES}"
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(source, 0)
            )
            writer.write(data)
            async with asyncio.timeout(0.05):  # some wait for an answer, some hang up
                await reader.read(100)
        except (OSError, TimeoutError):
            pass
        else:
            writer.transport.abort()


async def connect(port: int) -> None:
    said = greetings(Random(1))
    slots = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as tasks:
        for number in range(CONNECTIONS):
            tasks.create_task(knock(port, number, said[number % len(said)], slots))


def shout(port: int) -> None:
    chance = Random(2)
    pieces = [chance.randbytes(chance.randrange(600)) for _ in range(500)]
    pieces += [MARK_PLAIN + piece for piece in pieces]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect(("127.0.0.1", port))
        for number in range(DATAGRAMS):
            out.send(pieces[number % len(pieces)])


async def attack(port: int) -> None:
    await asyncio.gather(connect(port), asyncio.to_thread(shout, port))


# --- the node ------------------------------------------------------------------------------------


class Counted:
    """What comes in: messages of the group, and datagrams of the peer, which are heartbeats."""

    def __init__(self, node: Node, group: Group) -> None:
        self._group = group
        self.count = self.heartbeats = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._taken = node.datagrams.receive
        node.datagrams.receive = self._take

    def _take(self, sender: NodeId, body: bytes) -> None:
        self.heartbeats += 1
        self._taken(sender, body)

    async def run(self) -> None:
        while True:
            await self.goes_on.wait()
            item = await self._group.next_batch()
            if isinstance(item, Event):
                self.count += len(item.payloads)

    async def rate(self, ends: asyncio.Task[int] | None = None) -> Rate:
        """For a few seconds or until something ends."""
        begin, count, heartbeats = time.monotonic(), self.count, self.heartbeats
        await (asyncio.sleep(SECONDS) if ends is None else ends)
        seconds = time.monotonic() - begin
        return Rate((self.count - count) / seconds, (self.heartbeats - heartbeats) / seconds)


class Rate(NamedTuple):
    messages: float  # a second
    heartbeats: float


def dropped(port: int) -> int:
    """Datagrams to this port for which the system had no room. Linux only."""
    for line in Path("/proc/net/udp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{port:04X}"):
            return int(fields[-1])
    return 0


def resident() -> int:
    """Bytes of memory that this process has. Linux only."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def child(role: str, node: Node) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.garbage", role, str(node.mesh.port)
    )


async def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            open_node(name="node", data=folder) as node,
            node.join("bench", Fifo(), ["node", "peer"]) as group,
        ):
            sender = await child("peer", node)
            counted = Counted(node, group)
            reading = asyncio.create_task(counted.run())
            try:
                return await measure(node, counted)
            finally:
                reading.cancel()
                sender.terminate()
                await sender.wait()


async def measure(node: Node, counted: Counted) -> int:
    await counted.rate()  # the group forms
    # Its buffers are full once, as they may be at any time: what grows later is not theirs.
    counted.goes_on.clear()
    await asyncio.sleep(1.0)
    counted.goes_on.set()
    await counted.rate()
    before = await counted.rate()
    gc.collect()
    size = highest = resident()
    attacker = await child("attack", node)
    began = time.monotonic()
    ended = asyncio.create_task(attacker.wait())
    rate = asyncio.create_task(counted.rate(ended))
    while not ended.done():
        await asyncio.sleep(0.1)
        highest = max(highest, resident())
    seconds = time.monotonic() - began
    during, after = await rate, await counted.rate()
    gc.collect()
    grown = max(highest, resident()) - size
    print(f"attack      {CONNECTIONS:,} connections, {DATAGRAMS:,} datagrams in {seconds:.1f} s")
    print(f"memory      {size / 2**20:.1f} MiB before; {grown / 2**20:.2f} MiB more at the most")
    for what, place, digits in (("delivered", 0, 0), ("heartbeats", 1, 1)):
        told = [f"{rate[place]:,.{digits}f}/s" for rate in (before, during, after)]
        print(f"{what:<12}{told[0]} before, {told[1]} during, {told[2]} after")
    print(f"dropped     {dropped(node.mesh.port):,} datagrams, by the system")
    print(f"half open   {len(node.mesh.connections)} connections left, 1 of them the peer's")
    for name, count in sorted(node.mesh.counters.items()):
        print(f"  {name:<24}{count:>12,}")
    if attacker.returncode or grown >= MOST_GROWTH:
        print("NOT GOOD: memory grew, or the attacker failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    logging.getLogger("ordercast.net").setLevel(logging.ERROR)
    if len(sys.argv) == 1:
        sys.exit(uvloop.run(main()))
    role, port = {"peer": peer, "attack": attack}[sys.argv[1]], int(sys.argv[2])
    uvloop.run(role(port))

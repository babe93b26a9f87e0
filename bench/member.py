"""One live member under a common workload, so that other systems can be measured beside it.

    python bench/member.py BASE_PORT HOW RANK N

HOW is `message` (one iteration a message) or `batch` (one a batch); after `causal-` it is a causal
cluster in which everybody updates, and `causal2-` one in which two do and the others read. After
`lone-` only the first sends, one message a turn of its loop; after `single-` these do not gather,
so that every message is a batch of its own. After `total-` it is a totally ordered group, after
`prompt-` one whose members are silent for less, after `sequenced-` one with a sequencer; after
`idle-` it has another totally ordered group beside it in which nothing happens, and after `halves-`
half of the load. After `synchrony.agreed-` it is a group with virtual synchrony and this service,
after `multicast.agreed-` one whose events go by multicast.
A driver speaks to it by lines:

    member -> READY
    driver -> GO phase count size rate stamp     rate 0: as fast as flow control lets it
    member -> DONE phase seconds p50_us p99_us bytes
    driver -> QUIT

Bytes are those that it has put on its links in that phase, all frames and peers together.

Every member sends `count` messages of `size` bytes and waits until it has delivered those of all;
who only reads sends none.
With stamp 1 a message begins with its send time, and latencies are told.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ordercast import Causal, Fifo, Synchrony, Total, View
from ordercast import open as open_node
from ordercast.kernel.outbox import Limits
from ordercast.net import send_queue
from ordercast.net.group import Group
from ordercast.net.message import Message
from ordercast.net.node import Node
from ordercast.protocol.cluster.causal_member import Running
from ordercast.protocol.transis.options import SERVICES
from ordercast.types import Event, NodeId
from ordercast.units import MILLISECOND, Duration, Size

STAMP = struct.Struct("<qII")
MOST_MEMBERS = 19
"""Of a group that is measured: ports from the first one on."""
BURST = 100


class Counted:
    """What one member has delivered, and how long it took to come."""

    def __init__(self) -> None:
        self.count = 0
        self.target = 0
        self.latencies: list[int] | None = None
        self.reached = asyncio.Event()
        self.at = 0

    def expect(self, more: int) -> None:
        """So many more deliveries than were expected so far. Some may have come already."""
        self.target += more

    def add(self, payloads: list[bytes]) -> None:
        self.count += len(payloads)
        if self.latencies is not None:
            now = time.monotonic_ns()
            self.latencies += [now - STAMP.unpack_from(data)[0] for data in payloads]
        self._look()

    def one(self) -> None:
        self.count += 1
        self._look()

    def _look(self) -> None:
        if self.target and self.count >= self.target and not self.reached.is_set():
            self.at = time.monotonic_ns()
            self.reached.set()


async def deliver(group: Group, counted: Counted, how: str) -> None:
    if how == "batch":
        while True:
            item = await group.next_batch()
            if isinstance(item, Event):
                counted.add(item.payloads)
    async for item in group:
        if isinstance(item, Message):
            if counted.latencies is None:
                counted.one()
            else:
                counted.add([item.data])


class Sends(Protocol):
    async def send_many(self, messages: list[bytes]) -> object: ...


async def phase(
    group: Sends, counted: Counted, rank: int, senders: int, order: list[str], burst: int = BURST
) -> tuple[float, int, int]:
    """Sends its share as fast as it may, or at a rate, and waits for everybody's."""
    count, size, rate, stamp = int(order[0]), int(order[1]), float(order[2]), order[3] == "1"
    counted.reached.clear()
    counted.latencies = [] if stamp else None
    counted.expect(count * senders)
    if rank >= senders:
        count = 0
    pad = bytes(size - STAMP.size)
    fixed = STAMP.pack(0, rank, 0) + pad
    begin = time.monotonic_ns()
    sent = 0
    while sent < count:
        now = (time.monotonic_ns() - begin) * 1e-9
        due = min(count, int(now * rate) + 1) - sent if rate else min(burst, count - sent)
        if due <= 0:
            await asyncio.sleep(0.001)
            continue
        due = min(due, 200)
        if stamp:
            batch = [STAMP.pack(time.monotonic_ns(), rank, sent + i) + pad for i in range(due)]
        else:
            batch = [fixed] * due
        await group.send_many(batch)
        sent += due
        await asyncio.sleep(0)
    await counted.reached.wait()
    latencies = sorted(counted.latencies or [0])
    p50, p99 = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
    return (counted.at - begin) / 1e9, p50 // 1000, p99 // 1000


def read_lines() -> asyncio.Queue[str]:
    """Standard input, a line at a time, without stopping the event loop."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)

    threading.Thread(target=read, daemon=True).start()
    return lines


async def run_phases(
    group: Sends,
    counted: Counted,
    rank: int,
    senders: int,
    lines: asyncio.Queue[str],
    burst: int = BURST,
    sent: Callable[[], int] = lambda: 0,  # bytes so far
) -> None:
    """Obeys the driver until it says QUIT."""
    print("READY", flush=True)
    while (words := (await lines.get()).split())[0] == "GO":
        before = sent()
        seconds, p50, p99 = await phase(group, counted, rank, senders, words[2:6], burst)
        print("DONE", words[1], f"{seconds:.6f}", p50, p99, sent() - before, flush=True)


class Halves:
    """Two groups, in turn."""

    def __init__(self, groups: list[Group]) -> None:
        self._groups = groups
        self._turn = 0

    async def send_many(self, messages: list[bytes]) -> object:
        self._turn += 1
        return await self._groups[self._turn % len(self._groups)].send_many(messages)


def count_bytes(node: Node) -> Callable[[], int]:
    """Of all frames that are put on links from now on."""
    total, send = 0, node.mesh.send

    def counted(to: NodeId, data: bytes) -> None:
        nonlocal total
        total += len(data)
        send(to, data)

    node.mesh.send = counted  # type: ignore[method-assign]
    return lambda: total


def causal(n: int, updaters: int) -> Causal:
    """For a handful of processes: everybody is told directly, over TCP, and nothing is relayed."""
    return Causal(
        updaters=[f"n{rank}" for rank in range(updaters)],
        tickets=max(updaters, 25),
        transport="status",
        round=Duration(10 * MILLISECOND),
        fan_out=max(1, n - 1),
        hops=0,
        events_per_message=200,
        history=10_000,
        time_to_terminate=Duration(500 * MILLISECOND),
        window_size=Size(4 << 20),
    )


TOTAL = {
    "total": Total(),
    "prompt": Total(prompt_after=Duration(2 * MILLISECOND)),
    "sequenced": Total(by="sequencer"),
    "idle": Total(),
    "halves": Total(),
}
SYNCHRONY = {f"synchrony.{service}": Synchrony(service=service) for service in SERVICES}
MULTICAST = {f"multicast.{service}": service for service in SERVICES}


async def main(base: int, how: str, rank: int, n: int) -> None:
    lines = read_lines()
    kind, _, how = how.rpartition("-")
    alone = kind in ("lone", "single")
    if kind == "single":
        send_queue.LIMITS = Limits(gather_turns=0)
    senders = 1 if alone else 2 if kind == "causal2" else n
    levels = {**TOTAL, **SYNCHRONY}
    if kind in MULTICAST:  # an address for each group that is measured
        place = f"239.192.77.2:{base + MOST_MEMBERS}"
        levels[kind] = Synchrony(service=MULTICAST[kind], multicast=place)
    has_views = alone or not kind or kind in levels
    level = levels.get(kind)
    level = level or (Fifo() if has_views else causal(n, senders))
    peers = {f"n{other}": f"127.0.0.1:{base + other}" for other in range(n) if other != rank}
    with tempfile.TemporaryDirectory() as folder:
        place = f"127.0.0.1:{base + rank}"
        async with (
            open_node(name=f"n{rank}", listen=place, peers=peers, data=folder) as node,
            node.join("bench", level) as group,
        ):
            counted = Counted()
            groups = [group]
            if kind in ("idle", "halves"):
                groups.append(node.join("other", level))
            for each in groups if has_views else ():
                # The first view: the group has formed. With virtual synchrony it begins alone.
                await first_view(each, n if isinstance(level, Synchrony) else 1)
            if not has_views:
                await settled(node, n)
            tasks = [asyncio.create_task(deliver(each, counted, how)) for each in groups]
            load: Sends = Halves(groups) if kind == "halves" else group
            burst, sent = 1 if alone else BURST, count_bytes(node)
            await run_phases(load, counted, rank, senders, lines, burst, sent)
            for task in tasks:
                task.cancel()


async def first_view(group: Group, least: int) -> None:
    async for item in group:
        if isinstance(item, View) and len(item.members) >= least:
            return


async def settled(node: Node, n: int) -> None:
    """Until this member knows where its cluster is, and is connected with everybody."""
    while (
        not isinstance(node.driver.machine("bench").phase, Running)
        or sum(contact.connection is not None for contact in node.mesh.contacts.values()) < n - 1
    ):
        await asyncio.sleep(0.01)
    await asyncio.sleep(1.0)  # the others too


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))

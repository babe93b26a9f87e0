"""What a durable post costs: a feed beside the bare log that it writes, SQLite and NATS JetStream.

Each of them takes posts from several tasks at once and answers each when the disk has it. A post is
a batch of messages: to the bare log an entry, to SQLite a row and to NATS one message with all of
them, so that nobody pays for more than a post. The log and SQLite are written as a node writes, by
the thread of a committer: while it syncs, posts gather, and one more sync serves all of them.

They take turns within one run, so that a busy disk or machine is busy for all of them. Shares are
by turn.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias, cast

import uvloop

import ordercast
from bench.table import Table
from ordercast.errors import DiskError
from ordercast.kernel.log import Appended, Entry
from ordercast.kernel.packet import Packet
from ordercast.net.committer import Committer, Store
from ordercast.protocol import families
from ordercast.store.group_log.log import GroupLog
from ordercast.wire.codec import Codec

Post: TypeAlias = Callable[[list[bytes]], Awaitable[object]]
"""Returns when the disk has it."""

GROUP = "bench"
LEAST_SHARE = 0.7
"""Of the posts a second of the bare log, that a feed is to reach."""
FEED, BARE = "feed", "bare log"
NATS_STARTS = 10.0
"""Seconds."""


class Effort(NamedTuple):
    """How much is measured."""

    batches: tuple[int, ...] = (1, 10, 100)
    sizes: tuple[int, ...] = (100, 1024)
    in_flight: tuple[int, ...] = (64, 1)
    turns: int = 5
    seconds: float = 0.5


class Turn(NamedTuple):
    rate: float  # posts a second
    cpu: float  # microseconds of this process a post


# --- who is measured -----------------------------------------------------------------------------


def failed(error: DiskError) -> None:
    raise error


@asynccontextmanager
async def committed(store: Store) -> AsyncIterator[Post]:
    committer, number = Committer(store, failed), 0

    async def post(messages: list[bytes]) -> None:
        nonlocal number
        number += 1
        size = sum(map(len, messages))
        entry = Entry("n1", 7, number, number - 1, 0, False, None, messages, size, time.time_ns())
        records = [Appended(GROUP, entry)]
        await committer.awaited(lambda done: committer.commit(records, done))

    try:
        yield post
    finally:
        await committer.close()


@asynccontextmanager
async def bare_log(folder: Path) -> AsyncIterator[Post]:
    log = GroupLog(folder / "bare", GROUP, Codec(families.FAMILIES.values()))
    async with committed(log) as post:
        yield post
    log.close()


class SqliteStore:
    """A transaction a sync, as long as posts gathered."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(
            "CREATE TABLE log (position INTEGER PRIMARY KEY, origin TEXT, birth INTEGER,"
            " number INTEGER, prev INTEGER, at INTEGER, payload BLOB)"
        )

    def append(self, records: Sequence[Packet]) -> None:
        if not self._database.in_transaction:
            self._database.execute("BEGIN")
        for record in records:
            one = cast("Appended", record).entry
            payload = one.payloads[0] if len(one.payloads) == 1 else b"".join(one.payloads)
            self._database.execute(
                "INSERT INTO log (origin, birth, number, prev, at, payload)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (one.origin, one.birth, one.number, one.prev, one.at, payload),
            )

    def forget(self, group: str) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        if self._database.in_transaction:
            self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Post]:
    store = SqliteStore(folder / "log.sqlite")
    async with committed(store) as post:
        yield post
    store.close()


@asynccontextmanager
async def feed(folder: Path) -> AsyncIterator[Post]:
    async with (
        ordercast.open(name="n1", data=str(folder / "node"), listen="127.0.0.1:0") as node,
        node.join(GROUP, ordercast.Feed()) as group,
    ):
        assert isinstance(group, ordercast.LoggedGroup)
        await group.ready(60)

        def post(messages: list[bytes]) -> Awaitable[object]:
            return group.post(messages[0]) if len(messages) == 1 else group.post_many(messages)

        yield post


# --- NATS ----------------------------------------------------------------------------------------


class Nats(NamedTuple):
    """What there is of it."""

    missing: str = ""  # why it is not measured
    program: str = ""
    name: str = ""
    syncs: bool = False  # each message is synced before it is acknowledged

    @classmethod
    def find(cls) -> Nats:
        program = shutil.which("nats-server")
        if program is None:
            return cls("NATS is left out: there is no nats-server (Debian: apt install nats-server).")
        try:
            import nats  # noqa: F401
        except ImportError:
            return cls("NATS is left out: its client is missing (pip install nats-py).")
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        version = shown.stdout.rpartition("v")[2].strip()
        with tempfile.TemporaryDirectory() as folder:
            config = cls("", program).config(Path(folder), 4222, syncs=True)
            test = [program, "-c", str(config), "-t"]
            syncs = not subprocess.run(test, capture_output=True, check=False).returncode
        name = f"NATS {version}" if syncs else f"NATS {version}, not synced"
        return cls("", program, name, syncs)

    def config(self, folder: Path, port: int, syncs: bool) -> Path:
        path = folder / "nats.conf"
        always = "sync_interval: always" if syncs else ""
        listen = f"listen: 127.0.0.1:{port}"
        path.write_text(
            f'{listen}\njetstream {{\n store_dir: "{folder / "nats"}"\n {always}\n}}\n', "utf-8"
        )
        return path


@asynccontextmanager
async def jetstream(folder: Path, found: Nats) -> AsyncIterator[Post]:
    import nats  # type: ignore[import-not-found, unused-ignore]

    port = free_port()
    config = found.config(folder, port, found.syncs)
    server = subprocess.Popen([found.program, "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        client: Any = await nats.connect(
            f"nats://127.0.0.1:{port}", max_reconnect_attempts=int(NATS_STARTS / 0.1),
            reconnect_time_wait=0.1,
        )
        stream = client.jetstream()
        await stream.add_stream(name=GROUP, subjects=[GROUP], storage="file")

        async def post(messages: list[bytes]) -> None:
            await stream.publish(GROUP, messages[0] if len(messages) == 1 else b"".join(messages))

        yield post
        await client.close()
    finally:
        server.terminate()
        server.wait(20)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# --- measuring -----------------------------------------------------------------------------------


async def turn(post: Post, messages: list[bytes], in_flight: int, seconds: float) -> Turn:
    """So many tasks post, each one after the other."""
    count, cpu, begin = 0, time.process_time(), time.perf_counter()
    ending = begin + seconds

    async def go_on() -> None:
        nonlocal count
        while time.perf_counter() < ending:
            await post(messages)
            count += 1

    await asyncio.gather(*(go_on() for _ in range(in_flight)))
    passed = time.perf_counter() - begin
    return Turn(count / passed, (time.process_time() - cpu) / count * 1e6)


async def _turns(effort: Effort, found: Nats) -> dict[tuple[str, int, int, int], list[Turn]]:
    measured: dict[tuple[str, int, int, int], list[Turn]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("ORDERCAST_BENCH")) as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            rivals = {
                BARE: await stack.enter_async_context(bare_log(folder)),
                FEED: await stack.enter_async_context(feed(folder)),
                "SQLite": await stack.enter_async_context(sqlite(folder)),
            }
            if not found.missing:
                rivals[found.name] = await stack.enter_async_context(jetstream(folder, found))
            for number in range(effort.turns + 1):  # the first does not count
                for size in effort.sizes:
                    for batch in effort.batches:
                        messages = [os.urandom(size) for _ in range(batch)]
                        for in_flight in effort.in_flight:
                            for rival, post in rivals.items():
                                one = await turn(post, messages, in_flight, effort.seconds)
                                if number:
                                    place = rival, size, batch, in_flight
                                    measured.setdefault(place, []).append(one)
    return measured


def measure(effort: Effort) -> list[Table]:
    found = Nats.find()
    measured = uvloop.run(_turns(effort, found))
    rivals = list(dict.fromkeys(place[0] for place in measured))
    tables = []
    for size in effort.sizes:
        rows, wrong = [], ""
        for in_flight in effort.in_flight:
            for batch in effort.batches:
                bare = [one.rate for one in measured[BARE, size, batch, in_flight]]
                for rival in rivals:
                    turns = measured[rival, size, batch, in_flight]
                    rates = [one.rate for one in turns]
                    shares = sorted(one / other for one, other in zip(rates, bare, strict=True))
                    if rival == FEED and median(shares) < LEAST_SHARE:
                        wrong += f"{in_flight} in flight, batches of {batch}: {median(shares):.0%}; "
                    share = f"{median(shares):.0%} ({100 * shares[0]:.0f}-{100 * shares[-1]:.0f})"
                    rate = median(rates)
                    rows.append(
                        (
                            rival,
                            f"{in_flight}",
                            f"{batch}",
                            "" if rival == BARE else share,
                            f"{rate:,.0f}",
                            f"{rate * batch * size / 1e6:.1f}",
                            f"{median(one.cpu for one in turns):.0f}",
                        )
                    )
        columns = ("", "in flight", "batch", "of the bare log", "posts/s", "MB/s", "CPU µs a post")
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        note = (
            f"Messages of {size} bytes, so many a post; medians of {effort.turns} turns of "
            f"{effort.seconds} s, shares by turn with the least and the greatest. CPU of this "
            f"process, without that of a server. Wanted of a feed: {LEAST_SHARE:.0%} of the bare "
            f"log. Load of the machine at the end: {load}. {found.missing}"
        )
        tables.append(Table(f"Durable posts of {size} bytes a message", columns, rows, note, wrong))
    return tables

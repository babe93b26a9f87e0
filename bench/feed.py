"""What a feed promises about its speed, measured.

    python -m bench feed                      all parts: six minutes
    python -m bench.feed posts tree           some parts
    python -m bench.feed --quick              all parts, too short to be quoted

The parts:
log        entries into the log of a feed beside a recording and SQLite, without a node
posts      posts of one node beside its log, SQLite and NATS JetStream (feed_posts.py)
tree       31 nodes: from post to read, and what all sustain (feed_tree.py)
recovery   a node that was away (feed_recovery.py)
origins    memory with a million origins

Files are made in the folder that ORDERCAST_BENCH names, or else in the system's for temporary
files. Of the log itself: each candidate makes batches durable, one after the other, and returns
when the disk has them. The candidates take turns within one run, so that a busy disk or machine is
busy for all of them; the median of the turns counts. CPU time is beside it, because it does not
depend on the disk.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import feed_posts, feed_recovery, feed_tree
from bench.table import Table, show
from ordercast.kernel.log import Appended, Entry
from ordercast.protocol import families
from ordercast.store.group_log.log import GroupLog
from ordercast.trace.record_log import RecordLog
from ordercast.trace.recording import Record
from ordercast.wire.codec import Codec

BATCHES = (1, 10, 100)
SIZES = (100, 1000)
SECONDS = 0.5
TURNS = 5
ORIGINS = 10
LEAST_SHARE = 0.7
"""Of the entries a second of the bare log, that the log of a feed must reach."""


class Candidate(NamedTuple):
    name: str
    persist: Callable[[int], None]  # so many entries, durable on return
    close: Callable[[], None]


class Turn(NamedTuple):
    rate: float  # entries a second
    cpu: float  # microseconds of CPU time an entry


def feed_log(folder: Path, payload: bytes) -> Candidate:
    log = GroupLog(folder / "feed", "g", Codec(families.FAMILIES.values()))
    numbers = [0] * ORIGINS
    state = [0]

    def persist(count: int) -> None:
        records = []
        for _ in range(count):
            origin = state[0] = (state[0] + 1) % ORIGINS
            before = numbers[origin]
            numbers[origin] = before + 1
            entry = Entry(f"node{origin}", 7, before + 1, before, 5, False, None, [payload])
            records.append(Appended("g", entry))
        log.append(records)
        log.sync()

    return Candidate("log of a feed", persist, log.close)


def bare_log(folder: Path, payload: bytes) -> Candidate:
    """The same form without an index: what the recorder of a node writes."""
    log = RecordLog(folder / "bare")
    state = [0]

    def persist(count: int) -> None:
        records = []
        for _ in range(count):
            number = state[0] = state[0] + 1
            origin = f"node{number % ORIGINS}"
            record = Record(0, "deliver", 0, "n1", 0, "g", origin, 0, number, payloads=[payload])
            records.append(record)
        log.append(records)

    return Candidate("bare log (recording)", persist, log.close)


def sqlite(folder: Path, payload: bytes) -> Candidate:
    database = sqlite3.connect(folder / "log.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute(
        "CREATE TABLE log (position INTEGER PRIMARY KEY, origin TEXT, birth INTEGER,"
        " number INTEGER, prev INTEGER, payload BLOB)"
    )
    state = [0]

    def persist(count: int) -> None:
        rows = []
        for _ in range(count):
            number = state[0] = state[0] + 1
            rows.append((f"node{number % ORIGINS}", 7, number, number - 1, payload))
        database.execute("BEGIN")
        database.executemany(
            "INSERT INTO log (origin, birth, number, prev, payload) VALUES (?, ?, ?, ?, ?)", rows
        )
        database.execute("COMMIT")

    return Candidate("SQLite, WAL, synchronous=FULL", persist, database.close)


CANDIDATES = (feed_log, bare_log, sqlite)


def turn(candidate: Candidate, batch: int, seconds: float) -> Turn:
    count, begin, cpu = 0, time.perf_counter(), time.process_time()
    while (passed := time.perf_counter() - begin) < seconds:
        candidate.persist(batch)
        count += batch
    return Turn(count / passed, (time.process_time() - cpu) / count * 1e6)


class Effort(NamedTuple):
    """How much is measured."""

    seconds: float = SECONDS
    turns: int = TURNS
    posts: feed_posts.Effort = feed_posts.Effort()
    tree: feed_tree.Effort = feed_tree.Effort()
    recovery: feed_recovery.Effort = feed_recovery.Effort()


FULL = Effort()
QUICK = Effort(
    0.01,
    1,
    feed_posts.Effort((1, 10), (100,), (8,), 4, 0.02),
    feed_tree.Effort((4,), 2, 2, 1, 100, 1),
    feed_recovery.Effort((1024,), 2000, 1, 20_000),
)


def log(effort: Effort) -> Iterator[Table]:
    for size in SIZES:
        yield _durable(size, effort.seconds, effort.turns)


PARTS: dict[str, Callable[[Effort], Iterator[Table]]] = {
    "log": log,
    "posts": lambda effort: feed_posts.measure(effort.posts),
    "tree": lambda effort: feed_tree.measure(effort.tree),
    "recovery": lambda effort: feed_recovery.recovery(effort.recovery),
    "origins": lambda effort: feed_recovery.origins(effort.recovery),
}


def measure(parts: tuple[str, ...] = tuple(PARTS), effort: Effort = FULL) -> Iterator[Table]:
    for part in parts:
        yield from PARTS[part](effort)


def _durable(size: int, seconds: float, turns: int) -> Table:
    payload = os.urandom(size)
    found: dict[tuple[str, int], list[Turn]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("ORDERCAST_BENCH")) as name:
        candidates = [make(Path(name), payload) for make in CANDIDATES]
        for _ in range(turns):
            for batch in BATCHES:
                for candidate in candidates:
                    measured = turn(candidate, batch, seconds)
                    found.setdefault((candidate.name, batch), []).append(measured)
        for candidate in candidates:
            candidate.close()
    rows, wrong = [], ""
    feed, bare = candidates[0].name, candidates[1].name
    for batch in BATCHES:
        share = _rate(found[feed, batch]) / _rate(found[bare, batch])
        if share < LEAST_SHARE:
            wrong += f"batches of {batch}: {share:.0%} of the bare log; "
        for candidate in candidates:
            turns_of = found[candidate.name, batch]
            rate = _rate(turns_of)
            rates = [each.rate for each in turns_of]
            rows.append(
                (
                    candidate.name,
                    str(batch),
                    f"{rate:,.0f}",
                    f"{rate * size / 1e6:.1f}",
                    f"{median(each.cpu for each in turns_of):.2f}",
                    f"{(max(rates) - min(rates)) / rate:.0%}",
                    f"{share:.0%}" if candidate.name == feed else "",
                )
            )
    columns = ("", "batch", "entries/s", "MB/s", "µs CPU an entry", "spread", "of the bare log")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    note = f"{turns} turns of {seconds} s; load of the machine at the end: {load}."
    return Table(f"Durable entries of {size} bytes", columns, rows, note, wrong)


def _rate(turns: list[Turn]) -> float:
    return median(each.rate for each in turns)


def main(words: list[str]) -> int:
    wanted = tuple(word for word in words if word != "--quick")
    unknown = [word for word in wanted if word not in PARTS]
    if unknown:
        print(f"no part {unknown[0]!r}: there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    is_wrong = False
    for table in measure(wanted or tuple(PARTS), QUICK if "--quick" in words else FULL):
        show(table)
        is_wrong |= bool(table.wrong)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""How fast a node is level again that was away, and what a million origins cost in memory.

Both begin with logs that are written directly, as the node would have written them: by entries of
other nodes, one message of 100 bytes each.

Recovery: a node joins a feed, and is closed; the log of its parent grows meanwhile; it returns with
its disk. Measured is the time until all that it missed is in its own log, from its start on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.feed_host import GROUP, SIZE
from bench.feed_tree import WINDOW, Hosts, hosts
from bench.table import Table
from ordercast.kernel.log import Appended, Entry
from ordercast.protocol import families
from ordercast.store.group_log.log import GroupLog
from ordercast.store.node_store import log_folder
from ordercast.wire.codec import Codec

PARENT, AWAY = "n1", "n2"
WANTED_RATE = 100_000
MOST_MEMORY = 64 << 20
ORIGINS = 10
AT_ONCE = 10_000
BIRTH = 5
"""Of the streams of all other nodes."""


class Effort(NamedTuple):
    windows: tuple[int, ...] = (WINDOW, 8192)  # of both; what is wanted is for the first
    missed: int = 1_000_000  # entries
    returns: int = 1
    origins: int = 1_000_000


def grow(node: Path, origins: int, first: int, count: int) -> int:
    """Entries of so many origins in turn, numbers from `first` on, into the log of a node that is
    closed. Returns what comes next in it."""
    log = GroupLog(log_folder(node, GROUP), GROUP, Codec(families.FAMILIES.values()))
    payloads, at = [bytes(SIZE)], time.time_ns()
    for begin in range(first, first + count, AT_ONCE):
        records = []
        for number in range(begin, min(begin + AT_ONCE, first + count)):
            turn, origin = divmod(number, origins)
            name = f"x{origin:07}"
            entry = Entry(name, BIRTH, turn + 1, turn, 9, False, None, payloads, SIZE, at)
            records.append(Appended(GROUP, entry))
        log.append(records)
        log.sync()
    tail = log.tail
    log.close()
    return tail


# --- recovery ------------------------------------------------------------------------------------


def recovery(effort: Effort) -> Iterator[Table]:
    rows, found = [], []
    for window in effort.windows:
        each, (rates, costs) = effort.missed, returns(effort, window)
        found.append(median(rates))
        spread = f"{min(rates):,.0f}-{max(rates):,.0f}"
        parent, away = (f"{median(cost):.1f}" for cost in zip(*costs, strict=True))
        rows.append((f"{window}", f"{each:,}", f"{found[-1]:,.0f}", spread, parent, away))
    columns = (
        "window",
        "entries missed",
        "entries/s",
        "least and most",
        "CPU µs, parent",
        "CPU µs, it",
    )
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    note = (
        f"Entries of one message of {SIZE} bytes; {effort.returns} returns with the disk, from the "
        "start of the node until it is level. CPU of each process an entry. Wanted: "
        f"{WANTED_RATE:,} entries/s. Load of the machine at the end: {load}."
    )
    wrong = "" if found[0] >= WANTED_RATE else f"{found[0]:,.0f} entries/s"
    yield Table("A feed: a node that was away", columns, rows, note, wrong)


def returns(effort: Effort, window: int) -> tuple[list[float], list[list[float]]]:
    """Entries a second of each return, and what an entry took of both processes, in µs of CPU."""
    each, rates, costs = effort.missed, [], []
    with hosts(2) as opened:
        grow(opened.folder / PARENT, ORIGINS, 0, ORIGINS)
        level(opened, ORIGINS, window)
        for number in range(effort.returns):
            tail = grow(opened.folder / PARENT, ORIGINS, ORIGINS + number * each, each)
            before = opened.cpu()
            rates.append(each / level(opened, tail, window))
            spent = zip(before, opened.cpu(), strict=True)
            costs.append([(now - then) / each * 1e6 for then, now in spent])
    return rates, costs


def level(opened: Hosts, tail: int, window: int) -> float:
    """Both are there until the second has what the first has: how many seconds it took."""
    seed = opened.open(0, PARENT, window=window)
    opened.ask(PARENT, "placed", PARENT)
    begin = time.monotonic_ns()
    opened.open(1, AWAY, PARENT, seed, window=window)
    seconds = (opened.ask(AWAY, "level", [AWAY, tail]) - begin) / 1e9
    for name in (AWAY, PARENT):
        opened.ask(name, "close", name)
    return seconds


# --- memory --------------------------------------------------------------------------------------


def origins(effort: Effort) -> Iterator[Table]:
    rows = []
    found = []
    for count in (0, effort.origins):
        with hosts(1) as opened:
            begin = time.perf_counter()
            if count:
                grow(opened.folder / PARENT, count, 0, count)
            written = time.perf_counter() - begin
            opened.open(0, PARENT)
            opened.ask(PARENT, "placed", PARENT)
            took = time.perf_counter() - begin - written
            resident, most = opened.memory(PARENT)
            found.append(resident)
            shown = (f"{resident / 1e6:.0f}", f"{most / 1e6:.0f}", f"{took:.1f}")
            rows.append((f"{count:,}", *shown))
    more = found[1] - found[0]
    wrong = "" if more <= MOST_MEMORY else f"{more / 1e6:.0f} MB more"
    note = (
        f"{more / 1e6:.0f} MB more with a log that has an entry of each origin. Resident once the "
        f"node has joined, the most until then, and seconds until it has joined. Wanted: "
        f"{MOST_MEMORY >> 20} MiB more at the most."
    )
    columns = ("origins seen", "resident MB", "most MB", "seconds to join")
    yield Table("A feed: memory with many origins", columns, rows, note, wrong)

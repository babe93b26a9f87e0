"""One slice of a huge run: some of its processes, read and looked at by one task.

Every task reads all of the files, a few columns of them, which is quick (ten million rows a second
on one core), and keeps the rows of its own processes and all submissions. So no row is shuffled,
and a task needs memory for its slice only: 37 bytes a row, and some 200 for each row of the one
process that it is looking at. All columns are read, and so checked for damage, by one task per
segment of the files.

Events are numbered alike in all slices: by group, process history, and the order of submission. So
the events of a stream (what one process history submitted in one group) have consecutive numbers,
and an event's place in its stream can be computed.

process_history.py says what is looked for in the rows; walks.py, what only all slices can show.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ordercast.spark.columns import (
    DELIVER,
    LOSE,
    SUBMIT,
    Doubt,
    Vector,
    by_small_code,
    codes_of,
    integers_of,
    read_part,
    rows_of,
    stamp_entries,
)
from ordercast.spark.vector_events import MEMBERSHIP_KINDS
from ordercast.trace.parquet import PARTS, Pyarrow, load_pyarrow
from ordercast.trace.schema import COLUMN_TYPES, Row

JOIN, VIEW = 3, 4
_KINDS = {"submit": SUBMIT, "deliver": DELIVER, "lose": LOSE, "join": JOIN, "view": VIEW}
_NEEDED = (
    *("run", "process", "incarnation", "step", "at", "kind"),
    *("group", "origin", "number", "view"),
)

PASTS, ORDER, ENTRIES = "pasts", "order", "entries"
"""The passes that a law's proof may need (check/facts.py)."""

COLLECTED_LIMIT = 1_000_000
"""The most rows about members, views and tickets that are brought to the driver."""


class SlicePlan(NamedTuple):
    """What every slice is told. `slice_of` and `counts` are by process, in the order of names."""

    folder: str
    run: str
    durable: bool
    processes: tuple[str, ...]
    groups: tuple[str, ...]
    origins: tuple[str, ...]  # all processes, then others
    counts: tuple[int, ...]
    slice_of: tuple[int, ...]
    slices: int
    walkers: int
    passes: tuple[str, ...]  # what laws ask for beyond a look at each process, see walks.py
    services: tuple[str, ...] = ()  # what services promise that stand in the column


class EventStream(NamedTuple):
    """The events first to last - 1, which one process history submitted in one group."""

    group: int
    first: int
    last: int


class Slice:
    """The rows of a slice: those of a process follow each other, in the order of the file.

    kind, group and origin are codes; `number` of a view row is the view.
    """

    def __init__(self, plan: SlicePlan, number: int) -> None:
        self.plan, self.number_of_slice = plan, number
        self.processes = {name: code for code, name in enumerate(plan.processes)}
        self.groups = {name: code for code, name in enumerate(plan.groups)}
        self.origins = {name: code for code, name in enumerate(plan.origins)}
        self._kinds = dict(_KINDS)
        self.mine = np.array(plan.slice_of) == number
        counts = np.where(self.mine, np.array(plan.counts, np.int64), 0)
        self.ends = np.cumsum(counts)
        self._next = self.ends - counts
        size = int(counts.sum())
        self.incarnation = np.empty(size, np.int32)
        self.step = np.empty(size, np.int64)
        self.at = np.empty(size, np.int64)
        self.kind = np.empty(size, np.int8)
        self.group = np.empty(size, np.int32)
        self.origin = np.empty(size, np.int32)
        self.number = np.empty(size, np.int64)
        self.submitted: list[tuple[Vector, ...]] = []
        self.stamped = True
        self._entries: list[Vector] = []
        self._few: list[Row] = []
        self._first: dict[tuple[int, int], Row] = {}

    def read(self) -> None:
        """All of the files. Doubt if anything is not as it should be."""
        pyarrow = load_pyarrow()
        parts = sorted(Path(self.plan.folder).glob(PARTS))
        seen = 0
        for part in parts:
            for batch, whole in self._batches(pyarrow, part):
                if batch.num_rows:
                    self._take(batch, whole=whole)
                    seen += batch.num_rows
        if seen != sum(self.plan.counts) or np.any(self._next != self.ends):
            raise Doubt

    def _batches(self, pyarrow: Pyarrow, part: Path) -> Iterator[tuple[Any, bool]]:
        """Our segment of the part with all its columns."""
        count = pyarrow.parquet.read_metadata(str(part)).num_row_groups
        cuts = [count * place // self.plan.slices for place in range(self.plan.slices + 1)]
        segments = [
            (range(cuts[0], cuts[self.number_of_slice]), False),
            (range(cuts[self.number_of_slice], cuts[self.number_of_slice + 1]), True),
            (range(cuts[self.number_of_slice + 1], count), False),
        ]
        for groups, whole in segments:
            if groups:
                columns = tuple(COLUMN_TYPES) if whole else _NEEDED
                for batch in read_part(pyarrow, part, self.plan.run, columns, list(groups)):
                    yield batch, whole

    def _take(self, batch: Any, *, whole: bool) -> None:
        nothing = np.full(batch.num_rows, -1, np.int32)
        names = batch.schema.names
        process = codes_of(batch.column("process"), self.processes)
        kind = codes_of(batch.column("kind"), self._kinds)
        group = codes_of(batch.column("group"), self.groups) if "group" in names else nothing
        origin = codes_of(batch.column("origin"), self.origins) if "origin" in names else nothing
        known = [self.plan.processes, self.plan.groups, self.plan.origins]
        if [len(self.processes), len(self.groups), len(self.origins)] != list(map(len, known)):
            raise Doubt  # somebody writes to the file
        number, absent = integers_of(batch, "number")
        incarnation, step, at = (
            integers_of(batch, name)[0] for name in ("incarnation", "step", "at")
        )
        about = kind <= LOSE
        flawed = about & ((group < 0) | (origin < 0))
        if absent is not None:
            flawed |= about & absent
        if flawed.any():
            raise Doubt
        if "view" in names:
            number = np.where(kind == VIEW, integers_of(batch, "view")[0], number)
        own = np.flatnonzero((kind == SUBMIT) & (origin == process))
        told = (process, incarnation, step, at, group, number)
        self.submitted.append(tuple(column[own] for column in told))
        if whole:
            self._take_few(batch, kind, process, incarnation, step)
            self._take_entries(batch, own, group)
        self._place(process, kind, origin, told)

    def _place(
        self, process: Vector, kind: Vector, origin: Vector, told: tuple[Vector, ...]
    ) -> None:
        """Our rows to where those of their process are."""
        mine = np.flatnonzero(self.mine[process])
        mine = mine[by_small_code(process[mine], len(self.mine))]
        of = process[mine]
        counts = np.bincount(of, minlength=len(self.mine))
        begins = np.cumsum(counts) - counts
        if np.any(self._next + counts > self.ends):
            raise Doubt
        to = (self._next - begins)[of] + np.arange(len(mine))
        self._next += counts
        _, incarnation, step, at, group, number = told
        self.incarnation[to] = incarnation[mine]
        self.step[to] = step[mine]
        self.at[to] = at[mine]
        self.kind[to] = np.minimum(kind[mine], np.iinfo(np.int8).max)
        self.group[to] = group[mine]
        self.origin[to] = origin[mine]
        self.number[to] = number[mine]

    # --- the few rows that the reference reads, and tickets ---

    def _take_few(
        self, batch: Any, kind: Vector, process: Vector, incarnation: Vector, step: Vector
    ) -> None:
        """Rows about members, and the first of each incarnation (by step), event and loss."""
        codes = [self._kinds[name] for name in MEMBERSHIP_KINDS if name in self._kinds]
        few = np.flatnonzero(np.isin(kind, codes))
        if len(self._few) + len(few) > COLLECTED_LIMIT:
            raise Doubt
        firsts = [np.flatnonzero(kind == code)[:1] for code in (SUBMIT, DELIVER, LOSE)]
        wanted = np.unique(np.concatenate([few, *firsts]))
        self._few += rows_of(batch.take(wanted))
        order = (
            np.lexsort((incarnation, process))
            if incarnation.any()
            else by_small_code(process, len(self.mine))
        )
        log = process[order].astype(np.int64) << 32 | incarnation[order]
        begins = np.flatnonzero(np.diff(log, prepend=-1))
        lowest = np.minimum.reduceat(step[order], begins)
        ends = np.append(begins[1:], len(order))
        for begin, end, low in zip(begins.tolist(), ends.tolist(), lowest.tolist(), strict=True):
            row = int(order[begin])
            key = int(process[row]), int(incarnation[row])
            known = self._first.get(key)
            if known is None or low < known.step:
                row = int(order[begin + int(np.argmax(step[order[begin:end]] == low))])
                (self._first[key],) = rows_of(batch.slice(row, 1))

    def few_rows(self) -> list[Row]:
        return list(dict.fromkeys([*self._few, *self._first.values()]))

    def _take_entries(self, batch: Any, own: Vector, group: Vector) -> None:
        if ENTRIES not in self.plan.passes or not len(own):
            return
        index, no_index = integers_of(batch, "index")
        entries, stamped = stamp_entries(batch, index, no_index)
        self.stamped = self.stamped and bool(stamped[own].all())
        if self.stamped:
            self._entries.append(np.stack([group[own], index[own], entries[own]], axis=1))

    def entries(self) -> Vector:
        """(group, index, entry) of the submissions of our segment, if all have them."""
        found = self._entries if self.stamped else []
        told: Vector = np.concatenate([np.zeros((0, 3), np.int64), *found])
        return told


class Submissions:
    """All submissions by group, process history and local order: an event is its place here.

    increasing  whether numbers increase along what a process submits in a group; if they do not,
                nothing is proved. If they do, nothing was submitted twice
    """

    def __init__(self, plan: SlicePlan, rows: Slice) -> None:
        columns = zip(*rows.submitted, strict=True)
        process, incarnation, step, at, group, number = map(np.concatenate, columns)
        rows.submitted = []
        self._processes = len(plan.processes)
        senders = max(1, len(plan.groups)) * self._processes
        sender = group.astype(np.int64) * self._processes + process
        order = by_small_code(sender, senders)
        if not in_order(sender[order], incarnation[order], step[order]):
            order = np.lexsort((step, incarnation, sender))
        sender = sender[order]
        self.incarnation, self.step = incarnation[order], step[order]
        self.at, self.number = at[order], number[order]
        same = sender[1:] == sender[:-1]
        self.increasing = bool(np.all(~same | (self.number[1:] > self.number[:-1])))
        self._count = np.bincount(sender, minlength=senders)
        self._first = np.cumsum(self._count) - self._count
        begins = np.ones(len(sender), bool)
        begins[1:] = ~same
        if not plan.durable:
            begins[1:] |= self.incarnation[1:] != self.incarnation[:-1]
        firsts = np.flatnonzero(begins)
        lasts = np.append(firsts, len(sender))[1:].tolist()
        groups = (sender[firsts] // self._processes).tolist()
        self.streams = [
            EventStream(*one) for one in zip(groups, firsts.tolist(), lasts, strict=True)
        ]
        self.firsts = firsts

    def find(self, group: Vector, origin: Vector, number: Vector) -> Vector:
        """By its name, the event; -1 if nobody submitted it."""
        known = (origin < self._processes) & (len(self.number) > 0)
        sender = np.where(known, group.astype(np.int64) * self._processes + origin, 0)
        first, count = self._first[sender], self._count[sender]
        last = max(0, len(self.number) - 1)
        # Numbers are mostly counted up one by one.
        guess = first + number - self.number[np.minimum(first, last)] if len(self.number) else first
        right = known & (guess >= first) & (guess < first + count)
        guess[~right] = 0
        if len(self.number):
            right &= self.number[guess] == number
        guess[~right] = -1
        missed = np.flatnonzero(known & ~right)
        if len(missed):
            missed = missed[np.argsort(sender[missed], kind="stable")]
            for some in np.split(missed, np.flatnonzero(np.diff(sender[missed])) + 1):
                begin = int(self._first[sender[some[0]]])
                end = begin + int(self._count[sender[some[0]]])
                spot = begin + np.searchsorted(self.number[begin:end], number[some])
                there = spot < end
                there[there] = self.number[spot[there]] == number[some][there]
                guess[some] = np.where(there, spot, -1)
        return guess


def in_order(sender: Vector, incarnation: Vector, step: Vector) -> bool:
    """Whether (incarnation, step) increases within every sender."""
    later = (incarnation[1:] > incarnation[:-1]) | (
        (incarnation[1:] == incarnation[:-1]) & (step[1:] > step[:-1])
    )
    return bool(np.all(later | (sender[1:] != sender[:-1])))

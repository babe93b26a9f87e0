"""Events as small numbers, who submitted and delivered them, and the skeleton rows of a run.

Theory of operation. The plain judge of a law stays its only judge. The vector form of a law
chooses the rows that matter, and the plain judge sees these. Such a choice is a row selection: rows
on which the judge must give the same verdict as on the whole run, word by word. For a law that is
kept the selection is nearly empty; where it is broken it holds the break. Every law's `select` says
why the verdict stays. There are two kinds of selection.

  skeleton      all rows about membership, views and tickets, the first row of every incarnation,
                every flawed row, and all rows about a few events (below)
  event-closed  the skeleton rows, and all rows about certain events: what the whole run says of one
                of these events the selection says too, and the judge meets them in the same order

The few events of the skeleton: of every incarnation and group the first event that it has to do
with; of every group the first and the last submission by time; the first that was lost; and all
that were submitted twice. So the skeleton rows have the same incarnations, members, groups and
flaws as the run, and whoever stayed or was connected in the run did so in them.

Numbers of events are in the order of (group, origin, number).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ordercast.check.folders import FolderStart, numbered_folders
from ordercast.check.log import EMPTY
from ordercast.spark.columns import DELIVER, LOSE, SUBMIT, Columns, Vector
from ordercast.trace.schema import Row
from ordercast.types import COUNTER_BITS

MEMBERSHIP_KINDS = (
    *("start", "stop", "crash", "join", "leave", "view", "primary", "parent", "ticket"),
    *("exclude", "suspect"),
)
"""The kinds that are read row by row; there are few of them."""

SPARSE = 4
"""Numbers of events may leave out so many times as many as there are rows."""


class Events:
    """The events of one run.

    rows       the rows that are about an event (local order), and `ids`, their events
    size       one more than the greatest event
    submitted  by event: the row with which its origin submitted it; -1 if there is none
    delivered  the rows of deliveries, `delivered_ids` their events, `delivered_histories` the
               process histories in which they are
    history_of by incarnation: its process history, that is the incarnation itself, or where the
               family is durable, all that have the same data folder
    ranges     the `lose` rows that are about several events, and the first and last of these
    """

    def __init__(self, run: Columns, *, durable: bool) -> None:
        self.run = run
        self.durable = durable
        about = run.kind <= LOSE
        whole = about & (run.group >= 0) & (run.origin >= 0)
        if run.numbered is not None:
            whole &= run.numbered
        self.rows = np.flatnonzero(whole)
        self.incomplete = np.flatnonzero(about & ~whole)
        kind = run.kind[self.rows]
        self.senders = len(run.groups) * len(run.origins)
        sender = run.group[self.rows] * len(run.origins) + run.origin[self.rows]
        self.ids, self.size = _number(sender, run.number[self.rows], self.senders)
        self.history_of = self._folders() if durable else np.arange(len(run.log_process))
        self.histories = int(self.history_of.max(initial=-1)) + 1
        where = kind == DELIVER
        self.delivered = self.rows[where]
        self.delivered_ids = self.ids[where]
        self.delivered_senders = sender[where]
        self.delivered_histories = self.history_of[run.log[self.delivered]]
        where = kind == LOSE
        self.lost, self.lost_ids = self.rows[where], self.ids[where]
        where = kind == SUBMIT
        rows, ids = self.rows[where], self.ids[where]
        own = run.log_process[run.log[rows]] == run.origin_process[run.origin[rows]]
        rows, ids = rows[own], ids[own]
        self.submitted = np.full(self.size, -1, np.int64)
        self.submitted[ids[::-1]] = rows[::-1]  # of several the first stays
        again = self.submitted[ids] != rows
        self.twice = ids[again]
        self.submissions = rows[~again]

    def rows_about(self, events: Vector) -> Vector:
        """All rows about these events, given as a bit an event."""
        found: Vector = self.rows[events[self.ids]]
        rows, first, last = self.ranges
        if not len(rows):
            return found
        before = np.cumsum(np.concatenate([[0], events]))  # so many of them are below each event
        return np.union1d(found, rows[before[last + 1] > before[first]])

    @cached_property
    def ranges(self) -> tuple[Vector, Vector, Vector]:
        after, told = self.run.after
        told = told[self.lost]
        rows, last, after = self.lost[told], self.lost_ids[told], after[self.lost[told]]
        if not len(rows):
            return rows, last, last
        used, sender, number = self._named
        first = last.copy()
        for code in np.unique(sender[np.searchsorted(used, last)]).tolist():
            begin, end = np.searchsorted(sender, [code, code + 1])
            mine = (last >= used[begin]) & (last <= used[end - 1])
            spots = begin + np.searchsorted(number[begin:end], after[mine], side="right")
            first[mine] = np.minimum(used[np.minimum(spots, end - 1)], last[mine])
        return rows, first, last

    @cached_property
    def _named(self) -> tuple[Vector, Vector, Vector]:
        """The events that rows are about, with their senders and numbers. They have the order of
        these."""
        run = self.run
        sender, number = np.full(self.size, -1, np.int64), np.zeros(self.size, np.int64)
        sender[self.ids] = run.group[self.rows].astype(np.int64) * len(run.origins)
        sender[self.ids] += run.origin[self.rows]
        number[self.ids] = run.number[self.rows]
        used = np.flatnonzero(sender >= 0)
        return used, sender[used], number[used]

    def find(self, sender: Vector, number: Vector) -> Vector:
        """Events by sender and number; -1 where no row is about it."""
        used, senders, numbers = self._named
        found = np.full(len(sender), -1, np.int64)
        order = np.argsort(sender, kind="stable")
        codes, begins = np.unique(sender[order], return_index=True)
        bounds = [*begins.tolist(), len(order)]
        for code, begin, end in zip(codes.tolist(), bounds, bounds[1:], strict=False):
            low, high = np.searchsorted(senders, [code, code + 1])
            mine = order[begin:end]
            spots = low + np.searchsorted(numbers[low:high], number[mine])
            there = spots < high
            there[there] = numbers[spots[there]] == number[mine][there]
            found[mine[there]] = used[spots[there]]
        return found

    @cached_property
    def start_rows(self) -> Vector:
        """The start rows of a run in which a process lost its folder; nothing in any other."""
        starts = np.flatnonzero(self.run.kind == self.run.code_of("start"))
        return starts if any(row.cause == EMPTY for row in self.run.rows(starts)) else starts[:0]

    def _folders(self) -> Vector:
        """By incarnation the number of its folder; without a lost one that of its process."""
        run = self.run
        if not len(self.start_rows):
            return run.log_process
        first: dict[tuple[str, int], Row] = {}
        for row in sorted(run.rows(self.start_rows), key=lambda row: row.step):
            first.setdefault((row.process, row.incarnation), row)
        names = map(run.processes.__getitem__, run.log_process.tolist())
        starts = []
        for life in zip(names, run.log_incarnation.tolist(), strict=True):
            started = first.get(life)
            at, cause = (None, None) if started is None else (started.at, started.cause)
            starts.append(FolderStart(life[0], at, cause == EMPTY))
        return np.array(numbered_folders(starts), np.int64)

    def history_starts(self, rows: Vector) -> Vector:
        """Where each process history begins in these rows, in local order; and their number."""
        histories = self.history_of[self.run.log[rows]]
        return np.searchsorted(histories, np.arange(self.histories + 1))

    @cached_property
    def skeleton(self) -> Vector:
        """The skeleton rows, sorted."""
        run = self.run
        kept = [self.incomplete]
        for kind in MEMBERSHIP_KINDS:
            if run.code_of(kind) >= 0:
                kept.append(np.flatnonzero(run.kind == run.code_of(kind)))
        kept += [np.flatnonzero(run.kind == code) for code in run.unknown_kinds]
        kept.append(np.flatnonzero(np.diff(run.log, prepend=-1)))
        few = np.zeros(self.size, bool)
        few[self._few_events()] = True
        kept.append(self.rows_about(few))
        return np.unique(np.concatenate(kept))

    def _few_events(self) -> Vector:
        run = self.run
        found = [self.twice, self.lost_ids[:1]]
        key = run.log[self.rows].astype(np.int64) * len(run.groups) + run.group[self.rows]
        _, first = _first_of_each(key, len(run.log_process) * len(run.groups))
        found.append(self.ids[first])
        at = run.at[self.submissions]
        group = run.group[self.submissions]
        for code in range(len(run.groups)):
            inside = np.flatnonzero(group == code) if len(run.groups) > 1 else slice(None)
            rows, times = self.submissions[inside], at[inside]
            if len(rows):
                ends = rows[[int(times.argmin()), int(times.argmax())]]  # of equal ones the first
                found.append(self.ids[np.searchsorted(self.rows, ends)])
        return np.concatenate(found)


def _number(sender: Vector, number: Vector, senders: int) -> tuple[Vector, int]:
    """Events by their places among all (sender, number), and one more than the greatest place.

    Numbers are counted up from 1 in each incarnation, so mostly a place can be computed.
    """
    if not len(number):
        return np.zeros(0, np.int64), 0
    logs = (int(number.max()) >> COUNTER_BITS) + 1
    if number.min() >= 0 and senders * logs <= SPARSE * len(number) + 1024:
        stream = sender.astype(np.int64)
        if logs > 1:
            stream = stream * logs + (number >> COUNTER_BITS)
        counter = number & ((1 << COUNTER_BITS) - 1) if logs > 1 else number
        last = np.full(senders * logs, -1, np.int64)
        np.maximum.at(last, stream, counter)
        base = np.cumsum(last + 1) - (last + 1)
        size = int(base[-1] + last[-1] + 1)
        if size <= SPARSE * len(number) + 1024:
            return base[stream] + counter, size
    order = np.lexsort((number, sender))
    changed = np.diff(sender[order], prepend=-1) != 0
    changed[1:] |= number[order][1:] != number[order][:-1]
    ids = np.empty(len(number), np.int64)
    ids[order] = np.cumsum(changed) - 1
    return ids, int(np.count_nonzero(changed))


def _first_of_each(keys: Vector, count: int) -> tuple[Vector, Vector]:
    """The different keys, and where each comes first."""
    if count > SPARSE * len(keys) + 1024:
        return np.unique(keys, return_index=True)
    first = np.full(count, -1, np.int64)
    first[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)
    there = np.flatnonzero(first >= 0)
    return there, first[there]


def same_events(ids: Vector) -> Vector:
    """Which entries of a list hold an event that it holds more than once."""
    order = np.argsort(ids, kind="stable")
    alike = ids[order][1:] == ids[order][:-1]
    found = np.zeros(len(ids), bool)
    found[order[1:][alike]] = True
    found[order[:-1][alike]] = True
    return found

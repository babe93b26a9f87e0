"""What the rows of one process of a huge run show, and its process histories for the walks.

Looked at here, as one process is enough for it:

  steps           no step is there twice
  never-falling,  numbers never fall, and never repeat, along the deliveries of each process
  increasing      history and sender
  clock           time never falls from one event row to the next
  created         every delivered event was submitted: at the same process before, elsewhere at
                  an earlier time
  spans           for every two views that follow each other in an incarnation, how many events it
                  delivered between them, and two digests of 64 bits of these
  delivered       how many events each incarnation delivered in each group that it has to do with
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ordercast.spark.columns import DELIVER, SUBMIT, Vector, by_small_code
from ordercast.spark.slices import PASTS, VIEW, Slice, SlicePlan, Submissions, in_order

FACTS = ("steps", "never-falling", "increasing", "clock", "created", "known", "equal-spans")

_SPARSE = 4


class Found:
    """What the processes of a slice show, gathered one by one.

    facts      what holds of all of them so far; `known`: all that they delivered was submitted
    delivered  (group, process, incarnation, how many)
    spans      by group and two views: how many events, and two digests
    first      by event: the time of its first delivery
    """

    def __init__(self, events: Submissions) -> None:
        self.facts = dict.fromkeys(FACTS, True)
        self.delivered: list[tuple[int, int, int, int]] = []
        self.spans: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        self.first = np.full(len(events.number), np.iinfo(np.int64).max)

    def note(self, name: str, holds: object) -> None:
        self.facts[name] = self.facts[name] and bool(holds)


class ProcessHistory:
    """The events that it delivered, and by stream how many of them before each submission."""

    def __init__(self, events: Submissions, process: int, number: int, delivered: Vector) -> None:
        self.process, self.number = process, number
        self.delivered = delivered.astype(np.int32)
        self.before: dict[int, Vector] = {}
        self._events = events
        self._sorted: tuple[Vector, Vector] | None = None

    def submits(self, submitted: Vector, before: Vector) -> None:
        stream = np.searchsorted(self._events.firsts, submitted, side="right") - 1
        for own in np.unique(stream).tolist():
            self.before[own] = before[stream == own].astype(np.int32)

    def past(self, own: int, stream: int) -> Vector:
        """For each event of its stream `own`: how far it had delivered the stream before.

        A submitter knows its own events by submitting them.
        """
        if own == stream:
            return np.arange(len(self.before[own]), dtype=np.int32)
        if self._sorted is None:
            streams = np.searchsorted(self._events.firsts, self.delivered, side="right") - 1
            count = len(self._events.firsts)
            order = by_small_code(streams, count)
            self._sorted = order, np.searchsorted(streams[order], np.arange(count + 1))
        order, cuts = self._sorted
        spots = order[cuts[stream] : cuts[stream + 1]]
        reached = np.zeros(len(spots) + 1, np.int32)
        places = self.delivered[spots] - np.int32(self._events.firsts[stream] - 1)
        np.maximum.accumulate(places, out=reached[1:])
        found: Vector = reached[np.searchsorted(spots, self.before[own])]
        return found


class ProcessRows:
    """The rows of one process in local order."""

    def __init__(self, rows: Slice, code: int) -> None:
        inside = slice(int(rows.ends[code]) - rows.plan.counts[code], int(rows.ends[code]))
        names = ("incarnation", "step", "at", "kind", "group", "origin", "number")
        columns = [getattr(rows, name)[inside] for name in names]
        alone = np.zeros(len(columns[0]), np.int8)
        self.steps = in_order(alone, columns[0], columns[1])
        if not self.steps:
            order = np.lexsort((columns[1], columns[0]))
            columns = [column[order] for column in columns]
            self.steps = in_order(alone, columns[0], columns[1])
        self.code = code
        self.incarnation, self.step, self.at, self.kind = columns[:4]
        self.group, self.origin, self.number = columns[4:]
        self.deliveries = np.flatnonzero(self.kind == DELIVER)
        begins = np.flatnonzero(np.diff(self.incarnation)) + 1
        self.logs = [0, *begins.tolist(), len(self.kind)]

    def ends_of_folders(self, plan: SlicePlan) -> list[int]:
        """Where the rows begin that were written with another data folder; and where they end."""
        new = plan.folders_of(self.code)
        begins = [at for at in self.logs[1:-1] if int(self.incarnation[at]) in new]
        return [0, *begins, len(self.kind)]


def judge_process(
    plan: SlicePlan, rows: Slice, events: Submissions, found: Found, code: int
) -> Iterator[ProcessHistory]:
    """Adds what one process shows, and gives its process histories."""
    one = ProcessRows(rows, code)
    found.note("steps", one.steps)
    if not one.steps:
        return
    times = one.at[one.kind <= DELIVER]
    found.note("clock", np.all(times[1:] >= times[:-1]))
    ends = one.ends_of_folders(plan) if plan.durable else one.logs
    _judge_sequences(plan, one, found, ends)
    _count_deliveries(plan, one, found)
    _judge_spans(one, found)
    if not events.increasing:
        return
    there = one.deliveries
    ids = events.find(one.group[there], one.origin[there], one.number[there])
    if np.any(ids < 0):
        found.note("known", False)
        return
    found.note("created", _created(one, events, ids))
    cuts = np.searchsorted(there, ends).tolist()
    own = np.flatnonzero((one.kind == SUBMIT) & (one.origin == code))
    submitted = events.find(one.group[own], one.origin[own], one.number[own])
    own_cuts = np.searchsorted(own, ends).tolist()
    for number in range(len(ends) - 1):
        inside = slice(cuts[number], cuts[number + 1])
        history = ProcessHistory(events, code, number, ids[inside])
        times = one.at[there[inside]]
        # An event twice would need more care, but then no law that asks for this is proved.
        found.first[history.delivered] = np.minimum(found.first[history.delivered], times)
        mine = slice(own_cuts[number], own_cuts[number + 1])
        if PASTS in plan.passes and mine.start < mine.stop:
            history.submits(submitted[mine], np.searchsorted(there[inside], own[mine]))
        yield history


def _judge_sequences(plan: SlicePlan, one: ProcessRows, found: Found, ends: list[int]) -> None:
    there = one.deliveries
    senders = len(plan.groups) * len(plan.origins)
    key = one.group[there].astype(np.int64) * len(plan.origins) + one.origin[there]
    if len(ends) > 2:
        key += (np.searchsorted(ends, there, side="right") - 1) * senders
    order = by_small_code(key, max(1, senders * (len(ends) - 1)))
    key, number = key[order], one.number[there][order]
    same = key[1:] == key[:-1]
    found.note("never-falling", not np.any(same & (number[1:] < number[:-1])))
    found.note("increasing", not np.any(same & (number[1:] <= number[:-1])))


def _created(one: ProcessRows, events: Submissions, ids: Vector) -> bool:
    there = one.deliveries
    near = one.origin[there] == one.code
    late = events.at[ids] >= one.at[there]
    mine, rows = ids[near], there[near]
    late[near] = (events.incarnation[mine] > one.incarnation[rows]) | (
        (events.incarnation[mine] == one.incarnation[rows]) & (events.step[mine] >= one.step[rows])
    )
    return not late.any()


def _count_deliveries(plan: SlicePlan, one: ProcessRows, found: Found) -> None:
    """A log has to do with a group if it has a row there about an event, a join or a view."""
    groups = len(plan.groups)
    if not groups:
        return
    about = np.flatnonzero((one.kind <= VIEW) & (one.group >= 0))
    log = np.searchsorted(one.logs, about, side="right") - 1
    key = log * groups + one.group[about]
    size = (len(one.logs) - 1) * groups
    if size > _SPARSE * len(key) + 1024:
        there, key = np.unique(key, return_inverse=True)
    else:
        there = np.arange(size)
    rows = np.bincount(key, minlength=len(there))
    delivered = np.bincount(key[one.kind[about] == DELIVER], minlength=len(there))
    for spot in np.flatnonzero(rows).tolist():
        number, group = divmod(int(there[spot]), groups)
        incarnation = int(one.incarnation[one.logs[number]])
        found.delivered.append((group, one.code, incarnation, int(delivered[spot])))


def _judge_spans(one: ProcessRows, found: Found) -> None:
    views = np.flatnonzero((one.kind == VIEW) & (one.group >= 0))
    if not len(views):
        return
    there = one.deliveries
    digests = [_mixed(one.origin[there], one.number[there], seed) for seed in _SEEDS]
    for begin, end in zip(one.logs, one.logs[1:], strict=False):
        of_log = views[slice(*np.searchsorted(views, (begin, end)))]
        for group in np.unique(one.group[of_log]).tolist():
            mine = of_log[one.group[of_log] == group]
            inside = np.arange(*np.searchsorted(there, (begin, end)))
            inside = inside[one.group[there[inside]] == group]
            cuts = np.searchsorted(there[inside], mine)
            sums = [_running(digest[inside])[cuts] for digest in digests]
            names = one.number[mine].tolist()
            for at in range(len(mine) - 1):
                key = group, names[at], names[at + 1]
                held = (
                    int(cuts[at + 1] - cuts[at]),
                    int(sums[0][at] ^ sums[0][at + 1]),
                    int(sums[1][at] ^ sums[1][at + 1]),
                )
                found.note("equal-spans", found.spans.setdefault(key, held) == held)


_SEEDS = (
    (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    (0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB),
)


def _mixed(origin: Vector, number: Vector, seed: tuple[int, int, int]) -> Vector:
    """64 bits for each event, as good as random (Steele, Lea and Flood, SplitMix, 2014)."""
    by_origin, by_number, start = map(np.uint64, seed)
    mixed: Vector = origin.astype(np.uint64) * by_origin
    mixed += number.astype(np.uint64) * by_number
    mixed ^= start
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _running(digest: Vector) -> Vector:
    found = np.zeros(len(digest) + 1, np.uint64)
    np.bitwise_xor.accumulate(digest, out=found[1:])
    return found

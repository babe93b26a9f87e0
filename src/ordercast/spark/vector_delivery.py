"""Facts about the order of deliveries: falling numbers, repetitions, one order, a clock.

Where numbers increase strictly along each process history's deliveries of a sender, nothing falls
and nothing is repeated.

One order is looked for as a number that increases along every sequence of deliveries: where each
event was first delivered in the file, or at what time. One is enough to prove it. If there is none,
two sequences that contradict each other are searched for, and then events are merged.

A clock is a number a row that never falls within a process and grows from every submission to its
deliveries. Where there is one, nothing was delivered before it was submitted. The place in the file
is one if the writer wrote as things happened; otherwise time is tried, and put right where it is
wrong by a few steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from ordercast.check.order import PAIR_SEARCH_LIMIT, merge
from ordercast.spark.columns import Vector, by_small_code
from ordercast.spark.vector_events import Events, same_events
from ordercast.types import COUNTER_BITS

NOTHING: Vector = np.arange(0)
"""The row selection of a law that is kept."""

CLOCK_ROUNDS = 16
"""How often times are put right before the plain judge has to follow the logs."""


class Sequences:
    """Deliveries by process history and sender, in local order: `order` sorts them so."""

    def __init__(self, events: Events) -> None:
        history = events.delivered_histories.astype(np.int64)
        key = history * events.senders + events.delivered_senders
        self.order = by_small_code(key, max(1, events.histories * events.senders))
        key = key[self.order]
        self.ids = events.delivered_ids[self.order]
        same = key[1:] == key[:-1]
        step = np.diff(self.ids)
        self.falls = np.flatnonzero(same & (step < 0))  # the entry after it is too small
        self.repeats = np.flatnonzero(same & (step == 0))
        self.key = key

    @property
    def increasing(self) -> bool:
        return not len(self.falls) and not len(self.repeats)


def falling_pairs(events: Events, sequences: Sequences) -> Vector:
    pairs = np.unique(np.concatenate([sequences.falls, sequences.falls + 1]))
    return np.sort(events.delivered[sequences.order[pairs]])


def repetitions(events: Events, sequences: Sequences) -> Vector:
    if sequences.increasing:
        return NOTHING
    suspicious = np.unique(sequences.key[np.concatenate([sequences.falls, sequences.repeats])])
    inside = np.flatnonzero(np.isin(sequences.key, suspicious))
    history = events.delivered_histories[sequences.order[inside]].astype(np.int64)
    again = inside[same_events(history * events.size + sequences.ids[inside])]
    return np.sort(events.delivered[sequences.order[again]])


# --- submissions and deliveries ---


def find_clock(events: Events) -> Vector | None:
    """A number for every row that follows what happened, or None if none was found."""
    run = events.run
    source = events.submitted[events.delivered_ids]
    known = source >= 0
    row, source = events.delivered[known], source[known]
    process = run.log_process[run.log]
    near = process[row] == process[source]
    if np.any(source[near] >= row[near]):
        return None  # somebody delivers its own event before it submits it
    same = process[1:] == process[:-1]
    falls = same & (run.place[1:] < run.place[:-1])
    if not falls.any() and bool(np.all(run.place[source] < run.place[row])):
        return run.place
    starts = np.flatnonzero(np.diff(process, prepend=-1)).tolist()
    ends = [*starts[1:], run.count]
    row, source = row[~near], source[~near]
    clock = run.at.copy()
    for _ in range(CLOCK_ROUNDS):
        for begin, end in zip(starts, ends, strict=True):
            np.maximum.accumulate(clock[begin:end], out=clock[begin:end])
        late = clock[source] >= clock[row]
        if not late.any():
            return clock
        clock[row[late]] = clock[source[late]] + 1
    return None


def never_submitted(events: Events) -> Vector:
    """The deliveries of events that nobody is known to have submitted."""
    found: Vector = events.delivered[events.submitted[events.delivered_ids] < 0]
    return found


def first_surpassed(events: Events, deliveries: Vector) -> Vector:
    """The first of these whose origin's log goes on, and a submission that shows how far."""
    last = events.submissions[np.argsort(_log_and_number(events, events.submissions))]
    found = np.searchsorted(
        _log_and_number(events, last), _log_and_number(events, deliveries), side="right"
    )
    ahead = found < len(last)
    later = last[np.minimum(found, len(last) - 1)] if len(last) else deliveries
    goes_on = ahead & (_log(events, later) == _log(events, deliveries))
    if not goes_on.any():
        return NOTHING
    first = int(goes_on.argmax())
    return np.array([deliveries[first], later[first]])


def _log(events: Events, rows: Vector) -> Vector:
    """Which log a submission stands in, by group, origin and incarnation."""
    run = events.run
    sender = run.group[rows].astype(np.int64) * len(run.origins) + run.origin[rows]
    return np.stack([sender, run.number[rows] >> COUNTER_BITS], axis=1).view(_PAIR)[:, 0]


_PAIR = np.dtype([("sender", np.int64), ("log", np.int64)])


def _log_and_number(events: Events, rows: Vector) -> Vector:
    """Events are numbered in the order of sender and number, and so of the log."""
    return events.ids[np.searchsorted(events.rows, rows)]


# --- one order ---


class Segments(NamedTuple):
    """Sequences of deliveries, without repetitions: `starts` says where each begins, and the end.

    `views`: the view row that each delivery belongs to, where views are compared.
    """

    rows: Vector
    ids: Vector
    starts: Vector
    views: Vector | None = None


def history_segments(events: Events, sequences: Sequences) -> Segments:
    rows, ids = _first_deliveries(events, sequences, events.delivered_histories)
    return Segments(rows, ids, events.history_starts(rows))


def view_segments(events: Events, sequences: Sequences, views: Vector) -> Iterator[Segments]:
    """View by view, in the order in which they are met; but for views with one segment."""
    run = events.run
    rows, ids = _first_deliveries(events, sequences, run.log[events.delivered])
    within = views_of(events, views, rows)
    inside = np.flatnonzero(within >= 0)
    key = _numbered_views(events, views)
    order = inside[np.lexsort((inside, within[inside], key[within[inside]]))]
    rows, ids, within = rows[order], ids[order], within[order]
    bounds = np.flatnonzero(np.diff(key[within], prepend=-1, append=-1))
    for begin, end in pairwise(bounds.tolist()):
        segment = within[begin:end]
        starts = np.append(np.flatnonzero(np.diff(segment, prepend=-1)), end - begin)
        if len(starts) > 2:
            yield Segments(rows[begin:end], ids[begin:end], starts, views[segment])


def disorder(events: Events, segments: Segments, scratch: Vector) -> Vector:
    """Of segments that no order suits the deliveries that matter, and their views.

    `scratch` has LAST for every event, and is left so.
    """
    some = _entries_in_disorder(events, segments, scratch)
    rows: Vector = segments.rows[some]
    if segments.views is None or not len(some):
        return rows
    return np.unique(np.concatenate([rows, segments.views[some]]))


def _entries_in_disorder(events: Events, segments: Segments, scratch: Vector) -> Vector:
    rows, ids, starts, _ = segments
    same = np.ones(max(0, len(rows) - 1), bool)
    inner = starts[(starts > 0) & (starts < len(rows))]
    same[inner - 1] = False
    for column in (events.run.place, events.run.at):  # either may be the order that all agree with
        np.minimum.at(scratch, ids, column[rows])
        along = scratch[ids]
        scratch[ids] = LAST
        if not np.any(same & (along[1:] <= along[:-1])):
            return NOTHING
    pair = _contradiction(ids, starts, events.size)
    if pair is not None:
        return pair
    lists = [ids[begin:end].tolist() for begin, end in pairwise(starts.tolist())]
    left = merge(lists)
    kept = [np.arange(end - len(rest), end) for rest, end in zip(left, starts[1:], strict=True)]
    return np.concatenate([NOTHING, *kept])


LAST = np.iinfo(np.int64).max
"""Later than anything."""


def _first_deliveries(
    events: Events, sequences: Sequences, histories: Vector
) -> tuple[Vector, Vector]:
    """The rows of deliveries and their events, repetitions within a history left out."""
    rows, ids = events.delivered, events.delivered_ids
    if sequences.increasing:
        return rows, ids
    key = histories.astype(np.int64) * events.size + ids
    first = np.sort(np.unique(key, return_index=True)[1])
    return rows[first], ids[first]


def _contradiction(ids: Vector, starts: Vector, size: int) -> Vector | None:
    """Two deliveries of each of the first two segments that contradict each other."""
    bounds = [(begin, end) for begin, end in pairwise(starts.tolist()) if end > begin]
    where = np.full(size, -1, np.int64)
    looks = 0
    for (begin, end), (other, last) in combinations(bounds, 2):
        looks += end - begin
        if looks > PAIR_SEARCH_LIMIT:
            return None
        where[ids[other:last]] = np.arange(other, last)
        there = where[ids[begin:end]]
        where[ids[other:last]] = -1
        both = np.flatnonzero(there >= 0)
        falls = np.flatnonzero(np.diff(there[both]) < 0)
        if len(falls):
            ahead, then = both[falls[0]], both[falls[0] + 1]
            return np.sort([begin + ahead, begin + then, there[then], there[ahead]])
    return None


def views_of(events: Events, views: Vector, rows: Vector) -> Vector:
    """By delivery: the last view of its group that its writer installed before; -1 for none."""
    run = events.run
    found = np.full(len(rows), -1, np.int64)
    group, delivered = run.group[views], run.group[rows]
    for code in range(len(run.groups)):
        mine, theirs = np.flatnonzero(group == code), np.flatnonzero(delivered == code)
        if len(mine) and len(theirs):
            at = np.searchsorted(views[mine], rows[theirs]) - 1
            last = mine[np.maximum(at, 0)]
            known = (at >= 0) & (run.log[views[last]] == run.log[rows[theirs]])
            found[theirs[known]] = last[known]
    return found


def _numbered_views(events: Events, views: Vector) -> Vector:
    """Small numbers: equal where group and identity are, in the order in which they are met."""
    numbers = events.run.views(views).tolist()
    groups = events.run.group[views].tolist()
    met: dict[tuple[int, int], int] = {}
    found = [met.setdefault(one, len(met)) for one in zip(groups, numbers, strict=True)]
    return np.array(found, np.int64)

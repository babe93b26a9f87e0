"""Facts about logs that are durable: replies before their originals, gaps, and what was given up.

A stream is what one process history submitted in one group: its log there. An event has a place in
its stream, in the order of numbers. What a process history gave up of a stream are spans of places,
each with the row that says so.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from ordercast.check.given_up import NumberSpans
from ordercast.spark.columns import DELIVER, Vector
from ordercast.spark.vector_events import Events

Losses: TypeAlias = dict[int, list[tuple[int, int, int]]]
"""By process history: the row, and the first and last event that it gives up, in local order."""


def losses(events: Events) -> Losses:
    """All that was given up. A range may hold events that no row is about."""
    found: Losses = {}
    rows, first, last = events.ranges
    single = ~np.isin(events.lost, rows)
    rows = np.concatenate([events.lost[single], rows])
    first = np.concatenate([events.lost_ids[single], first])
    last = np.concatenate([events.lost_ids[single], last])
    order = np.argsort(rows)
    rows, first, last = rows[order], first[order], last[order]
    histories = events.history_of[events.run.log[rows]].tolist()
    told = zip(rows.tolist(), first.tolist(), last.tolist(), strict=True)
    for history, one in zip(histories, told, strict=True):
        found.setdefault(history, []).append(one)
    return found


# --- gaps ---


class Places(NamedTuple):
    """By event: the stream that it is in, and its place there from 0; -1: in none.

    `events`: those of all streams, one after the other; `firsts`: by stream, where it begins there.
    """

    stream: Vector
    place: Vector
    events: Vector
    firsts: Vector


def places_of(events: Events) -> Places:
    run = events.run
    ids = events.ids[np.searchsorted(events.rows, events.submissions)]
    key = events.history_of[run.log[events.submissions]].astype(np.int64) * len(run.groups)
    key += run.group[events.submissions]
    order = np.lexsort((run.number[events.submissions], key))
    ids, key = ids[order], key[order]
    begins = np.diff(key, prepend=-1) != 0
    firsts = np.flatnonzero(begins)
    numbers = np.cumsum(begins) - 1
    stream, place = np.full(events.size, -1, np.int64), np.full(events.size, -1, np.int64)
    stream[ids] = numbers
    place[ids] = np.arange(len(ids)) - firsts[numbers]
    return Places(stream, place, ids, firsts)


def first_silent_gap(events: Events) -> Vector:
    places = places_of(events)
    known = np.flatnonzero(places.stream[events.delivered_ids] >= 0)
    ids = events.delivered_ids[known]
    streams = max(1, len(places.firsts))
    key = events.delivered_histories[known].astype(np.int64) * streams + places.stream[ids]
    order = np.argsort(key, kind="stable")
    key, place = key[order], places.place[ids[order]]
    # Up to which place all is known, if all gaps so far were given up: a running maximum by key,
    # which one over all finds if those of a later key are greater than those of an earlier one.
    span = int(place.max(initial=0)) + 2
    rank = np.cumsum(np.diff(key, prepend=-1) != 0) * span
    reached = np.maximum.accumulate(rank + place + 1) if len(key) else rank
    before = np.concatenate([[0], reached[:-1]])[: len(key)]
    before = np.maximum(before - rank, 0)
    jumps = np.flatnonzero(place > before)
    if not len(jumps):
        return np.arange(0)
    rows = events.delivered[known[order[jumps]]]
    first_of_all = np.argsort(rows)
    given_up = losses(events)
    unsaid = _Unsaid(events, places, given_up)
    for jump in first_of_all.tolist():
        at = int(order[jumps[jump]])
        event = int(ids[at])
        missing = unsaid.find(
            int(events.delivered_histories[known[at]]),
            int(rows[jump]),
            event,
            int(before[jumps[jump]]),
        )
        if missing is not None:
            chosen = np.zeros(events.size, bool)
            chosen[[missing, event]] = True
            return events.rows_about(chosen)
    return np.arange(0)


class _Unsaid:
    """What was skipped and not given up: asked row by row in local order."""

    def __init__(self, events: Events, places: Places, given_up: Losses) -> None:
        self._places, self._given_up = places, given_up
        self._taken: dict[int, int] = {}  # by history: so many of its losses are in the spans
        self._spans: dict[int, NumberSpans] = {}

    def find(self, history: int, row: int, event: int, place: int) -> int | None:
        """The first event of the stream from this place on, before this one, that is missing."""
        spans = self._spans.setdefault(history, NumberSpans())
        told = self._given_up.get(history, [])
        taken = self._taken.get(history, 0)
        while taken < len(told) and told[taken][0] < row:
            spans.add(told[taken][1], told[taken][2], 0)
            taken += 1
        self._taken[history] = taken
        first = int(self._places.firsts[self._places.stream[event]])
        last = first + int(self._places.place[event])
        for one in self._places.events[first + place : last].tolist():
            if spans.find(one) is None:
                return int(one)
        return None


# --- replies ---


def early_replies(events: Events) -> Vector:
    run = events.run
    origin, number, half = run.replies
    flawed = np.flatnonzero(half & (run.kind <= DELIVER))
    if len(flawed):
        return flawed[:1]
    tellers = events.delivered.copy()  # which row says what a delivery answers
    silent = np.flatnonzero(origin[tellers] == -1)
    tellers[silent] = events.submitted[events.delivered_ids[silent]]
    told = np.flatnonzero((tellers >= 0) & (origin[tellers] != -1))
    early = told[_is_early(events, told, origin[tellers[told]], number[tellers[told]])]
    return np.unique(
        np.concatenate(
            [
                events.delivered[early],
                tellers[early],
                _losses_of(events, early, origin[tellers[early]], number[tellers[early]]),
            ]
        )
    )


def _is_early(events: Events, told: Vector, origin: Vector, number: Vector) -> Vector:
    """Of these deliveries, by their places among all: whether their process history had not
    delivered the original before."""
    run = events.run
    rows = events.delivered[told]
    sender = run.group[rows].astype(np.int64) * len(run.origins) + origin
    event = np.where(origin >= 0, events.find(sender, number), -1)
    found: Vector = _first_deliveries(events, events.delivered_histories[told], event) >= rows
    return found


def _first_deliveries(events: Events, histories: Vector, event: Vector) -> Vector:
    """Where these process histories first deliver these events; after the end, if nowhere. An event
    -1 is delivered nowhere."""
    size = events.size + 1
    key = events.delivered_histories.astype(np.int64) * size + events.delivered_ids
    order = np.argsort(key, kind="stable")
    key = key[order]
    wanted = histories.astype(np.int64) * size + event
    spots = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(key[spots] == wanted, events.delivered[order[spots]], events.run.count)


def _losses_of(events: Events, early: Vector, origin: Vector, number: Vector) -> Vector:
    """What the process histories of these deliveries gave up of their originals."""
    run, lost = events.run, events.lost
    senders = events.senders + 1
    asked = events.delivered_histories[early].astype(np.int64) * senders + origin
    asked += run.group[events.delivered[early]].astype(np.int64) * len(run.origins)
    key = events.history_of[run.log[lost]].astype(np.int64) * senders + run.origin[lost]
    key += run.group[lost].astype(np.int64) * len(run.origins)
    order = np.argsort(key, kind="stable")
    key, lost = key[order], lost[order]
    after, is_range = run.after
    last = run.number[lost]
    first = np.where(is_range[lost], np.minimum(after[lost] + 1, last), last)
    found = [np.arange(0)]
    for one in np.unique(asked).tolist():
        numbers = np.unique(number[asked == one])
        mine = slice(*np.searchsorted(key, [one, one + 1]).tolist())
        before = np.searchsorted(numbers, first[mine])
        found.append(lost[mine][before < np.searchsorted(numbers, last[mine], side="right")])
    return np.concatenate(found)

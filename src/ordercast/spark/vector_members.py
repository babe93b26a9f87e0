"""Cuts for the laws about who stayed with whom, and about tickets. See vector_events.py.

Who stayed, lasted and was connected is asked of the reference, on the bones of the run. What they
delivered is looked up in tables of bits, a row a life and a column an event.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ordercast.check.history import Log
from ordercast.check.membership import Membership
from ordercast.spark.columns import Vector
from ordercast.spark.vector_delivery import Sequences
from ordercast.spark.vector_events import Events

TABLE_LIMIT = 2_000_000_000
"""The most bits of such tables that are kept at once, a byte each."""


class Members:
    """What the lives of one run delivered and gave up."""

    def __init__(self, events: Events) -> None:
        self.events = events
        run = events.run
        names = zip(run.life_process.tolist(), run.life_incarnation.tolist(), strict=True)
        self._numbers = {
            (run.processes[process], incarnation): number
            for number, (process, incarnation) in enumerate(names)
        }
        self._delivered_starts = np.searchsorted(
            run.life[events.delivered], np.arange(len(self._numbers) + 1)
        )
        self._lost_starts = np.searchsorted(
            run.life[events.lost], np.arange(len(self._numbers) + 1)
        )

    @cached_property
    def group_of(self) -> Vector:
        """By event: the code of its group."""
        events, run = self.events, self.events.run
        found = np.full(events.size, -1, np.int32)
        found[events.ids] = run.group[events.rows]
        return found

    def delivered(self, life: Log) -> Vector:
        """By event: whether this life delivered it."""
        return self._table(life, self.events.delivered_ids, self._delivered_starts)

    def lost(self, life: Log) -> Vector:
        return self._table(life, self.events.lost_ids, self._lost_starts)

    def number(self, life: Log) -> int:
        return self._numbers[life.process, life.incarnation]

    def _table(self, life: Log, ids: Vector, starts: Vector) -> Vector:
        number = self.number(life)
        found = np.zeros(self.events.size, bool)
        found[ids[starts[number] : starts[number + 1]]] = True
        return found


def agreement(events: Events, members: Members) -> Vector | None:
    """The bones; and if two that were connected differ, all events that not all delivered.

    The others are delivered by all who stayed, or by none of them and given up by none, so no
    two lives have equal sets in the cut and different ones in the run.
    """
    chosen = np.zeros(events.size, bool)
    for group in events.history.groups:
        membership = Membership(events.history, group)
        inside = members.group_of == events.run.groups.get(group, -2)
        by_all, by_any = inside.copy(), np.zeros(events.size, bool)
        for life in membership.stayed:
            table = members.delivered(life)
            by_all &= table
            by_any |= table & inside
        if np.array_equal(by_all, by_any) or not membership.stayed:
            continue
        if len(membership.stayed) * events.size > TABLE_LIMIT:
            return None
        given_up = _given_up_if_apart(members, membership, by_any)
        if given_up is not None:
            chosen |= (by_any | (given_up & inside)) & ~by_all
    return np.union1d(events.bones, events.rows_about(np.flatnonzero(chosen)))


def _given_up_if_apart(members: Members, membership: Membership, by_any: Vector) -> Vector | None:
    """What those who stayed gave up, if somebody lacks what one connected with it delivered."""
    delivered = [members.delivered(life) & by_any for life in membership.stayed]
    given_up = [members.lost(life) for life in membership.stayed]
    apart = False
    for life, ours, lost in zip(membership.stayed, delivered, given_up, strict=True):
        lacking = by_any & ~ours & ~lost
        if lacking.any():
            apart = apart or any(
                np.any(theirs & lacking) and membership.connected(life, other)
                for other, theirs in zip(membership.stayed, delivered, strict=True)
            )
    return np.logical_or.reduce(given_up) if apart else None


def completeness(events: Events, members: Members) -> Vector:
    """The bones, and all events that a member lacks although its submitter was connected."""
    run = events.run
    history = events.history
    chosen = np.zeros(events.size, bool)
    submitter = run.life[np.maximum(events.submitted, 0)] if run.count else events.submitted
    there = events.submitted >= 0
    for group in history.groups:
        membership = Membership(history, group)
        lasting = [life for life in history.lives if membership.lasted(life)]
        lasted = np.zeros(len(run.life_process), bool)
        lasted[[members.number(life) for life in lasting]] = True
        due = there & (members.group_of == run.groups.get(group, -2)) & lasted[submitter]
        for life in membership.stayed:
            lacking = np.flatnonzero(due & ~members.delivered(life))
            if len(lacking):
                asked = np.zeros(len(lasted), bool)
                for other in lasting:
                    near = other.process == life.process or membership.connected(other, life)
                    asked[members.number(other)] = near
                chosen[lacking[asked[submitter[lacking]]]] = True
    return np.union1d(events.bones, events.rows_about(np.flatnonzero(chosen)))


# --- virtual synchrony ---


def virtual_synchrony(events: Events, sequences: Sequences) -> Vector:
    """The view rows alone, between which every span is empty; or the first two that differ.

    These are their four view rows, their deliveries and, as the reference names the event that it
    met first, every event's first row. If one life has both, all that it did in the group stays.
    """
    run = events.run
    if run.code_of("view") < 0:
        return events.bones
    views = np.flatnonzero((run.kind == run.code_of("view")) & (run.group >= 0))
    pair = _different_spans(events, views, unique=sequences.increasing)
    if pair is None:
        return views
    one, other = pair
    delivered = np.concatenate([one[2], other[2]])
    ids = events.ids[np.searchsorted(events.rows, delivered)]
    first = np.full(events.size, -1, np.int64)
    first[events.ids[::-1]] = events.rows[::-1]
    kept = [*one[:2], *other[:2]]
    rows = np.concatenate([kept, delivered, first[ids]])
    if run.life[one[0]] == run.life[other[0]]:
        rows = np.concatenate(
            [
                rows,
                np.flatnonzero((run.life == run.life[one[0]]) & (run.group == run.group[one[0]])),
            ]
        )
    return np.unique(rows)


def _different_spans(
    events: Events, views: Vector, *, unique: bool
) -> tuple[tuple[int, int, Vector], tuple[int, int, Vector]] | None:
    """The first two spans of equal views that hold different events: (view, next, deliveries)."""
    run = events.run
    numbers = run.views(views)
    life, group = run.life[views], run.group[views]
    delivered_group = run.group[events.delivered]
    several = len(run.groups) > 1
    mark = np.full(events.size, -1, np.int64)
    latest: dict[tuple[int, int], int] = {}
    spans: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    for at in range(len(views)):
        key = int(life[at]), int(group[at])
        if key in latest:
            before = latest[key]
            names = key[1], int(numbers[before]), int(numbers[at])
            spans.setdefault(names, []).append((at, before, at))
        latest[key] = at
    found: tuple[int, tuple[int, int, Vector], tuple[int, int, Vector]] | None = None
    for tag, same in enumerate(spans.values()):
        if len(same) < 2:
            continue
        first: tuple[int, int, Vector] | None = None
        count = 0
        for place, before, at in same:
            if found is not None and place > found[0]:
                break
            begin, end = np.searchsorted(events.delivered, views[[before, at]])
            inside = np.arange(begin, end)
            if several:
                inside = inside[delivered_group[begin:end] == group[at]]
            ids = events.delivered_ids[inside]
            distinct = ids if unique else np.unique(ids)
            span = int(views[before]), int(views[at]), events.delivered[inside]
            if first is None:
                first, count = span, len(distinct)
                mark[distinct] = tag
            elif len(distinct) != count or np.any(mark[distinct] != tag):
                found = place, first, span
                break
    return None if found is None else found[1:]


# --- tickets ---


def ticket_uniqueness(events: Events) -> Vector:
    """The bones, all submissions with an entry that another has too, and of each group the first
    without an entry: no other can be told.
    """
    run = events.run
    rows = events.submissions
    if not len(rows):
        return events.bones
    index, entry, stamped = run.stamps(rows)
    kept = [events.bones]
    group = run.group[rows]
    for code in range(len(run.groups)):
        kept.append(rows[(group == code) & ~stamped][:1])
    order = np.lexsort((entry, index, group))
    alike = np.ones(max(0, len(order) - 1), bool)
    for column in (entry, index, group):
        alike &= column[order][1:] == column[order][:-1]
    alike &= stamped[order][1:] & stamped[order][:-1]
    twice = np.concatenate([order[1:][alike], order[:-1][alike]])
    kept.append(rows[twice])
    return np.unique(np.concatenate(kept))

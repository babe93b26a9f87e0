"""Who delivered what, as tables of bits; what was delivered between views; and stamp entries.

The plain history of the skeleton rows (check/membership.py) says which processes stayed, lasted and
were connected. What they delivered is looked up here: a row an incarnation, a column an
event.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from ordercast.check.history import History, bare_name
from ordercast.check.log import Log
from ordercast.check.views import of_view
from ordercast.spark.columns import Vector
from ordercast.spark.vector_delivery import views_of
from ordercast.spark.vector_events import Events
from ordercast.trace.schema import Row

TABLE_LIMIT = 2_000_000_000
"""The most bits of such tables that are kept at once, a byte each."""


class Tables:
    """What the incarnations of one run submitted, delivered and gave up."""

    def __init__(self, events: Events) -> None:
        self.events = events
        run = events.run
        names = zip(run.log_process.tolist(), run.log_incarnation.tolist(), strict=True)
        self._numbers = {
            (run.processes[process], incarnation): number
            for number, (process, incarnation) in enumerate(names)
        }
        self._delivered_starts = np.searchsorted(
            run.log[events.delivered], np.arange(len(self._numbers) + 1)
        )
        self._lost_starts = np.searchsorted(run.log[events.lost], np.arange(len(self._numbers) + 1))

    def submitted_by(self, logs: Iterable[Log]) -> Vector:
        """By event: whether one of these submitted it."""
        chosen = np.zeros(len(self._numbers), bool)
        chosen[[self.number(log) for log in logs]] = True
        found: Vector = self._submitters >= 0
        found[found] = chosen[self._submitters[found]]
        return found

    @cached_property
    def _submitters(self) -> Vector:
        """By event: the incarnation that submitted it; -1 if there is none."""
        found = np.full(self.events.size, -1, np.int32)
        there = self.events.submitted >= 0
        found[there] = self.events.run.log[self.events.submitted[there]]
        return found

    @cached_property
    def group_of(self) -> Vector:
        """By event: the code of its group."""
        events, run = self.events, self.events.run
        found = np.full(events.size, -1, np.int32)
        found[events.ids] = run.group[events.rows]
        return found

    def delivered(self, log: Log) -> Vector:
        """By event: whether this incarnation delivered it."""
        return self._table(log, self.events.delivered_ids, self._delivered_starts)

    def lost(self, log: Log) -> Vector:
        return self._table(log, self.events.lost_ids, self._lost_starts)

    def number(self, log: Log) -> int:
        return self._numbers[log.process, log.incarnation]

    def _table(self, log: Log, ids: Vector, starts: Vector) -> Vector:
        number = self.number(log)
        found = np.zeros(self.events.size, bool)
        found[ids[starts[number] : starts[number + 1]]] = True
        return found


# --- virtual synchrony ---


def unequal_spans(events: Events, views: Vector, *, unique: bool) -> Vector | None:
    """The first two spans of equal views that differ: their four view rows, their deliveries and,
    as the plain judge names the event that it met first, every event's first row. If one
    incarnation has both, all that it did in the group stays."""
    run = events.run
    pair = _different_spans(events, views, unique=unique)
    if pair is None:
        return None
    one, other = pair
    delivered = np.concatenate([one[2], other[2]])
    ids = events.ids[np.searchsorted(events.rows, delivered)]
    first = np.full(events.size, -1, np.int64)
    first[events.ids[::-1]] = events.rows[::-1]
    kept = [np.array([*one[:2], *other[:2]]), delivered, first[ids]]
    if run.log[one[0]] == run.log[other[0]]:
        same = (run.log == run.log[one[0]]) & (run.group == run.group[one[0]])
        kept.append(np.flatnonzero(same))
    return np.unique(np.concatenate(kept))


def _different_spans(
    events: Events, views: Vector, *, unique: bool
) -> tuple[tuple[int, int, Vector], tuple[int, int, Vector]] | None:
    """The first two spans of equal views that hold different events: (view, next, deliveries)."""
    run = events.run
    numbers = run.views(views)
    log, group = run.log[views], run.group[views]
    delivered_group = run.group[events.delivered]
    several = len(run.groups) > 1
    mark = np.full(events.size, -1, np.int64)
    latest: dict[tuple[int, int], int] = {}
    spans: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    for at in range(len(views)):
        key = int(log[at]), int(group[at])
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


# --- safe ---


def not_everywhere(events: Events, views: Vector, history: History, rows: Vector) -> Vector:
    """By event: whether one of these deliveries is of it, and not all who came into the view did
    deliver it there; or somebody is in the view that never came into it.

    The history has the view rows, one by one, in the order of `views`.
    """
    code, came, whole = _views_and_who_came(history)
    wanted = np.zeros(events.size, bool)
    wanted[events.delivered_ids[np.isin(events.delivered, rows)]] = True
    key = events.run.log[events.delivered].astype(np.int64) * events.size + events.delivered_ids
    first = np.unique(key, return_index=True)[1]
    ids, current = events.delivered_ids[first], views_of(events, views, events.delivered[first])
    inside = np.append(code, -1)[current]
    low = np.full(events.size, len(came), np.int64)
    high = np.full(events.size, -1, np.int64)
    np.minimum.at(low, ids, inside)
    np.maximum.at(high, ids, inside)
    everywhere = (low == high) & (low >= 0)
    where = low[everywhere]
    everywhere[everywhere] = whole[where] & (
        np.bincount(ids, minlength=events.size)[everywhere] == came[where]
    )
    found: Vector = wanted & ~everywhere
    return found


def _views_and_who_came(history: History) -> tuple[Vector, Vector, Vector]:
    """By view row the number of its view; by view how many incarnations came into it, and whether
    all members did of which the run has rows. A transitional view is a part of the one before."""
    numbers: dict[tuple[str | None, int | None], int] = {}
    codes: list[int] = []
    came: list[set[tuple[str, int]]] = []
    inside: list[set[str]] = []
    for log in history.logs:
        views: dict[str | None, tuple[Row, Row]] = {}
        for _, row in log.views:
            view = of_view(row, views.get(row.group))
            views[row.group] = view, row
            number = numbers.setdefault((view.group, view.view), len(numbers))
            if number == len(came):
                came.append(set())
                inside.append(set())
            codes.append(number)
            came[number].add((log.process, log.incarnation))
            inside[number].update(map(bare_name, row.members or ()))
    known = history.first_logs.keys()
    whole = [
        all(name in {process for process, _ in logs} for name in members & known)
        for logs, members in zip(came, inside, strict=True)
    ]
    counts = np.array([len(logs) for logs in came], np.int64)
    return np.array(codes, np.int64), counts, np.array(whole, bool)


# --- tickets ---


class Stamps:
    """The stamp entries of all submissions."""

    def __init__(self, events: Events) -> None:
        self._rows = events.submissions
        self._group = events.run.group[self._rows]
        self._groups = len(events.run.groups)
        self._index, self._entry, self._stamped = events.run.stamps(self._rows)

    def first_unstamped(self) -> Vector:
        """Of each group the first submission without an entry."""
        firsts = [
            self._rows[(self._group == code) & ~self._stamped][:1] for code in range(self._groups)
        ]
        return np.concatenate([self._rows[:0], *firsts])

    def equal(self) -> Vector:
        """The submissions with an entry that another one of the group has too."""
        order = np.lexsort((self._entry, self._index, self._group))
        alike = np.ones(max(0, len(order) - 1), bool)
        for column in (self._entry, self._index, self._group):
            alike &= column[order][1:] == column[order][:-1]
        alike &= self._stamped[order][1:] & self._stamped[order][:-1]
        twice = np.concatenate([order[1:][alike], order[:-1][alike]])
        found: Vector = self._rows[twice]
        return found

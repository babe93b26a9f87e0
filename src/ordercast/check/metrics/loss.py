"""Loss as the cluster papers count it.

An event is lost at a process that was there all the time if it did not come, or came when it could
not be delivered any more without breaking optimistic causal order. Families that keep that order
have none of the second kind, plain gossip has. Which event precedes which is taken from the rows,
never from stamps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import NamedTuple

from ordercast.check.causality import breaks
from ordercast.check.history import History
from ordercast.check.metric import Breakdown, MeasuredRun, Metric
from ordercast.check.metrics.events import Event, deliveries, event_of, submitted_at
from ordercast.trace.schema import Header, Trace


class LossCounts(NamedTuple):
    expected: int  # pairs of an event and a process that came before it and stayed
    missing: int  # not delivered
    disordered: int  # delivered after something that the event precedes


def _loss(run: MeasuredRun) -> LossCounts:
    made, there = run.once(submitted_at), _there(run)
    joins = {group: sorted(joined.values()) for group, joined in there.items()}
    expected = sum(bisect_right(joins.get(event[0], ()), at) for event, at in made.items())
    if not expected:
        return LossCounts(0, 0, 0)
    got = {
        (row.process, row.incarnation, event_of(row))
        for row in run.once(deliveries)
        if (at := made.get(event_of(row))) is not None
        and at >= there.get(row.group, {}).get(row.process, at + 1)
    }
    return LossCounts(expected, expected - len(got), len(got & _too_late(run)))


def _there(run: MeasuredRun) -> dict[str | None, dict[str, int]]:
    """By group: the processes that joined once and stayed, and when they joined."""
    one: dict[str, int] = {}  # of its incarnations
    gone = {
        row.process
        for row in run.rows
        if row.kind in ("crash", "leave")
        or one.setdefault(row.process, row.incarnation) != row.incarnation
    }
    there: dict[str | None, dict[str, int]] = defaultdict(dict)
    for row in run.rows:
        if row.kind == "join" and row.process not in gone:
            there[row.group].setdefault(row.process, row.at)
    return there


def _too_late(run: MeasuredRun) -> set[tuple[str, int, Event]]:
    """Deliveries of events that precede something delivered there before, in one incarnation."""
    history = History(Trace(Header(run="one"), list(run.rows)))
    return {
        (row.process, row.incarnation, event_of(row))
        for log in history.histories
        for at, _ in breaks(history, log, gaps_allowed=True)
        for row in [log.deliveries[at]]
    }


def _share(run: MeasuredRun, count: int) -> float | None:
    expected = run.once(_loss).expected
    return count / expected if expected else None


def _lost(run: MeasuredRun) -> float | None:
    return _share(run, run.once(_loss).missing + run.once(_loss).disordered)


LOSS = Breakdown(
    "loss",
    "Pairs of an event and a process that was there all the time: how many are lost",
    LossCounts,
    lambda run: [run.once(_loss)] if run.once(_loss).expected else [],
)
METRICS = (
    Metric("lost_share", "share", "Events missing or disordered at processes that stayed", _lost),
    Metric(
        "missing_share",
        "share",
        "Events not delivered at processes that stayed",
        lambda run: _share(run, run.once(_loss).missing),
    ),
    Metric(
        "disordered_share",
        "share",
        "Events delivered after something that they precede, at processes that stayed",
        lambda run: _share(run, run.once(_loss).disordered),
    ),
)

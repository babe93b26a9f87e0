"""Of groups whose members form a tree: its shape, its moves, and what these do to events.

The load lasts from the first submission to the last. What is `first` is of the first tenth of it,
or of its first instant; what is `last` of the last tenth, or of its last instant.

Whether a move disturbs others is asked of every move by itself: how long did events take that were
delivered within a second of it, compared with those of the two seconds before that and the two
after, whose means count alike. 1 means that the move itself disturbed nothing, also where paths are
longer or shorter from then on. The `others` are nodes that keep their parent all that time, and are
not below the one that moves; `below` are that one and those below it. A move is left out where
there is no such node, or not all of that time lies in the load.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from ordercast.check.metric import MeasuredRun, Metric, mean, percentile
from ordercast.check.metrics.events import deliveries, event_of, submitted_at
from ordercast.check.parents import (
    Life,
    ParentChange,
    ParentLink,
    Parents,
    moves_in,
    parents_at,
    path_of,
)
from ordercast.units import SECOND

AROUND = SECOND
"""So long before a move and after it its effect is looked for."""
BESIDE = 2 * SECOND
"""So long before that, and after it, is what it is compared with."""


class Stretch(NamedTuple):
    """From the first submission of a run to the last."""

    begins: int
    ends: int

    @property
    def tenth(self) -> int:
        return (self.ends - self.begins) // 10


class TreeMove(NamedTuple):
    """A move, and how the latency around it compares with that beside; None: nobody to ask."""

    move: ParentChange
    others: float | None
    below: float | None
    is_alone: bool  # no other node moves in all that time


class Arrival(NamedTuple):
    """A delivery at another process than the submitter."""

    at: int
    took: int
    life: Life


def _links(run: MeasuredRun) -> dict[str, list[ParentLink]]:
    return Parents.of(run.rows).links


def _span(run: MeasuredRun) -> Stretch | None:
    """None: the run has no tree, or no load."""
    if not run.once(_links):
        return None
    times = run.once(submitted_at).values()
    return Stretch(min(times), max(times)) if times else None


def _arrivals(run: MeasuredRun) -> list[Arrival]:
    made = run.once(submitted_at)
    return sorted(
        Arrival(row.at, row.at - made[event], (row.process, row.incarnation))
        for row in run.once(deliveries)
        if row.origin != row.process and (event := event_of(row)) in made
    )


def _tenths(run: MeasuredRun) -> tuple[list[int], list[int]]:
    """How long events took that were submitted in the first and in the last tenth, in order."""
    span = run.once(_span)
    if span is None:
        return [], []
    found = run.once(_arrivals)
    first = [one.took for one in found if one.at - one.took <= span.begins + span.tenth]
    last = [one.took for one in found if one.at - one.took >= span.ends - span.tenth]
    return sorted(first), sorted(last)


def _latency(which: int, share: float) -> Callable[[MeasuredRun], float | None]:
    def value(run: MeasuredRun) -> float | None:
        found = run.once(_tenths)[which]
        return percentile(found, share) / SECOND if found else None

    return value


# --- the shape -------------------------------------------------------------------------------


def _depth(parents: dict[Life, Life | None]) -> float:
    return max(len(path_of(life, parents)) for life in parents)


def _children(parents: dict[Life, Life | None]) -> float:
    above = [parent for parent in parents.values() if parent is not None]
    return max((above.count(parent) for parent in {*above}), default=0)


def _shape(
    of: Callable[[dict[Life, Life | None]], float], is_last: bool
) -> Callable[[MeasuredRun], float | None]:
    def value(run: MeasuredRun) -> float | None:
        span = run.once(_span)
        if span is None:
            return None
        at = span.ends if is_last else span.begins
        trees = [parents_at(links, at) for links in run.once(_links).values()]
        return max((of(tree) for tree in trees if tree), default=None)

    return value


# --- moves -----------------------------------------------------------------------------------


def _moves(run: MeasuredRun) -> list[tuple[str, ParentChange]]:
    """Those that happen under load, with their group."""
    span = run.once(_span)
    if span is None:
        return []
    found = [(group, move) for group, links in run.once(_links).items() for move in moves_in(links)]
    return [each for each in found if span.begins <= each[1].at <= span.ends]


def _compared(run: MeasuredRun) -> list[TreeMove]:
    span = run.once(_span)
    margin = AROUND + BESIDE
    return [
        _compare(run, group, move)
        for group, move in run.once(_moves)
        if span is not None and span.begins + margin <= move.at <= span.ends - margin
    ]


def _compare(run: MeasuredRun, group: str, move: ParentChange) -> TreeMove:
    links, found = run.once(_links)[group], run.once(_arrivals)
    edges = [move.at + by for by in (-AROUND - BESIDE, -AROUND, AROUND, AROUND + BESIDE)]
    places = [bisect_left(found, (at,)) for at in edges]
    parts = [found[first:last] for first, last in pairwise(places)]
    parents = parents_at(links, move.at)
    changed = {link.life for link in links if edges[0] <= link.row.at <= edges[-1]}
    below = {life for life in parents if move.life in path_of(life, parents)} | {move.life}
    others = {*parents} - below - changed
    is_alone = changed == {move.life}
    return TreeMove(move, _ratio(parts, others), _ratio(parts, below), is_alone)


def _ratio(parts: list[list[Arrival]], lives: set[Life]) -> float | None:
    """Of the middle part to the other two."""
    took = [[one.took for one in part if one.life in lives] for part in parts]
    if not all(took):
        return None
    before, around, after = map(mean, took)
    return around / mean([before, after])


def _ratios(
    of: Callable[[TreeMove], float | None], by: Callable[[list[float]], float]
) -> Callable[[MeasuredRun], float | None]:
    def value(run: MeasuredRun) -> float | None:
        found = [of(one) for one in run.once(_compared)]
        known = [one for one in found if one is not None]
        return by(known) if known else None

    return value


def _of_tenths() -> Iterable[Metric]:
    for which, name in enumerate(("first", "last")):
        for words, share in (("the median", 0.5), ("95 % take no longer", 0.95)):
            yield Metric(
                f"tree_{name}_p{round(100 * share)}",
                "s",
                f"From submission to delivery at another process of a tree, of events of the "
                f"{name} tenth of the load: {words}",
                _latency(which, share),
            )


def _others(one: TreeMove) -> float | None:
    return one.others


def _alone(one: TreeMove) -> float | None:
    return one.others if one.is_alone else None


def _below(one: TreeMove) -> float | None:
    return one.below


METRICS = (
    Metric(
        "tree_moves",
        "moves",
        "Changes from one parent to another during the load",
        lambda run: len(run.once(_moves)) if run.once(_span) else None,
    ),
    *_of_tenths(),
    Metric("tree_depth_first", "levels", "The lowest node at first", _shape(_depth, False)),
    Metric("tree_depth_last", "levels", "The lowest node at last", _shape(_depth, True)),
    Metric(
        "tree_children_first",
        "nodes",
        "The most children of a node at first",
        _shape(_children, False),
    ),
    Metric(
        "tree_children_last",
        "nodes",
        "The most children of a node at last",
        _shape(_children, True),
    ),
    Metric(
        "tree_others_mean",
        "times",
        "Mean latency at the others within a second of a move, by that before and after: the mean",
        _ratios(_others, mean),
    ),
    Metric(
        "tree_others_max",
        "times",
        "Mean latency at the others within a second of a move, by that before and after: the most",
        _ratios(_others, max),
    ),
    Metric(
        "tree_others_alone",
        "times",
        "The same, of moves in whose seconds no other node changes its parent: the most",
        _ratios(_alone, max),
    ),
    Metric(
        "tree_below_mean",
        "times",
        "Mean latency at the node that moves and below it, by that before and after: the mean",
        _ratios(_below, mean),
    ),
)

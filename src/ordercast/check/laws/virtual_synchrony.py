"""virtual-synchrony: between the same two views all who install both deliver the same events.

Two processes that install the same two consecutive views of a group deliver the same set of the
group's events between them. Judged within an incarnation. What comes after a process's last view is
not judged. Unknown where a trace has traffic but no view at all.

Witness: the four view rows and the delivery that the other lacks, on which the law is still broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import Law, Proof
from ordercast.check.log import Log
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown
from ordercast.check.views import NO_VIEWS, nothing_to_judge
from ordercast.trace.schema import Row

NAME = "virtual-synchrony"


class Span(NamedTuple):
    """What one incarnation delivered in a group between two consecutive views."""

    first: Row
    then: Row
    events: list[int]
    log: Log


def judge(history: History) -> Verdict:
    if nothing_to_judge(history):
        return unknown(NAME, NO_VIEWS)
    spans: dict[tuple[str | None, int | None, int | None], tuple[Span, frozenset[int]]] = {}
    for log in history.logs:
        for span in _spans(history, log):
            key = span.first.group, span.first.view, span.then.view
            events = frozenset(span.events)
            other, expected = spans.setdefault(key, (span, events))
            if events != expected:
                return _not_synchronous(history, other, span)
    return holds(NAME)


def _spans(history: History, log: Log) -> Iterator[Span]:
    """Goes from view to view; what is delivered between goes to its group's open span."""
    open_spans: dict[str, tuple[Row, list[int]]] = {}
    group_of, alone = history.group_of, len(history.groups) == 1
    done = 0
    for place, row in log.views:
        chunk = log.delivered[done:place]
        done = place
        if alone:
            for _, events in open_spans.values():
                events += chunk
        else:
            for event in chunk:
                if group_of[event] in open_spans:
                    open_spans[group_of[event]][1].append(event)
        group = row.group or ""
        if group in open_spans:
            yield Span(open_spans[group][0], row, open_spans[group][1], log)
        open_spans[group] = (row, [])


def _not_synchronous(history: History, one: Span, other: Span) -> Verdict:
    has, lacks = (one, other) if set(one.events) - set(other.events) else (other, one)
    event = min(set(has.events) - set(lacks.events))
    delivery = next(
        row
        for row in has.log.deliveries
        if row.step > has.first.step and history.id_of(row) == event
    )
    why = (
        f"{row_writer(delivery)} delivered {row_event(delivery)} between views {has.first.view} "
        f"and {has.then.view}, and {row_writer(lacks.first)} did not"
    )
    rows = (has.first, delivery, has.then, lacks.first, lacks.then)
    return broken(NAME, rows, why)


def select(run: RunFacts) -> Rows:
    """The view rows alone, between which every span is empty; or the first two that differ."""
    if not len(run.view_rows):
        return run.skeleton
    unequal = run.unequal_spans()
    return run.view_rows if unequal is None else unequal


LAW = Law(
    name=NAME,
    says=(
        "two processes that install the same two consecutive views of a group deliver the "
        "same events between them"
    ),
    unknown_when="there is traffic but no view row",
    reads=("deliver", "view"),
    judge=judge,
    select=select,
    prove=Proof(lambda slices: slices.increasing and slices.has_views and slices.equal_spans),
    place=100,
)

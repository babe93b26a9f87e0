"""Views: `virtual-synchrony`, `view-agreement` and `disjoint-views`.

virtual-synchrony  Two processes that install the same two consecutive views of a group deliver
                   the same set of the group's events between them. Judged within a life. What
                   comes after a process's last view is not judged.
view-agreement     A view holds its installer. And two processes that stay connected install the
                   same sequence of views of the group, the same identities with the same
                   members. They are connected as in membership.py, each is the only and first
                   life of its process, and neither crashed or left. Where one of them installed
                   more than the other, that is broken in a finished run, unless the other had
                   stopped by then; in a run that did not finish it is unknown.
disjoint-views     At the end of a finished run the last views of a group's live members are
                   equal or have no member in common; otherwise unknown. Live is the last life
                   of a process that neither crashed nor left the group, and did not stop before
                   the group's last view was installed.

All three are unknown where a trace has traffic but no view at all: then nobody wrote them down,
which is not the same as all being well. A member may be named by its process or by its life
(`n1#2`); what counts is the process.

Witness: for virtual-synchrony the four view rows and the delivery that the other lacks, on which
the law is still broken; for view-agreement the view without its installer, or the first views
that differ (if one is absent: the row that the other lacks); for disjoint-views the two views.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, zip_longest
from typing import NamedTuple, TypeAlias

from ordercast.check.history import History, Log, bare_name
from ordercast.check.membership import Membership
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown
from ordercast.trace.schema import Row

VIRTUAL_SYNCHRONY = "virtual-synchrony"
VIEW_AGREEMENT = "view-agreement"
DISJOINT_VIEWS = "disjoint-views"

NO_VIEWS = "events were submitted or delivered, but the trace has no view row"


def nothing_to_judge(history: History) -> bool:
    return bool(history.events) and "view" not in history.kinds


class Span(NamedTuple):
    """What one life delivered in a group between two consecutive views."""

    first: Row
    then: Row
    events: list[int]
    life: Log


def virtual_synchrony(history: History) -> Verdict:
    if nothing_to_judge(history):
        return unknown(VIRTUAL_SYNCHRONY, NO_VIEWS)
    spans: dict[tuple[str | None, int | None, int | None], tuple[Span, frozenset[int]]] = {}
    for life in history.lives:
        for span in _spans(history, life):
            key = span.first.group, span.first.view, span.then.view
            events = frozenset(span.events)
            other, expected = spans.setdefault(key, (span, events))
            if events != expected:
                return _not_synchronous(history, other, span)
    return holds(VIRTUAL_SYNCHRONY)


def _spans(history: History, life: Log) -> Iterator[Span]:
    """Goes from view to view; what is delivered between goes to its group's open span."""
    open_spans: dict[str, tuple[Row, list[int]]] = {}
    group_of, alone = history.group_of, len(history.groups) == 1
    done = 0
    for place, row in life.views:
        chunk = life.delivered[done:place]
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
            yield Span(open_spans[group][0], row, open_spans[group][1], life)
        open_spans[group] = (row, [])


def _not_synchronous(history: History, one: Span, other: Span) -> Verdict:
    has, lacks = (one, other) if set(one.events) - set(other.events) else (other, one)
    event = min(set(has.events) - set(lacks.events))
    delivery = next(
        row
        for row in has.life.deliveries
        if row.step > has.first.step and history.id_of(row) == event
    )
    why = (
        f"{row_writer(delivery)} delivered {row_event(delivery)} between views {has.first.view} "
        f"and {has.then.view}, and {row_writer(lacks.first)} did not"
    )
    rows = (has.first, delivery, has.then, lacks.first, lacks.then)
    return broken(VIRTUAL_SYNCHRONY, rows, why)


_Content: TypeAlias = tuple[int | None, tuple[str, ...]]
_Sequence: TypeAlias = tuple[_Content, ...]


def _content(row: Row) -> _Content:
    """What a view is: its identity and its members, however they are spelled."""
    return row.view, tuple(map(bare_name, row.members or ()))


def view_agreement(history: History) -> Verdict:
    if nothing_to_judge(history):
        return unknown(VIEW_AGREEMENT, NO_VIEWS)
    for life in history.lives:
        for _, row in life.views:
            if life.process not in map(bare_name, row.members or ()):
                why = f"{row_writer(row)} installed view {row.view}, which does not hold it"
                return broken(VIEW_AGREEMENT, (row,), why)
    open_question: Verdict | None = None
    for group in history.groups:
        found = _different_views(history, Membership(history, group))
        if found is not None and found.witness:
            return found
        open_question = open_question or found
    return open_question or holds(VIEW_AGREEMENT)


def _different_views(history: History, members: Membership) -> Verdict | None:
    # As in reliability.py: whoever has the same sequence needs no comparison.
    by_sequence: dict[_Sequence, list[Log]] = {}
    for life in history.lives:
        if (
            life.incarnation == 0
            and history.last_lives[life.process] is life
            and life.crash is None
            and members.group not in life.left
            and members.group in life.first_view
        ):
            sequence = tuple(map(_content, _views(life, members.group)))
            by_sequence.setdefault(sequence, []).append(life)
    open_question: Verdict | None = None
    for ones, others in combinations(by_sequence.values(), 2):
        for one in ones:
            for other in others:
                if members.connected(one, other):
                    found = _first_difference(history, members.group, one, other)
                    if found is not None and found.witness:
                        return found
                    open_question = open_question or found
    return open_question


def _views(life: Log, group: str) -> list[Row]:
    return [row for _, row in life.views if row.group == group]


def _first_difference(history: History, group: str, one: Log, other: Log) -> Verdict | None:
    """Two connected lives with different sequences: broken, unknown, or one had stopped."""
    for first, second in zip_longest(_views(one, group), _views(other, group)):
        if first is not None and second is not None:
            if _content(first) == _content(second):
                continue
            why = (
                f"{one.process} and {other.process} stayed connected, but one installed view "
                f"{first.view} where the other installed view {second.view}"
            )
            return broken(VIEW_AGREEMENT, (first, second), why)
        more, shorter = (first, other) if first is not None else (second, one)
        assert more is not None
        if shorter.stop is not None and shorter.stop.at < more.at:
            return None
        why = f"{shorter.process} stayed connected with {more.process} but never installed view "
        why += str(more.view)
        if history.finished:
            return broken(VIEW_AGREEMENT, (more,), why)
        return unknown(VIEW_AGREEMENT, why + "; the run did not finish, so it may still have")
    return None


def disjoint_views(history: History) -> Verdict:
    if not history.finished:
        why = f"the run is {history.header.ending}, not finished: views may still have changed"
        return unknown(DISJOINT_VIEWS, why)
    if nothing_to_judge(history):
        return unknown(DISJOINT_VIEWS, NO_VIEWS)
    last_views: dict[str, dict[_Content, Row]] = {}
    for row in _last_views(history):
        last_views.setdefault(row.group or "", {}).setdefault(_content(row), row)
    for views in last_views.values():
        holder: dict[str, Row] = {}
        for row in views.values():
            for name in dict.fromkeys(map(bare_name, row.members or ())):
                other = holder.setdefault(name, row)
                if other is not row:
                    why = (
                        f"{name} is in view {other.view}, the last of {row_writer(other)}, and "
                        f"in view {row.view}, the last of {row_writer(row)}"
                    )
                    return broken(DISJOINT_VIEWS, (other, row), why)
    return holds(DISJOINT_VIEWS)


def _last_views(history: History) -> Iterator[Row]:
    """The last view of every live member, group by group."""
    installed_at: dict[str | None, int] = {}
    for life in history.lives:
        for _, row in life.views:
            installed_at[row.group] = max(row.at, installed_at.get(row.group, row.at))
    for life in history.last_lives.values():
        if life.crash is None:
            for group, row in {row.group: row for _, row in life.views}.items():
                stopped = life.stop is not None and life.stop.at < installed_at[group]
                if group not in life.gone and not stopped:
                    yield row

"""What the laws about views share.

They are unknown where a trace has traffic but no view at all: then nobody wrote them down, which is
not the same as all being well. A member may be named by its process or by its incarnation
(`n1#2`); what counts is the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from ordercast.check.history import History, bare_name
from ordercast.check.log import Log
from ordercast.trace.schema import Row

NO_VIEWS = "events were submitted or delivered, but the trace has no view row"

Content: TypeAlias = tuple[int | None, tuple[str, ...]]


def nothing_to_judge(history: History) -> bool:
    return bool(history.events) and "view" not in history.kinds


TRANSITIONAL = "transitional"
"""The cause of a view that is the end of the one before it, for those who go on together."""


class InView(NamedTuple):
    """A delivery, and the view that it was made in."""

    at: int  # its place among the deliveries of its log
    event: int
    row: Row
    view: Row  # the last one that is not transitional
    current: Row  # that one, or a transitional one after it

    @property
    def key(self) -> tuple[str | None, int | None]:
        """The same for all who are in this view."""
        return self.view.group, self.view.view


def deliveries_in_views(log: Log) -> Iterator[InView]:
    """What an incarnation delivered, from its first view of the event's group on."""
    views: dict[str | None, tuple[Row, Row]] = {}
    coming = iter([*log.views, (len(log.delivered), None)])
    place, view = next(coming)
    for at, (event, row) in enumerate(zip(log.delivered, log.deliveries, strict=True)):
        while view is not None and place <= at:
            views[view.group] = of_view(view, views.get(view.group)), view
            place, view = next(coming)
        if row.group in views:
            yield InView(at, event, row, *views[row.group])


def of_view(row: Row, before: tuple[Row, Row] | None) -> Row:
    """The view that is not transitional: this one, or the one that it ends."""
    return before[0] if row.cause == TRANSITIONAL and before is not None else row


def content(row: Row) -> Content:
    """What a view is: its identity and its members, however they are spelled."""
    return row.view, tuple(map(bare_name, row.members or ()))

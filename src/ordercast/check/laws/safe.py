"""safe: what is delivered as safe in a view, every member of that view delivers there too.

The view is the one in force at the delivery, regular or transitional. Each of its members delivers
the event in the same view, or in the transitional one with which the view ends for it: a
transitional view belongs to the view before it. A member that crashed, restarted or left the group
after it came into the view is excused, and so is one that had stopped before the delivery; of a
process without any row nothing is said. A member that never came into the view is excused if it
crashed, restarted or left at any time.

A member that went on to another view without the event is broken at once. One that is still in the
view may deliver it later: in a run that did not finish this is unknown.

Witness: absence is the evidence, so the witness is the view and the delivery that oblige, and the
words name the member that has no such row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History, bare_name
from ordercast.check.law import EVENTS, Law, Proof
from ordercast.check.log import Log
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown
from ordercast.check.views import NO_VIEWS, InView, deliveries_in_views, nothing_to_judge, of_view
from ordercast.trace.schema import Row

NAME = "safe"
SERVICE = "safe"

Key: TypeAlias = tuple[str | None, int | None]


def judge(history: History) -> Verdict:
    deliveries = (row for log in history.logs for row in log.deliveries)
    words = history.words_for(SERVICE)
    if not any(row.cause in words for row in deliveries):
        return holds(NAME)
    if nothing_to_judge(history):
        return unknown(NAME, NO_VIEWS)
    return SafeDeliveries(history).verdict()


class SafeDeliveries:
    """Who came into which view, who delivered what there, and what that obliges to."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._came: dict[Key, dict[str, list[tuple[Log, Row]]]] = {}  # by view and process
        self._had: set[tuple[str, int, Key, int]] = set()  # incarnation, view, event
        self._oblige: dict[tuple[int, Key, int | None], InView] = {}
        words = history.words_for(SERVICE)
        for log in history.logs:
            for row in views_of(log):
                came = self._came.setdefault((row.group, row.view), {})
                came.setdefault(log.process, []).append((log, row))
            for one in deliveries_in_views(log):
                self._had.add((log.process, log.incarnation, one.key, one.event))
                if one.row.cause in words:
                    self._oblige.setdefault((one.event, one.key, one.current.view), one)

    def verdict(self) -> Verdict:
        open_question: Verdict | None = None
        for one in self._oblige.values():
            for name in dict.fromkeys(map(bare_name, one.current.members or ())):
                found = self._missing(one, name)
                if found is not None and found.witness:
                    return found
                open_question = open_question or found
        return open_question or holds(NAME)

    def _missing(self, one: InView, name: str) -> Verdict | None:
        """What to say of a member: nothing, if it has the event or is excused."""
        came = self._came.get(one.key, {}).get(name, [])
        if any((log.process, log.incarnation, one.key, one.event) in self._had for log, _ in came):
            return None
        logs = [log for log in self._history.logs if log.process == name]
        if not logs or self._excused(one, logs, came):
            return None
        why = (
            f"{row_writer(one.row)} delivered {row_event(one.row)} as safe in view "
            f"{one.current.view} of {one.row.group}, and {name}, a member of it, "
        )
        if self._history.finished or any(_went_on(log, row) for log, row in came):
            return broken(NAME, (one.current, one.row), f"{why}did not deliver it there")
        return unknown(NAME, f"{why}has not; the run did not finish, so it may still have")

    def _excused(self, one: InView, logs: list[Log], came: list[tuple[Log, Row]]) -> bool:
        group, last = one.row.group, logs[-1]
        entered: list[tuple[Log, Row | None]] = [*came] or [(log, None) for log in logs]
        for log, row in entered:
            left = any(
                each.kind == "leave" and each.group == group and _follows(each, row)
                for each in log.rows
            )
            if log.crash is not None or left or log is not last:
                return True
        return last.stop is not None and last.stop.at <= one.row.at


def views_of(log: Log) -> Iterator[Row]:
    """The views that an incarnation came into; a transitional one belongs to the one before."""
    views: dict[str | None, tuple[Row, Row]] = {}
    for _, row in log.views:
        view = of_view(row, views.get(row.group))
        views[row.group] = view, row
        if view is row:
            yield row


def _follows(row: Row, view: Row | None) -> bool:
    return view is None or row.step > view.step


def _went_on(log: Log, view: Row) -> bool:
    """Whether the incarnation installed another view after this one."""
    return any(row.group == view.group and row.step > view.step for row in views_of(log))


def select(run: RunFacts) -> Rows:
    """The skeleton rows, and all safe events that not all who came into their view delivered."""
    if SERVICE not in run.services:
        return run.nothing
    return run.union(run.skeleton, run.rows_about(run.not_everywhere(SERVICE)))


LAW = Law(
    name=NAME,
    says=(
        "what is delivered as safe in a view, regular or transitional, every member of that view "
        "delivers in it or in its own transitional one"
    ),
    remark="unless the member crashes or leaves",
    unknown_when=(
        "a safe event was delivered and there is no view row, or a member lacks it at the end of "
        "a truncated run"
    ),
    reads=(*EVENTS, "leave", "view"),
    judge=judge,
    shows_absence=True,
    select=select,
    prove=Proof(lambda slices: SERVICE not in slices.services),
    place=105,
)

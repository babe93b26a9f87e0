"""causal-in-view: what others delivered in a view is not missing there from the past of an event.

Of all that precedes an event that a process delivers in a view, what anybody delivered in that view
the process has delivered before. So what happened in other views, on another side of a partition
say, may be missing, and what came in this view may not, nor may it come late. A transitional view
belongs to the view before it. Judged within an incarnation, from its first view on. Basic events
are not judged, and are links of the past (causality.py). Unknown as the causal laws are, and where
a trace has traffic but no view at all.

Witness: the rows that show that the one event precedes the other; the delivery without it, and a
delivery of it in the view, with the two rows that install the view.
"""

from __future__ import annotations

from typing import TypeAlias

from ordercast.check.causality import breaks
from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import EVENTS, Law, Proof
from ordercast.check.log import Log
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown
from ordercast.check.views import NO_VIEWS, InView, deliveries_in_views, nothing_to_judge

NAME = "causal-in-view"

Delivered: TypeAlias = dict[tuple[str | None, int | None], dict[int, InView]]
"""By view, what anybody delivered in it, and who did so first."""


def judge(history: History) -> Verdict:
    if nothing_to_judge(history):
        return unknown(NAME, NO_VIEWS)
    if history.past.cycle:
        return unknown(NAME, "an event was delivered before it was submitted; see no-creation")
    delivered: Delivered = {}
    for log in history.logs:
        for one in deliveries_in_views(log):
            delivered.setdefault(one.key, {}).setdefault(one.event, one)
    for log in history.logs:
        found = _first_break(history, log, delivered)
        if found is not None:
            return _broken(history, *found, delivered)
    if history.never_submitted:
        name = row_event(history.never_submitted[0])
        return unknown(NAME, f"{name} was delivered, but its submission is not in the trace")
    return holds(NAME)


def _first_break(history: History, log: Log, delivered: Delivered) -> tuple[InView, int] | None:
    """A delivery, and the event that is missing before it.

    An event is passed by once, when it first is in the past of what is delivered: mostly in the
    view in which others deliver it. If that is a later one, the pasts of what is delivered there
    are looked at one by one.
    """
    placed = {one.at: one for one in deliveries_in_views(log)}
    skipped: dict[int, int] = {}  # by event: where it was passed by
    for at, missing in breaks(history, log, gaps_allowed=False, newcomers=False):
        if missing is None:
            continue  # it comes late: it was missing before
        if at in placed and missing in delivered[placed[at].key]:
            return placed[at], missing
        skipped[missing] = at
    views = {one.key for one in placed.values()}
    for missing, since in skipped.items():
        if any(missing in delivered[key] for key in views):
            found = _missing_later(history, log, missing, since, placed, delivered)
            if found is not None:
                return found, missing
    return None


def _missing_later(
    history: History,
    log: Log,
    missing: int,
    since: int,
    placed: dict[int, InView],
    delivered: Delivered,
) -> InView | None:
    past = history.past
    for at in range(since + 1, len(log.delivered)):
        event = log.delivered[at]
        if event == missing:
            return None
        one = placed.get(at)
        if one is None or missing not in delivered[one.key]:
            continue
        judged = past.stream[event] >= 0 and event not in history.basic
        if judged and past.reach_of(event).get(past.stream[missing], 0) >= past.place[missing]:
            return one
    return None


def _broken(history: History, one: InView, missing: int, delivered: Delivered) -> Verdict:
    other = delivered[one.key][missing]
    rows, _ = history.past.chain(missing, {one.event})
    why = (
        f"{row_writer(one.row)} delivered {row_event(one.row)} in view {one.view.view} of "
        f"{one.row.group} without having delivered {row_event(other.row)}, which causally precedes "
        f"it and which {row_writer(other.row)} delivered in that view"
    )
    return broken(NAME, dict.fromkeys((one.view, other.view, other.row, *rows, one.row)), why)


def select(run: RunFacts) -> Rows | None:
    """The view rows, and the first delivery of an event never submitted, if nothing at all is
    missing; all rows otherwise: what is missing may be what another side delivered."""
    if not len(run.view_rows):
        return run.skeleton
    return run.union(run.view_rows, run.never_submitted[:1]) if run.without_gaps else None


LAW = Law(
    name=NAME,
    says=(
        "nothing that causally precedes a delivered event and that anybody delivered in the same "
        "view is missing from the deliveries before it"
    ),
    remark="basic events may come late or be missing",
    unknown_when=(
        "there is traffic but no view row, or the submission of a delivered event is missing"
    ),
    reads=(*EVENTS, "view"),
    judge=judge,
    shows_absence=True,
    select=select,
    prove=Proof(
        lambda slices: (
            slices.has_views and slices.created and slices.in_causal_order and slices.without_gaps
        ),
        needs=("pasts",),
    ),
    place=75,
)

"""total-in-view: total for every view of every group alone.

Among what incarnations delivered of the group from their installing the view (the same identity)
to their next view of the group, or to their end. Events delivered before a first view are not
judged. Unknown where a trace has traffic but no view at all. Each such segment is a sequence of its
own. How it is judged, and the witness: order.py. Of services only agreed and safe are judged, as in
total.py.
"""

from __future__ import annotations

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import ORDERED, Law, Proof
from ordercast.check.laws import total
from ordercast.check.log import Log
from ordercast.check.order import DeliverySegment, find_cycle, rows_of, words_of
from ordercast.check.verdict import Verdict, broken, holds, unknown
from ordercast.check.views import NO_VIEWS, nothing_to_judge

NAME = "total-in-view"


def judge(history: History) -> Verdict:
    if nothing_to_judge(history):
        return unknown(NAME, NO_VIEWS)
    in_view: dict[tuple[str | None, int | None], list[DeliverySegment]] = {}
    for log in history.logs:
        for segment in _segments(history, log):
            assert segment.view is not None
            in_view.setdefault((segment.view.group, segment.view.view), []).append(segment)
    for (group, view), alike in in_view.items():
        cycle = find_cycle(alike) if len(alike) > 1 else []
        if cycle:
            why = f"{words_of(cycle)}, in view {view} of {group}"
            return broken(NAME, rows_of(cycle), why)
    return holds(NAME)


def _segments(history: History, log: Log) -> list[DeliverySegment]:
    """What was delivered from each view of a group up to the next one, in the order of views."""
    found: list[DeliverySegment] = []
    latest: dict[str, list[int]] = {}
    group_of, alone = history.group_of, len(history.groups) == 1
    had: set[int] | None = None  # needed only where something is delivered again
    if len(set(log.delivered)) < len(log.delivered):
        had = set()
    done = 0
    for place, row in [*log.views, (len(log.delivered), None)]:
        chunk = log.delivered[done:place]
        done = place
        if had is not None:
            chunk = [event for event in dict.fromkeys(chunk) if event not in had]
            had.update(chunk)
        if alone:
            for events in latest.values():
                events += chunk
        else:
            for event in chunk:
                if group_of[event] in latest:
                    latest[group_of[event]].append(event)
        if row is not None:
            found.append(DeliverySegment(log, [], row))
            latest[row.group or ""] = found[-1].events
    return found


def select(run: RunFacts) -> Rows:
    """Nothing if an order is known; else of the first view without one what `total` would take, if
    it were all that there is, and the views in which these deliveries are."""
    if not len(run.view_rows):
        return run.skeleton
    # As `total` and no-duplication imply this law: where one order suits all process histories and
    # hides no repetition by a later incarnation, it suits every view.
    if (run.increasing or not run.durable) and not len(run.once(total.select)):
        return run.nothing
    for segments in run.view_segments():
        found = run.disorder(segments)
        if len(found):
            return found
    return run.nothing


LAW = Law(
    name=NAME,
    says=(
        "two processes that are in the same view of a group deliver any two events that both "
        "deliver of it in that view in the same order"
    ),
    remark="until each one's next view of the group; of services only agreed and safe",
    unknown_when="there is traffic but no view row",
    reads=("deliver", "view"),
    judge=judge,
    select=select,
    prove=Proof(
        lambda slices: total.PROOF.holds(slices) and slices.has_views, needs=total.PROOF.needs
    ),
    services=(ORDERED,),
    place=90,
)

"""no-creation: what is delivered was submitted before, by its origin.

"Submitted" means a submit row at the origin, anywhere in the trace. "Before" is never read off
clocks: it is broken where the rows themselves show that the delivery came first, because the origin
delivers its own event before it submits it, or because events wait for each other in a cycle of
processes. In a run that did not finish, the end of the origin's log may have been lost; a missing
submission is then broken only if that log goes on beyond it (a later number of the same incarnation
and group), and unknown otherwise.

Witness: the delivery whose submission is absent, or the deliveries and submissions of the cycle.
"""

from __future__ import annotations

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import EVENTS, Law, Proof
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown
from ordercast.types import COUNTER_BITS

NAME = "no-creation"


def judge(history: History) -> Verdict:
    last_numbers = {} if history.finished else _last_numbers(history)
    for row in history.never_submitted:
        number = row.number or 0
        last = last_numbers.get((row.group, row.origin, number >> COUNTER_BITS), -1)
        if history.finished or last > number:
            why = f"{row_writer(row)} delivered {row_event(row)}, never submitted by {row.origin}"
            return broken(NAME, (row,), why)
    cycle = history.past.cycle
    if cycle:
        first, submission = cycle[0], cycle[-1]
        if len(cycle) == 2:
            why = f"{row_writer(first)} delivered {row_event(submission)} before it submitted it"
        else:
            why = "events were delivered before they were submitted, in a cycle of processes"
        return broken(NAME, cycle, why)
    if history.never_submitted:
        row = history.never_submitted[0]
        why = f"{row_writer(row)} delivered {row_event(row)}; the run did not finish, so its "
        return unknown(NAME, why + f"submission may be a row of {row.origin} that was lost")
    return holds(NAME)


def _last_numbers(history: History) -> dict[tuple[str | None, str | None, int], int]:
    """How far each log goes: the greatest number submitted, by group, origin and incarnation."""
    last: dict[tuple[str | None, str | None, int], int] = {}
    for event in history.submits:
        group, origin, number = history.events[event]
        key = group, origin, number >> COUNTER_BITS
        last[key] = max(number, last.get(key, number))
    return last


def select(run: RunFacts) -> Rows | None:
    """The first delivery of an event never submitted, and the first whose origin's log goes on.

    With a clock nothing was delivered too early, neither in the run nor in a part of it. Of the
    events never submitted the first that shows a break counts; if none does, the first of all.
    """
    if not run.has_clock:
        return None
    missing = run.never_submitted
    if run.finished or not len(missing):
        return missing[:1]
    return run.union(missing[:1], run.first_surpassed(missing))


LAW = Law(
    name=NAME,
    says="what is delivered was submitted before, by its origin",
    unknown_when="the run was truncated and the end of the origin's log may be missing",
    reads=EVENTS,
    judge=judge,
    select=select,
    prove=Proof(lambda slices: slices.created),
    place=10,
)

"""agreement: what one member that stayed delivered, every other one delivered too, or gave up.

Of any two members that stayed and were connected, what the one delivered the other delivered too,
or openly gave up with a `lose` row.

And no member skips events silently, whoever it was cut off from. If it was in the group before an
origin came, and delivered an event of that origin, it delivered all earlier ones that anybody
delivered, or openly gave them up.

Both speak of what never happened, so only a finished run can show it. membership.py says which
processes `stayed`, were `connected` and were there `before` an origin.

Witness: absence is the evidence, so the witness is the delivery that obliges, and the words name
the member that has no such row. Of an event that was skipped, it is the submission, and the later
event that the member delivered.
"""

from __future__ import annotations

from itertools import product

from ordercast.check.facts import EventSet, Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import EVENTS, MEMBERS, Law, Proof
from ordercast.check.log import Log
from ordercast.check.membership import GroupMembership
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown
from ordercast.trace.schema import Row

NAME = "agreement"


def judge(history: History) -> Verdict:
    if not history.finished:
        return unknown(NAME, history.unfinished)
    for group in history.groups:
        members = GroupMembership(history, group)
        found = _disagreement(history, members) or _silent_gap(history, members)
        if found is not None:
            return found
    return holds(NAME)


def _disagreement(history: History, members: GroupMembership) -> Verdict | None:
    # Members with the same deliveries are compared once: there are few different sets, and
    # comparing every two members would be quadratic in a large group.
    group = members.group
    delivered: dict[frozenset[int], list[Log]] = {}
    known: dict[frozenset[int], list[Log]] = {}
    for log in members.stayed:
        events = frozenset(history.delivered_in(log, group))
        delivered.setdefault(events, []).append(log)
        known.setdefault(events | history.lost_in(log, group), []).append(log)
    everything = frozenset[int]().union(*delivered)
    for ours, logs in known.items():
        if everything <= ours:
            continue
        for theirs, others in delivered.items():
            missing = theirs - ours
            for log, other in product(logs, others) if missing else ():
                if members.connected(log, other):
                    return _not_agreed(min(missing), other, log)
    return None


def _not_agreed(event: int, other: Log, log: Log) -> Verdict:
    row = other.deliveries[other.delivered.index(event)]
    why = (
        f"{row_writer(row)} delivered {row_event(row)}, and {log.process}, which stayed "
        "connected with it, neither delivered it nor gave it up"
    )
    return broken(NAME, (row,), why)


def _silent_gap(history: History, members: GroupMembership) -> Verdict | None:
    group = members.group
    judged = [log for log in members.lasting if any(members.came_after(log))]
    if not judged:
        return None
    everything = set[int]().union(*(history.delivered_in(log, group) for log in history.logs))
    for log in judged:
        delivered = history.delivered_in(log, group)
        lacking = everything - delivered - history.lost_in(log, group)
        came = {id(other) for other in members.came_after(log)} if lacking else set()
        newest: dict[int, int] = {}  # of each of them: the last event that this member delivered
        for event in delivered if came else ():
            submitter = id(history.submitters.get(event))
            if submitter in came:
                newest[submitter] = max(event, newest.get(submitter, event), key=history.number_of)
        for event in sorted(lacking) if newest else ():
            later = newest.get(id(history.submitters.get(event)))
            if later is not None and history.number_of(later) > history.number_of(event):
                return _skipped(history.submits[event], log, later)
    return None


def _skipped(submit: Row, log: Log, later: int) -> Verdict:
    row = log.deliveries[log.delivered.index(later)]
    why = (
        f"{row_writer(row)}, which was in the group before {submit.origin}, delivered "
        f"{row_event(row)}, and neither delivered {row_event(submit)} nor gave it up"
    )
    return broken(NAME, (submit, row), why)


def select(run: RunFacts) -> Rows | None:
    """The skeleton rows; if two that were connected differ, all events that not all delivered; and
    all events of an origin of which a member that was there before it lacks some.

    The others are delivered by all who stayed, or by none of them and given up by none, so no
    two members have equal sets in the selection and different ones in the run.
    """
    chosen = run.no_events()
    for group in run.history.groups:
        members = GroupMembership(run.history, group)
        inside = run.events_in(group)
        chosen |= _with_gaps(run, members, inside)
        by_all, by_any = inside.copy(), run.no_events()
        for log in members.stayed:
            delivered = run.delivered_by(log)
            by_all &= delivered
            by_any |= delivered & inside
        if not (by_any & ~by_all).any():
            continue
        if not run.tables_fit(members.stayed):
            return None
        given_up = _given_up_if_apart(run, members, by_any)
        if given_up is not None:
            chosen |= (by_any | (given_up & inside)) & ~by_all
    return run.union(run.skeleton, run.rows_about(chosen))


def _with_gaps(run: RunFacts, members: GroupMembership, inside: EventSet) -> EventSet:
    """All events of origins of which a member that was there before them lacks some."""
    found = run.no_events()
    judged = [log for log in members.lasting if any(members.came_after(log))]
    by_any = run.no_events()
    for log in run.history.logs if judged else ():
        by_any |= run.delivered_by(log) & inside
    for log in judged:
        delivered = run.delivered_by(log)
        lacking = by_any & ~delivered & ~run.given_up_by(log)
        for other in members.came_after(log) if lacking.any() else ():
            made = run.submitted_by([other]) & inside
            if (made & lacking).any() and (made & delivered).any():
                found |= made
    return found


def _given_up_if_apart(
    run: RunFacts, members: GroupMembership, by_any: EventSet
) -> EventSet | None:
    """What those who stayed gave up, if somebody lacks what one connected with it delivered."""
    delivered = [run.delivered_by(log) & by_any for log in members.stayed]
    by_somebody = run.no_events()
    apart = False
    for log, ours in zip(members.stayed, delivered, strict=True):
        given_up = run.given_up_by(log)
        by_somebody |= given_up
        lacking = by_any & ~ours & ~given_up
        if lacking.any():
            apart = apart or any(
                (theirs & lacking).any() and members.connected(log, other)
                for other, theirs in zip(members.stayed, delivered, strict=True)
            )
    return by_somebody if apart else None


LAW = Law(
    name=NAME,
    says=(
        "what one member that stayed delivered, every member that it stayed connected with "
        "delivered too, or openly gave up; and of an origin that came into the group after it, no "
        "member skips an event without giving it up openly"
    ),
    unknown_when="the run did not finish",
    reads=(*EVENTS, *MEMBERS, "lose"),
    judge=judge,
    finished_only=True,
    shows_absence=True,
    select=select,
    prove=Proof(
        lambda slices: (
            slices.increasing and slices.created and slices.all_have_what_was_delivered()
        ),
        needs=("order",),
    ),
    place=40,
)

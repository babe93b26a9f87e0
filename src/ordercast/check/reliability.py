"""What must not be missing: `agreement` and `completeness`.

Both speak of what never happened, so only a finished run can show them; otherwise the answer is
unknown. Whom they bind (who `stayed`, `lasted`, was `connected`) is said in membership.py.

agreement     Of any two members that stayed and were connected, what the one delivered the other
              delivered too, or openly gave up with a `lose` row.
completeness  Every event whose submitter lasted is delivered by every member that stayed and was
              connected with the submitter. A submitter that stayed is a member like any other:
              it must deliver its own. A `lose` row is no excuse.

Witness: absence is the evidence, so the witness is the row that obliges (the delivery, or the
submission), and the words name the member that has no such row.
"""

from __future__ import annotations

from itertools import product

from ordercast.check.history import History, Log
from ordercast.check.membership import Membership
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown

AGREEMENT = "agreement"
COMPLETENESS = "completeness"


def agreement(history: History) -> Verdict:
    if not history.finished:
        return unknown(AGREEMENT, _unfinished(history))
    for group in history.groups:
        found = _disagreement(history, Membership(history, group))
        if found is not None:
            return found
    return holds(AGREEMENT)


def _disagreement(history: History, members: Membership) -> Verdict | None:
    # Members with the same deliveries are compared once: there are few different sets, and
    # comparing every two members would be quadratic in a large group.
    group = members.group
    delivered: dict[frozenset[int], list[Log]] = {}
    known: dict[frozenset[int], list[Log]] = {}
    for life in members.stayed:
        events = frozenset(history.delivered_in(life, group))
        delivered.setdefault(events, []).append(life)
        known.setdefault(events | history.lost_in(life, group), []).append(life)
    everything = frozenset[int]().union(*delivered)
    for ours, lives in known.items():
        if everything <= ours:
            continue
        for theirs, others in delivered.items():
            missing = theirs - ours
            for life, other in product(lives, others) if missing else ():
                if members.connected(life, other):
                    return _not_agreed(history, min(missing), other, life)
    return None


def _not_agreed(history: History, event: int, other: Log, life: Log) -> Verdict:
    row = other.deliveries[other.delivered.index(event)]
    why = (
        f"{row_writer(row)} delivered {row_event(row)}, and {life.process}, which stayed "
        "connected with it, neither delivered it nor gave it up"
    )
    return broken(AGREEMENT, (row,), why)


def completeness(history: History) -> Verdict:
    if not history.finished:
        return unknown(COMPLETENESS, _unfinished(history))
    for group in history.groups:
        members = Membership(history, group)
        due = {
            event
            for event in history.submitted_in.get(group, ())
            if members.lasted(history.submitters[event])
        }
        for life in members.stayed:
            for event in sorted(due - history.delivered_in(life, group)):
                submitter = history.submitters[event]
                if submitter is life or members.connected(submitter, life):
                    row = history.submits[event]
                    why = f"{life.process} never delivered {row_event(row)}"
                    return broken(COMPLETENESS, (row,), why)
    return holds(COMPLETENESS)


def _unfinished(history: History) -> str:
    return f"the run is {history.header.ending}, not finished: what is missing may still have come"

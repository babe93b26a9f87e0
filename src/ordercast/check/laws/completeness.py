"""completeness: every event whose submitter lasted is delivered by every member that stayed.

More exactly, by every member that stayed and was connected with the submitter. A submitter that
stayed is a member like any other: it must deliver its own. A `lose` row is no excuse, but in
durable families, whose logs may give up what they cannot hold any longer. It speaks of what never
happened, so only a finished run can show it. membership.py says which processes `stayed`, `lasted`
and were `connected`.

Witness: absence is the evidence, so the witness is the submission that obliges, and the words name
the member that has no such delivery.
"""

from __future__ import annotations

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import EVENTS, MEMBERS, Law, Proof
from ordercast.check.membership import GroupMembership
from ordercast.check.verdict import Verdict, broken, holds, row_event, unknown

NAME = "completeness"


def judge(history: History) -> Verdict:
    if not history.finished:
        return unknown(NAME, history.unfinished)
    for group in history.groups:
        members = GroupMembership(history, group)
        due = {
            event
            for event in history.submitted_in.get(group, ())
            if members.lasted(history.submitters[event])
        }
        for log in members.stayed:
            given_up = history.lost_in(log, group) if history.durable else set[int]()
            for event in sorted(due - history.delivered_in(log, group) - given_up):
                submitter = history.submitters[event]
                if submitter is log or members.connected(submitter, log):
                    row = history.submits[event]
                    why = f"{log.process} never delivered {row_event(row)}"
                    return broken(NAME, (row,), why)
    return holds(NAME)


def select(run: RunFacts) -> Rows:
    """The skeleton rows, and all events that a member lacks although their submitter was connected
    with it."""
    history = run.history
    chosen = run.no_events()
    for group in history.groups:
        members = GroupMembership(history, group)
        lasting = [log for log in history.logs if members.lasted(log)]
        due = run.events_in(group) & run.submitted_by(lasting)
        for log in members.stayed:
            lacking = due & ~run.delivered_by(log)
            if run.durable:
                lacking &= ~run.given_up_by(log)
            if lacking.any():
                near = [
                    other
                    for other in lasting
                    if other.process == log.process or members.connected(other, log)
                ]
                chosen |= lacking & run.submitted_by(near)
    return run.union(run.skeleton, run.rows_about(chosen))


LAW = Law(
    name=NAME,
    says=(
        "at the end of a quiet run, every event submitted by a process that did not crash is "
        "delivered by every member that was in the group and connected throughout"
    ),
    remark="in durable families also, or openly given up",
    unknown_when="the run did not finish",
    reads=(*EVENTS, *MEMBERS, "lose"),
    judge=judge,
    finished_only=True,
    shows_absence=True,
    select=select,
    prove=Proof(
        lambda slices: slices.increasing and slices.created and slices.all_have_what_was_submitted()
    ),
    place=50,
)

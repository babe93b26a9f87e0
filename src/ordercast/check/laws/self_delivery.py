"""self-delivery: a process that lasted has delivered all that it submitted.

Judged for the last incarnation of each process, group by group, unless it crashed, left the group,
or stopped before the group's last submission. A `lose` row is no excuse. It speaks of what never
happened, so only a finished run can show it.

Witness: absence is the evidence, so the witness is the submission that obliges.
"""

from __future__ import annotations

from collections.abc import Iterator

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import EVENTS, Law, Proof
from ordercast.check.log import Log
from ordercast.check.membership import GroupMembership
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown

NAME = "self-delivery"


def judge(history: History) -> Verdict:
    if not history.finished:
        return unknown(NAME, history.unfinished)
    for group, log in _lasting(history):
        due = [one for _, one in log.submitted if history.group_of[one] == group]
        delivered = history.delivered_in(log, group)
        for event in due:
            if event not in delivered:
                row = history.submits[event]
                why = f"{row_writer(row)} never delivered {row_event(row)}, which it submitted"
                return broken(NAME, (row,), why)
    return holds(NAME)


def _lasting(history: History) -> Iterator[tuple[str, Log]]:
    for group in history.groups:
        members = GroupMembership(history, group)
        for log in history.logs:
            if members.lasted(log) and group not in log.left:
                yield group, log


def select(run: RunFacts) -> Rows:
    """The skeleton rows, and all events that their submitter lacks although it lasted."""
    chosen = run.no_events()
    for group, log in _lasting(run.history):
        chosen |= run.events_in(group) & run.submitted_by([log]) & ~run.delivered_by(log)
    return run.union(run.skeleton, run.rows_about(chosen))


LAW = Law(
    name=NAME,
    says="at the end of a quiet run, a process that lasted has delivered all that it submitted",
    remark="unless it left the group",
    unknown_when="the run did not finish",
    reads=(*EVENTS, "leave"),
    judge=judge,
    finished_only=True,
    shows_absence=True,
    select=select,
    prove=Proof(
        lambda slices: slices.increasing and slices.created and slices.all_have_what_was_submitted()
    ),
    place=55,
)

"""durable: what one live process holds at the end, every live process has, or has given up.

Live is a process whose last incarnation lasted (membership.py) and did not leave the group. It
holds what that incarnation delivered, and, if the family is durable, all earlier incarnations with
the same data folder. What one of them holds at the end of a quiet run, every other one that has to
do with the group has delivered in the same sense, or given up (`lose`). What only dead processes
had is not asked for. It speaks of what never happened, so only a finished run can show it. A
process that was given the state of the application is not judged: that contains events that it does
not deliver.

Witness: absence is the evidence, so the witness is the delivery that obliges, and the words name
the process that has no such row.
"""

from __future__ import annotations

from collections.abc import Iterator

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import History
from ordercast.check.law import EVENTS, Law, Proof
from ordercast.check.log import Log
from ordercast.check.membership import GroupMembership
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown

NAME = "durable"


def judge(history: History) -> Verdict:
    if not history.finished:
        return unknown(NAME, history.unfinished)
    for group in history.groups:
        live = list(_live(history, group))
        held = [set[int]().union(*(history.delivered_in(one, group) for one in of)) for of in live]
        everything = set[int]().union(*held)
        for logs, had in zip(live, held, strict=True):
            if len(had) == len(everything):
                continue
            given_up = set[int]().union(*(history.lost_in(one, group) for one in logs))
            lacking = everything - had - given_up
            if lacking:
                return _broken(min(lacking), live, held, logs[-1])
    return holds(NAME)


def _live(history: History, group: str) -> Iterator[list[Log]]:
    """By live process: the incarnations that count."""
    members = GroupMembership(history, group)
    several: dict[int, list[Log]] = {}
    for log in history.logs:
        several.setdefault(history.history_of(log), []).append(log)
    for logs in several.values():
        last = logs[-1]
        if not members.lasted(last) or not any(map(members.is_member, logs)):
            continue
        if group not in last.left and not any(group in log.given_state for log in logs):
            yield logs


def _broken(event: int, live: list[list[Log]], held: list[set[int]], lacks: Log) -> Verdict:
    holder = next(logs for logs, had in zip(live, held, strict=True) if event in had)
    log = next(one for one in holder if event in one.delivered)
    row = log.deliveries[log.delivered.index(event)]
    why = (
        f"{row_writer(row)} delivered {row_event(row)}, and {lacks.process}, which lasted, has "
        "neither delivered it nor given it up"
    )
    return broken(NAME, (row,), why)


def select(run: RunFacts) -> Rows:
    """The skeleton rows, and all events that some live processes hold and others lack.

    The others are held by all of them or by none, so sets of two processes differ in the selection
    as they do in the run.
    """
    chosen = run.no_events()
    for group in run.history.groups:
        inside, held = run.events_in(group), run.no_events()
        live = list(_live(run.history, group))
        for logs in live:
            for log in logs:
                held |= run.delivered_by(log) & inside
        for logs in live:
            lacking = held.copy()
            for log in logs:
                lacking &= ~run.delivered_by(log) & ~run.given_up_by(log)
            chosen |= lacking
    return run.union(run.skeleton, run.rows_about(chosen))


LAW = Law(
    name=NAME,
    says=(
        "at the end of a quiet run, what one process that lasted holds, every process that lasted "
        "has delivered or given up; unless it left the group"
    ),
    remark="over all incarnations with the same data folder, if the family is durable",
    unknown_when="the run did not finish",
    reads=(*EVENTS, "join", "leave", "view", "lose"),
    judge=judge,
    promised_only=True,
    finished_only=True,
    shows_absence=True,
    select=select,
    prove=Proof(
        lambda slices: (
            slices.increasing and slices.created and slices.all_have_what_was_delivered()
        ),
        needs=("order",),
    ),
    place=45,
)

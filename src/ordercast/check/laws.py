"""All laws by name, and `check`, which judges one run.

This is the reference: whatever else judges traces must answer the same. A pure function of the
trace, with no I/O. What each law means exactly is said at the top of its theme's file:

  delivery.py     no-creation, no-duplication, fifo
  reliability.py  agreement, completeness       (whom they bind: membership.py)
  causality.py    optimistic-causal, causal     (what precedes what: past.py)
  order.py        total, total-in-view
  views.py        virtual-synchrony, view-agreement, disjoint-views
  tickets.py      ticket-uniqueness

A law is asked only if the rows that it reads are as the contract wants them, and the run was
traced at all. Otherwise it is unknown, with the first reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ordercast.check.causality import causal, optimistic_causal
from ordercast.check.delivery import fifo, no_creation, no_duplication
from ordercast.check.history import History
from ordercast.check.order import total, total_in_view
from ordercast.check.reliability import agreement, completeness
from ordercast.check.tickets import ticket_uniqueness
from ordercast.check.verdict import Answer, Verdict, unknown
from ordercast.check.views import disjoint_views, view_agreement, virtual_synchrony
from ordercast.consistency import FAMILIES, LAWS
from ordercast.errors import UsageError, unknown_word
from ordercast.trace.schema import Header, Level, Trace
from ordercast.types import name_of


class Judge(NamedTuple):
    """How a law is judged, and the kinds of row that it reads."""

    judge: Callable[[History], Verdict]
    reads: tuple[str, ...]


_EVENTS = ("submit", "deliver")
_MEMBERS = ("join", "leave", "view", "suspect")

JUDGES: dict[str, Judge] = {
    "no-creation": Judge(no_creation, _EVENTS),
    "no-duplication": Judge(no_duplication, ("deliver",)),
    "fifo": Judge(fifo, ("deliver",)),
    "agreement": Judge(agreement, (*_EVENTS, *_MEMBERS, "lose")),
    "completeness": Judge(completeness, (*_EVENTS, *_MEMBERS)),
    "optimistic-causal": Judge(optimistic_causal, _EVENTS),
    "causal": Judge(causal, (*_EVENTS, "join", "view")),
    "total": Judge(total, ("deliver",)),
    "total-in-view": Judge(total_in_view, ("deliver", "view")),
    "virtual-synchrony": Judge(virtual_synchrony, ("deliver", "view")),
    "view-agreement": Judge(view_agreement, _MEMBERS),
    "disjoint-views": Judge(disjoint_views, ("join", "leave", "view")),
    "ticket-uniqueness": Judge(ticket_uniqueness, ("submit", "ticket")),
}


def check(trace: Trace, laws: Sequence[str] | None = None) -> list[Verdict]:
    """Judges one run. Without `laws`, by what its family promises; of no family, by all laws.

    What a family promises only while nothing fails is added where the rows show no crash, no
    suspicion, no loss and no restart.
    """
    if laws is not None:
        _refuse_unknown(laws)
    elif families := families_of(trace.header):
        return _check_each(trace, families)
    history = History(trace)
    wanted = promised(history) if laws is None else list(dict.fromkeys(laws))
    return [_ask(name, history) for name in wanted]


def families_of(header: Header) -> dict[str, list[str]]:
    """The families of a run and their groups, as far as its parameters tell.

    Empty where the header's own family stands for all groups.
    """
    found: dict[str, list[str]] = {}
    groups = header.parameters.get("group")
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, dict) and isinstance(group.get("name"), str):
            found.setdefault(group.get("family") or header.family or "", []).append(group["name"])
    return {} if found.keys() <= {header.family or ""} else found


def _check_each(trace: Trace, families: dict[str, list[str]]) -> list[Verdict]:
    """Each family by its own promise, on its own groups. Of two answers to a law the worse one."""
    worst: dict[str, Verdict] = {}
    for family, groups in families.items():
        rows = [row for row in trace.rows if row.group is None or name_of(row.group) in groups]
        header = msgspec.structs.replace(trace.header, family=family, parameters={})
        for verdict in check(Trace(header, rows)):
            known = worst.get(verdict.law)
            if known is None or _WEIGHT[verdict.answer] > _WEIGHT[known.answer]:
                worst[verdict.law] = verdict
    return [worst[name] for name in LAWS if name in worst]


_WEIGHT = {Answer.HOLDS: 0, Answer.UNKNOWN: 1, Answer.BROKEN: 2}


def promised(history: History) -> list[str]:
    """The laws that the run's family promises for it, in the order of LAWS."""
    promise = FAMILIES.get(history.header.family or "")
    if promise is None:
        return list(LAWS)
    names = promise.laws + (promise.when_nothing_fails if history.calm else ())
    return [name for name in LAWS if name in names]


def _ask(name: str, history: History) -> Verdict:
    law = JUDGES[name]
    if history.header.level == Level.OFF:
        return unknown(name, "the run was not traced: its trace level is off")
    flaw = history.flaw(law.reads)
    return unknown(name, flaw) if flaw is not None else law.judge(history)


def _refuse_unknown(names: Sequence[str]) -> None:
    for name in names:
        if name not in LAWS:
            raise UsageError(unknown_word("law", name, LAWS))

"""optimistic-causal: no process delivers an event after delivering one that it causally precedes.

Judged within a process history. An event may be missing altogether: gaps are allowed. Delivering
the same event again, with nothing between that it precedes, is not this law's business. How it is
judged, and when it is unknown: causality.py.

A stream tells no submissions, so the streaming form takes the past from the stamps: a protocol that
stamps wrongly is caught on the members' traces, where the past comes from the rows. Events without
a stamp are not judged by it, nor are basic ones.

Witness: the rows that show that the one event precedes the other, and the deliveries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ordercast.check.causality import judge_causality
from ordercast.check.history import BASIC
from ordercast.check.law import EVENTS, Delivery, Implication, Law, Proof, Streaming
from ordercast.trace.text import event_name

NAME = "optimistic-causal"

TICKETS = 4096
"""The most entries of a stamp that a stream remembers."""


class Newest(msgspec.Struct, array_like=True):
    """How far a ticket is in the past of what was delivered, and of which event."""

    entry: int = -1
    by: str = ""


class CausalMemory(msgspec.Struct, array_like=True):
    incarnation: int = -1  # order is promised within one
    marks: list[Newest] = []  # by index


def breaks(memory: CausalMemory, deliveries: Iterable[Delivery]) -> Iterator[tuple[Delivery, str]]:
    for each in deliveries:
        if each.incarnation != memory.incarnation:
            memory.incarnation = each.incarnation
            memory.marks.clear()
        index, stamp = each.index, each.stamp
        if each.cause == BASIC or stamp is None or index is None:
            continue
        if not 0 <= index < len(stamp) <= TICKETS:
            continue
        by = _passed(memory.marks, each, index, stamp)
        if by is not None:
            yield each, f"after {by}, which has it in its past"


def _passed(marks: list[Newest], each: Delivery, index: int, stamp: tuple[int, ...]) -> str | None:
    """Which event, delivered before this one, has it in its past. Then its own past is marked."""
    while len(marks) < len(stamp):
        marks.append(Newest())
    mark = marks[index]
    late = mark.by if mark.entry >= stamp[index] else None
    name = event_name(each.origin, each.number)
    for place, entry in enumerate(stamp):
        if place == index:
            entry -= 1  # it precedes others, but not itself
        if entry > marks[place].entry:
            marks[place] = Newest(entry, name)
    return late


LAW = Law(
    name=NAME,
    says="no process delivers an event after delivering one that it causally precedes",
    remark="gaps are allowed; basic events may come late",
    unknown_when="the submission of a delivered event is missing",
    reads=EVENTS,
    judge=lambda history: judge_causality(NAME, history, gaps_allowed=True),
    select=lambda run: run.causal_breaks(gaps=False),
    prove=Proof(lambda slices: slices.created and slices.in_causal_order, needs=("pasts",)),
    stream=Streaming(CausalMemory, breaks),
    implies=(
        Implication(
            "no-creation",
            because="an event that was never submitted, or was delivered before it was submitted, "
            "has no past: this law is then unknown",
            source="the two sentences",
        ),
    ),
    place=60,
)

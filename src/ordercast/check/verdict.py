"""What a law answers, and how rows and events are named in the answer.

Three answers. `holds` is said only of what the rows can show. `broken` comes with a witness: the
fewest rows that show the first break that was found. `unknown` comes with the reason: a run that
was cut, a column that is missing, rows that contradict each other. A law never raises because of
what a trace holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from ordercast.trace.schema import Row
from ordercast.trace.text import event_name, incarnation_name


class Answer(StrEnum):
    HOLDS = "holds"
    BROKEN = "broken"
    UNKNOWN = "unknown"


class Verdict(msgspec.Struct, frozen=True):
    """One law's answer on one run. The witness is empty unless the law is broken."""

    law: str
    answer: Answer
    witness: tuple[Row, ...] = ()
    why: str = ""


def holds(law: str) -> Verdict:
    return Verdict(law, Answer.HOLDS)


def broken(law: str, witness: Iterable[Row], why: str) -> Verdict:
    return Verdict(law, Answer.BROKEN, tuple(witness), why)


def unknown(law: str, why: str) -> Verdict:
    return Verdict(law, Answer.UNKNOWN, (), why)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Of several answers to one law the worst; of equal ones the first."""
    return max(verdicts, key=lambda one: WEIGHT[one.answer])


WEIGHT = {Answer.HOLDS: 0, Answer.UNKNOWN: 1, Answer.BROKEN: 2}


def row_event(row: Row) -> str:
    """The short name of the event that a row is about."""
    if row.origin is None or row.number is None:
        return "?"
    return event_name(row.origin, row.number)


def row_writer(row: Row) -> str:
    """The short name of the incarnation that wrote a row."""
    return incarnation_name(row.process, row.incarnation)

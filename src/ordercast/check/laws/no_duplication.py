"""no-duplication: no process delivers an event twice in one incarnation.

Where the family is durable, not in any two of its incarnations either.

Witness: the two deliveries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ordercast.check.history import History
from ordercast.check.law import ORIGINS, Delivery, Law, Proof, Streaming
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer
from ordercast.trace.recording import Numbers
from ordercast.trace.schema import Row

NAME = "no-duplication"


def judge(history: History) -> Verdict:
    for log in history.histories:
        if len(set(log.delivered)) == len(log.delivered):
            continue
        first: dict[int, Row] = {}
        for event, row in zip(log.delivered, log.deliveries, strict=True):
            if event in first:
                why = f"{row_writer(first[event])} delivered {row_event(row)}, and "
                why += f"{row_writer(row)} delivered it again"
                return broken(NAME, (first[event], row), why)
            first[event] = row
    return holds(NAME)


class Seen(msgspec.Struct, array_like=True):
    """What was recorded of one origin, whichever incarnation recorded it."""

    floor: int = 0  # up to here it is not known what was delivered
    spans: list[int] = []  # see Numbers


class DuplicationMemory(msgspec.Struct, array_like=True):
    """Of an origin with more than 64 gaps, numbers before the oldest gaps are not judged."""

    origins: dict[str, Seen] = {}  # the one that spoke last is the last


def breaks(
    memory: DuplicationMemory, deliveries: Iterable[Delivery]
) -> Iterator[tuple[Delivery, str]]:
    origins = memory.origins
    for each in deliveries:
        seen = origins.pop(each.origin, None) or Seen()
        origins[each.origin] = seen
        if len(origins) > ORIGINS:
            del origins[next(iter(origins))]
        number, spans = each.number, seen.spans
        if spans and number == spans[-1] + 1 and number > seen.floor:
            spans[-1] = number  # as nearly all of them
        elif number > seen.floor:
            numbers = Numbers(spans, seen.floor)
            if number in numbers:
                yield each, "a second time"
            numbers.add(number)
            seen.spans, seen.floor = numbers.spans, numbers.floor


LAW = Law(
    name=NAME,
    says="no process delivers an event twice in one incarnation",
    remark="over all incarnations, if the family is durable",
    reads=("deliver",),
    judge=judge,
    select=lambda run: run.repetitions,  # other deliveries never matter
    prove=Proof(lambda slices: slices.increasing),
    stream=Streaming(DuplicationMemory, breaks),
    place=20,
)

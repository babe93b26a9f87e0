"""What a process may deliver at all: `no-creation`, `no-duplication` and `fifo`.

no-creation     What is delivered was submitted before, by its origin. "Submitted" means a submit
                row at the origin, anywhere in the trace. "Before" is never read off clocks: it
                is broken where the rows themselves show that the delivery came first, because
                the origin delivers its own event before it submits it, or because events wait
                for each other in a circle across processes. In a run that did not finish, the
                end of the origin's log may have been lost; a missing submission is then broken
                only if that log goes on beyond it (a later number of the same life and group),
                and unknown otherwise.
no-duplication  No process delivers an event twice in one life; where the family is durable, not
                in any two of its lives either.
fifo            A process delivers one origin's events of a group in increasing number. Numbers
                may be left out. A later life of the origin has greater numbers, so it comes
                after the earlier one. Delivering the same number again is duplication, not
                disorder. Judged within a life of the deliverer, across lives if durable.

Witness: the two deliveries for `fifo` and `no-duplication`; for `no-creation` the delivery, whose
submission is absent, or the deliveries and submissions of the circle.
"""

from __future__ import annotations

from ordercast.check.history import History, Log
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer, unknown
from ordercast.trace.schema import Row
from ordercast.types import COUNTER_BITS

NO_CREATION = "no-creation"
NO_DUPLICATION = "no-duplication"
FIFO = "fifo"


def no_creation(history: History) -> Verdict:
    last_numbers = {} if history.finished else _last_numbers(history)
    for row in history.strangers:
        number = row.number or 0
        last = last_numbers.get((row.group, row.origin, number >> COUNTER_BITS), -1)
        if history.finished or last > number:
            why = f"{row_writer(row)} delivered {row_event(row)}, never submitted by {row.origin}"
            return broken(NO_CREATION, (row,), why)
    tangle = history.past.tangle
    if tangle:
        first, submission = tangle[0], tangle[-1]
        if len(tangle) == 2:
            why = f"{row_writer(first)} delivered {row_event(submission)} before it submitted it"
        else:
            why = "events were delivered before they were submitted, in a circle of processes"
        return broken(NO_CREATION, tangle, why)
    if history.strangers:
        row = history.strangers[0]
        why = f"{row_writer(row)} delivered {row_event(row)}; the run did not finish, so its "
        return unknown(NO_CREATION, why + f"submission may be a row of {row.origin} that was lost")
    return holds(NO_CREATION)


def _last_numbers(history: History) -> dict[tuple[str | None, str | None, int], int]:
    """How far each log goes: the greatest number submitted, by group, origin and its life."""
    last: dict[tuple[str | None, str | None, int], int] = {}
    for event in history.submits:
        group, origin, number = history.events[event]
        key = group, origin, number >> COUNTER_BITS
        last[key] = max(number, last.get(key, number))
    return last


def no_duplication(history: History) -> Verdict:
    for line in history.lines:
        if len(set(line.delivered)) == len(line.delivered):
            continue
        first: dict[int, Row] = {}
        for event, row in zip(line.delivered, line.deliveries, strict=True):
            if event in first:
                why = f"{row_writer(first[event])} delivered {row_event(row)}, and "
                why += f"{row_writer(row)} delivered it again"
                return broken(NO_DUPLICATION, (first[event], row), why)
            first[event] = row
    return holds(NO_DUPLICATION)


def fifo(history: History) -> Verdict:
    senders: dict[tuple[str, str], int] = {}
    sender_of: list[int] = []  # by event, so that the loop over deliveries hashes integers only
    number_of: list[int] = []
    for group, origin, number in history.events:
        sender_of.append(senders.setdefault((group, origin), len(senders)))
        number_of.append(number)
    for line in history.lines:
        latest: dict[int, int] = {}
        for at, event in enumerate(line.delivered):
            sender, number = sender_of[event], number_of[event]
            if number < latest.get(sender, number):
                return _out_of_order(line, at, sender, sender_of)
            latest[sender] = number
    return holds(FIFO)


def _out_of_order(line: Log, at: int, sender: int, sender_of: list[int]) -> Verdict:
    """The break came at once: the delivery of that sender right before it is too great."""
    row = line.deliveries[at]
    before = next(one for one in range(at - 1, -1, -1) if sender_of[line.delivered[one]] == sender)
    ahead = line.deliveries[before]
    why = f"{row_writer(row)} delivered {row_event(row)} after {row_event(ahead)}"
    return broken(FIFO, (ahead, row), why)

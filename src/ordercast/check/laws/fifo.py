"""fifo: a process delivers one origin's events of a group in increasing number.

Numbers may be left out. A later incarnation of the origin has greater numbers, so it comes after
the earlier one. Delivering the same number again is duplication, not disorder. Judged within an
incarnation of the deliverer, across incarnations if durable.

Where a run has services, basic events overtake others and are judged among themselves; causal,
agreed and safe ones are judged together. Where numbers never fall at all, they fall for neither: so
the proof over slices need not tell services apart.

Witness: the two deliveries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ordercast.check.facts import Rows, RunFacts
from ordercast.check.history import BASIC, History
from ordercast.check.law import ORIGINS, Delivery, Law, Proof, Streaming
from ordercast.check.log import Log
from ordercast.check.verdict import Verdict, broken, holds, row_event, row_writer
from ordercast.trace.text import event_name

NAME = "fifo"


def judge(history: History) -> Verdict:
    senders: dict[tuple[str, str], int] = {}
    sender_of: list[int] = []  # by event, so that the loop over deliveries hashes integers only
    number_of: list[int] = []
    for group, origin, number in history.events:
        sender_of.append(senders.setdefault((group, origin), len(senders)))
        number_of.append(number)
    for log in history.histories:
        latest: dict[int, int] = {}
        for at, event in enumerate(log.delivered):
            sender, number = sender_of[event], number_of[event]
            if number < latest.get(sender, number):
                return _out_of_order(log, at, sender, sender_of)
            latest[sender] = number
    return holds(NAME)


def _out_of_order(log: Log, at: int, sender: int, sender_of: list[int]) -> Verdict:
    """The break came at once: the delivery of that sender right before it is too great."""
    row = log.deliveries[at]
    before = next(one for one in range(at - 1, -1, -1) if sender_of[log.delivered[one]] == sender)
    ahead = log.deliveries[before]
    why = f"{row_writer(row)} delivered {row_event(row)} after {row_event(ahead)}"
    return broken(NAME, (ahead, row), why)


def select(run: RunFacts) -> Rows:
    """The first break of a process history is the first pair. Before it a selection has at most
    one delivery of each sender, so the judge finds nothing else."""
    return run.falls


class FifoMemory(msgspec.Struct, array_like=True):
    incarnation: int = -1  # order is promised within one
    last: dict[str, int] = {}  # by origin, the greatest number; the one that spoke last is the last
    basic: dict[str, int] = {}  # the same of basic events


def breaks(memory: FifoMemory, deliveries: Iterable[Delivery]) -> Iterator[tuple[Delivery, str]]:
    for each in deliveries:
        if each.incarnation != memory.incarnation:
            memory.incarnation = each.incarnation
            memory.last.clear()
            memory.basic.clear()
        origin, number = each.origin, each.number
        last = memory.basic if each.cause == BASIC else memory.last
        greatest = last.pop(origin, -1)
        if number < greatest:
            last[origin] = greatest
            yield each, f"after {event_name(origin, greatest)}"
        else:
            last[origin] = number
            if len(last) > ORIGINS:
                del last[next(iter(last))]


LAW = Law(
    name=NAME,
    says="a process delivers one origin's events of a group in increasing number",
    remark="an origin's incarnations in order; gaps are allowed; basic events by themselves",
    reads=("deliver",),
    judge=judge,
    select=select,
    prove=Proof(lambda slices: slices.never_falling),
    stream=Streaming(FifoMemory, breaks),
    services=(("", "causal", "agreed", "safe"), (BASIC,)),
    place=30,
)

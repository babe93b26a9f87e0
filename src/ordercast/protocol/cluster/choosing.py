"""Which one of several begins an open cluster: chosen once, by those that may found it together.

It is single-decree Paxos (Lamport: The part-time parliament, 1998). Its packets are states: every
newcomer tells with each question what it has promised, and others take over what is newer.

Rules.
 1. A newcomer that enough others favour opens a ballot, higher than any that it knows. A newcomer
    that hears of a ballot promises to accept nothing in a lower one, and tells whom it accepted
    last.
 2. When enough have promised its ballot, its opener accepts in it the name that they accepted last,
    in the highest ballot of those; or itself, if they have accepted nobody.
 3. A newcomer that hears that another has accepted in a ballot accepts the same in it, unless it
    has promised a higher one.
 4. A newcomer that finds itself accepted by enough, in one ballot, begins the cluster. Any two sets
    that are enough have a member in common, so every later ballot chooses the same.
 5. A promise is on disk before anybody hears of it. An old one that arrives late is true still, so
    no partition, delay or restart makes two begin.

The choice is a name: its next incarnation has its disk, so it knows whether it has begun, and
begins if not. If it never returns, nobody begins in its place: it may have begun, unheard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ordercast.kernel.packet import Packet
from ordercast.protocol.cluster.packets import Promise, PromiseRecord
from ordercast.protocol.tickets.packets import Ballot
from ordercast.types import NodeId

MOST_BALLOTS = 1 << 32
"""A higher count is not believed: nobody could open a ballot beyond the last one."""
Enough: TypeAlias = Callable[[list[str]], bool]
"""Whether these others and we may found the cluster together."""


class Election:
    """Our part in it."""

    def __init__(self, me: NodeId, expect: int = 0, records: Sequence[Packet] = ()) -> None:
        """`expect`: with how many."""
        self._me = me
        self._expect = expect
        self.promise: Promise | None = None
        for record in records:
            if isinstance(record, PromiseRecord) and record.expect == expect:
                self.promise = record.promise
        self._kept = self.promise  # as it is on disk

    @property
    def chosen(self) -> str:
        """Whom we have accepted, if anybody."""
        return "" if self.promise is None else self.promise.first

    def heard(self, other: Promise) -> None:
        mine = self.promise
        if other.ballot.count >= MOST_BALLOTS:
            return
        if mine is None:
            mine = Promise(other.ballot)
        elif other.ballot > mine.ballot:
            mine = Promise(other.ballot, mine.accepted, mine.first)
        if other.accepted == mine.ballot != mine.accepted and other.first:
            mine = other
        self.promise = mine

    def lead(self, others: Mapping[str, Promise], enough: Enough, *, accept: bool) -> None:
        """We are favoured: what comes next is ours to do."""
        mine = self.promise
        if mine is None or mine.ballot.by != self._me:
            count = 1 if mine is None else mine.ballot.count + 1
            self.promise = Promise(Ballot(count, self._me), *(mine.accepts if mine else ()))
        elif accept and mine.accepted != mine.ballot:
            promised = {name: one for name, one in others.items() if one.ballot == mine.ballot}
            if enough(list(promised)):
                voted = [one.accepts for one in (mine, *promised.values()) if one.accepted]
                first = max(voted)[1] if voted else self._me.name
                self.promise = Promise(mine.ballot, mine.ballot, first)

    def is_ours(self, others: Mapping[str, Promise], enough: Enough) -> bool:
        """Whether we are chosen."""
        if self.chosen != self._me.name:
            return False
        mine = self.promise
        assert mine is not None
        return enough([name for name, one in others.items() if one.accepts == mine.accepts])

    def record(self, group: str) -> PromiseRecord | None:
        """What the disk must have before anybody hears of it, if that is new."""
        if self.promise is None or self.promise == self._kept:
            return None
        self._kept = self.promise
        return PromiseRecord(group, self._expect, self.promise)

"""The active set: the members that gossip is sent to by connections.

Rules.
 1. A packet too long for a datagram goes by connection, and so does every one where `transport` is
    status. The sampler chooses among all members in the course of time, so without a bound a member
    would be connected with each of them in turn, and again soon after. By connection it sends to at
    most `links` members, and to `fan_out` at the least, again and again.
 2. They are names from the sampler. One of them gives way to another every `RENEWAL` rounds, so a
    set that happens to be a bad one does not stay; one that did not answer gives way at once.
 3. A member that knows no more than so many, and always the same, needs no set.

What it does not do: bound how many others choose us. They are as many on average.
"""

from __future__ import annotations

from random import Random

from ordercast.protocol.cluster.sampler import Everybody, Sampler

RENEWAL = 40


class ActiveSet:
    __slots__ = ("_chance", "_is_all", "_limit", "_names", "_rounds", "_sampler")

    def __init__(self, sampler: Sampler, limit: int, chance: Random) -> None:
        self._sampler = sampler
        self._limit = limit
        self._chance = chance
        self._is_all = isinstance(sampler, Everybody) and len(sampler.known()) <= limit
        self._names: dict[str, None] = {}  # the oldest first
        self._rounds = 0

    def round(self) -> None:
        """Called once a round."""
        self._rounds += 1
        if self._rounds % RENEWAL == 0 and self._names:
            del self._names[next(iter(self._names))]

    def instead_of(self, sampled: tuple[str, ...]) -> tuple[str, ...]:
        """As many members as the sampler chose, from the set."""
        if self._is_all:
            return sampled
        if len(self._names) < self._limit:
            for name in self._sampler.sample(self._limit):
                if len(self._names) < self._limit:
                    self._names[name] = None
        return tuple(self._chance.sample(list(self._names), min(len(sampled), len(self._names))))

    def failed(self, name: str) -> None:
        """A send to this member was not answered."""
        self._names.pop(name, None)

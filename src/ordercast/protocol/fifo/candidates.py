"""Names that are said to be in an open group and have not been heard.

A candidate is sent a heartbeat when it is named, and then one every suspicion limit. It becomes a
peer when it is heard. It counts for nothing until then: no submission and no view waits for it
longer than the suspicion limit, and nothing is retained for it.

Rules.
 1. Names that our own host gave are candidates for as long as they are not peers.
 2. Names of former peers are candidates for a while, so that two parts of a group find each other
    after a long partition.
 3. Names that a peer tells us are candidates while some peer repeats them. Of one teller only a few
    are taken at a time, so a peer that invents names leaves no room for more of its own, and takes
    none from others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

MOST_GIVEN = 128
"""Names that a host can give."""
MOST_CANDIDATES = 256
"""Names of the other two kinds, together."""
MOST_TOLD = 32
"""Candidates that one peer may have named."""
TRIES_TOLD = 10
TRIES_FORMER = 600
"""Heartbeats without an answer after which a name is dropped."""


class Candidate:
    __slots__ = ("teller", "tries", "wait")

    def __init__(self, teller: str = "", tries: int = 0) -> None:
        self.teller = teller  # the peer that named it first; "": nobody did, it was a peer itself
        self.tries = tries  # heartbeats that are left
        self.wait = 0  # own heartbeats until it is sent the next one


class Candidates:
    def __init__(self, me: str) -> None:
        self._me = me
        self._given: dict[str, Candidate] = {}
        self._others: dict[str, Candidate] = {}
        self._heard: dict[str, None] = {}  # given names that are peers now

    def __contains__(self, name: str) -> bool:
        return name in self._given or name in self._others

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._given, *self._others)

    def give(self, names: Iterable[str], peers: Iterable[str]) -> None:
        """The host knows these names, some of which may be peers already."""
        known = {*peers}
        for name in names:
            if name == self._me or len(self._given) + len(self._heard) >= MOST_GIVEN:
                continue
            if name in known:
                self._heard[name] = None
            elif name not in self._given:
                self._given[name] = self._others.pop(name) if name in self._others else Candidate()

    def tell(self, teller: str, names: Iterable[str]) -> None:
        """A peer says that these names, none of which is a peer, are in the group."""
        told = Counter(each.teller for each in self._others.values())
        for name in names:
            if name == self._me or name in self._given:
                continue
            known = self._others.get(name)
            if known is not None:
                known.tries = max(known.tries, TRIES_TOLD)
            elif told[teller] < MOST_TOLD and len(self._others) < MOST_CANDIDATES:
                told[teller] += 1
                self._others[name] = Candidate(teller, TRIES_TOLD)

    def heard(self, name: str) -> None:
        """It is a peer now."""
        if self._given.pop(name, None) is not None:
            self._heard[name] = None
        self._others.pop(name, None)

    def was_dropped(self, name: str, has_left: bool, wait: int) -> None:
        """It is no peer any more."""
        if name in self._heard:
            del self._heard[name]
            self._given[name] = candidate = Candidate()
        elif has_left:
            return
        else:
            if len(self._others) >= MOST_CANDIDATES:
                least = min(self._others, key=lambda each: self._others[each].tries)
                del self._others[least]
            self._others[name] = candidate = Candidate(tries=TRIES_FORMER)
        candidate.wait = wait

    def tick(self) -> list[str]:
        """One more of our own heartbeats has passed. Returns the names that nobody repeats and that
        never answered: they are candidates no longer."""
        for candidates in (self._given, self._others):
            for candidate in candidates.values():
                candidate.wait = max(0, candidate.wait - 1)
        expired = [name for name, each in self._others.items() if not each.wait and each.tries <= 0]
        for name in expired:
            del self._others[name]
        return expired

    def due(self, interval: int) -> tuple[str, ...]:
        """Who is sent a heartbeat now, and then not before the interval is over."""
        found = []
        for candidates in (self._given, self._others):
            for name, candidate in candidates.items():
                if not candidate.wait:
                    candidate.wait = interval
                    candidate.tries -= 1
                    found.append(name)
        return tuple(found)

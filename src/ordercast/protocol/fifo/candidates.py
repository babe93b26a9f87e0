"""Names that are said to be in an open group and have not been heard.

A candidate is sent a heartbeat when it is named, and then one every suspicion limit. It becomes a
peer when it is heard. It counts for nothing until then: no submission and no view waits for it
longer than the suspicion limit, and nothing is retained for it.

Rules.
 1. Names that our own host gave are candidates for very long, and called more and more rarely
    (`kernel/pauses.py`). So two parts of a group find each other after any partition, and a visitor
    that is gone costs a number of heartbeats.
 2. So are names of former peers, unless they left.
 3. The host gives a name again when it has met the node again: then it is called as if it were new.
 4. Names that a peer tells us are candidates while some peer repeats them, and called every
    suspicion limit, for they are in its view. Of one teller only a few are taken at a time, so a
    peer that invents names leaves no room for more of its own, and takes none from others.
 5. Of too many the one gives way that has the fewest heartbeats left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable

from ordercast.kernel.pauses import pause_after

MOST_GIVEN = 128
"""Names that a host gave."""
MOST_CANDIDATES = 256
"""Names of the other two kinds, together."""
MOST_TOLD = 32
"""Candidates that one peer may have named."""
TRIES_TOLD = 10
TRIES = 200
"""Heartbeats without an answer after which a name is dropped: one that a peer told, or another.
With the pauses of rule 1 the latter are enough for more than a million suspicion limits."""


class Candidate:
    __slots__ = ("age", "teller", "tries", "wait")

    def __init__(self, teller: str, tries: int, wait: int = 0) -> None:
        self.teller = teller  # the peer that named it first; "": our host did, or it was a peer
        self.tries = tries  # heartbeats that are left
        self.wait = wait  # own heartbeats until it is sent the next one
        self.age = 0  # own heartbeats for which it has been called


class Candidates:
    def __init__(self, me: str, interval: int) -> None:
        """`interval`: the suspicion limit, in own heartbeats."""
        self._me = me
        self._interval = interval
        self._given: dict[str, Candidate] = {}
        self._others: dict[str, Candidate] = {}
        self._gave_way: dict[str, None] = {}  # since the last tick

    def __contains__(self, name: str) -> bool:
        return name in self._given or name in self._others

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._given, *self._others)

    def give(self, names: Iterable[str], peers: Container[str]) -> None:
        """The host knows these names, some of which may be peers already."""
        for name in names:
            if name != self._me and name not in peers:
                self._others.pop(name, None)
                self._insert(self._given, MOST_GIVEN, name)

    def tell(self, teller: str, names: Iterable[str]) -> None:
        """A peer says that these names, none of which is a peer, are in the group."""
        told = Counter(each.teller for each in self._others.values())
        for name in names:
            known = self._given.get(name) or self._others.get(name)
            if known is not None:
                known.tries, known.age = max(known.tries, TRIES_TOLD), 0
                known.wait = min(known.wait, self._interval)
            elif (
                name != self._me
                and told[teller] < MOST_TOLD
                and len(self._others) < MOST_CANDIDATES
            ):
                told[teller] += 1
                self._others[name] = Candidate(teller, TRIES_TOLD)

    def heard(self, name: str) -> None:
        """It is a peer now."""
        self._given.pop(name, None)
        self._others.pop(name, None)
        self._gave_way.pop(name, None)

    def was_dropped(self, name: str, has_left: bool) -> None:
        """It is no peer any more."""
        if not has_left:
            self._insert(self._others, MOST_CANDIDATES, name, self._interval)

    def _insert(
        self, candidates: dict[str, Candidate], most: int, name: str, wait: int = 0
    ) -> None:
        if name not in candidates and len(candidates) >= most:
            least = min(candidates, key=lambda each: candidates[each].tries)
            del candidates[least]
            self._gave_way[least] = None
        candidates[name] = Candidate("", TRIES, wait)

    def tick(self) -> list[str]:
        """One more of our own heartbeats has passed. Returns the names that are candidates no
        longer, and no peers: they never answered, or gave way to others."""
        gone = [name for name in self._gave_way if name not in self]
        self._gave_way = {}
        for candidates in (self._given, self._others):
            for name, candidate in [*candidates.items()]:
                candidate.wait = max(0, candidate.wait - 1)
                candidate.age += 1
                if not candidate.wait and candidate.tries <= 0:
                    del candidates[name]
                    gone.append(name)
        return gone

    def due(self) -> tuple[str, ...]:
        """Names to which a heartbeat goes now, and then not before a pause is over."""
        found = []
        for candidates in (self._given, self._others):
            for name, candidate in candidates.items():
                if not candidate.wait:
                    candidate.tries -= 1
                    unanswered = candidate.age if candidate.tries > 0 else 0
                    candidate.wait = pause_after(unanswered, self._interval)
                    found.append(name)
        return tuple(found)

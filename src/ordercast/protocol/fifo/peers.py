"""Who is there: hearing, silence and return of one other member.

Rules. A peer is connected while we hear it and it says that it hears us: heartbeats prove both
directions, so a one-way cut is a cut. Silence is counted in our own heartbeats, never in clock
time: a member that was itself stalled counts nothing for that while and blames nobody. A peer
that was set aside returns when both directions are proven again.

A name that comes back as a new life is not answered at once. First the members that were there
settle among themselves how far the old life got, by relaying; the new one cannot send before it
is answered, so its events come after the old one's. After half the suspicion limit it is
answered in any case.
"""

from __future__ import annotations

from collections import Counter

from ordercast.types import NodeId


class Peer:
    """One name of the group. `life` is the newest incarnation that we heard of."""

    __slots__ = (
        "away",
        "full",
        "hears",
        "left",
        "life",
        "name",
        "present",
        "received",
        "restarted",
        "settling",
        "silent",
        "unheard",
    )

    def __init__(self, name: str, life: NodeId | None = None, settling: int = 0) -> None:
        self.name = name
        self.life = life
        self.restarted = settling > 0  # we knew an earlier life
        self.settling = settling  # own heartbeats left until it is answered in any case
        self.present = False  # our events go to it, and we wait for its acknowledgements
        self.away = False  # set aside, and not returned since
        self.left = False  # this life left the group in an orderly way
        self.silent = 0  # own heartbeats since we last heard it
        self.unheard = 0  # own heartbeats since it last said that it hears us
        self.received: dict[NodeId, int] = {}  # what it last said it has of each stream
        self.hears: frozenset[NodeId] = frozenset()  # whom it last said it hears; never iterated
        self.full = False  # it last said that its application cannot take more

    def tick(self, silence_ticks: int) -> None:
        """One more of our heartbeats went by. Lost is lost: there the counting ends."""
        self.silent = min(self.silent + 1, silence_ticks)
        self.unheard = min(self.unheard + 1, silence_ticks + silence_ticks // 2)

    def proves_contact(self) -> None:
        """It said or showed that it hears us."""
        self.unheard = 0

    def hears_of(self, received: list[tuple[NodeId, int]], lives: int, most: int) -> None:
        """Notes what it says it has. Of too many lives of a name only the last are remembered."""
        for origin, up_to in received:
            if up_to >= self.received.get(origin, 0):
                self.received[origin] = up_to
        if len(self.received) > most:
            kept: dict[NodeId, int] = {}
            seen: Counter[str] = Counter()
            for origin in sorted(self.received, reverse=True):
                seen[origin.name] += 1
                if seen[origin.name] <= lives:
                    kept[origin] = self.received[origin]
            self.received = kept

    def is_heard(self, silence_ticks: int) -> bool:
        """Whether we tell others that we hear it: half the limit, so that they learn in time."""
        return self.life is not None and not self.settling and self.silent <= silence_ticks // 2

    def is_lost(self, silence_ticks: int) -> bool:
        """Silent for too long, or deaf to us for as long as it would take it to notice."""
        return self.silent >= silence_ticks or self.unheard >= silence_ticks + silence_ticks // 2

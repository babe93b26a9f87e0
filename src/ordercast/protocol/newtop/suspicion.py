"""Who suspects whom in one group: what the agreement on failures is reached from.

Rules (Newtop, section 5.2; the numbers in brackets are the paper's).
 1. A member of which nothing new was received for the suspicion limit is suspected (i), with the
    number of its last packet that we have. Silence is measured on a patient clock, which hardly
    advances while we are stalled ourselves: a member that was stalled suspects nobody.
 2. Packets of a suspected member are withheld. They count as received if the suspicion is refuted,
    and are discarded if it is confirmed.
 3. Suspicions of other members are remembered (ii) until they, or we, know better.
 4. Suspicions are confirmed together, when every member that is not suspected has the same
    suspicions, with the same numbers (v).
 5. Some members are suspected whatever is refuted: those that confirmed that we are gone (vii), and
    those that left. The suspicion is raised again, with the number that the refutation led to.
 6. Suspicions may form a cycle, in which each member withholds the packet that another waits for. A
    suspicion that is neither refuted nor confirmed for too long is extended to the members that do
    not share it.
 7. The packets that are withheld of a member are limited. A member that sends more is not read any
    more, and is suspected again at every tick. It stays in the view only as long as others vouch
    for it, with the packets that they have of it.

What it does not do: send anything. `agreement.py` has the rules that act on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ordercast.protocol.newtop.packets import Message, application_bytes
from ordercast.types import NodeId

Detection: TypeAlias = tuple[tuple[NodeId, int], ...]
"""Who is gone and the last number of each, sorted."""

Via: TypeAlias = tuple[NodeId, int] | None
"""The member whose confirmation is adopted, and the number of that packet; None: our own."""


MOST_WITHHELD = 4096
"""Packets that are withheld of one suspected member; null messages of more than a minute."""


class Refutation(NamedTuple):
    """What we have sent to all of a member that some of them suspected."""

    last_number: int  # everything beyond this one
    up_to: int
    at: int  # patient time


class Suspicions:
    def __init__(self, others: tuple[NodeId, ...]) -> None:
        self.last_heard = dict.fromkeys(others, 0)  # when something new was received; patient time
        self.suspected: dict[NodeId, int] = {}  # whom we suspect, with its last number here
        self.since: dict[NodeId, int] = {}  # and since when; patient time
        self.withheld: dict[NodeId, list[Message]] = {}  # packets of them since then
        self._sizes: dict[NodeId, int] = {}  # and its bytes
        self.overrun: dict[NodeId, None] = {}  # members that sent too many of these
        self.forced: dict[NodeId, str] = {}  # whom to suspect whatever is refuted, and why
        self.gossip: dict[NodeId, dict[NodeId, int]] = {one: {} for one in others}
        self.refuted: dict[NodeId, Refutation] = {}  # the last of each member
        # By member: what it confirmed and we have not, oldest first, with the packet's number.
        self.confirmed: dict[NodeId, deque[tuple[Detection, int]]] = {
            one: deque() for one in others
        }
        self.done: list[Detection] = []  # what we confirmed; at most one for each member

    def late(self, live: tuple[NodeId, ...], since: int) -> list[NodeId]:
        """Members of which nothing new was received since then, and that we do not suspect yet."""
        return [
            peer
            for peer in live
            if peer not in self.suspected
            and (self.last_heard[peer] < since or peer in self.overrun)
        ]

    def suspect(self, peer: NodeId, last_number: int, time: int) -> None:
        self.suspected[peer] = last_number
        self.since[peer] = time
        self.withheld[peer] = []
        self._sizes[peer] = 0

    def withhold(self, peer: NodeId, message: Message, largest: int) -> None:
        """Stores a packet of a suspected member, up to a number of packets and of bytes."""
        withheld = self.withheld[peer]
        withheld.append(message)
        self._sizes[peer] += application_bytes(message)
        if len(withheld) > MOST_WITHHELD or self._sizes[peer] > largest:
            withheld.clear()
            self.overrun[peer] = None

    def release(self, peer: NodeId) -> list[Message]:
        """The suspicion was refuted. Returns the packets that were withheld."""
        del self.suspected[peer]
        del self.since[peer]
        return self.withheld.pop(peer)

    def undecided(self, live: tuple[NodeId, ...], since: int) -> list[NodeId]:
        """Members that do not share a suspicion that we have had since before then."""
        old = [
            (peer, number) for peer, number in self.suspected.items() if self.since[peer] < since
        ]
        return [
            witness
            for witness in self.unsuspecting(live)
            if any(self.gossip[witness].get(peer) != number for peer, number in old)
        ]

    def to_be_forced(self, live: tuple[NodeId, ...]) -> NodeId | None:
        for peer in self.forced:
            if peer in live and peer not in self.suspected:
                return peer
        return None

    def refutable(self, up_to: Callable[[NodeId], int], long_ago: int) -> tuple[NodeId, int] | None:
        """A member that others suspect with less than we have of it, and the smallest number that
        they have. None: there is none, or they have been answered, and not long ago."""
        for about in self.gossip.values():
            for peer, last_number in about.items():
                is_old = up_to(peer) > last_number
                if is_old and not self._is_answered(peer, last_number, long_ago):
                    numbers = (each[peer] for each in self.gossip.values() if peer in each)
                    return peer, min(numbers)
        return None

    def _is_answered(self, peer: NodeId, last_number: int, long_ago: int) -> bool:
        given = self.refuted.get(peer)
        return (
            given is not None
            and given.last_number <= last_number < given.up_to
            and given.at > long_ago
        )

    def unsuspecting(self, live: tuple[NodeId, ...]) -> list[NodeId]:
        return [peer for peer in live if peer not in self.suspected]

    def unanimous(self, live: tuple[NodeId, ...]) -> Detection | None:
        """All our suspicions, if every member that we do not suspect shares them."""
        if not self.suspected:
            return None
        for witness in self.unsuspecting(live):
            about = self.gossip[witness]
            if any(about.get(peer) != number for peer, number in self.suspected.items()):
                return None
        return tuple(sorted(self.suspected.items()))

    def is_shared(self, detection: Detection) -> bool:
        """Whether we suspect all of these members, with the same numbers."""
        return all(self.suspected.get(peer) == number for peer, number in detection)

    def forget(self, gone: tuple[NodeId, ...]) -> None:
        """They are agreed to be gone."""
        for peer in gone:
            self.last_heard.pop(peer)
            self.suspected.pop(peer, None)
            self.since.pop(peer, None)
            self.withheld.pop(peer, None)
            self.overrun.pop(peer, None)
            self.forced.pop(peer, None)
            self.refuted.pop(peer, None)
            self.gossip.pop(peer)
            self.confirmed.pop(peer)
        for about in self.gossip.values():
            for peer in gone:
                about.pop(peer, None)

    @property
    def at_rest(self) -> bool:
        return not (
            self.suspected
            or self.forced
            or any(self.gossip.values())
            or any(self.confirmed.values())
        )

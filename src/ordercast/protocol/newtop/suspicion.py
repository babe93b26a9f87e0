"""Who is suspected by whom in one group: what the agreement on failures is reached from.

Rules (Newtop, section 5.2; the numbers in brackets are the paper's).
 1. A member of which nothing new was admitted for the suspicion limit is suspected (i), with the
    number of the last packet that we have of it. Silence is measured on a patient clock, which
    hardly moves on while we are stalled ourselves: who was away blames nobody.
 2. What a suspected member sends waits. It counts as received if the suspicion is refuted, and
    is thrown away if it is confirmed.
 3. What others suspect is remembered (ii) until they, or we, know better.
 4. Suspicions are confirmed together, when every member that is not suspected has said the same
    of each of them, with the same number (v).
 5. Some are to be suspected whatever is refuted: who confirmed that we are gone (vii), and who
    left. The suspicion is then raised again, with the number that the refutation led to.

 6. Suspicions may stand in a circle, so that each waits for a word that another holds back. One
    that is neither refuted nor confirmed for too long is extended to those who do not share it.

 7. What waits of a suspected member is limited. Who sends more is not read any more: at every
    tick it is suspected again, so that it stays only as long as others vouch for it, with what
    they have of it.

What it does not do: send anything. `group.py` says what follows from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from ordercast.protocol.newtop.packets import Data, Message, Refute, State
from ordercast.types import NodeId

Detection: TypeAlias = tuple[tuple[NodeId, int], ...]
"""Who is gone and the last number of each, sorted."""


MOST_HELD_BACK = 4096
"""Packets that wait of one suspected member; null messages of a minute and more."""


class PatientClock:
    """Time as it goes by for a member that is awake: in steps no longer than it meant to sleep."""

    __slots__ = ("_read_at", "time")

    def __init__(self) -> None:
        self.time = 0  # nanoseconds; it never falls
        self._read_at: int | None = None  # on the member's own clock, which may jump

    def advance(self, now: int, asleep: int, stalled: int) -> None:
        """`asleep` is how long the member may have slept on purpose, `stalled` what counts if
        it was twice that: then something else held it up."""
        gone = 0 if self._read_at is None else max(0, now - self._read_at)
        self.time += stalled if gone > 2 * asleep else gone
        self._read_at = now


class Suspicions:
    def __init__(self, others: tuple[NodeId, ...]) -> None:
        self.heard = dict.fromkeys(others, 0)  # when something new was admitted; patient time
        self.held: dict[NodeId, int] = {}  # whom we suspect, and its last number here
        self.since: dict[NodeId, int] = {}  # and since when; patient time
        self.pending: dict[NodeId, list[Message]] = {}  # what came from them since
        self._sizes: dict[NodeId, int] = {}  # and its bytes
        self.overrun: dict[NodeId, None] = {}  # of whom too much came to keep it
        self.forced: dict[NodeId, str] = {}  # whom to suspect in any case, and why
        self.gossip: dict[NodeId, dict[NodeId, int]] = {one: {} for one in others}
        # By member: what it confirmed and we have not, oldest first, with the packet's number.
        self.confirmed: dict[NodeId, deque[tuple[Detection, int]]] = {
            one: deque() for one in others
        }
        self.done: list[Detection] = []  # what we confirmed; at most one for each member

    def late(self, live: tuple[NodeId, ...], since: int) -> list[NodeId]:
        """Of whom nothing new was admitted since then, and whom we do not suspect yet."""
        return [
            peer
            for peer in live
            if peer not in self.held and (self.heard[peer] < since or peer in self.overrun)
        ]

    def hold(self, peer: NodeId, last_number: int, time: int) -> None:
        self.held[peer] = last_number
        self.since[peer] = time
        self.pending[peer] = []
        self._sizes[peer] = 0

    def hold_back(self, peer: NodeId, message: Message, largest: int) -> None:
        """Keeps what a suspected member sends, up to a number of packets and of bytes."""
        waiting = self.pending[peer]
        waiting.append(message)
        self._sizes[peer] += _size(message)
        if len(waiting) > MOST_HELD_BACK or self._sizes[peer] > largest:
            waiting.clear()
            self.overrun[peer] = None

    def let_go(self, peer: NodeId) -> list[Message]:
        """The suspicion was refuted. Returns what came from the peer meanwhile."""
        del self.held[peer]
        del self.since[peer]
        return self.pending.pop(peer)

    def undecided(self, live: tuple[NodeId, ...], since: int) -> list[NodeId]:
        """Who still does not share a suspicion that we have held for so long."""
        old = [(peer, number) for peer, number in self.held.items() if self.since[peer] < since]
        return [
            witness
            for witness in self.unsuspecting(live)
            if any(self.gossip[witness].get(peer) != number for peer, number in old)
        ]

    def to_be_forced(self, live: tuple[NodeId, ...]) -> NodeId | None:
        for peer in self.forced:
            if peer in live and peer not in self.held:
                return peer
        return None

    def refutable(self, up_to: Callable[[NodeId], int]) -> tuple[NodeId, NodeId, int] | None:
        """A suspicion of somebody else's that we know better about: whose, whom, its number."""
        for holder, about in self.gossip.items():
            for peer, last_number in about.items():
                if up_to(peer) > last_number:
                    return holder, peer, last_number
        return None

    def unsuspecting(self, live: tuple[NodeId, ...]) -> list[NodeId]:
        return [peer for peer in live if peer not in self.held]

    def unanimous(self, live: tuple[NodeId, ...]) -> Detection | None:
        """All that we suspect, if every member that we do not suspect says the same."""
        if not self.held:
            return None
        for witness in self.unsuspecting(live):
            about = self.gossip[witness]
            if any(about.get(peer) != number for peer, number in self.held.items()):
                return None
        return tuple(sorted(self.held.items()))

    def is_shared(self, detection: Detection) -> bool:
        """Whether we suspect all of these, with the same numbers."""
        return all(self.held.get(peer) == number for peer, number in detection)

    def forget(self, gone: tuple[NodeId, ...]) -> None:
        """They are agreed to be gone."""
        for peer in gone:
            self.heard.pop(peer)
            self.held.pop(peer, None)
            self.since.pop(peer, None)
            self.pending.pop(peer, None)
            self.overrun.pop(peer, None)
            self.forced.pop(peer, None)
            self.gossip.pop(peer)
            self.confirmed.pop(peer)
        for about in self.gossip.values():
            for peer in gone:
                about.pop(peer, None)

    @property
    def at_rest(self) -> bool:
        return not (
            self.held or self.forced or any(self.gossip.values()) or any(self.confirmed.values())
        )


def _size(message: Message) -> int:
    """Bytes of what applications put in it."""
    if isinstance(message, Data):
        return message.size
    if isinstance(message, State):
        return len(message.state or b"")
    return sum(map(_size, message.messages)) if isinstance(message, Refute) else 0

"""One origin's events at one member: how far they came, and what is held for whom.

Rules. An event is accepted only as the next of its stream, so duplicates and relayed copies
need no memory beyond one number. An accepted event is held until every member that is present
acknowledged it; while somebody is away it is held longer, for their return, up to the limit.
What a vanished origin got to one holder is relayed to those who lack it: once, and again only
if they do not move.
"""

from __future__ import annotations

from ordercast.kernel.buffers import Limit, Retained
from ordercast.kernel.stability import Stability
from ordercast.kernel.step import Step
from ordercast.protocol.fifo.packets import Data, Start
from ordercast.types import NodeId

PATIENCE_TICKS = 8
"""Links lose nothing, so a relayed event is sent again only after a long standstill."""


class Relay:
    """How far a stream was relayed to one peer."""

    __slots__ = ("given_up_to", "seen_at", "waited")

    def __init__(self, given_up_to: int, seen_at: int) -> None:
        self.given_up_to = given_up_to
        self.seen_at = seen_at  # what the peer had acknowledged when last looked at
        self.waited = 0  # ticks without progress since then


class Stream:
    __slots__ = ("acknowledged", "held", "origin", "received_up_to", "relays")

    def __init__(self, origin: NodeId, received_up_to: int, limit: Limit) -> None:
        self.origin = origin
        # Everything up to here was delivered here, or was before our time, or was given up openly.
        self.received_up_to = received_up_to
        self.held: Retained[Data] = Retained(limit)
        self.acknowledged = Stability()  # followers: the present peers but the origin itself
        self.relays: dict[NodeId, Relay] = {}

    def admit(self, data: Data) -> bool:
        """Takes the next event of the stream; says no to an old one or one beyond a gap."""
        if data.number != self.received_up_to + 1:
            return False
        self.received_up_to = data.number
        self.held.append(data.number, data, data.size)
        return True

    def skip_to(self, number: int) -> range:
        """Gives up what nobody can send any more; returns the numbers that are lost."""
        lost = range(self.received_up_to + 1, number + 1)
        self.received_up_to = max(self.received_up_to, number)
        return lost

    def trim(self, somebody_away: bool) -> int:
        """Lets go of what all present members have; returns how far that is."""
        stable = self.acknowledged.stable_up_to(self.received_up_to)
        if not somebody_away:
            self.held.discard_up_to(stable)
        while self.held.over_limit:
            self.held.drop_oldest()
        return stable

    def resend(self, step: Step, group: str, peer: NodeId, has: int) -> int:
        """Sends a peer all that is held beyond what it has, behind a Start that says where."""
        oldest = self.held.oldest
        after = max(has, self.received_up_to if oldest is None else oldest - 1)
        step.send(peer, Start(group, self.origin, after))
        for data in self.held.after(after):
            step.send(peer, data)
        return self.received_up_to

    def relay(self, step: Step, group: str, peer: NodeId) -> None:
        """Sends a peer what it lacks of a stream whose origin cannot. Called every tick."""
        newest = self.held.newest
        has = self.acknowledged.acknowledged(peer)
        if newest is None or has is None or has >= newest:
            return
        relay = self.relays.get(peer)
        if relay is not None and has > relay.seen_at:
            relay.seen_at, relay.waited = has, 0
        if relay is None or relay.waited >= PATIENCE_TICKS:
            self.relays[peer] = Relay(self.resend(step, group, peer, has), has)
            return
        relay.waited += 1
        for data in self.held.after(relay.given_up_to):
            step.send(peer, data)
        relay.given_up_to = newest

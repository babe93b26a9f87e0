"""One origin's events at one member: how far they were received, and what is held for whom.

Rules.
 1. An event is accepted only as the next of its stream, so duplicates and relayed copies need no
    memory beyond one number.
 2. An accepted event is held until every present member has acknowledged it. While a member is away
    it is held longer, for its return, up to the limit.
 3. What an origin cannot bring to a peer is relayed once, and again only if the peer does not
    advance.
"""

from __future__ import annotations

from ordercast.kernel.buffers import Limit, Retained
from ordercast.kernel.stability import Stability
from ordercast.kernel.step import Step
from ordercast.protocol.fifo.packets import Data, Start
from ordercast.types import NodeId


class Lag:
    """A peer that lacks events of a stream, and what was relayed to it."""

    __slots__ = ("relayed_up_to", "seen_at", "waited")

    def __init__(self, seen_at: int) -> None:
        self.seen_at = seen_at  # what the peer had acknowledged when last looked at
        self.waited = 0  # ticks without progress since then
        self.relayed_up_to: int | None = None  # None: we have relayed nothing


class OriginStream:
    __slots__ = (
        *("acknowledged", "began_after", "covered_up_to", "held", "lags", "origin"),
        *("received_up_to", "reported_up_to"),
    )

    def __init__(self, origin: NodeId, received_up_to: int, limit: Limit) -> None:
        self.origin = origin
        # Everything up to here was accepted, is not owed to us, or was reported as lost.
        self.received_up_to = received_up_to
        self.began_after = received_up_to  # nothing up to here was ever held
        # Everything up to here has reached the application: what we acknowledge to others.
        self.reported_up_to = received_up_to
        # Everything up to here is in the state that we were given: we hold it for others only.
        self.covered_up_to = 0
        self.held: Retained[Data] = Retained(limit)
        self.acknowledged = Stability()  # followers: the present peers but the origin itself
        self.lags: dict[NodeId, Lag] = {}

    def append(self, data: Data) -> bool:
        """Takes the next event of the stream. False: it is an old one, or one beyond a gap."""
        if data.number != self.received_up_to + 1:
            return False
        self.received_up_to = data.number
        self.held.append(data.number, data, data.size)
        return True

    def skip_to(self, number: int) -> range:
        """Skips what no member can send any more. Returns the numbers that are lost."""
        lost = range(self.received_up_to + 1, number + 1)
        self.received_up_to = max(self.received_up_to, number)
        self.reported_up_to = max(self.reported_up_to, number)
        return lost

    def trim(self, is_any_away: bool) -> int:
        """Discards what all present members have, unless others may return.

        Returns how far all present members are.
        """
        stable = self.acknowledged.stable_up_to(self.received_up_to)
        if not is_any_away:
            self.held.discard_up_to(stable)
        while self.held.over_limit:
            self.held.drop_oldest()
        return stable

    def resend(self, step: Step, group: str, peer: NodeId, has: int) -> None:
        """Sends a peer all that is held beyond what it has, after a Start that says where."""
        oldest = self.held.oldest
        after = max(has, self.received_up_to if oldest is None else oldest - 1)
        step.send(peer, Start(group, self.origin, after))
        self._send_after(step, group, peer, after)

    def relay(
        self, step: Step, group: str, peer: NodeId, origin_cannot: bool, patience: int
    ) -> None:
        """Sends a peer what it lacks, if the origin cannot, or if the peer does not advance.

        Called every tick. Links lose nothing, so nothing is sent twice without a standstill. What
        began here later than at the peer may come to it from another: that is tried first.
        """
        newest = self.held.newest
        has = self.acknowledged.acknowledged(peer)
        if newest is None or has is None or has >= newest:
            self.lags.pop(peer, None)
            return
        lag = self.lags.get(peer)
        if lag is None:
            lag = self.lags[peer] = Lag(has)
        elif has > lag.seen_at:
            lag.seen_at, lag.waited = has, 0
        else:
            lag.waited += 1
        is_due = origin_cannot and lag.relayed_up_to is None and has >= self.began_after
        if is_due or lag.waited >= patience:
            self.resend(step, group, peer, has)
            lag.relayed_up_to, lag.waited = newest, 0
        elif origin_cannot and lag.relayed_up_to is not None:
            self._send_after(step, group, peer, lag.relayed_up_to)
            lag.relayed_up_to = newest

    def _send_after(self, step: Step, group: str, peer: NodeId, after: int) -> None:
        for data in self.held.after(after):
            if data.number != after + 1:  # we lost some ourselves: the peer must skip them too
                step.send(peer, Start(group, self.origin, data.number - 1))
            step.send(peer, data)
            after = data.number

"""The streams of all origins at one member: who waits for which, and who relays what to whom.

Rules.
 1. A stream waits for the acknowledgements of all present peers that are owed its events. A peer is
    not owed its own events, nor those of an origin that was gone before the peer restarted.
 2. What an origin cannot bring to a peer, because it is gone or cut off, is relayed to that peer.
 3. The last few incarnations of a name are remembered. Packets of earlier ones are ignored.
 4. In an open group a newcomer is owed the events of present origins that some present member may
    lack when it comes. Of a name that is dropped only the place in its streams is remembered, so
    that nothing is delivered twice if it comes back.
"""

from __future__ import annotations

from ordercast.kernel.buffers import Limit
from ordercast.kernel.step import Step
from ordercast.protocol.fifo.peers import PRESENT, Peer, Peers
from ordercast.protocol.fifo.stream import OriginStream
from ordercast.types import NodeId

INCARNATIONS_REMEMBERED = 8
"""Earlier incarnations of a name than this many are forgotten, and their packets ignored."""

PLACES_REMEMBERED = 4096
"""Streams of dropped names whose place is remembered."""


class OriginStreams:
    def __init__(self, me: NodeId, limit: Limit, peers: Peers) -> None:
        self.me = me
        self.own = OriginStream(me, 0, limit)
        self.by_origin: dict[NodeId, OriginStream] = {me: self.own}
        self.places: dict[NodeId, int] = {}  # how far streams of dropped names were received
        self._limit = limit
        self._peers = peers

    # --- who waits for which -----------------------------------------------------------------

    def follow(self, origin: NodeId, after: int) -> OriginStream:
        """Begins a stream after a number, or where it was left when its name was dropped."""
        after = self.places.pop(origin, after)
        stream = self.by_origin[origin] = OriginStream(origin, after, self._limit)
        for peer in self._peers:
            if peer.standing is PRESENT:
                self._wait_for(stream, peer)
        return stream

    def connect(self, peer: Peer, is_newcomer: bool) -> None:
        """All streams wait for a peer that has become present."""
        for stream in self.by_origin.values():
            self._wait_for(stream, peer, is_newcomer)
        assert peer.node is not None
        theirs = self.by_origin.get(peer.node)
        if theirs is not None:
            for other in self._peers:
                # A peer that came while the origin was away is owed its events from now on.
                if (
                    other.standing is PRESENT
                    and other.node is not None
                    and theirs.acknowledged.acknowledged(other.node) is None
                ):
                    self._wait_for(theirs, other, self._peers.is_open)

    def _wait_for(self, stream: OriginStream, peer: Peer, is_newcomer: bool = False) -> None:
        """Retains the stream's events until this peer has them, if it is owed them."""
        origin = stream.origin
        assert peer.node is not None
        if origin.name == peer.name:
            return
        if is_newcomer and not peer.received.get(origin):
            up_to = stream.received_up_to
            if origin == self.me or self._peers.is_present(origin):
                if origin != self.me:  # the origin itself tells where it begins for this peer
                    up_to = stream.acknowledged.stable_up_to(up_to)
                stream.acknowledged.follow(peer.node, up_to)
            peer.received[origin] = up_to  # or it has it: it is not owed what was before its time
        elif origin in peer.received:
            stream.acknowledged.follow(peer.node, peer.received[origin])
        elif not peer.was_restarted or origin == self.me or self._peers.is_present(origin):
            stream.acknowledged.follow(peer.node, 0)

    def bring_to(self, node: NodeId) -> None:
        """A newcomer gets what follows in all streams, also of origins that are gone."""
        for stream in self.by_origin.values():
            is_its_own = stream.origin.name == node.name
            if not is_its_own and stream.acknowledged.acknowledged(node) is None:
                stream.acknowledged.follow(node, stream.received_up_to)

    def disconnect(self, node: NodeId) -> None:
        """No stream waits for this incarnation any more."""
        for stream in self.by_origin.values():
            stream.acknowledged.unfollow(node)
            stream.lags.pop(node, None)

    def trim(self) -> None:
        for stream in self.by_origin.values():
            stream.trim(self._peers.is_any_away)

    def relay(self, step: Step, group: str, silence_ticks: int) -> None:
        for stream in self.by_origin.values():
            if stream is self.own or not stream.held.count:
                continue
            gone = not self._peers.is_present(stream.origin)
            for peer in self._peers:
                if peer.standing is PRESENT and peer.node is not None and not peer.full:
                    cannot = gone or stream.origin not in peer.hears
                    stream.relay(step, group, peer.node, cannot, silence_ticks)

    # --- incarnations ------------------------------------------------------------------------

    def is_forgotten(self, origin: NodeId) -> bool:
        """By how many newer ones are known, not by their numbers: a number may have been drawn."""
        peer = self._peers.by_name.get(origin.name)
        known = {one.incarnation for one in self.by_origin if one.name == origin.name}
        if peer is not None and peer.node is not None:
            known.add(peer.node.incarnation)
        return sum(one > origin.incarnation for one in known) >= INCARNATIONS_REMEMBERED

    def forget_old(self) -> None:
        for origin in [origin for origin in self.by_origin if self.is_forgotten(origin)]:
            del self.by_origin[origin]

    def is_awaited(self, name: str) -> bool:
        """Whether a present member lacks events of this name that we hold."""
        return any(
            origin.name == name and stream.acknowledged.stable_up_to(up_to) < up_to
            for origin, stream in self.by_origin.items()
            if (up_to := stream.held.newest) is not None
        )

    def drop(self, name: str) -> None:
        """The name is dropped. Only its places remain."""
        for origin in [origin for origin in self.by_origin if origin.name == name]:
            stream = self.by_origin.pop(origin)
            self.remember(origin, max(stream.received_up_to, stream.covered_up_to))

    def remember(self, origin: NodeId, place: int) -> None:
        """How far a stream was received that we do not follow."""
        self.places[origin] = place
        while len(self.places) > PLACES_REMEMBERED:
            del self.places[next(iter(self.places))]

    def is_agreed(self, peer: Peer) -> bool:
        """Whether all present members have the same of the peer's earlier incarnations, and know
        the new one."""
        earlier = [
            stream
            for stream in self.by_origin.values()
            if stream.origin.name == peer.name and stream.origin != peer.node
        ]
        return all(
            peer.node in other.received
            and all(other.received.get(one.origin, 0) == one.received_up_to for one in earlier)
            for other in self._peers
            if other.standing is PRESENT
        )

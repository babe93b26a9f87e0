"""How a node gets another parent: seek, offer, join, welcome, drop.

Rules.
 1. A node asks by `Seek` and joins whoever offers it a greater beat and room. It opens the session.
 2. A node that is asked to take a child does so if the child's beat is lower than its own, there is
    room, and the child is not its own parent. The session begins on both sides.
 3. The child changes its parent when the `Welcome` comes, if it still waits for that session and
    the beat is greater than its own then. It drops the former parent only now: if the target is
    dead, full or below it, nothing has changed. Otherwise it drops the new session.
 4. A node that has no room names its children, which are asked next.
 5. A session can be resumed by position only at the last parent.

Adly, Kumar: HPP, 1994, section 4.3 (moves). There join_request, add_child, del_child and the drop
travel with the data and through the old parent; here they are packets between the two.
"""

from __future__ import annotations

from ordercast.errors import PeerError
from ordercast.kernel.step import DATAGRAM, Address, Step
from ordercast.protocol.hpp.edges import Edge, Edges
from ordercast.protocol.hpp.hierarchy import Hierarchy
from ordercast.protocol.hpp.options import FeedOptions
from ordercast.protocol.hpp.own_log import OwnLog
from ordercast.protocol.hpp.packets import (
    MOST_NAMES,
    Closed,
    Drop,
    Join,
    LastParent,
    Offer,
    Seek,
    SessionId,
    Welcome,
)
from ordercast.protocol.hpp.recovery import SessionStart
from ordercast.types import NodeId


class Awaited:
    """A join that was not answered yet."""

    def __init__(
        self, peer: NodeId, session: SessionId, log: int, resume: int | None, until: int
    ) -> None:
        self.peer = peer
        self.session = session
        self.log = log
        self.resume = resume  # the position in its log that we said
        self.until = until  # by our clock


class Relocation:
    def __init__(
        self,
        log: OwnLog,
        edges: Edges,
        hierarchy: Hierarchy,
        recovery: SessionStart,
        options: FeedOptions,
    ) -> None:
        self.log = log
        self.edges = edges
        self.hierarchy = hierarchy
        self.recovery = recovery
        self.options = options
        self.me = log.me
        self.awaited: Awaited | None = None
        self.target = ""  # whom this node wants to move to, if it does
        self.opened = 0  # sessions that we opened
        self.forgotten = 0  # the log of a parent that has no use for our place
        self.moves = 0
        self.adoptions = 0  # of this node, when it had no parent
        self.refusals = 0

    # --- asking ------------------------------------------------------------------------------

    def seek(self, step: Step, to: Address, urgent: bool) -> None:
        packet = Seek(self.log.group, self.hierarchy.beat, urgent, max(step.now, 0))
        step.send(to, packet, DATAGRAM)

    def offer(self, step: Step, sender: NodeId, seek: Seek, strained: bool) -> None:
        hierarchy = self.hierarchy
        room = hierarchy.has_room(seek.urgent) and not strained
        children = [] if room else [child.peer.name for child in self.edges.children]
        packet = Offer(
            self.log.group,
            hierarchy.beat,
            self.log.identity,
            room,
            [name for name in children if name != sender.name][:MOST_NAMES],
            seek.sent,
            hierarchy.delay,
            hierarchy.depth,
        )
        step.send(sender, packet, DATAGRAM)

    def wish(self, step: Step, target: str) -> None:
        """Moves to this node, if that can be. The root has nobody to leave."""
        if self.edges.parent is None or target in (self.me.name, self.edges.parent.peer.name):
            return
        self.target = target
        self.hierarchy.freeze(step.now)
        self.seek(step, target, False)

    def join(self, step: Step, sender: NodeId, offer: Offer) -> None:
        """Takes an offer that is usable, if no other one was taken."""
        if self.awaited is not None or offer.log == self.log.identity:
            return
        self.opened += 1
        session = SessionId(self.me, self.opened)
        resume = self._resume_at(offer.log)
        until = step.now + self.options.silence
        self.awaited = Awaited(sender, session, offer.log, resume, until)
        digest = self.recovery.digest() if resume is None else None
        packet = Join(
            self.log.group,
            session,
            self.hierarchy.beat,
            self.log.identity,
            resume,
            digest,
            self.edges.parent is None,
        )
        step.send(sender, packet)

    def is_usable(self, offer: Offer) -> bool:
        return offer.beat > self.hierarchy.beat and offer.room

    def _resume_at(self, log: int) -> int | None:
        """Up to where we have processed the log of the last parent."""
        if log != self.edges.last_parent or log == self.forgotten:
            return None
        place = self.edges.heard_of(log)
        return None if place is None else place.through

    # --- taking a child ----------------------------------------------------------------------

    def refuse_join(self, sender: NodeId, join: Join) -> None:
        if join.session.opener != sender:
            raise PeerError(f"{sender} opens a session of {join.session.opener}")
        if (join.resume is None) == (join.digest is None):
            raise PeerError(f"{sender} joins with a place and a digest, or with neither")
        self._refuse_log(sender, join.log)
        self.recovery.refuse_digest(str(sender), join.digest)

    def _refuse_log(self, sender: NodeId, log: int) -> None:
        if not log or log == self.log.identity:
            raise PeerError(f"{sender} has this node's log: its folder is a copy")
        for edge in self.edges.by_name.values():
            if edge.log == log and edge.peer.name != sender.name:
                raise PeerError(f"{sender} has the log of {edge.peer}: its folder is a copy")

    def may_take(self, sender: NodeId, join: Join, beside: Edge | None) -> bool:
        parent = self.edges.parent
        if parent is not None and parent.peer.name == sender.name:
            return False
        return join.beat < self.hierarchy.beat and self.hierarchy.has_room(join.urgent, beside)

    def take(self, step: Step, sender: NodeId, join: Join, strained: bool) -> None:
        group, hierarchy = self.log.group, self.hierarchy
        earlier = self.edges.by_name.get(sender.name)
        known = earlier.session if earlier is not None else None
        if known is not None and known.opener == sender and join.session.count <= known.count:
            return  # it was overtaken
        if strained or not self.may_take(sender, join, earlier):
            self.refusals += 1
            step.send(sender, Closed(group, join.session))
            return
        if earlier is not None:
            self.end(step, earlier)
        edge = Edge(sender, join.session, join.log, False, step.now, self.log.floor)
        self.edges.add(step, edge)
        place = self.edges.places[edge.place]
        resume = place.through if join.resume is not None and place.through else None
        edge.through = resume or 0
        edge.queued = edge.through
        digest = self.recovery.digest() if resume is None else None
        beat, log = hierarchy.beat, self.log.identity
        step.send(sender, Welcome(group, join.session, beat, log, resume, digest))
        self.recovery.begin(step, edge, join.resume, join.digest)
        self.edges.keep(step, edge)
        hierarchy.must_tell = True

    # --- becoming a child --------------------------------------------------------------------

    def refuse_welcome(self, sender: NodeId, packet: Welcome) -> None:
        if (packet.resume is None) == (packet.digest is None):
            raise PeerError(f"{sender} welcomes with a place and a digest, or with neither")
        self._refuse_log(sender, packet.log)
        self.recovery.refuse_digest(str(sender), packet.digest)

    def welcomed(self, step: Step, sender: NodeId, packet: Welcome) -> None:
        awaited, group = self.awaited, self.log.group
        if awaited is None or awaited.session != packet.session or awaited.peer != sender:
            step.send(sender, Drop(group, packet.session))
            return
        self.awaited = None
        if packet.beat <= self.hierarchy.beat:
            step.send(sender, Drop(group, packet.session))
            return
        former = self.edges.parent
        last = self.edges.last_parent
        if former is not None:
            step.send(former.peer, Drop(group, former.session))
            self.end(step, former)
            self.moves += 1
        else:
            self.adoptions += 1
        below = self.edges.by_name.get(sender.name)
        if below is not None:
            self.end(step, below)
        edge = Edge(sender, packet.session, packet.log, True, step.now, self.log.floor)
        edge.through = edge.queued = awaited.resume or 0
        self.edges.add(step, edge)
        self.forgotten, self.target = 0, ""
        self.hierarchy.follow(step, sender, packet.beat)
        self.recovery.begin(step, edge, packet.resume, packet.digest)
        if last != packet.log:
            step.persist(LastParent(group, packet.log))
            self.edges.release_log(step, last)
        self.edges.keep(step, edge)

    # --- ends --------------------------------------------------------------------------------

    def end(self, step: Step, edge: Edge, held_until: int | None = None) -> None:
        """The session is over. Entries are held for the other, or it needs none."""
        self.recovery.forget(edge)
        self.edges.remove(edge)
        if held_until is None:
            self.edges.release(step, edge)
        else:
            self.edges.hold(step, edge, held_until)
        self.hierarchy.must_tell = True

    def give_up(self, step: Step) -> None:
        """A join is not answered in time, or the move to a target came to nothing."""
        awaited = self.awaited
        if awaited is not None and step.now >= awaited.until:
            step.send(awaited.peer, Drop(self.log.group, awaited.session))
            self.awaited = None
        if self.target and self.awaited is None and step.now >= self.hierarchy.frozen_until:
            self.target = ""

    def closed(self, sender: NodeId, packet: Closed) -> bool:
        """The other ends a session that we wait for."""
        awaited = self.awaited
        if awaited is None or awaited.session != packet.session or awaited.peer != sender:
            return False
        self.awaited = None
        if packet.forget:
            self.forgotten = awaited.log
        return True

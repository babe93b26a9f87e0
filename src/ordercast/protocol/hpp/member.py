"""A node of a feed: its inputs, and to which part of the protocol each goes.

own_log.py      the log as the machine sees it: what joins it is delivered
propagation.py  sessions: what is sent, processed, acknowledged
recovery.py     how a session begins
hierarchy.py    beats, and who is where in the tree
relocation.py   another parent
takeover.py     no parent
distance.py     moves by measured delay
retention.py    what is held, and for how long
repair.py       entries that the disk lost

One step of the machine ends with `_settle`: sessions that failed are closed, stalled ones look
whether their gap was filled, what is owed is acknowledged, and what grew is sent on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.family import Build, Plan
from ordercast.kernel.inputs import Acquainted, Input, Leave, Relocate
from ordercast.kernel.log import At, Entry, Opened, Recalled, Reference, Strained, Unreadable
from ordercast.kernel.machine import Machine, TreePlace
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.hpp.distance import Distance
from ordercast.protocol.hpp.edges import Edge, Edges
from ordercast.protocol.hpp.hierarchy import Hierarchy
from ordercast.protocol.hpp.options import FeedOptions
from ordercast.protocol.hpp.own_log import OwnLog
from ordercast.protocol.hpp.packets import (
    MOST_FETCHED,
    Ack,
    AskHashes,
    Closed,
    Correspondent,
    Drop,
    Entries,
    Fetch,
    Fetched,
    Hashes,
    Join,
    LastParent,
    Leaves,
    Offer,
    OfSession,
    Pulse,
    Seek,
    Welcome,
)
from ordercast.protocol.hpp.propagation import Propagation
from ordercast.protocol.hpp.recovery import SessionStart
from ordercast.protocol.hpp.relocation import Relocation
from ordercast.protocol.hpp.repair import Repair
from ordercast.protocol.hpp.retention import Retention
from ordercast.protocol.hpp.takeover import Takeover
from ordercast.types import Event, NodeId, Payloads

BEAT = "beat"
OUTDATED = (
    "its log has events of a newer incarnation of this node, whose disk was lost: it accepts "
    "nothing before it meets a node that knew that incarnation"
)


class FeedMember:
    takes: tuple[type[Input], ...] = (Acquainted, Leave, Recalled, Relocate, Strained, Unreadable)
    edges_type = Edges
    hierarchy_type = Hierarchy
    log_type = OwnLog
    propagation_type = Propagation
    recovery_type = SessionStart
    relocation_type = Relocation

    def __init__(self, me: NodeId, plan: Plan, chance: Random, records: Sequence[Packet]) -> None:
        options = plan.options
        assert isinstance(options, FeedOptions)
        mine = [record for record in records if record.group == plan.group]
        (opened,) = [record for record in mine if isinstance(record, Opened)]
        self.me = me
        self.group = group = plan.group
        self.groups: tuple[str, ...] = (group,)
        self.options = options
        self.chance = chance
        self.has_left = False
        self.log = log = self.log_type(me, group, options, opened)
        self.edges = edges = self.edges_type(group, options.most_children)
        self.repair = Repair(group, options.patience)
        self.propagation = self.propagation_type(log, edges, self.repair, options)
        self.recovery = self.recovery_type(log, self.propagation, options)
        self.hierarchy = self.hierarchy_type(me, group, options, edges)
        self.relocation = self.relocation_type(log, edges, self.hierarchy, self.recovery, options)
        self.takeover = Takeover(me, edges, self.hierarchy, self.relocation, options, chance)
        self.distance = Distance(edges, self.hierarchy, self.relocation, options, chance)
        self.retention = Retention(log, edges, options)
        self.silences = 0  # edges that were silent for too long
        # Nobody could be asked for a parent: it need not wait for one.
        self.founds = plan.entry is not None and plan.entry.founds
        self._records = [one for one in mine if isinstance(one, Correspondent | LastParent)]
        for name in (*plan.members, *options.anchors, options.parent):
            if name:
                self.takeover.meet(name)
        self._receivers: dict[type[Packet], Callable[[Step, NodeId, Any], None]] = {
            Seek: self._receive_seek,
            Offer: self._receive_offer,
            Join: self._receive_join,
            Welcome: self._receive_welcome,
            Closed: self._receive_closed,
            Fetch: self._receive_fetch,
            Fetched: self._receive_fetched,
        }
        self._in_session: dict[type[Packet], Callable[[Step, Edge, Any], None]] = {
            Drop: self._receive_drop,
            Pulse: self._receive_pulse,
            Entries: self.propagation.receive,
            Ack: self._receive_ack,
            AskHashes: self.recovery.answer,
            Hashes: self.recovery.receive_hashes,
            Leaves: self.recovery.receive_leaves,
        }

    # --- inputs ------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        for record in self._records:
            if isinstance(record, Correspondent):
                self.edges.load(record, step.now + self.options.hold_for)
            else:
                self.edges.last_parent = record.log
        self._records = []
        self.has_left = False
        self.hierarchy.begin_alone(step)
        if self.founds and not self.takeover.contacts:
            self.takeover.reign(step)
        else:
            self.takeover.begin(step)
        step.set_timer(BEAT, 1 + self.chance.randrange(self.options.beat))
        self._settle(step)

    def accepts(self, group: str, now: int) -> bool:
        return not (self.propagation.strained or self.has_left or self.log.is_outdated)

    def stable_up_to(self, group: str) -> int:
        return self.retention.stable

    def submit(
        self,
        step: Step,
        group: str,
        payloads: Payloads,
        size: int,
        reply: Reference | None = None,
    ) -> Event:
        if size > self.options.largest_event:
            most = self.options.largest_event
            raise UsageError(f"{size} bytes at once in {group!r}: largest_event is {most}")
        if reply is not None and not self.log.has(reply):
            raise UsageError(f"a reply to event {reply.number} of {reply.origin}, not seen here")
        self.retention.made(self.log.tail, 0)
        event = self.log.make(step, payloads, size, reply)
        self.retention.unstable[-1] = (self.log.tail - 1, event.number)
        self.propagation.grew = True
        self._settle(step)
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if sender.name == self.me.name:
            raise PeerError(f"{sender} has this node's name")
        edge = self.edges.by_name.get(sender.name)
        if edge is not None and edge.peer != sender:
            if sender < edge.peer:
                return  # an incarnation that is over
            self._lost(step, edge)  # the one that we knew is over
        if isinstance(packet, OfSession):
            found = self.edges.find(sender, packet.session)
            if found is not None:
                self._in_session[type(packet)](step, found, packet)
                found.heard_at = step.now
            elif not isinstance(packet, Drop):
                step.send(sender, Closed(self.group, packet.session))
            return
        other = self._receivers.get(type(packet))
        if other is None:
            raise PeerError(f"{sender} sent a {type(packet).__name__}, which is for the disk")
        other(step, sender, packet)

    def drain(self, step: Step) -> None:
        self._settle(step)

    def expire(self, step: Step, timer: Timer) -> None:
        options, hierarchy, now = self.options, self.hierarchy, step.now
        step.set_timer(BEAT, options.beat)
        for edge in self.edges.all():
            if now - edge.heard_at > options.silence:
                self.silences += 1
                step.send(edge.peer, Closed(self.group, edge.session))
                self._lost(step, edge)
        self.relocation.give_up(step)
        if hierarchy.is_root:
            hierarchy.count()
        self.takeover.beat(step)
        if self.relocation.target and self.relocation.awaited is None:
            self.relocation.seek(step, self.relocation.target, False)
        self.distance.beat(step)
        self.repair.beat(step, self.log.floor, self.edges.all())
        for edge in self.edges.all():
            if edge.stalled:  # perhaps for long enough
                self.propagation.drain(step, edge)
        self.retention.beat(step)
        self._tell(step)
        self._settle(step)

    def on(self, step: Step, given: Input) -> None:
        match given:
            case Recalled():
                self._recalled(step, given)
            case Acquainted(names=names):
                for name in names:
                    self.takeover.meet(name)
                if self.takeover.seeking_since is not None:
                    self.takeover.ask(step)
            case Relocate(to=to):
                if self.relocation.awaited is None:
                    self.relocation.wish(step, to)
            case Strained(full=full):
                self.propagation.strained = full
                for edge in self.edges.all() if not full else ():
                    self.propagation.drain(step, edge)
            case Unreadable(position=position, bad=bad):
                if position >= self.log.floor and bad.stream[0]:
                    self.repair.want(step, position, bad, self.edges.all())
            case Leave():
                self._leave(step)
                return
        self._settle(step)

    def _leave(self, step: Step) -> None:
        self.has_left = True
        relocation = self.relocation
        for edge in self.edges.all():
            step.send(edge.peer, Drop(self.group, edge.session))
            relocation.end(step, edge)
        if (awaited := relocation.awaited) is not None:
            step.send(awaited.peer, Drop(self.group, awaited.session))
            relocation.awaited = None
        step.set_timer(BEAT, None)

    # --- what its application asks -----------------------------------------------------------

    def has(self, reference: Reference) -> bool:
        return self.log.has(reference)

    def awaits(self, position: int) -> bool:
        return position in self.repair.rotten and not self.repair.is_given_up(position)

    def place(self) -> TreePlace:
        edges, hierarchy = self.edges, self.hierarchy
        parent = edges.parent.peer.name if edges.parent is not None else ""
        return TreePlace(
            parent,
            tuple(hierarchy.path) if parent else (),
            tuple(edge.peer.name for edge in edges.children),
            hierarchy.is_root,
            self.takeover.seeking_since,
            OUTDATED if self.log.is_outdated else "",
        )

    def counters(self, group: str) -> dict[str, int]:
        log, edges, relocation, takeover = self.log, self.edges, self.relocation, self.takeover
        propagation, retention, recovery = self.propagation, self.retention, self.recovery
        return {
            "children": len(edges.children),
            "depth": self.hierarchy.depth,
            "entries": log.tail,
            "floor": log.floor,
            "streams": len(log.vector),
            "sent": propagation.sent,
            "duplicates": propagation.duplicates,
            "recalls": propagation.recalls,
            "stalls": propagation.stalls,
            "gaps": propagation.gaps,
            "obsolete": log.lost - propagation.gaps,
            "resumed": recovery.resumed,
            "compared": recovery.compared,
            "descents": recovery.descents,
            "moves": relocation.moves,
            "moves_by_delay": self.distance.moves,
            "adoptions": relocation.adoptions,
            "refused_joins": relocation.refusals,
            "silences": self.silences,
            "roots": takeover.roots,
            "outbids": takeover.outbids,
            "abdications": takeover.abdications,
            "trims": retention.trims,
            "forced_trims": retention.forced,
            "holds_evicted": edges.evicted,
            "rotten": len(self.repair.rotten),
            "repaired": self.repair.repaired,
        }

    # --- packets outside of sessions ---------------------------------------------------------

    def _receive_seek(self, step: Step, sender: NodeId, packet: Seek) -> None:
        self.hierarchy.refuse_beat(sender, packet.beat)
        self.takeover.meet(sender.name)
        self.relocation.offer(step, sender, packet, self.propagation.strained)
        self.takeover.hear(step, packet.beat, sender.name)

    def _receive_offer(self, step: Step, sender: NodeId, packet: Offer) -> None:
        self.hierarchy.refuse_beat(sender, packet.beat)
        relocation, takeover = self.relocation, self.takeover
        takeover.meet(sender.name)
        for name in packet.children:
            takeover.meet(name)
        takeover.hear(step, packet.beat, sender.name)
        self.distance.measured(step, sender.name, packet)
        if self.propagation.strained:
            return
        if takeover.seeking_since is not None:
            if relocation.is_usable(packet):
                relocation.join(step, sender, packet)
            elif packet.beat > self.hierarchy.beat:
                takeover.redirected(step, packet.children)
        elif relocation.target == sender.name and relocation.is_usable(packet):
            relocation.join(step, sender, packet)

    def _receive_join(self, step: Step, sender: NodeId, packet: Join) -> None:
        self.hierarchy.refuse_beat(sender, packet.beat)
        self.relocation.refuse_join(sender, packet)
        self.takeover.meet(sender.name)
        self.relocation.take(step, sender, packet, self.propagation.strained)
        self.hierarchy.hear(packet.beat)

    def _receive_welcome(self, step: Step, sender: NodeId, packet: Welcome) -> None:
        self.hierarchy.refuse_beat(sender, packet.beat)
        self.relocation.refuse_welcome(sender, packet)
        self.relocation.welcomed(step, sender, packet)
        self.hierarchy.hear(packet.beat)
        if self.edges.parent is not None:
            self.takeover.found()

    def _receive_closed(self, step: Step, sender: NodeId, packet: Closed) -> None:
        edge = self.edges.find(sender, packet.session)
        if edge is not None:
            if packet.forget and edge.is_parent:
                self.relocation.forgotten = edge.log
            self._lost(step, edge)
        elif self.relocation.closed(sender, packet) and self.takeover.seeking_since is not None:
            self.takeover.ask_further(step)

    def _receive_fetch(self, step: Step, sender: NodeId, packet: Fetch) -> None:
        """Somebody lost entries that it had. Only a correspondent is helped, a few at a time."""
        edge = self.edges.by_name.get(sender.name)
        for wanted in packet.events if edge is not None else ():
            assert edge is not None
            if edge.fetching >= MOST_FETCHED:
                return
            place = Reference(wanted.origin, wanted.birth, wanted.number)
            if self.log.has(place):
                edge.fetching += 1
                self.propagation.recalls += 1
                step.recall(self.group, ("fetch", sender), place, self.options.chunk)

    def _receive_fetched(self, step: Step, sender: NodeId, packet: Fetched) -> None:
        edge = self.edges.by_name.get(sender.name)
        if edge is not None:
            self.repair.refuse_invalid(edge, packet)
            self.repair.receive(step, edge, packet, self.edges.all())

    # --- packets of a session ----------------------------------------------------------------

    def _receive_drop(self, step: Step, edge: Edge, packet: Drop) -> None:
        if edge.is_parent:
            self._lost(step, edge)
        else:
            self.relocation.end(step, edge)

    def _receive_pulse(self, step: Step, edge: Edge, packet: Pulse) -> None:
        if not edge.is_parent:
            raise PeerError(f"{edge.peer} is a child, and sends beats")
        self.hierarchy.refuse_beat(edge.peer, packet.beat)
        self.hierarchy.hear(packet.beat)
        self.hierarchy.receive(packet, step.now)
        for name in (*(packet.path or ()), *(packet.siblings or ())):
            self.takeover.meet(name)

    def _receive_ack(self, step: Step, edge: Edge, packet: Ack) -> None:
        if packet.rumour is not None:
            self.hierarchy.refuse_beat(edge.peer, packet.rumour.beat)
        self.propagation.receive_ack(edge, packet)
        self._look_at_stability(edge)
        if packet.rumour is not None:
            self.takeover.hear(step, packet.rumour.beat, packet.rumour.teller)

    def _look_at_stability(self, edge: Edge) -> None:
        if edge.is_parent or self.edges.parent is None:
            self.retention.acknowledged(edge.acked)

    # --- reading -----------------------------------------------------------------------------

    def _recalled(self, step: Step, given: Recalled) -> None:
        token: Any = given.token
        what, peer, *session = token
        edge = self.edges.by_name.get(peer.name)
        if edge is None or edge.peer != peer:
            return
        if what == "fetch":
            edge.fetching -= 1
            items = [one for one in given.entries if isinstance(one, Entry) and not one.is_gap]
            if items:
                step.send(peer, Fetched(self.group, self.log.identity, items))
        elif session == [edge.session.opener, edge.session.count]:
            if isinstance(given.place, At):
                self.propagation.recalled(step, edge, given)
            else:
                self.recovery.recalled(step, edge, given)

    # --- the end of a step -------------------------------------------------------------------

    def _lost(self, step: Step, edge: Edge) -> None:
        """An edge ended, and its peer may come back."""
        was_parent = self.edges.parent is edge
        self.relocation.end(step, edge, step.now + self.options.hold_for)
        if was_parent:
            self.hierarchy.orphaned(step)
            self.takeover.seek(step)

    def _tell(self, step: Step) -> None:
        """Once a beat every edge hears from us."""
        for edge in self.edges.all():
            if edge.is_parent:
                rumour = self.hierarchy.current_rumour(step.now)
                self.propagation.acknowledge(step, edge, rumour)
            elif step.now - edge.told_at >= self.options.beat * 9 // 10:
                self.hierarchy.pulse(step, edge)
            if edge.said < edge.cursor:
                self.propagation.send(step, edge, [])
            if edge.kept_through < edge.through and not self.propagation.strained:
                self.edges.keep(step, edge)

    def _settle(self, step: Step) -> None:
        propagation = self.propagation
        edges = self.edges.all()
        if propagation.grew:
            for edge in edges:
                if edge.stalled:
                    propagation.drain(step, edge)
        for edge in edges:
            if edge.failed:
                step.send(edge.peer, Closed(self.group, edge.session, edge.forgets))
                if edge.forgets and edge.is_parent:
                    self.relocation.forgotten = edge.log
                self._lost(step, edge)
        for edge in self.edges.all():
            if edge.owes_ack:
                if propagation.grew:
                    self.edges.keep(step, edge)
                propagation.acknowledge(step, edge)
            propagation.pump(step, edge)
            self._look_at_stability(edge)
        if self.hierarchy.must_tell:
            self.hierarchy.must_tell = False
            for edge in self.edges.children:
                self.hierarchy.pulse(step, edge)
        if propagation.grew:
            propagation.grew = False
            self.retention.grew(step)


def built_of(kind: type[FeedMember]) -> Build:
    """One machine a group."""

    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
    ) -> list[Machine]:
        return [kind(me, plan, chance, records) for plan in plans]

    return build


build = built_of(FeedMember)

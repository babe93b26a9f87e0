"""Feeds, each without one of the rules: a law must notice its absence.

A member refuses entries that do not fit, and a run ends there. The mutants that make holes take
whatever comes, so that the laws have something to say.
"""

from __future__ import annotations

import msgspec

from ordercast.kernel.family import Mutant
from ordercast.kernel.log import Entry, Reference, key_of
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Note, Step
from ordercast.protocol.hpp.edges import Edge, Edges
from ordercast.protocol.hpp.member import FeedMember, built_of
from ordercast.protocol.hpp.own_log import OwnLog
from ordercast.protocol.hpp.packets import (
    Beat,
    Closed,
    Digest,
    Entries,
    Join,
    Offer,
    OfSession,
    SessionId,
    Welcome,
)
from ordercast.protocol.hpp.propagation import Propagation
from ordercast.protocol.hpp.recovery import SessionStart
from ordercast.protocol.hpp.relocation import Relocation
from ordercast.types import Event, Gap, NodeId


class _TakesAll(Propagation):
    """Takes what comes, whatever is missing before it."""

    def _refuse_invalid(self, edge: Edge, packet: Entries) -> None:
        """Nothing is refused."""

    def drain(self, step: Step, edge: Edge) -> None:
        vector = self.log.vector
        queue = list(edge.queue)
        edge.queue.clear()
        for packet, came in queue:
            items = []
            last: dict[int, int] = {}
            for item in packet.items:  # as if it were the next one of its stream
                key = key_of(item.stream)
                prev = last.get(key, vector.get(key))
                items.append(msgspec.structs.replace(item, prev=prev, reply=None))
                if item.number > prev:
                    last[key] = item.number
            fitting = msgspec.structs.replace(packet, items=items)
            edge.queue.append(type(queue[0])(fitting, came))
            super().drain(step, edge)


class _ComparesNothing(SessionStart):
    def begin(self, step: Step, edge: Edge, resume: int | None, digest: Digest | None) -> None:
        if resume is None:
            self._start_at(edge, self.log.tail)
        else:
            super().begin(step, edge, resume, digest)


class ComparesNothing(FeedMember):
    """Begins every session with the newest entry."""

    propagation_type = _TakesAll
    recovery_type = _ComparesNothing


class _KeepsToItself(_TakesAll):
    def receive(self, step: Step, edge: Edge, packet: Entries) -> None:
        before = self.log.tail
        was_behind = edge.through == 0
        super().receive(step, edge, packet)
        if was_behind:  # what a session begins with reaches nobody else
            for other in self.edges.all():
                if other.cursor >= before and other is not edge:
                    other.cursor = self.log.tail


class KeepsToItself(FeedMember):
    """Forwards nothing of what a recovery brings, as the paper has it."""

    propagation_type = _KeepsToItself


class _SortsByClass(_TakesAll):
    def receive(self, step: Step, edge: Edge, packet: Entries) -> None:
        items = sorted(packet.items, key=lambda item: item.reply is not None)
        super().receive(step, edge, msgspec.structs.replace(packet, items=items))


class SortsByClass(FeedMember):
    """Takes what comes together sorted: messages that reply to nothing come first."""

    propagation_type = _SortsByClass


class _CountsArrivals(OwnLog):
    def has(self, reply: Reference) -> bool:
        return True

    def append(self, step: Step, entry: Entry) -> Event | None:
        key = key_of(entry.stream)
        before = self.vector.get(key)
        event = super().append(step, entry)
        if entry.stream != self.stream:
            self.vector.put(key, before + 1)
        return event

    def _deliver(self, step: Step, entry: Entry, before: int) -> Event | None:
        self._newest.put(key_of((entry.origin, 0)), 0)
        return super()._deliver(step, entry, before)


class CountsArrivals(FeedMember):
    """Adds one to a number of the vector for every entry that comes, as the paper has it."""

    log_type = _CountsArrivals
    propagation_type = _TakesAll


class _AnyBeat(Relocation):
    def is_usable(self, offer: Offer) -> bool:
        return offer.room

    def may_take(self, sender: NodeId, join: Join, beside: Edge | None) -> bool:
        parent = self.edges.parent
        return parent is None or parent.peer.name != sender.name

    def welcomed(self, step: Step, sender: NodeId, packet: Welcome) -> None:
        own = self.hierarchy.beat
        if packet.beat <= own:
            self.hierarchy.beat = Beat(0, "", 0, 0)
        super().welcomed(step, sender, packet)
        self.hierarchy.beat = max(own, self.hierarchy.beat)


class AnyBeat(FeedMember):
    """Moves to whomever it likes."""

    relocation_type = _AnyBeat


class _EqualBeats(_AnyBeat):
    def is_usable(self, offer: Offer) -> bool:
        return offer.room and offer.beat >= self.hierarchy.beat

    def may_take(self, sender: NodeId, join: Join, beside: Edge | None) -> bool:
        allowed = join.beat <= self.hierarchy.beat
        return allowed and super().may_take(sender, join, beside)


class EqualBeats(FeedMember):
    """Moves to a node whose beat is greater or equal."""

    relocation_type = _EqualBeats


class _HidesGaps(OwnLog):
    def _deliver(self, step: Step, entry: Entry, before: int) -> Event | None:
        event = super()._deliver(step, entry, before)
        if entry.is_gap:
            step.outputs = [
                one for one in step.outputs if not isinstance(one, Gap) and not _is_loss(one)
            ]
        return event


def _is_loss(output: object) -> bool:
    return isinstance(output, Note) and output.kind == "lose"


class HidesGaps(FeedMember):
    """Goes on behind a gap and tells nobody."""

    log_type = _HidesGaps


class _DeliversFormer(OwnLog):
    def _deliver(self, step: Step, entry: Entry, before: int) -> Event | None:
        self._newest.put(key_of((entry.origin, 0)), 0)
        return super()._deliver(step, entry, before)


class DeliversFormer(FeedMember):
    """Delivers what a node sent before it lost its disk, whenever it turns up."""

    log_type = _DeliversFormer


class WaitsForItsParent(FeedMember):
    """An orphan asks nobody but the parent that it had."""

    def _lost(self, step: Step, edge: Edge) -> None:
        was_parent = self.edges.parent is edge
        super()._lost(step, edge)
        if was_parent:
            self.takeover.contacts = {edge.peer.name: None}
            self.takeover.queue = []
            self.hierarchy.path, self.hierarchy.siblings = [edge.peer.name], []
            self.takeover.seeking_since = 1 << 62


class _BareCounts(Edges):
    def find(self, peer: NodeId, session: SessionId) -> Edge | None:
        edge = self.by_name.get(peer.name)
        return edge if edge is not None and edge.session.count == session.count else None


class BareCounts(FeedMember):
    """Knows a session by its count alone, whoever opened it; and moves to whomever it likes."""

    edges_type = _BareCounts
    relocation_type = _AnyBeat
    propagation_type = _TakesAll

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        edge = self.edges.by_name.get(sender.name)
        if (
            edge is not None
            and isinstance(packet, OfSession | Closed)
            and (packet.session.count == edge.session.count)
        ):
            packet = msgspec.structs.replace(packet, session=edge.session)
        super().receive(step, sender, packet)


MUTANTS = {
    "compares-nothing": Mutant("no-silent-gap", built_of(ComparesNothing)),
    "keeps-to-itself": Mutant("no-silent-gap", built_of(KeepsToItself)),
    "sorts-by-class": Mutant("optimistic-causal", built_of(SortsByClass)),
    "counts-arrivals": Mutant("no-duplication", built_of(CountsArrivals)),
    "any-beat": Mutant("one-tree", built_of(AnyBeat)),
    "equal-beats": Mutant("one-tree", built_of(EqualBeats)),
    "hides-gaps": Mutant("no-silent-gap", built_of(HidesGaps)),
    "delivers-former": Mutant("fifo", built_of(DeliversFormer)),
    "waits-for-its-parent": Mutant("durable", built_of(WaitsForItsParent)),
    "bare-counts": Mutant("durable", built_of(BareCounts)),
}

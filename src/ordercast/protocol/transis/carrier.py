"""How the events and acknowledgements of a configuration get to its other members.

What it decides: by which channel they leave, which of those that come no member would have sent,
and what becomes of those that do not come. A carrier has the graph into which it brings events.

There are two. `LinkCarrier`, here: each packet goes by the link to each other member, where nothing
is lost and all is in order, so there is nothing to do about what is missing. `MulticastCarrier`
(`multicast.py`): one packet goes to all of them, may be lost, and is recovered.

Changes, `Fetch` and `Fetched` go by links whichever carrier a group has.
"""

from __future__ import annotations

from typing import Protocol

from ordercast.kernel.clocks import Vector
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.transis import refusals
from ordercast.protocol.transis.change import ConfigurationChange
from ordercast.protocol.transis.flow import OwnEvents
from ordercast.protocol.transis.graph import CausalGraph
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import (
    Cast,
    ConfigurationId,
    Fetch,
    Fetched,
    Status,
    Summary,
)
from ordercast.types import NodeId

NEVER = 1 << 62
"""Nanoseconds of patient time."""


class Carrier(Protocol):
    """Of one configuration."""

    due: int  # when time itself changes something next, in patient time

    @property
    def graph(self) -> CausalGraph:
        """Into which it brings events."""

    def send(self, step: Step, packet: Cast | Status | Summary) -> None:
        """To all other members."""

    def refuse_cast(self, graph: CausalGraph, sender: NodeId, place: int, cast: Cast) -> None:
        """PeerError: its origin would not have sent it."""

    def refuse_status(self, graph: CausalGraph, sender: NodeId, place: int, status: Status) -> None:
        """PeerError: its sender would not have sent it."""

    def refuse_rare(self, change: ConfigurationChange, sender: NodeId, packet: Packet) -> None:
        """The same for any packet that only goes by links."""

    def answer(self, step: Step, sender: NodeId, fetch: Fetch, time: int) -> None:
        """A member lacks events that we may have."""

    def expects(self, sender: NodeId, fetched: Fetched) -> bool:
        """Whether an event that another member than its origin sends is taken."""

    def reach(self, cut: Vector) -> None:
        """All who come along from here have sent so much, and we need all of it."""

    def follow_up(self, step: Step, time: int) -> bool:
        """What is to be done about what is missing. Whether all have heard what we have."""

    def leave(self, step: Step) -> None:
        """We leave, and answer nobody any more."""

    def counters(self) -> dict[str, int]:
        """What it counts, by plain names."""


class LinkCarrier:
    due = NEVER
    refuse_cast = staticmethod(refusals.refuse_cast)
    refuse_status = staticmethod(refusals.refuse_status)

    def __init__(self, graph: CausalGraph, others: tuple[NodeId, ...]) -> None:
        self.graph = graph
        self._others = others

    def send(self, step: Step, packet: Cast | Status | Summary) -> None:
        step.send(self._others, packet)

    def refuse_rare(self, change: ConfigurationChange, sender: NodeId, packet: Packet) -> None:
        if isinstance(packet, Fetch):
            refusals.refuse_fetch(self.graph, change, sender, packet)
        elif isinstance(packet, Fetched):
            refusals.refuse_fetched(self.graph, sender, packet)
            refusals.refuse_unasked(self.graph, sender, packet)
        else:
            refusals.refuse_rare(self.graph, change, sender, packet)

    def answer(self, step: Step, sender: NodeId, fetch: Fetch, time: int) -> None:
        """It goes to the next configuration with us, and the origin does not."""
        for cast in self.graph.events(self.graph.places[fetch.origin], fetch.first, fetch.last):
            step.send(sender, Fetched(fetch.group, fetch.origin, cast))

    def expects(self, sender: NodeId, fetched: Fetched) -> bool:
        return True

    def reach(self, cut: Vector) -> None:
        """It is under way."""

    def follow_up(self, step: Step, time: int) -> bool:
        return False

    def leave(self, step: Step) -> None:
        """What we have sent arrives."""

    def counters(self) -> dict[str, int]:
        return {}


class Carriage(Protocol):
    """The carriers of all configurations of one member."""

    def own_events(self, options: SynchronyOptions) -> OwnEvents:
        """The window of this member."""

    def open(
        self,
        me: NodeId,
        group: str,
        options: SynchronyOptions,
        cid: ConfigurationId,
        members: tuple[NodeId, ...],
        own: OwnEvents,
    ) -> Carrier:
        """A configuration begins."""


class ByLinks:
    def own_events(self, options: SynchronyOptions) -> OwnEvents:
        return OwnEvents(options)

    def open(
        self,
        me: NodeId,
        group: str,
        options: SynchronyOptions,
        cid: ConfigurationId,
        members: tuple[NodeId, ...],
        own: OwnEvents,
    ) -> Carrier:
        graph = CausalGraph(members, me, own.limit)
        return LinkCarrier(graph, tuple(node for node in members if node != me))

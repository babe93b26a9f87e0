"""The packets of fifo groups.

Data, Start, Begin and what is about a state travel by link, so that they arrive in the order in
which they were sent.
Alive and Roster travel by datagram: they are cumulative, so a lost one costs nothing but a little
time, and they never queue up for a member that is away.

Begin and Roster exist in open groups only; Need, Coming and State where these have a state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ordercast.kernel.packet import Count, Failure, Number, Packet
from ordercast.types import NodeId, Payloads

Cut: TypeAlias = list[tuple[NodeId, Count]]
"""A place in the stream of each origin."""


class Data(Packet, frozen=True, tag="fifo.data"):
    """One event of origin's stream, from the origin itself or relayed by a member that holds it."""

    origin: NodeId
    number: Number  # its place in the stream of this incarnation, from 1
    payloads: Payloads
    size: Count  # bytes of the payloads, counted once by the origin

    def carries(self) -> tuple[int, int, int]:
        return len(self.payloads), self.size, 1024

    def makers(self) -> tuple[str]:
        return (self.origin.name,)


class Start(Packet, frozen=True, tag="fifo.start"):
    """What follows on this link of origin's stream begins after this number."""

    origin: NodeId
    after: Count


class Begin(Packet, frozen=True, tag="fifo.begin"):
    """The origin's own: for a member that joined later, its stream begins after this number."""

    origin: NodeId
    after: Count


class Leave(Packet, frozen=True, tag="fifo.leave"):
    """The last packet of a member that leaves."""


class Alive(Packet, frozen=True, tag="fifo.alive"):
    """A heartbeat: how far the sender has received each stream, and whom it hears."""

    received: list[tuple[NodeId, Count]]
    hears: list[NodeId]
    full: bool = False  # its application cannot take more: it acknowledges nothing for now


class Roster(Packet, frozen=True, tag="fifo.roster"):
    """Who is in the sender's view, the sender included; or who would be, if it had one."""

    members: list[NodeId]
    formed: bool  # whether it has a view
    away: tuple[NodeId, ...] = ()  # those whose return it awaits

    def introduces(self) -> Iterable[str]:
        return [node.name for node in (*self.members, *self.away)]


class Need(Packet, frozen=True, tag="fifo.need"):
    """A newcomer asks for the application's state, which must go at least as far as this."""

    after: Cut


class Coming(Packet, frozen=True, tag="fifo.coming"):
    """The sender has asked its application for the state."""


class State(Packet, frozen=True, tag="fifo.state"):
    """The state of the sender's application, when it had delivered so much."""

    cut: Cut
    state: bytes | None  # None: its application has none
    failure: Failure = ""  # why it could not give it

    def carries(self) -> tuple[int, int, int]:
        return 0, 0, 1024 + len(self.state or b"") + 64 * len(self.cut)

"""The packets of the ring of tickets as it was published, and the few that had to be added.

Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency (2011), section 4. Named as there: CJOIN is `Cjoin`, and so on.
The paper numbers nothing, so nothing is numbered here: a late copy looks like a new message.

Added, as something of the kind is needed to run at all: `Ask` and `View` (the paper says that a
newcomer can learn the free tickets from any coordinator, not how) and `Gone` (a process that is
alive but no coordinator must look like one that could not be reached, or its tickets are never
reclaimed; UPDATE and EXCLUDE name the ticket whose owner they are meant for, so that a process that
came back elsewhere is not taken for the one it was). Sets of processes travel with their tickets,
or their order would be unknown.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from ordercast.kernel.packet import Packet, Value
from ordercast.protocol.tickets.entries import MOST_TICKETS, Epoch, Ticket
from ordercast.protocol.tickets.interface import TicketPacket

MOST_KNOWN = 63
"""Predecessors that a process knows: 2k + 1 at the most."""

Name = Annotated[str, Meta(max_length=100)]
Refused = Literal["ackcjoin", "update", "exclude"]


class RingSeat(Value, frozen=True, order=True):
    """A ticket, and the process that owns it as some process believes."""

    ticket: Ticket
    name: Name


Seats = Annotated[tuple[RingSeat, ...], Meta(max_length=MOST_TICKETS)]
Known = Annotated[tuple[RingSeat, ...], Meta(max_length=MOST_KNOWN)]


class Ring(TicketPacket, frozen=True):
    """Every packet of the ring."""


# --- joining ---------------------------------------------------------------------------------


class Ask(Ring, frozen=True, tag="ring.ask"):
    """Which tickets are taken, as far as you know?"""


class View(Ring, frozen=True, tag="ring.view"):
    """The Cview of a coordinator; any other process sends an empty one."""

    seats: Seats


class Cjoin(Ring, frozen=True, tag="ring.cjoin"):
    preferred: Ticket | None  # the newcomer's random choice, which the coordinator may follow


class Ackcjoin(Ring, frozen=True, tag="ring.ackcjoin"):
    ticket: Ticket
    successor: RingSeat
    view: Seats
    epoch: Epoch  # beyond those that the coordinator heard of: the paper has none
    known: Known = ()  # L; the algorithm without failures has none


class Reject(Ring, frozen=True, tag="ring.reject"):
    """Not now, or not here."""


# --- without failures ------------------------------------------------------------------------


class Newsucc(Ring, frozen=True, tag="ring.newsucc"):
    ticket: Ticket  # of the sender, which is the receiver's new predecessor


class Acksucc(Ring, frozen=True, tag="ring.acksucc"):
    """You are my predecessor."""


class Cleave(Ring, frozen=True, tag="ring.cleave"):
    successor: RingSeat


class Ackcleave(Ring, frozen=True, tag="ring.ackcleave"):
    """Your tickets are mine: go."""


# --- with failures -----------------------------------------------------------------------------


class Alive(Ring, frozen=True, tag="ring.alive"):
    """Once a round, to the closest successors."""


class Update(Ring, frozen=True, tag="ring.update"):
    to: Ticket
    known: Known  # R, which becomes the receiver's L


class Gone(Ring, frozen=True, tag="ring.gone"):
    """The packet was for a coordinator (or for a process that joins), and its receiver is none."""

    refused: Refused


class Exclude(Ring, frozen=True, tag="ring.exclude"):
    """Whom do you know before you?"""

    to: Ticket


class Ackexclude(Ring, frozen=True, tag="ring.ackexclude"):
    known: Known  # L of the sender


class Reqcoord(Ring, frozen=True, tag="ring.reqcoord"):
    """Let me coordinate all tickets between these two, which are not among them."""

    after: Ticket
    before: Ticket


class Ackcoord(Ring, frozen=True, tag="ring.ackcoord"):
    """Do."""


def tickets_in(packet: Packet) -> tuple[int, ...]:
    """Every ticket that a packet names."""
    if isinstance(packet, Update):
        return packet.to, *(seat.ticket for seat in packet.known)
    if isinstance(packet, Ackexclude):
        return tuple(seat.ticket for seat in packet.known)
    if isinstance(packet, View):
        return tuple(seat.ticket for seat in packet.seats)
    if isinstance(packet, Ackcjoin):
        seats = (packet.successor, *packet.view, *packet.known)
        return packet.ticket, *(seat.ticket for seat in seats)
    if isinstance(packet, Reqcoord):
        return packet.after, packet.before
    if isinstance(packet, Cjoin):
        return () if packet.preferred is None else (packet.preferred,)
    if isinstance(packet, Cleave):
        return (packet.successor.ticket,)
    if isinstance(packet, Newsucc):
        return (packet.ticket,)
    return (packet.to,) if isinstance(packet, Exclude) else ()


PACKETS = (
    *(Ask, View, Cjoin, Ackcjoin, Reject, Newsucc, Acksucc, Cleave, Ackcleave),
    *(Alive, Update, Gone, Exclude, Ackexclude, Reqcoord, Ackcoord),
)

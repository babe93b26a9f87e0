"""What members of a totally ordered group say to each other.

All of it travels by link, as one numbered stream a group and sender: events, null messages and
the agreement on who is there. Each packet names its predecessor, so a copy that somebody else
relays fits in without a gap or does not fit in at all.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from ordercast.kernel.packet import Packet
from ordercast.types import NodeId, Payloads

Order = Annotated[int, Meta(ge=0, lt=1 << 62)]
Count = Annotated[int, Meta(ge=0, lt=1 << 40)]


class Numbered(Packet, frozen=True):
    """What every packet of a stream begins with."""

    order: Annotated[int, Meta(ge=1, lt=1 << 62)]  # its number. paper: m.c
    previous: Order  # the number before it in this stream; 0: it is the first
    delivered_up_to: Order  # its sender has delivered all up to here. paper: m.ldn
    solicits: Order  # whoever is not yet at this number should speak; 0: nobody need


class Data(Numbered, frozen=True, tag="total.data"):
    """One event."""

    origin: NodeId
    number: Annotated[int, Meta(ge=1, lt=1 << 40)]  # its place in this life of the origin, from 1
    payloads: Payloads
    size: Count  # bytes of the payloads, counted once by the origin

    def carries(self) -> tuple[int, int, int]:
        return len(self.payloads), self.size, 1024

    def makers(self) -> tuple[str, ...]:
        return (self.origin.name,)


class Turn(Numbered, frozen=True, tag="total.turn"):
    """The sequencer of a group orders an event that its origin has cast: it comes here."""

    origin: NodeId
    number: Annotated[int, Meta(ge=1, lt=1 << 40)]


class Null(Numbered, frozen=True, tag="total.null"):
    """Nothing but its number: its sender is there, and sends nothing below."""


class Suspect(Numbered, frozen=True, tag="total.suspect"):
    """The sender has heard nothing of a peer for too long."""

    peer: NodeId
    last_number: Order  # the last number that it has of the peer. paper: ln


class Retract(Numbered, frozen=True, tag="total.retract"):
    """What is left of somebody's Refute when it is relayed: that it suspects no longer.

    The messages that it brought are left out, so that nothing is relayed inside of something
    relayed. Who lacks them gets them from the relayer, which has them too, by its own suspicion.
    """

    peer: NodeId
    last_number: Order


class Refute(Numbered, frozen=True, tag="total.refute"):
    """The sender has more of a peer than a suspicion says, and here it is."""

    peer: NodeId
    last_number: Order  # of the suspicion that is refuted
    messages: list[
        Data | Turn | Null | Suspect | Retract | Confirm | Leave
    ]  # of the peer, from there on

    def carries(self) -> tuple[int, int, int]:
        messages = size = 0
        others = 1024
        for message in self.messages:
            more = message.carries()
            messages += more[0]
            size += more[1]
            others += max(more[2], 1024)
        return messages, size, others

    def makers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for one in self.messages for name in one.makers()))


class Confirm(Numbered, frozen=True, tag="total.confirm"):
    """All who do not suspect each other agree that these are gone, and on how far they got."""

    detection: list[tuple[NodeId, Order]]  # sorted. paper: detection

    def carries(self) -> tuple[int, int, int]:
        return 0, 0, 1024 + 128 * len(self.detection)


class Leave(Numbered, frozen=True, tag="total.leave"):
    """The last of its stream: the sender leaves the group."""


Relayed: TypeAlias = Data | Turn | Null | Suspect | Retract | Confirm | Leave
Message: TypeAlias = Relayed | Refute
PACKETS = (Data, Turn, Null, Suspect, Retract, Refute, Confirm, Leave)


def to_relay(message: Message) -> Relayed:
    """A packet of a stream in the form in which others than its sender pass it on."""
    if not isinstance(message, Refute):
        return message
    head = message.order, message.previous, message.delivered_up_to, message.solicits
    return Retract(message.group, *head, message.peer, message.last_number)

"""What members of a totally ordered group say to each other.

Most of it travels by link, as one numbered stream a formation and sender: events, null messages
and the agreement on who is there. Each packet names its predecessor, so a copy that somebody else
relays fits in without a gap or does not fit in at all.

What is said about a formation before there is one has no numbers: `Here` and `Please` by
datagram, `Invite` and `Vote` by link.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from ordercast.kernel.packet import Packet
from ordercast.types import NodeId, Payloads, label_of

Order = Annotated[int, Meta(ge=0, lt=1 << 62)]
LARGEST_GROUP = 50
Word = Annotated[str, Meta(max_length=100)]
Terms = Annotated[dict[Word, Word], Meta(max_length=30)]
"""What members must agree on to be in one group: its kind and its options, for people to read."""
FormationId = Annotated[str, Meta(max_length=150)]
Count = Annotated[int, Meta(ge=0, lt=1 << 40)]


class Numbered(Packet, frozen=True):
    """What every packet of a stream begins with."""

    formation: FormationId
    order: Annotated[int, Meta(ge=1, lt=1 << 62)]  # its number. paper: m.c
    previous: Order  # the number before it in this stream; 0: it is the first
    delivered_up_to: Order  # its sender has delivered all up to here. paper: m.ldn
    solicits: Order  # whoever is not yet at this number should speak; 0: nobody need

    @property
    def label(self) -> str:
        """Of all groups that bear the name, which one this is about."""
        return label_of(self.group, self.formation) if self.formation else self.group


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
        Start | State | Move | Data | Turn | Null | Suspect | Retract | Confirm | Leave
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


class Start(Numbered, frozen=True, tag="total.start"):
    """The first of a stream in a formation that came about by votes: the sender is in it.

    Its number is below all that is ordered there.
    """

    counter: Count  # events of the sender in earlier formations: its numbers go on from there


class State(Numbered, frozen=True, tag="total.state"):
    """The state of the initiator's application: what all in the formation begin with."""

    state: bytes | None

    def carries(self) -> tuple[int, int, int]:
        return 0, 0, 1024 + len(self.state or b"")


class Move(Numbered, frozen=True, tag="total.move"):
    """The sender is about to go over to another formation: no event of it comes after this one,
    unless that formation comes to nothing."""

    to: FormationId


class Here(Packet, frozen=True, tag="total.here"):
    """The sender has joined the group, whatever formation it is in, or none."""

    formation: FormationId | None
    size: Annotated[int, Meta(ge=0, le=LARGEST_GROUP)]  # members of its view; 0: it has none
    first: Annotated[str, Meta(max_length=100)]  # the smallest of them
    terms: Terms
    asks: bool  # whether it wants to know who else is there


class Please(Packet, frozen=True, tag="total.please"):
    """The sender is in no formation, and asks one who is to form the group anew with it."""


class Invite(Packet, frozen=True, tag="total.invite"):
    """The sender wants a formation of these. paper: form group"""

    formation: FormationId
    members: Annotated[list[NodeId], Meta(min_length=1, max_length=LARGEST_GROUP)]  # sorted
    terms: Terms


class Vote(Packet, frozen=True, tag="total.vote"):
    """What the sender says to an invitation, to all who are invited. A yes may be taken back."""

    formation: FormationId
    yes: bool
    why: Annotated[str, Meta(max_length=300)]


Relayed: TypeAlias = Start | State | Move | Data | Turn | Null | Suspect | Retract | Confirm | Leave
Message: TypeAlias = Relayed | Refute
OfFormations: TypeAlias = Here | Please | Invite | Vote
PACKETS = (
    *(Data, Turn, Null, Suspect, Retract, Refute, Confirm, Leave, Start, State, Move),
    *(Here, Please, Invite, Vote),
)


def to_relay(message: Message) -> Relayed:
    """A packet of a stream in the form in which others than its sender pass it on."""
    if not isinstance(message, Refute):
        return message
    return Retract(
        message.group,
        message.formation,
        message.order,
        message.previous,
        message.delivered_up_to,
        message.solicits,
        message.peer,
        message.last_number,
    )

"""The packets of totally ordered groups.

Most of them travel by link, in one numbered stream per formation and sender: events, null messages
and the agreement on failures. Each packet names its predecessor, so a relayed copy either connects
without a gap or does not connect at all.

Packets about formations have no numbers. `Here` and `Unable` travel by datagram, the others by
link.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, TypeAlias

from msgspec import Meta

from ordercast.kernel.inputs import LARGEST_STATE
from ordercast.kernel.packet import Count, Failure, Number, Packet, Value
from ordercast.protocol.primary import packets as primary
from ordercast.types import NodeId, Payloads, label_of

Order = Annotated[int, Meta(ge=0, lt=1 << 62)]
LARGEST_GROUP = 50
Word = Annotated[str, Meta(max_length=100)]
Terms = Annotated[dict[Word, Word], Meta(max_length=30)]
"""What must be the same at all members of a group: its kind and its options, as text."""
FormationId = Annotated[str, Meta(max_length=150)]
PART_BYTES = 256 << 10
"""Of a state that is larger, so much is sent in one packet; less if several members need it."""
LEAST_PART = 16 << 10
StateParts = Annotated[int, Meta(ge=0, le=LARGEST_STATE // LEAST_PART)]


class Numbered(Packet, frozen=True):
    """What every packet of a stream starts with."""

    formation: FormationId
    order: Annotated[int, Meta(ge=1, lt=1 << 62)]  # its number. paper: m.c
    previous: Order  # the number before it in this stream; 0: it is the first
    delivered_up_to: Order  # its sender has delivered everything up to here. paper: m.ldn
    solicits: Order  # members below this number should answer; 0: none

    @property
    def label(self) -> str:
        """The group name with the formation."""
        return label_of(self.group, self.formation) if self.formation else self.group


class Data(Numbered, frozen=True, tag="total.data"):
    """One event."""

    origin: NodeId
    number: Number  # counts its origin's events in this formation, from 1
    payloads: Payloads
    size: Count  # bytes of the payloads, counted once by the origin

    def carries(self) -> tuple[int, int, int]:
        return len(self.payloads), self.size, 1024

    def makers(self) -> tuple[str, ...]:
        return (self.origin.name,)


class Turn(Numbered, frozen=True, tag="total.turn"):
    """The sequencer of a group assigns a place to an event: the number of this packet."""

    origin: NodeId
    number: Number


class Null(Numbered, frozen=True, tag="total.null"):
    """Only a number: its sender is alive, and sends nothing below it."""


class Suspect(Numbered, frozen=True, tag="total.suspect"):
    """The sender suspects a peer."""

    peer: NodeId
    last_number: Order  # the last number that it has received of the peer. paper: ln


class Retract(Numbered, frozen=True, tag="total.retract"):
    """A relayed `Refute`, without the packets that it carried: its sender suspects no longer.

    So relayed packets never contain relayed packets. A member that misses them gets them from the
    member that relays, which has them too, when it suspects the peer itself.
    """

    peer: NodeId
    last_number: Order


class Refute(Numbered, frozen=True, tag="total.refute"):
    """The sender has received more of a peer than a suspicion says, and sends it along."""

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
    """All members that do not suspect each other agree on these failures and last numbers."""

    detection: list[tuple[NodeId, Order]]  # sorted. paper: detection

    def carries(self) -> tuple[int, int, int]:
        return 0, 0, 1024 + 128 * len(self.detection)


class Leave(Numbered, frozen=True, tag="total.leave"):
    """The last of its stream: the sender leaves the group."""


class Start(Numbered, frozen=True, tag="total.start"):
    """The first packet of a stream in a formation that was voted on.

    Its number is below everything that is ordered there.
    """

    counter: Count  # events of the sender in earlier formations: its numbers continue


class DeliveryDigest(Value, frozen=True):
    """What a member has delivered in a formation, as a digest."""

    formation: FormationId
    digest: Annotated[int, Meta(ge=0, lt=1 << 62)]
    count: Count = 0  # events since the founding, those of the state that it began with included


class State(Numbered, frozen=True, tag="total.state"):
    """The state of the initiator's application, with which all members begin.

    A member that comes from the same formation as the initiator, and has delivered the same there,
    has that state already. Copies for members of that formation leave it out.
    """

    state: bytes | None
    # Of the initiator, in the formation that it comes from; None: it comes from none.
    history: DeliveryDigest | None = None
    is_left_out: bool = False  # the state is not in this copy
    failure: Failure = ""  # why the application of the initiator gave none
    parts: StateParts = 0  # so many packets before this one carried the state
    voter: primary.VoterReport | None = None  # with a quorum: what this state covers
    retry: bool = False  # it did not answer in time: who needs the state asks again

    def carries(self) -> tuple[int, int, int]:
        return 0, 0, 1024 + len(self.state or b"") + (self.voter.size if self.voter else 0)


class Move(Numbered, frozen=True, tag="total.move"):
    """The sender moves to another formation: it submits no more events in this one, unless that
    formation fails."""

    to: FormationId


class Here(Packet, frozen=True, tag="total.here"):
    """The sender has joined the group. It may be in any formation, or in none."""

    formation: FormationId | None
    size: Annotated[int, Meta(ge=0, le=LARGEST_GROUP)]  # members of its view; 0: it has none
    first: Annotated[str, Meta(max_length=100)]  # the first of them
    terms: Terms
    asks: bool  # whether it wants an answer
    # Of an open group that it is not in: with whom it would found it (`kernel/founding.py`).
    expect: Count = 0  # with so many
    # With more than half of these.
    last: Annotated[tuple[Word, ...], Meta(max_length=LARGEST_GROUP)] = ()
    bound_to: Word = ""  # only with this one, or with all of the next
    bound_with: Annotated[tuple[Word, ...], Meta(max_length=LARGEST_GROUP)] = ()
    of: Count = 0  # how many nodes expect that number
    lost: bool = False  # it does not know whether it was in the group
    rank: Count = 0  # with a quorum: the number of the last primary view that its state covers
    delivered: Count = 0  # by the first of its view: events since the founding
    delays: bool = False  # it is in the group, and takes in the receiver later: it came and went

    @property
    def place(self) -> tuple[int, int, int, str]:
        """Of two sides the smaller one wins: with a quorum the later state, then the larger view,
        the one that delivered more, the first by name."""
        return -self.rank, -self.size, -self.delivered, self.first


class FoundingRecord(Packet, frozen=True, tag="total.founding"):
    """On disk: the last founding that we started in, until it has begun. Nobody sends it."""

    initiator: Word
    members: Annotated[tuple[Word, ...], Meta(max_length=LARGEST_GROUP)]  # none: it is over
    is_cast: bool = False  # we initiated it, and the others may have the state

    def slot(self) -> Hashable:
        return self.group


class Please(Packet, frozen=True, tag="total.please"):
    """The sender is in no formation, and asks a member that is in one to re-form the group.

    In an open group a member tells the first of its view for whom it was asked.
    """

    joiner: NodeId | None = None  # None: the sender
    # The sender is in a formation as well, and takes over the state of the receiver.
    yields: bool = False
    why: Failure = ""  # why members that have a state did not give it


class Unable(Packet, frozen=True, tag="total.unable"):
    """To a member that asked to be taken in: no member can give it a state."""

    why: Failure


class Invite(Packet, frozen=True, tag="total.invite"):
    """The sender wants a formation of these members. paper: form group"""

    formation: FormationId
    members: Annotated[list[NodeId], Meta(min_length=1, max_length=LARGEST_GROUP)]  # sorted
    terms: Terms
    founds: bool = False  # nobody is in an open group yet: these found it
    founding: FormationId = ""  # else the formation that founded the open group of the sender
    voter: primary.VoterReport | None = None  # with a quorum: what the sender's state covers


class Vote(Packet, frozen=True, tag="total.vote"):
    """A vote on an invitation, sent to all invited members. A yes may be withdrawn."""

    formation: FormationId
    yes: bool
    why: Annotated[str, Meta(max_length=300)]


class Need(Packet, frozen=True, tag="total.need"):
    """The sender is entering this formation. The state was left out for it, and it has another."""

    formation: FormationId


class Copy(Packet, frozen=True, tag="total.copy"):
    """The state of a formation, for a member that needs it after all."""

    formation: FormationId
    state: bytes | None
    failure: Failure = ""
    parts: StateParts = 0  # so many packets before this one carried the state

    def carries(self) -> tuple[int, int, int]:
        return 0, 0, 1024 + len(self.state or b"")


class StatePart(Packet, frozen=True, tag="total.part"):
    """The next part of a large state, which a `State` or a `Copy` follows (state_parts.py)."""

    formation: FormationId
    part: Annotated[bytes, Meta(min_length=1, max_length=PART_BYTES)]

    def carries(self) -> tuple[int, int, int]:
        return 0, 0, 1024 + len(self.part)


class PartTaken(Packet, frozen=True, tag="total.taken"):
    """The sender has so many parts of the state, and waits for the next one."""

    formation: FormationId
    count: StateParts


Relayed: TypeAlias = Start | State | Move | Data | Turn | Null | Suspect | Retract | Confirm | Leave
Message: TypeAlias = Relayed | Refute
OfFormations: TypeAlias = (
    Here | Please | Unable | Invite | Vote | Need | Copy | StatePart | PartTaken
)
PACKETS = (
    *(Data, Turn, Null, Suspect, Retract, Refute, Confirm, Leave, Start, State, Move),
    *(Here, Please, Unable, Invite, Vote, Need, Copy, StatePart, PartTaken),
    *primary.PACKETS,
)


def to_relay(message: Message) -> Relayed:
    """A packet of a stream, in the form in which other members than its sender relay it."""
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


def application_bytes(message: Message) -> int:
    """Bytes of the application in a packet of a stream: events, or a state."""
    if isinstance(message, Data):
        return message.size
    if isinstance(message, State):
        return len(message.state or b"")
    return sum(map(application_bytes, message.messages)) if isinstance(message, Refute) else 0

"""What members send each other about tickets, and what lease replicas persist.

All but the records travel by datagram: whatever matters is sent again every tick, and every packet
may come late, twice or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from ordercast.kernel.packet import Count, Packet, Value
from ordercast.kernel.step import Step
from ordercast.protocol.tickets.entries import MOST_TICKETS, Entry, Epoch, Sequence, Ticket
from ordercast.protocol.tickets.interface import TicketPacket
from ordercast.types import INCARNATION_BITS, NodeId

MOST_REPLICAS = 15
CLAIM_BITS = 24
"""Of a nonce: they count the claims of an incarnation, whose number has the bits above."""

Nonce = Annotated[int, Meta(ge=0, lt=1 << INCARNATION_BITS + CLAIM_BITS)]
Time = Annotated[int, Meta(ge=0, lt=1 << 62)]  # on the clock of the member that sent it first
Clock = Annotated[tuple[Entry, ...], Meta(max_length=MOST_TICKETS)]
Mode = Literal["free", "held", "block"]


class Configuration(Value, frozen=True):
    """One replica set. A replica is a process with the incarnation in which its disk began."""

    number: Count
    replicas: Annotated[tuple[NodeId, ...], Meta(max_length=MOST_REPLICAS)]

    @property
    def majority(self) -> int:
        return len(self.replicas) // 2 + 1


class TicketState(Value, frozen=True):
    """What a lease replica knows of one ticket."""

    epoch: Epoch = 0
    owner: NodeId | None = None
    mode: Mode = "free"
    last: Entry = 0  # its newest known event, of whatever epoch


Table = Annotated[tuple[TicketState, ...], Meta(max_length=MOST_TICKETS)]


class Ballot(Value, frozen=True, order=True):
    """Unique without clocks: an incarnation never uses a count twice."""

    count: Count
    by: NodeId


class Next(Value, frozen=True):
    """A replica set with the table that it begins with."""

    configuration: Configuration
    table: Table


class BallotVote(Value, frozen=True):
    ballot: Ballot
    next: Next


class About(TicketPacket, frozen=True):
    """Everything about tickets names the cluster: two that began separately never mix."""

    cluster: Count


Post: TypeAlias = Callable[[Step, tuple[str, ...], About], None]
"""How the parts of a member send: to names, which may be the member's own."""


class Ping(About, frozen=True, tag="tickets.ping"):
    sent: Time
    known: Count = 0  # members that its sender knows, where they are not listed


class Pong(About, frozen=True, tag="tickets.pong"):
    sent: Time  # as in the ping
    hint: Configuration | None  # the newest that it knows of
    replica: NodeId  # its identity as a lease replica, if it is or becomes one
    serves: Count = 0  # the number of the configuration that it is a lease replica of; 0: none
    sealed: bool = False
    leaving: bool = False


class List(About, frozen=True, tag="tickets.list"):
    """Which tickets are available?"""


class Listed(About, frozen=True, tag="tickets.listed"):
    number: Count  # of the configuration
    tickets: Annotated[list[tuple[Ticket, Epoch]], Meta(max_length=MOST_TICKETS)]  # claimable


class Claim(About, frozen=True, tag="tickets.claim"):
    """Takes a ticket, renews it, or raises its epoch."""

    number: Count
    ticket: Ticket
    epoch: Epoch
    owner: NodeId
    sequence: Sequence  # of its newest event in this epoch
    nonce: Nonce

    def makers(self) -> tuple[str, ...]:
        return (self.owner.name,)  # a member that may not send may not own a ticket


class Grant(About, frozen=True, tag="tickets.grant"):
    nonce: Nonce
    base: Entry  # the newest event of the ticket before this claim
    clock: Clock = ()  # the replica's, where the grant is of a new epoch


class Refusal(About, frozen=True, tag="tickets.refusal"):
    nonce: Nonce
    sealed: bool
    epoch: Epoch = 0
    owner: NodeId | None = None
    live: bool = False


class Release(About, frozen=True, tag="tickets.release"):
    number: Count
    ticket: Ticket
    epoch: Epoch
    owner: NodeId
    last: Entry  # its final event
    clock: Clock = ()  # its owner's

    def makers(self) -> tuple[str, ...]:
        return (self.owner.name,)


class Released(About, frozen=True, tag="tickets.released"):
    ticket: Ticket
    epoch: Epoch


class OfBallot(About, frozen=True):
    """About replacing one replica set, in one ballot."""

    number: Count  # of the set that is replaced
    ballot: Ballot


class OfReplica(OfBallot, frozen=True):
    """An answer to the reconfiguration leader."""

    replica: NodeId


class Offer(OfBallot, frozen=True, tag="tickets.offer"):
    """Asks a member to become a lease replica."""


class Ready(OfReplica, frozen=True, tag="tickets.ready"):
    """It will."""


class Seal(OfBallot, frozen=True, tag="tickets.seal"):
    """Asks for a promise to grant nothing more."""


class Sealed(OfReplica, frozen=True, tag="tickets.sealed"):
    vote: BallotVote | None
    table: Table
    live: Annotated[list[Ticket], Meta(max_length=MOST_TICKETS)]  # whose leases may still run


class Propose(OfBallot, frozen=True, tag="tickets.propose"):
    next: Next


class Voted(OfReplica, frozen=True, tag="tickets.voted"):
    """For what was proposed in this ballot."""


class Outbid(OfBallot, frozen=True, tag="tickets.outbid"):
    """A higher ballot was seen."""


class Install(About, frozen=True, tag="tickets.install"):
    next: Next


class Installed(About, frozen=True, tag="tickets.installed"):
    number: Count
    replica: NodeId


class Current(About, frozen=True, tag="tickets.current"):
    """There is a newer replica set."""

    configuration: Configuration


class ReplicaRecord(Packet, frozen=True, tag="tickets.guardian"):
    """On disk: a lease replica as it is, but for its entries. The newest one counts."""

    cluster: Count
    replica: NodeId
    configuration: Configuration
    initial: Table  # what this configuration began with
    ballot: Ballot | None
    vote: BallotVote | None
    sealed: bool

    def slot(self) -> Hashable:
        return self.group


class EntryRecord(Packet, frozen=True, tag="tickets.entry"):
    """On disk: a ticket's entry within the configuration of the lease replica record before it."""

    number: Count
    ticket: Ticket
    epoch: Epoch
    owner: NodeId | None
    mode: Mode

    def slot(self) -> Hashable:
        return self.group, self.ticket


PACKETS = (
    *(Ping, Pong, List, Listed, Claim, Grant, Refusal, Release, Released, Offer, Ready),
    *(Seal, Sealed, Propose, Voted, Install, Installed, Current, Outbid),
)
RECORDS = (ReplicaRecord, EntryRecord)

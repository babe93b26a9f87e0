"""The packets of groups with virtual synchrony.

All of them name the configuration that their sender is in. `Hello` and `Probe` travel by datagram,
`Hello` to names. `Cast`, `Status`, `Query` and `Summary` travel by the carrier of the group
(`carrier.py`), and all others by link.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from ordercast.kernel.inputs import LARGEST_STATE
from ordercast.kernel.packet import Count, Failure, Number, Packet, Value
from ordercast.protocol.primary import packets as primary
from ordercast.protocol.transis.options import LARGEST_GROUP, Service
from ordercast.types import NodeId, Payloads

MOST_LIVES = 4 * LARGEST_GROUP
"""Incarnations that a suggestion can hold: sides that merge, with those that have failed."""
STATE_BYTES = 1 << 18
"""Of an application's state, in one packet: each one is a sign of life."""
MOST_PASSAGES = 1024
"""Configurations that a member remembers that it was in."""
Height = Annotated[int, Meta(ge=0, lt=1 << 62)]
Vector = Annotated[tuple[Count, ...], Meta(max_length=LARGEST_GROUP)]
"""How many events of each member of a configuration, in the order of its members."""


class ConfigurationId(Value, frozen=True, order=True, cache_hash=True):
    """Ids grow along the way of every process, by their height. No two configurations share one."""

    # So large that lies, each of which lifts it by less than `LARGEST_CLIMB`, do not use it up.
    height: Annotated[int, Meta(ge=1, lt=1 << 62)]
    rep: NodeId  # the first member
    serial: Count  # of the representative's proposal that was decided

    def __str__(self) -> str:
        return f"{self.height}.{self.rep}.{self.serial}"


Joined: TypeAlias = Annotated[
    tuple[tuple[NodeId, ConfigurationId], ...], Meta(max_length=MOST_LIVES)
]
"""Who should come along, and from which configuration; sorted."""
Failed: TypeAlias = Annotated[tuple[NodeId, ...], Meta(max_length=MOST_LIVES)]
Members: TypeAlias = Annotated[tuple[NodeId, ...], Meta(max_length=LARGEST_GROUP)]


class Cast(Packet, frozen=True, tag="synchrony.cast"):
    """One event, from its origin."""

    cid: ConfigurationId
    seq: Number  # counts its origin's events in this configuration, from 1
    height: Annotated[int, Meta(ge=1, lt=1 << 62)]  # above that of all events before it
    vector: Vector  # how many events of each member its origin had admitted; its own: seq
    service: Service
    number: Number  # counts its origin's events, from 1
    payloads: Payloads
    size: Count  # bytes of the payloads, counted once by the origin

    def carries(self) -> tuple[int, int, int]:
        return len(self.payloads), self.size, 2048


class Fetched(Packet, frozen=True, tag="synchrony.fetched"):
    """One event of a member that is gone, from a member that has it."""

    origin: NodeId
    cast: Cast

    def carries(self) -> tuple[int, int, int]:
        messages, size, others = self.cast.carries()
        return messages, size, others + 1024

    def makers(self) -> tuple[str, ...]:
        return (self.origin.name,)


class Status(Packet, frozen=True, tag="synchrony.status"):
    """An acknowledgement without an event, and a heartbeat."""

    cid: ConfigurationId
    sent: Count  # events that its sender has sent
    clock: Height  # all that it sends later is higher
    vector: Vector


class Query(Status, frozen=True, tag="synchrony.query"):
    """The same, from a member that lacks acknowledgements of what it has."""

    # By place in the view, a bit. Nobody: the sender does not get what the receiver multicasts.
    asks: Annotated[int, Meta(ge=0, lt=1 << LARGEST_GROUP)]
    by_link: bool  # it went by link, and so should the answer


class Summary(Packet, frozen=True, tag="synchrony.summary"):
    """What the sender knows of all members, so that they need not tell each other."""

    cid: ConfigurationId
    sent: Vector  # by member: of its events the sender has so many,
    clocks: Annotated[tuple[Height, ...], Meta(max_length=LARGEST_GROUP)]  # later ones are higher
    stable: Vector  # by member: so many of its events all members have


class Fetch(Packet, frozen=True, tag="synchrony.fetch"):
    """Asks for events of a member that is gone."""

    cid: ConfigurationId
    origin: NodeId
    first: Number
    last: Number


class Leave(Packet, frozen=True, tag="synchrony.leave"):
    """The last packet of a member that leaves."""

    cid: ConfigurationId
    sent: Count


class Hello(Packet, frozen=True, tag="synchrony.hello"):
    """The sender announces itself to a name that is not in its view."""

    cid: ConfigurationId
    echo: Annotated[tuple[NodeId, ...], Meta(max_length=2 * LARGEST_GROUP)]  # whom it has heard
    members: Members  # of its view

    def introduces(self) -> Iterable[str]:
        return [node.name for node in self.members]


class Probe(Packet, frozen=True, tag="synchrony.probe"):
    """A sign of life that does not wait behind what a link has lost and sends again."""

    cid: ConfigurationId
    asks: bool  # for an answer


class Court(Packet, frozen=True, tag="synchrony.court"):
    """To the members of the sender's view: who might be merged with."""

    cid: ConfigurationId
    joined: Joined


class Decline(Packet, frozen=True, tag="synchrony.decline"):
    """The sender does not hear a candidate."""

    cid: ConfigurationId
    candidate: NodeId


class Proposal(Packet, frozen=True, tag="synchrony.proposal"):
    """What the next configuration should be made of. Those whose proposals are equal agree."""

    cid: ConfigurationId
    serial: Number  # counts the proposals of its sender
    joined: Joined  # paper: J
    failed: Failed  # paper: F
    sent: Count  # events of its sender in this configuration
    received: Vector  # events that its sender has admitted


class GoneMember(Value, frozen=True):
    """What a member knows of one that does not come along: what it had, and its clock."""

    node: NodeId
    acks: Vector
    high: Height


class Lineage(Value, frozen=True):
    """The last configuration whose state a member had; blank: nothing was ever delivered in it."""

    cid: ConfigurationId
    blank: bool
    path: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0  # names the views that it passed since
    mute: bool = False  # its application was asked for its state, and does not answer
    report: primary.VoterReport | None = None  # in groups with a quorum: what the state covers


class Ready(Packet, frozen=True, tag="synchrony.ready"):
    """The sender has everything up to the cut of this decision."""

    cid: ConfigurationId
    decision: ConfigurationId
    known: Annotated[tuple[GoneMember, ...], Meta(max_length=LARGEST_GROUP)]
    lineage: Lineage | None = None  # where states are handed over


class SideKnowledge(Value, frozen=True):
    """What the members of one side know together of those that do not come along."""

    side: ConfigurationId
    known: Annotated[tuple[GoneMember, ...], Meta(max_length=LARGEST_GROUP)]
    # Of all its members that come along.
    lineages: Annotated[tuple[tuple[NodeId, Lineage], ...], Meta(max_length=LARGEST_GROUP)] = ()


Joint: TypeAlias = Annotated[tuple[SideKnowledge, ...], Meta(max_length=LARGEST_GROUP)]


class Installed(Packet, frozen=True, tag="synchrony.installed"):
    """The sender has installed this configuration, after what is said here of the former ones."""

    cid: ConfigurationId
    joint: Joint


class Seen(Value, frozen=True):
    """How many events of each member were delivered in a configuration that is over."""

    cid: ConfigurationId
    vector: Vector


Path: TypeAlias = Annotated[tuple[Seen, ...], Meta(max_length=MOST_PASSAGES)]


class Recall(Packet, frozen=True, tag="synchrony.recall"):
    """Asks a member of another side for what it delivered before a view that both came to."""

    view: ConfigurationId
    since: ConfigurationId | None  # the last one that both were in; None: there is none
    have: Path  # what the sender has of such configurations
    floor: Height  # the sender does not remember all that it was in below this height
    after: Count  # events of the receiver's history that come before what is asked for


class PastEvent(Value, frozen=True):
    """An event that was delivered."""

    cid: ConfigurationId
    origin: NodeId
    height: Height
    number: Number
    service: Service
    payloads: Payloads
    size: Count


class Recalled(Packet, frozen=True, tag="synchrony.recalled"):
    """A part of a history, or why there is none. The last part sums it up."""

    view: ConfigurationId
    since: ConfigurationId | None  # these two as they were asked for
    after: Count
    # unknown: the sender was not in that view. never: it was not in the one that was to be common.
    outcome: Literal["more", "end", "never", "unknown"]
    events: tuple[PastEvent, ...] = ()
    up_to: Count = 0  # more: what comes next is after so many
    needed: Count = 0  # end: how many events all of it had, with those that are forgotten
    passed: Path = ()  # end: the configurations
    alike: Members = ()  # end: who delivered the same as the sender, all the way
    reaches_back: bool = True  # end: the first of them is where the two parted

    def carries(self) -> tuple[int, int, int]:
        events = self.events
        messages = sum(len(event.payloads) for event in events)
        # What is around an event, a configuration that was passed, and all of it.
        others = 512 * len(events) + 1024 * len(self.passed) + 8192
        return messages, sum(event.size for event in events), others

    def makers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(event.origin.name for event in self.events))


class StatePart(Packet, frozen=True, tag="synchrony.part"):
    """The next part of a large state, which a `State` follows."""

    view: ConfigurationId
    part: Annotated[bytes, Meta(min_length=1, max_length=STATE_BYTES)]

    def carries(self) -> tuple[int, int, int]:
        return 0, 0, 1024 + len(self.part)


class State(Packet, frozen=True, tag="synchrony.state"):
    """The application's state of a side, as it was when this view began."""

    view: ConfigurationId
    state: Annotated[bytes, Meta(max_length=STATE_BYTES)] | None
    failure: Failure = ""
    parts: Annotated[int, Meta(ge=0, le=LARGEST_STATE // STATE_BYTES)] = 0  # before this one
    late: bool = False  # no application of the side has answered in time

    def carries(self) -> tuple[int, int, int]:
        return 0, 0, 1024 + len(self.state or b"")


PACKETS = (
    *(Cast, Fetched, Status, Query, Summary, Fetch, Leave),
    *(Hello, Probe, Court, Decline, Proposal, Ready, Installed),
    *(Recall, Recalled, StatePart, State),
    *primary.PACKETS,
)

"""What members of a cluster say to each other, and how it becomes short on the wire.

A stamp has an entry for every ticket, but the stamps of events that travel together differ in few
of them. So a message that carries events carries one common stamp and, for each event, only what
differs. That is done where bytes are made (`to_wire`), and undone where they are read: in the
simulator, where nothing becomes bytes, it costs nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import compress, islice
from operator import ne
from typing import Annotated

from msgspec import Meta
from msgspec.structs import force_setattr

from ordercast.errors import PeerError
from ordercast.kernel.packet import Count, Failure, Number, Packet, Value
from ordercast.protocol.cluster.sampler import Roster
from ordercast.protocol.tickets.entries import ENTRIES, MOST_TICKETS, Entry, Ticket, sequence_of
from ordercast.protocol.tickets.packets import Ballot
from ordercast.types import NodeId, Payloads

Age = Annotated[int, Meta(ge=0, le=1000)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]
INDEX_BITS = (MOST_TICKETS - 1).bit_length()
MOST_EVENTS = 10_000
MOST_RANGES = 512
MOST_JOINING = 40
"""Other newcomers that one names."""
MOST_LAST = 64
"""Members of its last time in the cluster that a newcomer names."""


class Rumour(Value, frozen=True):
    """An event of plain gossip: its maker, and its place among what that incarnation made."""

    origin: NodeId
    number: Number
    payloads: Payloads
    size: Count

    @property
    def key(self) -> tuple[NodeId, int]:
        return self.origin, self.number

    @property
    def weight(self) -> int:
        """About how many bytes it takes on the wire."""
        return self.size + 5 * len(self.payloads) + 160


class Update(Value, frozen=True):
    """An event of a causal cluster. (index, stamp[index]) identifies it."""

    index: Ticket
    stamp: tuple[Entry, ...]  # paper: t_e
    origin: NodeId
    number: Number  # its place among what that incarnation of its maker made in the group
    payloads: Payloads
    size: Count
    base: Entry = 0  # of the first event of an epoch: the entry that it follows
    # Computed once: copies of an event are many.
    entry: int = 0
    key: int = 0  # the id as one number
    weight: int = 0  # about how many bytes it takes on the wire

    def __post_init__(self) -> None:
        entry = self.stamp[self.index]
        force_setattr(self, "entry", entry)
        force_setattr(self, "key", entry << INDEX_BITS | self.index)
        weight = self.size + 5 * len(self.payloads) + 160 + 12 * len(self.stamp)
        force_setattr(self, "weight", weight)

    @property
    def predecessor(self) -> int:
        """The entry of the event that its maker's ticket made before it."""
        entry = self.entry
        return entry - 1 if sequence_of(entry) > 1 else self.base


class Thin(Value, frozen=True):
    """An update without what its stamp has in common with those that travel with it."""

    index: Ticket
    changes: list[Entry]  # pairs: an index, and how much is to be added there
    origin: NodeId
    number: Number
    payloads: Payloads
    size: Count
    base: Entry
    age: Age


class Gossip(Packet, frozen=True, tag="gossip.gossip"):
    """What its sender spreads in a round of plain gossip, each with its age in hops."""

    rumours: Annotated[list[tuple[Rumour, Age]], Meta(max_length=MOST_EVENTS)]
    roster: Roster | None = None

    def carries(self) -> tuple[int, int, int]:
        return _carried([rumour for rumour, _ in self.rumours], 0)

    def makers(self) -> Iterable[str]:
        return dict.fromkeys(rumour.origin.name for rumour, _ in self.rumours)

    def introduces(self) -> Iterable[str]:
        return () if self.roster is None else self.roster.names()


class Membership(Packet, frozen=True, tag="gossip.membership"):
    """Which members there are, and nothing else."""

    roster: Roster

    def introduces(self) -> Iterable[str]:
        return self.roster.names()


class OfCluster(Packet, frozen=True, kw_only=True):
    """Everything in a causal cluster names it: two that began separately never mix."""

    cluster: Count = 0  # 0: its sender knows of none, or tickets are fixed


class ClusterMembership(OfCluster, frozen=True, tag="causal.membership"):
    """Which members there are, in a causal cluster."""

    roster: Roster

    def introduces(self) -> Iterable[str]:
        return self.roster.names()


class Updates(OfCluster, frozen=True, tag="causal.updates"):
    """What its sender spreads in a round of a causal cluster, each with its age in hops."""

    updates: list[tuple[Update, Age]]
    roster: Roster | None = None

    def makers(self) -> Iterable[str]:
        return dict.fromkeys(update.origin.name for update, _ in self.updates)

    def introduces(self) -> Iterable[str]:
        return () if self.roster is None else self.roster.names()

    def to_wire(self) -> Packet:
        common, thin = thinned(self.updates)
        return ThinUpdates(self.group, common, thin, self.roster, cluster=self.cluster)


class ThinUpdates(OfCluster, frozen=True, tag="causal.updates"):
    """`Updates` as it travels."""

    common: tuple[Entry, ...]
    thin: Annotated[list[Thin], Meta(max_length=MOST_EVENTS)]
    roster: Roster | None = None

    def carries(self) -> tuple[int, int, int]:
        return _carried(self.thin, len(self.common))

    def from_wire(self) -> Packet:
        updates = whole(self.common, self.thin)
        return Updates(self.group, updates, self.roster, cluster=self.cluster)


class Recover(OfCluster, frozen=True, tag="causal.recover"):
    """Asks for the events of a ticket from one entry to another, both included."""

    ranges: Annotated[list[tuple[Ticket, Entry, Entry]], Meta(max_length=MOST_RANGES)]


class Recovered(OfCluster, frozen=True, tag="causal.recovered"):
    """The answer: those of them that are still buffered."""

    updates: list[tuple[Update, Age]]

    def makers(self) -> Iterable[str]:
        return dict.fromkeys(update.origin.name for update, _ in self.updates)

    def to_wire(self) -> Packet:
        return ThinRecovered(self.group, *thinned(self.updates), cluster=self.cluster)


class ThinRecovered(OfCluster, frozen=True, tag="causal.recovered"):
    common: tuple[Entry, ...]
    thin: Annotated[list[Thin], Meta(max_length=MOST_EVENTS)]

    def carries(self) -> tuple[int, int, int]:
        return _carried(self.thin, len(self.common))

    def from_wire(self) -> Packet:
        return Recovered(self.group, whole(self.common, self.thin), cluster=self.cluster)


class Digest(OfCluster, frozen=True, tag="causal.digest"):
    """How far its sender is: its clock."""

    clock: tuple[Entry, ...]
    is_answer: bool = False  # to one that was behind; it is not answered again


class Promise(Value, frozen=True):
    """Of a newcomer about who begins the cluster: what it accepts, and what it has accepted."""

    ballot: Ballot  # nothing in a lower one
    accepted: Ballot | None = None
    first: Annotated[str, Meta(max_length=100)] = ""  # who begins, as accepted in that ballot

    @property
    def accepts(self) -> tuple[Ballot | None, str]:
        return self.accepted, self.first


class PromiseRecord(Packet, frozen=True, tag="causal.promise"):
    """On disk: what we have promised, and with how many the cluster was to be founded."""

    expect: Count
    promise: Promise

    def slot(self) -> Hashable:
        return self.group


class Ask(OfCluster, frozen=True, tag="causal.ask"):
    """A process that came asks where the cluster is."""

    state: bool = False  # it wants the application's state too
    # Others that asked it the same lately: they know of no cluster either.
    joining: Annotated[tuple[Name, ...], Meta(max_length=MOST_JOINING)] = ()
    # Where members are not listed: whom it would have begin the cluster, and with how many, or with
    # more than half of those with whom it was in the cluster last.
    favours: NodeId | None = None
    expect: Count = 0
    last: Annotated[tuple[Name, ...], Meta(max_length=MOST_LAST)] = ()
    promise: Promise | None = None
    of: Count = 0  # how many nodes expect that number
    lost: bool = False  # it does not know whether it was in the cluster


class Welcome(OfCluster, frozen=True, tag="causal.welcome"):
    """The answer: where to begin. Recent events follow as `Recovered`."""

    clock: tuple[Entry, ...]  # all up to here is before the time of the newcomer
    target: tuple[Entry, ...]  # the clock of the member that answers
    state: bytes | None = None  # the application's, at the target
    failure: Failure = ""  # why it could not give it


def _carried(events: list[Rumour] | list[Thin], entries: int) -> tuple[int, int, int]:
    """See `Packet.carries`. An entry takes nine bytes at the most, a name a hundred."""
    messages = sum(len(event.payloads) for event in events)
    return messages, sum(event.size for event in events), 16_384 + len(events) * 512 + entries * 20


def thinned(updates: list[tuple[Update, int]]) -> tuple[tuple[int, ...], list[Thin]]:
    """The stamp that all have in common, and each without it."""
    stamps = [update.stamp for update, _ in updates]
    if not stamps:
        return (), []
    common = tuple(map(min, *stamps)) if len(stamps) > 1 else stamps[0]
    places = range(len(common))
    thin = []
    for update, age in updates:
        changes: list[int] = []
        for place in compress(places, map(ne, update.stamp, common)):
            changes += (place, update.stamp[place] - common[place])
        thin.append(
            Thin(
                update.index,
                changes,
                update.origin,
                update.number,
                update.payloads,
                update.size,
                update.base,
                age,
            )
        )
    return common, thin


def whole(common: tuple[int, ...], thin: list[Thin]) -> list[tuple[Update, int]]:
    """Undoes `thinned`. PeerError: what came could not have been made by it."""
    if len(common) > MOST_TICKETS:
        raise PeerError(f"a stamp of {len(common)} entries; {MOST_TICKETS} are the most")
    updates = []
    for one in thin:
        stamp = list(common)
        changes = one.changes
        if len(changes) % 2 or len(changes) > 2 * len(common):
            raise PeerError("a stamp whose differences are not pairs")
        places = islice(changes, 0, None, 2)
        before = -1
        for place, more in zip(places, islice(changes, 1, None, 2), strict=True):
            if place >= len(stamp):
                raise PeerError(f"a stamp of {len(stamp)} entries that differs at {place}")
            stamp[place] += more
            if place <= before or stamp[place] >= ENTRIES:
                raise PeerError("a stamp that differs twice at one place, or beyond all entries")
            before = place
        if one.index >= len(stamp):
            raise PeerError(f"ticket {one.index} of a stamp of {len(stamp)} entries")
        updates.append(
            (
                Update(
                    one.index,
                    tuple(stamp),
                    one.origin,
                    one.number,
                    one.payloads,
                    one.size,
                    one.base,
                ),
                one.age,
            )
        )
    return updates

"""Packets of a feed: how nodes find a parent, and the sessions between two logs.

Seek and Offer are datagrams. All others go by link, and belong to a session: one stay of a child at
a parent, named by the incarnation that opened it and its count. A session that is over is never
taken up again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta, field

from ordercast.kernel.log import Committed, Entry, Identity, Key, Name, Numbered, Position
from ordercast.kernel.packet import Packet, Value
from ordercast.types import INCARNATION_BITS, NodeId

MOST_NAMES = 64
"""Names in a packet: of children, of siblings, of a path."""
MOST_STREAMS = 10_000
"""Streams that a digest lists one by one, at most: several parts are sent for more."""
MOST_PARTS = 256
"""Nodes of the tree of hashes that are asked for at once."""
MOST_FETCHED = 16
LARGEST_EPOCH = 1 << 48

Names = Annotated[list[Name], Meta(max_length=MOST_NAMES)]
Span = Annotated[int, Meta(ge=0, lt=1 << 62)]
"""Nanoseconds."""


class Beat(Value, frozen=True, order=True):
    """What the root counts and a node takes from its parent only. Compared field by field."""

    epoch: Annotated[int, Meta(ge=0, lt=LARGEST_EPOCH)]
    root: Name
    incarnation: Annotated[int, Meta(ge=0, lt=1 << INCARNATION_BITS)]
    count: Annotated[int, Meta(ge=0, lt=1 << 62)]

    @property
    def reign(self) -> tuple[int, str, int]:
        return self.epoch, self.root, self.incarnation


class SessionId(Value, frozen=True):
    opener: NodeId
    count: Annotated[int, Meta(ge=0, lt=1 << 62)]


class Known(Value, frozen=True):
    """What its sender has received of a stream."""

    key: Key
    number: Numbered


class Digest(Value, frozen=True):
    """What its sender has received: of all streams, or hashes of it by branches of the root."""

    numbers: Annotated[list[Known], Meta(max_length=MOST_STREAMS)] = field(default_factory=list)
    hashes: Annotated[list[Key], Meta(max_length=64)] | None = None


class Rumour(Value, frozen=True):
    """A beat of another root, and who told it."""

    beat: Beat
    teller: Name


class Seek(Packet, frozen=True, tag="feed.seek"):
    """Who are you? Asked by a node without a parent, before a move, and to measure."""

    beat: Beat
    urgent: bool = False  # it has no parent
    sent: Span = 0  # on its own clock


class Offer(Packet, frozen=True, tag="feed.offer"):
    beat: Beat
    log: Identity
    room: bool
    children: Names  # who may have room
    sent: Span = 0  # as the Seek said it
    delay: Span = 0  # below the root
    depth: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0

    def introduces(self) -> Iterable[str]:
        return self.children


class Join(Packet, frozen=True, tag="feed.join"):
    """Its sender wants to be a child. It opens the session."""

    session: SessionId
    beat: Beat
    log: Identity
    resume: Position | None  # up to where it has processed the log of the parent
    digest: Digest | None  # or what it has
    urgent: bool = False


class Welcome(Packet, frozen=True, tag="feed.welcome"):
    """It is a child from now on, if it still wants to be."""

    session: SessionId
    beat: Beat
    log: Identity
    resume: Position | None
    digest: Digest | None


class OfSession(Packet, frozen=True):
    """Packets that count only while their session lasts."""

    session: SessionId


class Drop(OfSession, frozen=True, tag="feed.drop"):
    """Its sender goes away for good, and needs nothing any more."""


class Closed(Packet, frozen=True, tag="feed.closed"):
    """Its sender has no such session, or ends it."""

    session: SessionId
    forget: bool = False  # the place to resume from is of no use: begin with a digest


class Pulse(OfSession, frozen=True, tag="feed.beat"):
    """From a parent, once a beat at least."""

    beat: Beat
    delay: Span  # of the parent, below the root
    path: Names | None = None  # from the parent up to the root, when it changed
    siblings: Names | None = None  # the children of the parent, when they changed

    introduces_by_link: ClassVar[bool] = True

    def introduces(self) -> Iterable[str]:
        return [*(self.path or ()), *(self.siblings or ())]


class Entries(OfSession, frozen=True, tag="feed.entries"):
    """What the receiver may lack of the sender's log, up to a position."""

    through: Position
    items: list[Entry]

    def carries(self) -> tuple[int, int, int]:
        count = sum(len(item.payloads) for item in self.items)
        size = sum(item.size for item in self.items)
        return count, size, _around(self.items)

    def makers(self) -> Iterable[str]:
        return [item.origin for item in self.items]


class Ack(OfSession, frozen=True, tag="feed.ack"):
    """All up to this position of the receiver's log is durable here. Once a beat at least."""

    through: Position
    rumour: Rumour | None = None

    introduces_by_link: ClassVar[bool] = True

    def introduces(self) -> Iterable[str]:
        rumour = self.rumour
        return () if rumour is None else (rumour.teller, rumour.beat.root)


class AskHashes(OfSession, frozen=True, tag="feed.ask"):
    """What is in these nodes of the tree of hashes? The root has level 0, leaves the last one."""

    level: Annotated[int, Meta(ge=0, le=4)]
    nodes: Annotated[list[Annotated[int, Meta(ge=0, lt=1 << 24)]], Meta(max_length=MOST_PARTS)]


class Branch(Value, frozen=True):
    node: Annotated[int, Meta(ge=0, lt=1 << 24)]
    hashes: Annotated[list[Key], Meta(max_length=64)]


class Hashes(OfSession, frozen=True, tag="feed.hashes"):
    """The branches of these nodes."""

    level: Annotated[int, Meta(ge=0, le=4)]
    branches: Annotated[list[Branch], Meta(max_length=MOST_PARTS)]


class Leaves(OfSession, frozen=True, tag="feed.leaves"):
    """All streams in these leaves, in so many parts."""

    leaves: Annotated[list[Annotated[int, Meta(ge=0, lt=1 << 24)]], Meta(max_length=MOST_PARTS)]
    numbers: Annotated[list[Known], Meta(max_length=MOST_STREAMS)]
    more: bool = False  # another part follows


class Wanted(Value, frozen=True):
    """An event by its name."""

    origin: Name
    birth: Identity
    number: Numbered


class Fetch(Packet, frozen=True, tag="feed.fetch"):
    """Its sender had these events, and lost them."""

    events: Annotated[list[Wanted], Meta(min_length=1, max_length=MOST_FETCHED)]


class Fetched(Packet, frozen=True, tag="feed.fetched"):
    log: Identity
    items: Annotated[list[Entry], Meta(max_length=MOST_FETCHED)]

    def carries(self) -> tuple[int, int, int]:
        count = sum(len(item.payloads) for item in self.items)
        size = sum(item.size for item in self.items)
        return count, size, _around(self.items)

    def makers(self) -> Iterable[str]:
        return [item.origin for item in self.items]


def _around(items: list[Entry]) -> int:
    """Bytes that a packet may have beside its payloads, at the most."""
    return 400 + 700 * len(items)


# --- records ---------------------------------------------------------------------------------


class Correspondent(Packet, frozen=True, tag="feed.correspondent"):
    """What is remembered of a log that we had a session with. Identity 0: the place is free."""

    place: Annotated[int, Meta(ge=0, lt=1 << 16)]
    log: Identity
    through: Position = 0  # up to where we have processed it
    acked: Position = 0  # up to where it has processed ours
    held: bool = False  # entries from there on are held for it

    def slot(self) -> int:
        return self.place


class LastParent(Packet, frozen=True, tag="feed.parent"):
    """Whose log the last parent's is: a session with it can go on where the last one ended."""

    log: Identity

    def slot(self) -> int:
        return 0


PACKETS: tuple[type[Packet], ...] = (
    Seek,
    Offer,
    Join,
    Welcome,
    Drop,
    Closed,
    Pulse,
    Entries,
    Ack,
    AskHashes,
    Hashes,
    Leaves,
    Fetch,
    Fetched,
)
RECORDS: tuple[type[Packet], ...] = (Correspondent, LastParent, Committed)

"""A durable log that the world keeps for a group: how a machine appends to it and reads it again.

A machine is pure, so it holds cursors and no old entries. It appends in a step (`step.append`), and
the entry has the next position of the log. It reads in two steps: `step.recall` asks, and the input
`Recalled` answers. A family whose machines do so says it (`Family.logged`).

Rules of every world.
 1. What a step appends is durable with its other records, in one commit, before the step takes
    effect. Entries and records of a group are in one log, in the order of the steps.
 2. A position means the same entry for ever, together with the identity of the log. A log that is
    lost begins again with another identity.
 3. A recall is taken up when its step has taken effect, so it sees what that step appended. The
    answer comes in a later step, never inside. Recalls of an incarnation that is over are not
    answered.
 4. What was below the floor is not there any more, but up to which number of each stream is known:
    `Recalled.gaps` says it.
 5. An entry that the disk has lost is `Bad`: its place remains, and what it was is known as far as
    the index knows. `step.repair` puts it back.
 6. When the room for entries is nearly used up, the machine is given `Strained`: it appends no
    more until it is given the opposite. What it appends meanwhile, and its states, still fit.

A machine finds an `Opened` among the records that it is built with, before its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta, field

from ordercast.kernel.inputs import Input
from ordercast.kernel.packet import Packet, Value
from ordercast.types import COUNTER_BITS, INCARNATION_BITS, Event, NodeId

IDENTITY_BITS = 63
Identity: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << IDENTITY_BITS) - 1)]
"""Of a log: drawn at random when it began."""
Position: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 62)]
Numbered: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << (INCARNATION_BITS + COUNTER_BITS))]
"""The number of an event; 0: before the first."""
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100)]
Index: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
"""Of a message in its batch."""

Stream: TypeAlias = tuple[str, int]
"""What one process sends while it has one log: its name and the identity of that log (`birth`)."""


class Reference(Value, frozen=True):
    """One message: an event of a stream, and its index in the batch."""

    origin: Name
    birth: Identity
    number: Numbered
    index: Index = 0

    @property
    def stream(self) -> Stream:
        return self.origin, self.birth


class Entry(Value, frozen=True):
    """One event in a log, or a gap: that the events after `prev`, up to `number`, are given up."""

    origin: Name
    birth: Identity
    number: Numbered
    prev: Numbered  # the number before it in its stream; 0: it is the first
    via: Identity = 0  # the log that it was taken from; 0: the event is our own
    is_gap: bool = False
    reply: Reference | None = None
    payloads: list[bytes] = field(default_factory=list)
    size: Annotated[int, Meta(ge=0, lt=1 << 40)] = 0  # bytes of the payloads
    at: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0  # when its origin submitted it, Unix nanoseconds
    # It is in this log and was not delivered here: events of a newer stream of its origin had come.
    is_late: bool = False

    @property
    def stream(self) -> Stream:
        return self.origin, self.birth


class Bad(NamedTuple):
    """An entry that the disk has lost. A stream without a name: the index does not know it."""

    stream: Stream
    number: int
    prev: int


KEY_BITS = 63
Key: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << KEY_BITS) - 1)]
"""Stands for a stream where many are listed: a hash of it (`key_of`)."""


def event_of(group: str, entry: Entry, position: int) -> Event:
    """What is delivered of an entry of this log."""
    reply = None if entry.reply is None else (entry.reply.origin, entry.reply.number)
    return Event(
        group,
        NodeId(entry.origin, entry.number >> COUNTER_BITS),
        entry.number,
        entry.payloads,
        size=entry.size,
        reply=reply,
        birth=entry.birth,
        position=position,
    )


@lru_cache(10_000)
def key_of(stream: Stream) -> int:
    """63 bits for a stream, the same at every member and for ever."""
    name, birth = stream
    return int.from_bytes(blake2b(b"%d " % birth + name.encode(), digest_size=8).digest()) >> 1


def bucket_of(key: int, buckets: int) -> int:
    """In which of so many buckets a stream is. A bucket is a range of keys."""
    return key * buckets >> KEY_BITS


def hash_of(key: int, number: int) -> int:
    """63 bits for what somebody has of a stream."""
    return int.from_bytes(blake2b(b"%d %d" % (key, number), digest_size=8).digest()) >> 1


# --- records ---------------------------------------------------------------------------------


class Appended(Packet, frozen=True, tag="log.append"):
    """An entry, to be at the next position of the group's log."""

    entry: Entry


class Trimmed(Packet, frozen=True, tag="log.trim"):
    """Entries below this position may go, and with them what only they hold."""

    below: Position


class Repaired(Packet, frozen=True, tag="log.repair"):
    """The entry that was lost at this position."""

    position: Position
    entry: Entry


class Committed(Packet, frozen=True, tag="log.committed"):
    """A subscriber of this name has done with all messages up to this one, itself included."""

    name: Annotated[str, Meta(max_length=100)]
    position: Position
    index: Index  # in the batch

    def slot(self) -> str:
        return self.name


class Opened(Packet, frozen=True, tag="log.opened"):
    """What a machine is built with: a log as it was found. Never written to it."""

    identity: Identity
    tail: Position  # the position of the next entry
    floor: Position  # that of the oldest entry that is still there
    received: Mapping[Stream, int]  # by stream: the last number in the log, or given up
    size: int = 0  # bytes of the payloads that are there
    clock: int = 0  # Unix nanoseconds when the time of steps (`step.now`) is 0


# --- reading ---------------------------------------------------------------------------------


class At(NamedTuple):
    """From this position on."""

    position: int


class Knowledge(NamedTuple):
    """What somebody else has: from where on must be read to find all that it lacks.

    Streams are divided into buckets by their keys (`bucket_of`). Of those in `differing` it has
    what `numbers` says, and nothing of streams that are not there. Of the others it has all that is
    below the mark. No `differing`: the vector says it of all streams.
    """

    numbers: Mapping[int, int]  # by key
    mark: int = 0
    differing: frozenset[int] | None = None
    buckets: int = 1

    def lacks(self, stream: Stream, number: int, position: int) -> bool:
        """Whether it lacks this entry of ours."""
        key = key_of(stream)
        if self.differing is not None and bucket_of(key, self.buckets) not in self.differing:
            return position >= self.mark
        return number > self.numbers.get(key, 0)


Place: TypeAlias = At | Knowledge | Reference


class Recall(NamedTuple):
    """A wish to read. `limit`: bytes of payloads, after which reading ends; one entry comes always.

    With an `At` or a `Knowledge`: entries in the order of the log, from the first one on that is
    there and (with a `Knowledge`) lacking. With a `Reference`: that entry, or none.
    """

    group: str
    token: Hashable
    place: Place
    limit: int


@dataclass(frozen=True, slots=True)
class Recalled(Input):
    """The answer to a `Recall`."""

    group: str
    token: Hashable
    place: Place
    first: int  # the position of the first of `entries`, also if there is none: where to go on
    entries: tuple[Entry | Bad, ...]
    gaps: tuple[Entry, ...] = ()  # what the other lacks and is below the floor, as gap entries


@dataclass(frozen=True, slots=True)
class Strained(Input):
    """The room for entries is nearly used up, or there is room again."""

    group: str
    full: bool


@dataclass(frozen=True, slots=True)
class Unreadable(Input):
    """A subscriber has come to an entry that the disk has lost, and waits for it."""

    group: str
    position: int
    bad: Bad

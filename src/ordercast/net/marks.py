"""Where a reader of a log is: `Mark` in one log, `Vector` in any log of the group.

A mark is the place of the next message: its position in the log, and its index in its batch. So a
reader that goes on from a mark neither repeats nor skips a message, also in the midst of a batch. A
position means the same entry for ever, so a mark may be stored beside what a message has brought
about; together they are exactly once.

A vector says of every stream up to which number it was read. It is portable: it means the same in
every log of the group, and it grows with the streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import msgspec

from ordercast.errors import UsageError
from ordercast.kernel.log import IDENTITY_BITS, At, Knowledge, Reference
from ordercast.net.message import Message
from ordercast.net.receipt import Receipt

LARGEST_VECTOR = 256 << 20
"""Bytes of a vector that is read."""
_LARGEST_POSITION = 1 << 62
_LARGEST_INDEX = 1 << 31
_VERSION = 1
NO_MARK = (
    "a reader that began with a vector has no mark before it is level: take "
    "await subscription.vector()"
)


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """The place of a message in one log; to read on from there is to begin with it."""

    log: int  # the identity of the log
    position: int
    index: int = 0  # in the batch at this position
    # Of a mark that `post` returned: the message before it, and what became of that.
    reference: Reference | None = field(default=None, compare=False, repr=False)
    receipt: Receipt | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.log:016x}:{self.position}:{self.index}"

    @classmethod
    def parse(cls, text: str) -> Mark:
        """What `str` made of one. UsageError: it is none."""
        log, *places = str(text).split(":")
        try:
            identity, (position, index) = int(log, 16), map(int, places)
        except ValueError:
            identity = position = index = -1
        if not (
            0 <= identity < 1 << IDENTITY_BITS
            and 0 <= position < _LARGEST_POSITION
            and 0 <= index < _LARGEST_INDEX
        ):
            raise UsageError(f"{text[:100]!r} is no mark: it has the form log:position:index")
        return cls(identity, position, index)

    def check(self, group: str, log: int, tail: int) -> Mark:
        """UsageError: it is not of this log, or not in it yet."""
        if self.log != log:
            raise UsageError(
                f"{self} is a mark of another log than that of {group!r} here, {log:016x}: "
                "a vector means the same at every node"
            )
        if (self.position, self.index) > (tail, 0):
            raise UsageError(
                f"{self} is behind the end of the log of {group!r}, {tail}: this is an older copy "
                "of the log that the mark is of"
            )
        return self

    def place(self) -> At:
        return At(self.position)

    @property
    def stable(self) -> bool:
        """Of a post: whether another node's log has it, so that it survives this node."""
        return self._own().stable

    async def wait_stable(self, timeout: float | None = None) -> Mark:
        """Returns when it is stable. TimeoutError: it is not yet, and why."""
        await self._own().wait("stable", timeout)
        return self

    def _own(self) -> Receipt:
        if self.receipt is None:
            raise UsageError("only a mark that post returned knows whether its message is stable")
        return self.receipt


def place_of_next(position: int, index: int, count: int) -> tuple[int, int]:
    """Behind a message of a batch of so many: a position, and the index there."""
    return (position, index + 1) if index + 1 < count else (position + 1, 0)


class PostedMarks(Sequence[Mark]):
    """Of messages that were posted together. Each is made when it is asked for: most never are."""

    __slots__ = ("_count", "_indices", "_log", "_name", "_receipt")

    def __init__(self, log: int, name: str, receipt: Receipt, indices: range, count: int) -> None:
        """Messages of a batch of so many that this node made, and its log has."""
        self._log = log
        self._name = name
        self._receipt = receipt
        self._indices = indices
        self._count = count

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, place: int) -> Mark: ...

    @overload
    def __getitem__(self, place: slice) -> PostedMarks: ...

    def __getitem__(self, place: int | slice) -> Mark | PostedMarks:
        receipt = self._receipt
        if isinstance(place, slice):
            return PostedMarks(self._log, self._name, receipt, self._indices[place], self._count)
        index = self._indices[place]
        assert receipt.number is not None
        position, following = place_of_next(receipt.position, index, self._count)
        reference = Reference(self._name, self._log, receipt.number, index)
        return Mark(self._log, position, following, reference, receipt)


class _Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    numbers: dict[int, int]
    part: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Vector:
    """By the key of a stream, the number of its last event that was read to the end."""

    numbers: Mapping[int, int]
    part: tuple[int, int, int] | None = None  # key, number, and so many messages of that event

    def __bytes__(self) -> bytes:
        return msgspec.msgpack.encode(_Wire(_VERSION, dict(self.numbers), self.part))

    @classmethod
    def parse(cls, data: bytes) -> Vector:
        """What `bytes` made of one. UsageError: it is none."""
        if len(data) > LARGEST_VECTOR:
            raise UsageError(f"a vector of {len(data)} bytes: at most {LARGEST_VECTOR} are read")
        try:
            wire = msgspec.msgpack.decode(data, type=_Wire)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"these bytes are no vector: {error}") from error
        if wire.version != _VERSION:
            raise UsageError(f"a vector of version {wire.version}: this ordercast reads {_VERSION}")
        everything = (*wire.numbers, *wire.numbers.values(), *(wire.part or ()))
        if any(not 0 <= number < 1 << 64 for number in everything):
            raise UsageError("these bytes are no vector: a number is out of range")
        return cls(wire.numbers, wire.part)

    def joined(self, other: Vector) -> Vector:
        """What either of them has. The part of an event of this one, or else of the other."""
        numbers = dict(other.numbers)
        for key, number in self.numbers.items():
            numbers[key] = max(number, numbers.get(key, 0))
        parts = [part for part in (self.part, other.part) if part is not None]
        left = [part for part in parts if part[1] > numbers.get(part[0], 0)]
        return Vector(numbers, left[0] if left else None)

    def knowledge(self) -> Knowledge:
        """What the one who read so far has."""
        return Knowledge(self.numbers)


class Post(Message, frozen=True, gc=False, kw_only=True):
    """One message of a feed, as its log has it."""

    log: int  # its identity; -1: the reader began with a vector, and is not level yet
    position: int
    index: int  # in its batch
    count: int  # of the messages of its batch
    birth: int  # of the stream
    at: int  # when it was posted, by the clock of its sender: Unix nanoseconds
    reply_to: Reference | None = None  # the message that it replies to, which came before it

    @property
    def mark(self) -> Mark:
        """Where a reader goes on that has done with this message."""
        if self.log < 0:
            raise UsageError(NO_MARK)
        return Mark(self.log, *place_of_next(self.position, self.index, self.count))

    @property
    def reference(self) -> Reference:
        """What a reply names."""
        return Reference(self.sender.name, self.birth, self.number, self.index)

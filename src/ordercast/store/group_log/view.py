"""Reads a group's log: by position, by what somebody else lacks, or one event.

Any thread may read while another one writes. What it sees is committed.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from ordercast.errors import DiskError, UsageError
from ordercast.kernel.log import At, Bad, Entry, Knowledge, Place, Reference, key_of
from ordercast.store.group_log.entries import IndexRecord
from ordercast.store.group_log.form import FLOOR, FLOOR_COPY, RECEIVED, RECORD, file_of
from ordercast.store.group_log.parts import OpenPart, Part, SealedPart, read_bodies
from ordercast.store.group_log.repairs import Repairs
from ordercast.store.group_log.search import Search, SearchResult
from ordercast.store.group_log.streams import RECENT, StreamNumbers, StreamTable
from ordercast.store.group_log.vectors import (
    is_whole,
    last_numbers,
    load_vector,
    read_vector,
)

log = logging.getLogger("ordercast.store")

ENTRIES = 4096
"""How many one reading returns, at the most."""
_TRIES = 10

T = TypeVar("T")


class Reading(NamedTuple):
    """What was read, as `Recalled` has it."""

    first: int
    entries: tuple[Entry | Bad, ...]
    gaps: tuple[Entry, ...] = ()


class Parts(NamedTuple):
    """All segments at one time, the oldest first."""

    sealed: tuple[SealedPart, ...]
    newest: OpenPart

    def all(self) -> tuple[Part, ...]:
        return (*self.sealed, self.newest)

    @property
    def floor(self) -> int:
        return self.all()[0].first


class LogView:
    def __init__(
        self, folder: Path, identity: int, group: str, parts: Parts, repairs: Repairs
    ) -> None:
        self.folder = folder
        self.identity = identity
        self.group = group
        self.parts = parts  # replaced, never changed
        self.repairs = repairs
        self.checkpoint = 0  # the position of the newest vector that is a cache; 0: none

    @property
    def floor(self) -> int:
        return self.parts.floor

    @property
    def tail(self) -> int:
        return self.parts.newest.end

    def read(self, place: Place, limit: int) -> Reading:
        """`limit`: bytes after which reading ends; one entry comes always.

        DiskError: the disk does not let us read.
        """
        return self._steadily(lambda parts: self._read(parts, place, limit))

    def vector_at(self, position: int) -> dict[int, int]:
        """By the key of the stream, the last number below a position that is there, or the tail.

        DiskError: the disk does not let us read. UsageError: the position is not there.
        """
        return self._steadily(lambda parts: self._vector_at(parts, position))

    def _steadily(self, read: Callable[[Parts], T]) -> T:
        """While another thread may trim."""
        for _ in range(_TRIES):
            parts, checkpoint = self.parts, self.checkpoint
            try:
                return read(parts)
            except (OSError, DiskError) as error:
                # What was trimmed meanwhile, or replaced, is gone for a reason.
                if parts is self.parts and checkpoint == self.checkpoint:
                    raise self._unreadable(error) from error
        raise DiskError(f"{self.folder} is trimmed faster than it can be read")

    def _unreadable(self, error: OSError | DiskError) -> DiskError:
        if isinstance(error, DiskError):
            return error
        return DiskError(f"{self.folder} cannot be read: {error.strerror or error}")

    def received(self) -> StreamNumbers:
        """By stream, the last number below the tail. DiskError: nobody knows it any more."""
        parts = self.parts
        begin, table = self._base(parts)
        for part in parts.all():
            if part.first >= begin:
                part.ask(lambda streams: _raise(table, streams))
        return StreamNumbers(table)

    def floor_vector(self, floor: int) -> Path | None:
        """A whole vector of the floor. None: nothing was ever trimmed. DiskError: it is lost."""
        if floor == 0:
            return None
        for suffix in (FLOOR, FLOOR_COPY):
            path = file_of(self.folder, floor, suffix)
            if is_whole(path, self.identity, floor):
                return path
        raise DiskError(
            f"{self.folder}: what was trimmed below position {floor} is not known: "
            f"{file_of(self.folder, floor, FLOOR).name} and its copy are missing or damaged"
        )

    def is_whole_at(self, part: Part, position: int) -> bool:
        """Whether its entry is there, or was put back."""
        records = part.records(position, position + 1)
        ((_, _, found),) = read_bodies(part, position, records)
        return found is not None or self.repairs.read(position) is not None

    # --- reading -----------------------------------------------------------------------------

    def _read(self, parts: Parts, place: Place, limit: int) -> Reading:
        tail = parts.newest.end
        if isinstance(place, Reference):
            at = self._position_of(parts, place)
            if at is None:
                return Reading(tail, ())
            return Reading(at, tuple(self._entries(parts, at, at + 1, limit)))
        if isinstance(place, At):
            found = SearchResult(min(max(place.position, parts.floor), tail), ())
        else:
            found = self._search(parts, place)
        entries = tuple(self._entries(parts, found.first, tail, limit))
        return Reading(found.first, entries, found.gaps)

    def _entries(self, parts: Parts, first: int, tail: int, limit: int) -> Iterator[Entry | Bad]:
        everything, left = parts.all(), limit
        at = max(0, bisect_right(everything, first, key=lambda part: part.first) - 1)
        count = 0
        for part in everything[at:]:
            position, end = max(first, part.first), min(part.end, tail)
            while position < end and left > 0 and count < ENTRIES:
                until = min(end, position + ENTRIES - count)
                hints, left = _within(part.hints(position, until), left)
                for found in self._read_part(part, position, hints):
                    count += 1
                    yield found
                position += len(hints) // RECORD.size

    def _read_part(self, part: Part, position: int, hints: bytes) -> Iterator[Entry | Bad]:
        found = list(read_bodies(part, position, hints))
        if any(entry is None for _, _, entry in found):  # it may be the index that is wrong
            records = part.records(position, position + len(found))
            if records != hints:
                found = list(read_bodies(part, position, records))
        for at, record, entry in found:
            yield entry or self.repairs.read(at) or self._bad(part, at, record)

    def _bad(self, part: Part, position: int, record: IndexRecord) -> Bad:
        if record.is_unknown:
            return record.lost(None)
        row = part.ask(lambda streams: streams.of_key(record.key))
        return record.lost(row.stream if row else None)

    def _search(self, parts: Parts, knowledge: Knowledge) -> SearchResult:
        floor = self.floor_vector(parts.floor)
        floor_blocks = (
            read_vector(floor, self.identity, parts.floor, width=2) if floor else iter(())
        )
        begin, base = self.base_blocks(parts)
        return Search(knowledge, parts.all()).run(floor_blocks, begin, base)

    def _position_of(self, parts: Parts, wanted: Reference) -> int | None:
        """The newest position of an event."""
        key = key_of(wanted.stream)
        for part in reversed(parts.all()):
            row = part.ask(lambda streams: streams.get(wanted.stream))
            if row is None or not row[0] < wanted.number <= row[1]:
                continue
            records = part.records(part.first, part.end)
            for at, values in enumerate(RECORD.iter_unpack(records), part.first):
                if values[0] == key and values[1] == wanted.number:
                    return at
        return None

    # --- vectors -----------------------------------------------------------------------------

    def _checkpoint(self, parts: Parts) -> Path | None:
        """The vector that is a cache, if it is whole."""
        position = self.checkpoint
        if position <= parts.floor:
            return None
        path = file_of(self.folder, position, RECEIVED)
        return path if is_whole(path, self.identity, position) else None

    def _base(self, parts: Parts) -> tuple[int, StreamTable]:
        position, floor = self.checkpoint, parts.floor
        if path := self._checkpoint(parts):
            return position, load_vector(path, self.identity, position)
        if path := self.floor_vector(floor):
            return floor, load_vector(path, self.identity, floor, width=2).with_columns(0)
        return floor, StreamTable()

    def base_blocks(
        self, parts: Parts, before: int | None = None
    ) -> tuple[int, Iterator[StreamTable]]:
        """The newest vector on the disk, and its position: at most `before`, if that is given."""
        position, floor = self.checkpoint, parts.floor
        if (before is None or position <= before) and (path := self._checkpoint(parts)):
            return position, read_vector(path, self.identity, position)
        if path := self.floor_vector(floor):
            blocks = read_vector(path, self.identity, floor, width=2)
            return floor, (block.with_columns(0) for block in blocks)
        return floor, iter(())

    def _vector_at(self, parts: Parts, position: int) -> dict[int, int]:
        if not parts.floor <= position <= parts.newest.end:
            have = f"{parts.floor} to {parts.newest.end}"
            raise UsageError(f"{self.folder} has positions {have}, and {position} is asked for")
        begin, blocks = self.base_blocks(parts, position)
        numbers: dict[int, int] = {}
        for block in blocks:
            numbers.update(block.last_numbers())
        for part in parts.all():
            first, end = max(begin, part.first), min(part.end, position)
            if first < end:
                records = part.records(first, end)
                numbers.update((key, number) for key, number, *_ in RECORD.iter_unpack(records))
        numbers.pop(0, None)  # of entries of which nothing is known
        return numbers


def _within(records: bytes, left: int) -> tuple[bytes, int]:
    """As many of them as have so many bytes, one at the least; and how many bytes are left."""
    for count, values in enumerate(RECORD.iter_unpack(records), 1):
        left -= max(values[4], RECORD.size)
        if left <= 0:
            return records[: count * RECORD.size], 0
    return records, left


def _raise(table: StreamTable, streams: StreamTable) -> None:
    if len(streams) > RECENT:
        table.update(last_numbers(streams))
        return
    for row in streams.rows():
        table.put(row.stream, row.numbers[-1:], row.key)

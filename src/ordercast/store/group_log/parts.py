"""The segments of a log as their readers see them: sealed ones, and the one that grows.

A part answers what is at its positions and which streams it has. Of sealed parts the index is read
when it is wanted, and a few are kept; where there is none that can be used the segment is scanned.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar
from zlib import crc32

from ordercast.errors import DiskError
from ordercast.kernel.log import Entry, Stream
from ordercast.store.group_log.entries import IndexRecord, unpack_entry
from ordercast.store.group_log.form import LARGEST, LOGGED, RECORD, SEGMENT, UNKNOWN, file_of
from ordercast.store.group_log.index import (
    SegmentIndex,
    index_of,
    read_hints,
    read_index,
    read_streams,
    write_index,
)
from ordercast.store.group_log.repairs import Repairs
from ordercast.store.group_log.scan import Damage, Scan
from ordercast.store.group_log.streams import Numbers, StreamKeys, StreamTable
from ordercast.store.log import ENTRY, HEAD, HEAD_SIZE, Checks, SegmentHeader, checks_of

log = logging.getLogger("ordercast.store")

KEPT_BYTES = 8 << 20
"""Of the streams of sealed segments, in memory."""
_SPAN = 4 << 20
"""Bytes that are read at once, at the most, but for one entry that is longer."""

_KEYS = StreamKeys()

Answer = TypeVar("Answer")


class OpenPart:
    """The newest segment. One thread changes it; others read."""

    def __init__(self, path: Path, header: SegmentHeader, begun: int, scan: Scan | None) -> None:
        self.path = path
        self.header = header
        self.first = header.first
        self.begun = begun
        self.is_missing = False
        self._records = scan.records if scan else bytearray()
        self._streams = scan.streams if scan else StreamTable(2)
        self._has_unknown = UNKNOWN in self._records
        self._lock = threading.Lock()

    @property
    def streams(self) -> int:
        """How many there are in it."""
        return len(self._streams)

    @property
    def end(self) -> int:
        """The position behind the last one that is committed."""
        return self.first + len(self._records) // RECORD.size

    def records(self, begin: int, end: int) -> bytes:
        """Index records of a range of positions."""
        with self._lock:
            return _cut(self._records, self.first, begin, end)

    hints = records

    def ask(self, question: Callable[[StreamTable], Answer]) -> Answer:
        """What its streams are, by a function that keeps nothing of the table."""
        with self._lock:
            return question(self._streams)

    def has_unknown(self) -> bool:
        """Whether it may have entries of which nothing is known."""
        return self._has_unknown

    def has_stream(self, stream: Stream, key: int) -> bool:
        """Only for the thread that changes it."""
        return self._streams.get(stream, key) is not None

    def add(self, records: bytes, changed: dict[int, tuple[Stream, Numbers]]) -> None:
        """What has been committed; by key, the number before the first of a stream and its last.

        Of a stream that was here the number before its first stays.
        """
        with self._lock:
            streams = self._streams
            for key, (stream, numbers) in changed.items():
                row = streams.get(stream, key)
                streams.put(stream, (row[0], numbers[1]) if row else numbers, key)
            self._records += records

    def repair(self, position: int, entry: Entry) -> None:
        with self._lock:
            index = SegmentIndex(self.first, self._records, self._streams)
            found = index.with_repairs([(position, entry)])
            self._records, self._streams = found.records, found.streams

    def index(self) -> SegmentIndex:
        """When nothing is added any more."""
        with self._lock:
            self._streams.merge()
            return SegmentIndex(self.first, self._records, self._streams)


class SealedPart:
    """An older segment. Any thread may ask."""

    def __init__(
        self,
        header: SegmentHeader,
        end: int,
        begun: int,
        size: int,
        shelf: IndexShelf,
        has_unknown: bool | None = None,
    ) -> None:
        """`has_unknown` if its index says that already."""
        self.path = file_of(shelf.folder, header.first, SEGMENT)
        self.header = header
        self.first = header.first
        self.end = end
        self.begun = begun
        self.size = size  # bytes of the segment and its index
        self.is_missing = not self.path.exists()
        self._shelf = shelf
        self._has_unknown = has_unknown

    def records(self, begin: int, end: int) -> bytes:
        return _cut(self.index().records, self.first, begin, end)

    def hints(self, begin: int, end: int) -> bytes:
        """The same, without a look at its checksum if there is an index: quick, for a few."""
        found = read_hints(self._shelf.folder, self.first, begin, end)
        return self.records(begin, end) if found is None else found

    def ask(self, question: Callable[[StreamTable], Answer]) -> Answer:
        return question(self._shelf.streams(self))

    def has_unknown(self) -> bool:
        if self._has_unknown is None:
            self.index()
        return bool(self._has_unknown)

    def found(self, index: SegmentIndex) -> None:
        """Its index was read or made again."""
        self._has_unknown = index.unknown > 0

    def index(self) -> SegmentIndex:
        return self._shelf.index(self)


Part: TypeAlias = OpenPart | SealedPart


class IndexShelf:
    """The indexes of sealed segments. DiskError: a segment cannot be read, nor its index."""

    def __init__(self, folder: Path, repairs: Repairs, *, writes: bool) -> None:
        self.folder = folder
        self.writes = writes
        self._repairs = repairs
        self._kept: OrderedDict[int, StreamTable] = OrderedDict()
        self._lock = threading.Lock()

    def index(self, part: SealedPart) -> SegmentIndex:
        """All of it."""
        with self._lock:
            return self._index(part)

    def streams(self, part: SealedPart) -> StreamTable:
        with self._lock:
            found = self._kept.get(part.first)
            if found is None:
                found = read_streams(self.folder, part.header) or self._index(part).streams
                self._keep(part.first, found)
            return found

    def put(self, part: SealedPart, index: SegmentIndex) -> None:
        """Of a segment that was sealed just now, or of one with a repair."""
        with self._lock:
            part.found(index)
            self._keep(part.first, index.streams)
            self._write(part, index)

    def drop(self, first: int) -> None:
        with self._lock:
            self._kept.pop(first, None)

    def _index(self, part: SealedPart) -> SegmentIndex:
        found = read_index(self.folder, part.header)
        if found is None or part.first + len(found.records) // RECORD.size != part.end:
            found = self._made_again(part)
        part.found(found)
        return found

    def _made_again(self, part: SealedPart) -> SegmentIndex:
        scan = Scan(part.path, part.header, part.end)
        if self.writes and scan.place < scan.size and not scan.torn:
            with suppress(OSError):
                os.truncate(part.path, scan.place)  # room that was not used
        if self.writes:
            say_damage(part.path, scan.damage)
        index = index_of(scan)
        positions = self._repairs.between(part.first, part.end)
        repairs = ((position, self._repairs.read(position)) for position in positions)
        index = index.with_repairs((at, entry) for at, entry in repairs if entry is not None)
        self._write(part, index)
        return index

    def _keep(self, first: int, streams: StreamTable) -> None:
        self._kept[first] = streams
        self._kept.move_to_end(first)
        while self._kept and sum(each.size for each in self._kept.values()) > KEPT_BYTES:
            self._kept.popitem(last=False)

    def _write(self, part: SealedPart, index: SegmentIndex) -> None:
        if self.writes:
            with suppress(OSError):  # a cache: the disk may be full
                write_index(self.folder, part.header, part.begun, part.end, index)


def say_damage(path: Path, damage: list[Damage]) -> None:
    for bad in damage[:10]:
        log.warning("%s: %s at byte %d is damaged", path, bad.what, bad.place)
    if len(damage) > 10:
        log.warning("%s: %d more places are damaged", path, len(damage) - 10)


def _cut(records: bytes | bytearray, first: int, begin: int, end: int) -> bytes:
    with memoryview(records) as view:
        return bytes(view[(begin - first) * RECORD.size : (end - first) * RECORD.size])


# --- frames --------------------------------------------------------------------------------------


class _Wanted(NamedTuple):
    position: int
    record: IndexRecord


def read_bodies(
    part: Part, position: int, records: bytes
) -> Iterator[tuple[int, IndexRecord, Entry | None]]:
    """The entries of records that follow one another from a position on, in order; None: its frame
    is bad. OSError: the file cannot be read."""
    checks = checks_of(LOGGED, part.header)
    try:
        file = os.open(part.path, os.O_RDONLY)
    except FileNotFoundError:
        if not part.is_missing:
            raise
        for at, values in enumerate(RECORD.iter_unpack(records), position):
            yield at, IndexRecord._make(values), None
        return
    try:
        for wanted in _spans(position, records):
            begin = min((each.record.place for each in wanted), default=0)
            last = wanted[-1].record
            size = min(last.place + HEAD_SIZE + last.length - begin, _SPAN + LARGEST)
            data = memoryview(os.pread(file, size, begin))
            for at, record in wanted:
                yield at, record, _entry_in(data, begin, record, checks)
    finally:
        os.close(file)


def _spans(position: int, records: bytes) -> Iterator[list[_Wanted]]:
    """Entries that lie near each other, so that they can be read at once."""
    span: list[_Wanted] = []
    for at, values in enumerate(RECORD.iter_unpack(records), position):
        record = IndexRecord._make(values)
        end = record.place + HEAD_SIZE + record.length
        if span and not 0 <= end - span[0].record.place <= _SPAN:
            yield span
            span = []
        span.append(_Wanted(at, record))
    if span:
        yield span


def _entry_in(data: memoryview, begin: int, record: IndexRecord, checks: Checks) -> Entry | None:
    at = record.place - begin
    body = at + HEAD_SIZE
    if not record.place or at < 0 or body + record.length > len(data):
        return None
    mark, length, checksum = HEAD.unpack_from(data, at)
    start, placed, _ = checks[ENTRY]
    if mark != ENTRY or length != record.length:
        return None
    if crc32(data[body : body + length], start ^ (record.place & placed)) != checksum:
        return None
    try:
        entry = unpack_entry(data[body : body + length])
    except DiskError as error:
        raise DiskError(f"byte {record.place}: {error}") from error
    return entry if record.describes(entry, _KEYS(entry.stream)) else None

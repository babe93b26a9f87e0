"""The index of a segment: a record for each position, and a row for each stream in it.

The file of an index is written when its segment is begun, with a copy of the header and nothing
else, and again when the segment is sealed. It is a cache: one that is missing, damaged or of
another log is made again from the segment. Where a segment is damaged, it says what was there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from ordercast.errors import DiskError
from ordercast.kernel.log import Entry, key_of
from ordercast.store.group_log.entries import IndexRecord, number_before
from ordercast.store.group_log.form import (
    INDEX,
    LOGGED,
    RECORD,
    SEGMENT,
    UNKNOWN,
    file_of,
    same_log,
)
from ordercast.store.group_log.scan import Scan
from ordercast.store.group_log.streams import StreamTable
from ordercast.store.log import PRIVATE, TEMPORARY, VERSION, SegmentHeader, read_header

MAGIC = b"ordercast index "
# Magic, version; of the segment: salt, identity, first position, the one behind its last, when the
# first was written, entries of which nothing is known; checksums of records, streams and of this.
_HEAD = Struct("!16sIIQQQQIIII")
_UNSEALED = (1 << 64) - 1


class IndexHead(NamedTuple):
    header: SegmentHeader  # of the segment
    end: int | None  # the position behind its last; None: it was not sealed yet
    begun: int
    unknown: int  # entries of which nothing is known
    checksums: tuple[int, int]  # of the records, and of the streams


class SegmentIndex:
    """What a segment has, or had."""

    def __init__(self, first: int, records: bytearray, streams: StreamTable) -> None:
        self.first = first
        self.records = records
        self.streams = streams

    @property
    def unknown(self) -> int:
        """Entries of which nothing is known."""
        if UNKNOWN not in self.records:
            return 0
        return sum(not values[1] for values in RECORD.iter_unpack(self.records))

    def from_position(self, position: int) -> Iterator[tuple[int, IndexRecord]]:
        begin = (position - self.first) * RECORD.size
        rest = RECORD.iter_unpack(memoryview(self.records)[begin:])
        return ((at, IndexRecord._make(values)) for at, values in enumerate(rest, position))

    def with_repairs(self, repairs: Iterable[tuple[int, Entry]]) -> SegmentIndex:
        """The same, where nothing was known of what has been put back there.

        What others read at the same time stays as it is.
        """
        found = self
        for position, entry in repairs:
            at = (position - self.first) * RECORD.size
            if not IndexRecord.of(found.records, at).is_unknown:
                continue
            if found is self:
                streams = StreamTable(2)
                streams.update(self.streams)
                found = SegmentIndex(self.first, bytearray(self.records), streams)
            stream, prev, number = entry.stream, number_before(entry), entry.number
            RECORD.pack_into(found.records, at, key_of(stream), number, prev, 0, 0)
            first, last = found.streams.get(stream) or (prev, number)
            found.streams.put(stream, (min(first, prev), max(last, number)))
        found.streams.merge()
        return found


def write_index(
    folder: Path, header: SegmentHeader, begun: int, end: int | None, index: SegmentIndex | None
) -> None:
    """OSError: as the system says. It is not synced: a reader sees whether it is whole."""
    records = streams = b""
    unknown = 0
    if index is not None:
        records, streams, unknown = bytes(index.records), index.streams.packed(), index.unknown
    fields = (header.salt, header.identity, header.first, _UNSEALED if end is None else end, begun)
    head = _HEAD.pack(MAGIC, VERSION, *fields, unknown, crc32(records), crc32(streams), 0)[:-4]
    path = file_of(folder, header.first, INDEX)
    fresh = path.with_name(path.name + TEMPORARY)
    try:
        fresh.unlink(missing_ok=True)
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        with os.fdopen(file, "wb") as output:
            output.writelines((head, crc32(head).to_bytes(4), records, streams))
        fresh.rename(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def read_index_head(folder: Path, first: int, identity: int | None = None) -> IndexHead | None:
    """None: there is none that can be used."""
    try:
        with file_of(folder, first, INDEX).open("rb") as file:
            return _unpack_head(file.read(_HEAD.size), first, identity)
    except OSError:
        return None


def read_index(folder: Path, header: SegmentHeader) -> SegmentIndex | None:
    """Of a sealed segment. None: there is none that can be used."""
    streams = read_streams(folder, header)
    try:
        with file_of(folder, header.first, INDEX).open("rb") as file:
            head = _unpack_head(file.read(_HEAD.size), header.first, header.identity)
            if streams is None or head is None or head.end is None:
                return None
            size = (head.end - header.first) * RECORD.size
            records = file.read(size)
    except OSError:
        return None
    if len(records) < size or crc32(records) != head.checksums[0]:
        return None
    return SegmentIndex(header.first, bytearray(records), streams)


def read_streams(folder: Path, header: SegmentHeader) -> StreamTable | None:
    """The streams of a sealed segment alone. None: there is no index that can be used."""
    try:
        with file_of(folder, header.first, INDEX).open("rb") as file:
            head = _unpack_head(file.read(_HEAD.size), header.first, header.identity)
            if head is None or head.header.salt != header.salt or head.end is None:
                return None
            file.seek((head.end - header.first) * RECORD.size, os.SEEK_CUR)
            data = file.read()
    except OSError:
        return None
    if crc32(data) != head.checksums[1]:
        return None
    streams = StreamTable(2)
    try:
        streams.add_packed(data)
    except (ValueError, struct.error):
        return None
    return streams


def read_hints(folder: Path, first: int, begin: int, end: int) -> bytes | None:
    """Records of a range as they stand there, unchecked. None: they are not there."""
    size = (end - begin) * RECORD.size
    try:
        file = os.open(file_of(folder, first, INDEX), os.O_RDONLY)
    except OSError:
        return None
    try:
        data = os.pread(file, size, _HEAD.size + (begin - first) * RECORD.size)
    finally:
        os.close(file)
    return data if len(data) == size else None


def _unpack_head(data: bytes, first: int, identity: int | None) -> IndexHead | None:
    if len(data) < _HEAD.size or data[:16] != MAGIC or crc32(data[:-4]) != _HEAD.unpack(data)[-1]:
        return None
    _, version, salt, log, position, end, begun, unknown, *checksums, _ = _HEAD.unpack(data)
    header = SegmentHeader(version, salt, log, position)
    if version != VERSION or not same_log(header, log if identity is None else identity, first):
        return None
    if end != _UNSEALED and end < first:
        return None
    sealed = None if end == _UNSEALED else end
    return IndexHead(header, sealed, begun, unknown, (checksums[0], checksums[1]))


def header_of(folder: Path, first: int, identity: int | None = None) -> SegmentHeader:
    """The header of a segment, from its index if it is damaged. DiskError: neither can be read."""
    path = file_of(folder, first, SEGMENT)
    try:
        header = read_header(path, LOGGED)
    except DiskError:
        head = read_index_head(folder, first, identity)
        if head is None or _is_of_another_kind(path):
            raise
        return head.header
    if header.version != VERSION:
        raise DiskError(
            f"{path} is of version {header.version}, and this ordercast writes version {VERSION}"
        )
    if not same_log(header, header.identity if identity is None else identity, first):
        raise DiskError(f"{path} is of another log, or was renamed")
    return header


def _is_of_another_kind(path: Path) -> bool:
    """Whether it is whole in its way: of another version, or another kind of log."""
    try:
        with path.open("rb") as file:
            data = file.read(_SEGMENT_HEAD)
    except OSError:
        return False
    return (
        len(data) == _SEGMENT_HEAD
        and data.startswith(b"ordercast ")
        and crc32(data[:-4]) == int.from_bytes(data[-4:])
    )


_SEGMENT_HEAD = 44


def index_of(scan: Scan) -> SegmentIndex:
    return SegmentIndex(scan.header.first, scan.records, scan.streams)

"""Vectors on disk: by stream, the last number below a position.

A vector is a file of blocks of rows in the order of the streams' keys, each with a checksum. A
new one is made from an old one and what was added since, block by block, so that neither has to be
in memory. It is written aside, synced and renamed.

Two vectors belong to a log. That of its floor says what was trimmed; without it nobody would know
which old events were here, so there are two copies of it. It has a second number for each stream: a
position below which its last trimmed entry was, or the same. That of a later position is a cache,
which saves reading all indexes when the log is opened.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from zlib import crc32

from ordercast.errors import DiskError
from ordercast.store.group_log.streams import StreamRow, StreamTable
from ordercast.store.log import PRIVATE, TEMPORARY, VERSION, flush, sync_folder

MAGIC = b"ordercast vector"
_HEAD = Struct("!16sIQQI")  # magic, version, identity of the log, position, checksum
_BLOCK = Struct("!II")  # bytes, checksum; at the end no bytes, and the checksum of all checksums
_END = 0x6F454E44
BLOCK_ROWS = 4096
_LARGEST_BLOCK = 1 << 26


def read_vector(
    path: Path, identity: int, position: int, *, width: int = 1
) -> Iterator[StreamTable]:
    """Its blocks. DiskError: it is not there, damaged, or of another log or position."""
    for data in _read_blocks(path, identity, position):
        table = StreamTable(width)
        _add(path, table, data)
        yield table


def load_vector(path: Path, identity: int, position: int, *, width: int = 1) -> StreamTable:
    """All of it in one table. DiskError: as `read_vector`."""
    whole = StreamTable(width)
    for data in _read_blocks(path, identity, position):
        _add(path, whole, data)
    return whole


def is_whole(path: Path, identity: int, position: int) -> bool:
    try:
        for _ in _read_blocks(path, identity, position):
            pass
    except DiskError:
        return False
    return True


def write_vector(
    path: Path,
    identity: int,
    position: int,
    old: Iterable[StreamTable],
    added: Iterable[StreamTable],
    *,
    width: int = 1,
) -> None:
    """From the blocks of an earlier vector and the streams of the segments since, in their order.

    OSError: as the system says, and what was there is there.
    """
    fresh = path.with_name(path.name + TEMPORARY)
    try:
        fresh.unlink(missing_ok=True)
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        with os.fdopen(file, "wb") as output:
            head = _HEAD.pack(MAGIC, VERSION, identity, position, 0)[:-4]
            output.write(head + crc32(head).to_bytes(4))
            checksums = 0
            for block in _merged(old, _together(added, width)):
                for begin in range(0, len(block), BLOCK_ROWS):
                    data = block.packed(begin, begin + BLOCK_ROWS)
                    head = _BLOCK.pack(len(data), crc32(data))
                    checksums = crc32(head, checksums)
                    output.write(head + data)
            output.write(_BLOCK.pack(0, checksums ^ _END))
            output.flush()
            flush(file)
        fresh.rename(path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def last_numbers(streams: StreamTable, position: int | None = None) -> StreamTable:
    """The last numbers of the streams of a segment; for a floor also its last position."""
    return streams.with_columns(1, constant=position)


def _together(added: Iterable[StreamTable], width: int) -> StreamTable:
    together = StreamTable(width)
    for streams in added:
        together.update(streams)
    return together


def _merged(old: Iterable[StreamTable], added: StreamTable) -> Iterator[StreamTable]:
    added.merge()
    done = 0
    for block in old:
        end = added.rows_up_to(block.last_key)
        block.update(added, done, end)
        done = end
        yield block
    rest = StreamTable(added.width)
    rest.update(added, done)
    yield rest


def _check_head(path: Path, data: bytes, identity: int, position: int) -> None:
    if len(data) < _HEAD.size or crc32(data[:-4]) != int.from_bytes(data[-4:]):
        raise DiskError(f"{path} is damaged in its header")
    magic, version, log, at, _ = _HEAD.unpack(data)
    if magic != MAGIC or version != VERSION:
        raise DiskError(f"{path} is no vector of version {VERSION}")
    if (log, at) != (identity, position):
        raise DiskError(f"{path} is of another log, or was renamed")


def _read_blocks(path: Path, identity: int, position: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            _check_head(path, file.read(_HEAD.size), identity, position)
            checksums = 0
            while True:
                head = file.read(_BLOCK.size)
                if len(head) < _BLOCK.size:
                    raise DiskError(f"{path} is damaged: it is cut off")
                length, checksum = _BLOCK.unpack(head)
                if not length and checksum == checksums ^ _END:
                    return
                data = file.read(length) if length <= _LARGEST_BLOCK else b""
                if not length or len(data) < length or crc32(data) != checksum:
                    raise DiskError(f"{path} is damaged: the checksum of a block is wrong")
                checksums = crc32(head, checksums)
                yield data
    except OSError as error:
        raise DiskError(f"{path} cannot be read: {error.strerror or error}") from error


def _add(path: Path, table: StreamTable, data: bytes) -> None:
    try:
        table.add_packed(data)
    except (ValueError, struct.error) as error:
        raise DiskError(f"{path} is damaged: {error}") from error


def rows_of(blocks: Iterable[StreamTable]) -> Iterator[StreamRow]:
    for block in blocks:
        yield from block.rows()

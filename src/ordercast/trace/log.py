"""Rows appended to a file as they happen, for processes that may be killed at any moment.

Parquet is complete only when it is closed. A live member appends its rows here, and calls `flush`
before it sends what they tell of: then the operating system has them, whatever becomes of the
process. A supervisor turns the logs into a lake. The rows of one flush are a block, which has one
checksum. The last block of a log may be torn; what is before it is whole. A writer that appends to
such a log removes the torn block first.

The form is store/log.py's, never synced. An entry is a block: a row, or a MessagePack list of rows.
Version 1 had neither header nor checksums, only rows with their lengths. It is read too; whoever
appends to it writes it anew before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import msgspec

from ordercast.errors import TraceError
from ordercast.store.log import (
    ENTRY,
    HEADER,
    PRIVATE,
    VERSION,
    LogKind,
    Segment,
    SegmentWalk,
    begin_segment,
    new_header,
    new_identity,
    too_long,
)
from ordercast.trace.schema import Row

ROWS = LogKind(b"ordercast trace\0", "a log of rows", 1 << 24, TraceError, synced=False)
_BUFFER = 1 << 16
_LENGTH = Struct("!I")  # of a row of version 1
_LIST = Struct("!cI")  # how MessagePack begins a list: its type, and how many values follow
_LIST_TYPE = b"\xdd"  # no row begins like this: it has fewer than 65,536 columns


class RowLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._segment = _opened(path)
        except OSError as error:
            raise self._unwritable(error) from error
        self._encode = msgspec.msgpack.Encoder().encode
        self._gathered: list[bytes] = []
        self._size = 0  # bytes of what is not written

    def write(self, row: Row) -> None:
        """TraceError: the row is too long, and is not written; or the disk fails."""
        body = self._encode(row)
        length = len(body)
        if length > ROWS.largest:
            raise too_long(self.path, ROWS, length)
        if self._size + length > _BUFFER:
            self.flush()  # before, so that a row that needs all the room is alone in its block
        self._gathered.append(body)
        self._size += length

    def flush(self) -> None:
        """What was written is the operating system's now: killing us does not lose it."""
        if not self._size:
            return
        rows = self._gathered
        if rows:
            self._segment.add(ENTRY, _block(rows) if len(rows) > 1 else rows[0])
            rows.clear()
        try:
            self._segment.write()
        except OSError as error:
            raise self._unwritable(error) from error
        self._size = 0

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._segment.close()

    def _unwritable(self, error: OSError) -> TraceError:
        return TraceError(f"{self.path} cannot be written: {error.strerror}")


def _block(rows: list[bytes]) -> bytes:
    return _LIST.pack(_LIST_TYPE, len(rows)) + b"".join(rows)


_ROW = msgspec.msgpack.Decoder(Row)
_ROW_LIST = msgspec.msgpack.Decoder(list[Row])


def read_log(path: Path) -> Iterator[Row]:
    """The rows of a log, up to the last whole block. TraceError: it is none, or is damaged."""
    for block in _blocks(path):
        try:
            many = block.startswith(_LIST_TYPE)
            rows = _ROW_LIST.decode(block) if many else [_ROW.decode(block)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TraceError(f"{path} is not a log of rows: {error}") from error
        yield from rows


class ToldOf(NamedTuple):
    """What a trace has of a group with a log at one process, since it had no disk."""

    entries: int = 0  # delivered or lost: the position up to which it has heard of the log
    submitted: int = 0  # the number of the last own event


def told_in(rows: Iterable[Row], process: str, before: Mapping[str, ToldOf]) -> dict[str, ToldOf]:
    """By group. `before`: the same of rows that are elsewhere."""
    told = dict(before)
    for row in rows:
        if row.process != process:
            continue
        if row.kind == "start" and row.cause == "empty":
            told.clear()
        elif row.group is not None and row.kind in ("deliver", "lose", "submit"):
            entries, submitted = told.get(row.group, ToldOf())
            if row.kind == "submit":
                told[row.group] = ToldOf(entries, max(submitted, row.number or 0))
            else:
                told[row.group] = ToldOf(entries + 1, submitted)
    return told


def _blocks(path: Path) -> Iterator[bytes]:
    version = _version_of(path)
    if version == 1:
        yield from _rows_of_version_1(path)
    elif version is not None:
        walk = SegmentWalk(path, ROWS)
        for frame in walk:
            if frame.mark == ENTRY:
                yield frame.body
        walk.check_rest()


def _version_of(path: Path) -> int | None:
    """None: it is empty, or was cut off in its header: there is no row."""
    try:
        with path.open("rb") as file:
            head = file.read(HEADER.size)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    if not head.startswith(ROWS.magic[: len(head)]):
        return 1
    return VERSION if len(head) == HEADER.size else None


def _rows_of_version_1(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    place = 0
    while place + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        begin, place = place + _LENGTH.size, place + _LENGTH.size + length
        if length > ROWS.largest:
            raise TraceError(f"{path} is not a log of rows")
        if place > len(data):
            return
        yield data[begin:place]


def _opened(path: Path) -> Segment:
    """For appending behind the last whole block."""
    version = _version_of(path) if path.is_file() else None
    if version == 1:
        rows = _rows_of_version_1(path)
        return begin_segment(path, ROWS, new_header(new_identity()), ((ENTRY, row) for row in rows))
    if version is not None:
        walk = SegmentWalk(path, ROWS)
        for _ in walk:
            pass
        return walk.carry_on()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
    segment = Segment(path, ROWS, new_header(new_identity()), file)
    segment.begin()
    return segment

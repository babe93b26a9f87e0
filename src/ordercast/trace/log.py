"""Rows appended to a file as they happen, for processes that may be killed at any moment.

Parquet is complete only when it is closed. A live member that is to survive its own death in the
records appends rows here, and says `flush` before what they tell of leaves the process: then the
operating system has them, whatever becomes of us. A supervisor turns the logs into a lake. The last
row of a log may be cut off; what is before it is whole. Who appends to such a log takes the piece
away first.

The form is store/log.py's, never synced: an entry is a row. Version 1 had neither header nor
checksums, only rows with their lengths. It is read too; who appends to it writes it anew before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import msgspec

from ordercast.errors import TraceError
from ordercast.store.log import (
    ENTRY,
    HEADER,
    PRIVATE,
    VERSION,
    Kind,
    Segment,
    Walk,
    begin_segment,
    new_header,
    new_identity,
    too_long,
)
from ordercast.trace.schema import COLUMNS, Row

ROWS = Kind(b"ordercast trace\0", "a log of rows", 1 << 24, TraceError, synced=False)
_LENGTH = Struct("!I")  # of a row of version 1
_BUFFER = 1 << 16


class RowLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._segment = _opened(path)
        except OSError as error:
            raise self._unwritable(error) from error
        self._encode = msgspec.msgpack.Encoder().encode
        self._gathered: list[bytes] = []
        self._size = 0  # of what is not written

    def write(self, row: Row) -> None:
        """TraceError: the row is too long, and is not written; or the disk fails."""
        body = self._encode(msgspec.structs.astuple(row))
        length = len(body)
        if length > ROWS.largest:
            raise too_long(self._path, ROWS, length)
        self._gathered.append(body)
        self._size += length
        if self._size > _BUFFER:
            self.flush()

    def flush(self) -> None:
        """What was written is the operating system's now: killing us does not lose it."""
        if not self._size:
            return
        self._segment.add(ENTRY, self._gathered)
        self._gathered.clear()
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
        return TraceError(f"{self._path} cannot be written: {error.strerror}")


def read_log(path: Path) -> Iterator[Row]:
    """The rows of a log, up to the last whole one. TraceError: it is none, or is damaged."""
    for body in _bodies(path):
        try:
            values = msgspec.msgpack.decode(body)
            names = COLUMNS[: len(values)]  # a row of an older contract has fewer
            yield msgspec.convert(dict(zip(names, values, strict=True)), Row)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise TraceError(f"{path} is not a log of rows: {error}") from error


def _bodies(path: Path) -> Iterator[bytes]:
    version = _version_of(path)
    if version == 1:
        yield from _bodies_of_version_1(path)
    elif version is not None:
        walk = Walk(path, ROWS)
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


def _bodies_of_version_1(path: Path) -> Iterator[bytes]:
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
    """For appending behind the last whole row."""
    version = _version_of(path) if path.is_file() else None
    if version == 1:
        rows = _bodies_of_version_1(path)
        return begin_segment(path, ROWS, new_header(new_identity()), ENTRY, rows)
    if version is not None:
        walk = Walk(path, ROWS)
        for _ in walk:
            pass
        return walk.carry_on()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
    segment = Segment(path, ROWS, new_header(new_identity()), file)
    segment.begin()
    return segment

"""Rows appended to a file as they happen, for processes that may be killed at any moment.

Parquet is complete only when it is closed. A live member that is to survive its own death in the
records appends rows here, and says `flush` before what they tell of leaves the process: then the
operating system has them, whatever becomes of us. A supervisor turns the logs into a lake. The last
row of a log may be cut off; what is before it is whole. Who appends to such a log takes the piece
away first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import msgspec

from ordercast.errors import TraceError
from ordercast.trace.schema import Row

_LENGTH = Struct("!I")
_LARGEST_ROW = 1 << 24
_BUFFER = 1 << 16


class RowLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        whole = _whole_size(path)
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            if whole is not None:
                os.ftruncate(self._file, whole)
        except OSError as error:
            raise TraceError(f"{path} cannot be written: {error.strerror}") from error
        self._encode = msgspec.msgpack.Encoder().encode
        self._buffer = bytearray()

    def write(self, row: Row) -> None:
        body = self._encode(msgspec.structs.astuple(row))
        self._buffer += _LENGTH.pack(len(body))
        self._buffer += body
        if len(self._buffer) > _BUFFER:
            self.flush()

    def flush(self) -> None:
        """What was written is the operating system's now: killing us does not lose it."""
        try:
            while self._buffer:
                # What is written is gone even if the rest is not: no row may be there twice.
                del self._buffer[: os.write(self._file, self._buffer)]
        except OSError as error:
            raise TraceError(f"{self._path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        try:
            self.flush()
        finally:
            os.close(self._file)


def read_log(path: Path) -> Iterator[Row]:
    """The rows of a log, up to the last whole one."""
    for body, _ in _bodies(path):
        try:
            values = msgspec.msgpack.decode(body)
            yield msgspec.convert(dict(zip(Row.__struct_fields__, values, strict=True)), Row)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise TraceError(f"{path} is not a log of rows: {error}") from error


def _bodies(path: Path) -> Iterator[tuple[bytes, int]]:
    """The rows as bytes, each with the place at which it ends."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    place = 0
    while place + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        begin, place = place + _LENGTH.size, place + _LENGTH.size + length
        if length > _LARGEST_ROW:
            raise TraceError(f"{path} is not a log of rows")
        if place > len(data):
            return
        yield data[begin:place], place


def _whole_size(path: Path) -> int | None:
    """Where the last whole row ends. None: there is nothing yet, or no file that has an end."""
    if not path.is_file():
        return None
    return max((end for _, end in _bodies(path)), default=0)

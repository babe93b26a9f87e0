"""The form of a group's log on disk.

A log is a folder of one group:

  <first position>.segment   entries and states, in the form of store/log.py
  <first position>.index     what the entries of that segment are, and a copy of its header; a cache
  <first position>.repairs   entries that the disk had lost, as they were put back
  <position>.received        by stream, the last number below that position; a cache
  <position>.floor, .floor2  the same for the first position that is there; two copies of one file
  spare                      room for what must be written when the disk is full
  lock                       held by the one process that writes

In a segment entries alone have positions. Its head is a summary and, behind it, all states that
count. Its commits have an index: what each entry since the last commit is, and the names of streams
that the segment did not have before.

Numbers are written with the greatest byte first. This module knows bytes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import msgspec

from ordercast.errors import DiskError
from ordercast.store.log import POSITION, LogKind, SegmentHeader

LARGEST = 64 << 20
"""Bytes of one entry, of one state, and of one commit."""
LOGGED = LogKind(
    b"ordercast logged", "a segment of a group's log", LARGEST, DiskError, indexed=True
)
REPAIRS = LogKind(
    b"ordercast repair", "a file of repairs", LARGEST + POSITION.size, DiskError, indexed=True
)

SEGMENT, INDEX, REPAIRED = ".segment", ".index", ".repairs"
RECEIVED, FLOOR, FLOOR_COPY = ".received", ".floor", ".floor2"
SPARE, LOCK, FORGOTTEN = "spare", "lock", "forgotten"

RECORD = Struct("!QQQII")  # key of the stream, number, the one before it, place, bytes of the body
UNKNOWN = bytes(RECORD.size)
"""The record of an entry of which nothing is known."""
COUNT = Struct("!I")
_NAME = Struct("!QH")  # birth, bytes of the name

EMPTY_INDEX = COUNT.pack(0)
"""Of a commit behind which no entries are."""
LARGEST_BATCH = 1_000_000
"""Entries of one commit."""


class Commit(NamedTuple):
    next: int  # the position that comes next
    records: bytes  # of the entries since the commit before
    streams: list[tuple[str, int]]  # that have no entry before in this segment

    @property
    def first(self) -> int:
        return self.next - len(self.records) // RECORD.size


class Summary(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What stands at the head of a segment; the states that count follow it."""

    group: str
    begun: int  # Unix nanoseconds, by the clock of this node
    states: int  # how many follow
    checkpoint: int  # the position of the newest; 0: none


def pack_index(records: Sequence[bytes], streams: Sequence[tuple[str, int]]) -> bytes:
    """What a commit has behind its position."""
    parts = [COUNT.pack(len(records)), *records]
    for name, birth in streams:
        data = name.encode()
        parts += (_NAME.pack(birth, len(data)), data)
    return b"".join(parts)


def unpack_commit(body: bytes) -> Commit | None:
    """None: no writer wrote this."""
    at = POSITION.size + COUNT.size
    if len(body) < at:
        return None
    (following,), (count,) = POSITION.unpack_from(body), COUNT.unpack_from(body, POSITION.size)
    end = at + count * RECORD.size
    if end > len(body) or count > following:
        return None
    records, at, streams = body[at:end], end, []
    while at < len(body):
        if at + _NAME.size > len(body):
            return None
        birth, length = _NAME.unpack_from(body, at)
        at += _NAME.size + length
        try:
            streams.append((body[at - length : at].decode(), birth))
        except UnicodeDecodeError:
            return None
    return Commit(following, records, streams) if at == len(body) else None


def pack_summary(summary: Summary) -> bytes:
    return msgspec.msgpack.encode(summary)


def unpack_summary(path: Path, body: bytes) -> Summary:
    try:
        return msgspec.msgpack.decode(body, type=Summary)
    except msgspec.MsgspecError as error:
        raise DiskError(f"{path} has a summary that this ordercast cannot read: {error}") from error


def file_of(folder: Path, position: int, suffix: str) -> Path:
    return folder / f"{position:020}{suffix}"


def find_files(folder: Path, suffix: str) -> dict[int, Path]:
    """By position, in order. OSError: as the system says."""
    found = {
        int(path.stem): path
        for path in folder.iterdir()
        if path.suffix == suffix and path.stem.isdecimal()
    }
    return dict(sorted(found.items()))


def is_group_log(folder: Path) -> bool:
    """Whether there is a segment, or the index of one, of a group's log."""
    for path in reversed(find_files(folder, SEGMENT).values()):  # the oldest may be trimmed
        with path.open("rb") as file:
            if file.read(len(LOGGED.magic)) == LOGGED.magic:
                return True
    return bool(find_files(folder, INDEX))


def same_log(header: SegmentHeader, identity: int, first: int) -> bool:
    return header.identity == identity and header.first == first

"""A recording: what one member was handed, in a log that others read while it grows.

A recording is a folder of segments, `<first offset>.segment`, each at most a few dozen megabytes,
in the form of store/log.py. An entry is a record: one event or one view. The first of a recording
has offset 0; no offset is left out. A summary at the head of a segment says which numbers of which
origins were recorded before: so who goes on with a recording reads its last segment only, and the
first may be removed.

Rules, besides those of the form:

 1. What no commit follows does not count. So a reader never sees what a power failure could take
    back, and an offset means the same record for ever.
 2. A segment is begun only when all of the last one is on the disk.

Reading needs nothing of the writer (record_log.py), not even that it lives. Segments of version 1
are read too.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from ordercast.errors import TraceError
from ordercast.store.log import COMMIT, ENTRY, HEADER, Frame, LogKind, SegmentWalk, read_header

RECORDING = LogKind(b"ordercast record", "a segment of a recording", 1 << 28, TraceError)
SUFFIX = ".segment"
SPANS = 64
"""Gaps in the numbers of one origin that are told apart; older ones count as filled."""
_PLACES = 4096


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event or view as the recorder was handed it: kind is `deliver` or `view`."""

    offset: int
    kind: str
    at: int  # nanoseconds of Unix time, when it was handed over
    process: str  # the recorder, and its incarnation
    incarnation: int
    group: str
    origin: str | None = None
    origin_incarnation: int | None = None
    number: int | None = None
    index: int | None = None
    stamp: tuple[int, ...] | None = None
    order: int | None = None
    hops: int | None = None
    view: int | None = None
    members: tuple[str, ...] | None = None
    size: int | None = None
    payloads: list[bytes] = []
    cause: str | None = None  # the service of an event, or `transitional` of a view


class Numbers:
    """A set of numbers that mostly come one after the other: spans of them, and few of those."""

    __slots__ = ("floor", "spans")

    def __init__(self, spans: list[int] | None = None, floor: int = 0) -> None:
        self.spans = spans or []  # first and last of each, alternating, in order
        self.floor = floor  # up to here gaps count as filled

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.spans, number)
        inside = at % 2 == 1 or (at > 0 and self.spans[at - 1] == number)
        return inside or number <= self.floor

    def add(self, number: int) -> None:
        spans = self.spans
        if spans and number == spans[-1] + 1:
            spans[-1] = number
            return
        if number in self:
            return
        at = bisect_right(spans, number)  # even: between two spans
        joins_left = at > 0 and spans[at - 1] == number - 1
        joins_right = at < len(spans) and spans[at] == number + 1
        if joins_left and joins_right:
            del spans[at - 1 : at + 1]
        elif joins_left:
            spans[at - 1] = number
        elif joins_right:
            spans[at] = number
        else:
            spans[at:at] = [number, number]
        if len(spans) > 2 * SPANS:
            self.floor = spans[3]
            del spans[1:3]


def find_segments(folder: Path) -> list[tuple[int, Path]]:
    """First offset and file of each segment, in order. TraceError: there is no recording."""
    try:
        found = sorted(
            (int(path.stem), path) for path in folder.glob("*" + SUFFIX) if path.stem.isdecimal()
        )
        missing = not folder.is_dir()
    except OSError as error:
        raise TraceError(f"{folder} cannot be read: {error.strerror or error}.") from error
    if missing:
        raise TraceError(f"{folder} does not exist, or is no folder: a recording is one.")
    if not found:
        raise TraceError(f"{folder} is no recording: there is no *{SUFFIX} file.")
    return found


def is_recording(folder: Path) -> bool:
    return any(True for _ in folder.glob("*" + SUFFIX))


class RecordPlace(NamedTuple):
    """Where the record of an offset begins, or something before it in the same segment."""

    offset: int
    segment: int  # its first offset
    byte: int


class Follower:
    """Knows how far a recording is committed, and where in it an offset is, as it grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first = 0  # the earliest offset that is still kept
        self.latest = 0  # the offset that comes next: all before it is committed
        self.identity = read_header(find_segments(folder)[0][1], RECORDING).identity
        self._segment = -1
        self._walk: SegmentWalk | None = None  # of the last segment
        self._places: list[RecordPlace] = []
        self.look()

    def look(self) -> int:
        """Reads on. Returns the latest offset."""
        segments = find_segments(self.folder)
        self.first = segments[0][0]
        last, path = segments[-1]
        if last != self._segment:
            self._walk = checked_walk(path, last, self.identity)
            self._segment = last
            self.latest = max(self.latest, last)
            self._remember(RecordPlace(last, last, HEADER.size))
        assert self._walk is not None
        for frame in self._walk:
            if frame.mark == COMMIT:
                self.latest = self._walk.position
                self._remember(RecordPlace(self.latest, last, frame.end))
        if path.stat().st_size > self._walk.place:
            self._walk.check_rest()
        return self.latest

    def place_of(self, offset: int) -> RecordPlace:
        """From where to read to find this offset. TraceError: it is not kept any more."""
        if offset < self.first:
            raise TraceError(
                f"{self.folder} begins at offset {self.first}: offset {offset} was removed."
            )
        segments = find_segments(self.folder)
        first, path = segments[bisect_right(segments, offset, key=lambda each: each[0]) - 1]
        at = bisect_right(self._places, offset, key=lambda each: each.offset) - 1
        known = self._places[at] if at >= 0 else None
        if known is None or known.segment != first:
            known = RecordPlace(first, first, HEADER.size)
        if offset - known.offset > _PLACES:
            known = self._scan(path, known, offset)
        return known

    def _scan(self, path: Path, known: RecordPlace, offset: int) -> RecordPlace:
        walk = SegmentWalk(path, RECORDING, known.byte, known.offset)
        for frame in walk:
            if walk.position == offset:
                known = RecordPlace(offset, known.segment, frame.end)
                self._remember(known)
                break
        return known

    def _remember(self, place: RecordPlace) -> None:
        insort(self._places, place)
        if len(self._places) > _PLACES:
            del self._places[::2]


def checked_walk(path: Path, first: int, identity: int) -> SegmentWalk:
    """Through a segment that must begin at this offset, of this recording."""
    walk = SegmentWalk(path, RECORDING)
    if walk.header.first != first or walk.header.identity != identity:
        raise TraceError(f"{path} is of another recording, or was renamed.")
    return walk


def read_records(
    folder: Path, start: int, end: int, place: RecordPlace | None = None
) -> Iterator[Record]:
    """The records of a range of offsets that is committed, in order.

    TraceError: a checksum is wrong, or records are missing, with the place.
    """
    if start >= end:
        return
    place = place or Follower(folder).place_of(start)
    byte, expected, following = place.byte, place.offset, place.segment
    for first, path in find_segments(folder):
        if first < place.segment:
            continue
        if first != following:
            break
        walk = SegmentWalk(path, RECORDING, byte, expected)
        for frame in walk:
            if frame.mark == ENTRY:
                if walk.position > start:
                    yield decode_record(path, frame, walk.position - 1)
                if walk.position >= end:
                    return
        if walk.place < path.stat().st_size:
            raise TraceError(f"{path} is damaged at byte {walk.place}: the checksum is wrong.")
        byte, expected, following = HEADER.size, walk.position, walk.position
    raise TraceError(f"{folder} has no offset {expected}, which was there before.")


_DECODER = msgspec.msgpack.Decoder(Record)


def decode_record(path: Path, frame: Frame, expected: int) -> Record:
    """The record of a frame, which must have this offset."""
    try:
        record = _DECODER.decode(frame.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{path} is damaged at byte {frame.place}: {error}.") from error
    if record.offset != expected:
        raise TraceError(
            f"{path} is damaged at byte {frame.place}: offset {record.offset} is where "
            f"{expected} should be."
        )
    return record

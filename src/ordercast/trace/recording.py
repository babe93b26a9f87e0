"""The form of a recording: what one member was handed, in a log that others read while it grows.

A recording is a folder of segments, `<first offset>.segment`, each at most a few dozen megabytes.
A segment is a header and frames; a frame is a mark, a length, a checksum and a body:

  summary  right behind the header: which numbers of which origins were recorded before. So who
           goes on with a recording reads its last segment only, and the first may be removed
  record   one event or one view. The first of a recording has offset 0; no offset is left out
  commit   all that is before it is on the disk: written after the disk has said so, never earlier

Rules:

 1. What no commit follows does not count. So a reader never sees what a power failure could take
    back, and an offset means the same record for ever.
 2. A segment has its name only when its header and its summary are on the disk, and the next one
    is begun only when all of the last is.
 3. A frame that is not whole is a torn tail if no commit follows it, and will be cut or completed.
    If a commit does follow, then the disk has lost what it had promised: that is refused, with the
    place. Payloads cannot feign a commit: checksums begin with a random number of the segment.

Reading needs nothing of the writer, not even that it lives.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right, insort
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple

import msgspec

from ordercast.errors import TraceError

RECORDING_VERSION = 1
SUFFIX = ".segment"
HEADER = Struct("!16sIIQQI")  # magic, version, salt, identity, first offset, checksum
MAGIC = b"ordercast record"
HEAD = Struct("!4sII")  # mark, length, checksum
RECORD, COMMIT, SUMMARY = MARKS = (b"oREC", b"oCOM", b"oSUM")
OFFSET = Struct("!Q")
LARGEST_BODY = 1 << 28
SPANS = 64
"""Gaps in the numbers of one origin that are told apart; older ones count as filled."""
_READ = 1 << 20
_PLACES = 4096


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event or view as the recorder was handed it: kind is `deliver` or `view`."""

    offset: int
    kind: str
    at: int  # nanoseconds of Unix time, when it was handed over
    process: str  # the recorder, and which of its lives
    incarnation: int
    group: str
    origin: str | None = None
    life: int | None = None  # the origin's incarnation
    number: int | None = None
    index: int | None = None
    stamp: tuple[int, ...] | None = None
    order: int | None = None
    hops: int | None = None
    view: int | None = None
    members: tuple[str, ...] | None = None
    size: int | None = None
    payloads: list[bytes] = []


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


class Header(NamedTuple):
    version: int
    salt: int
    identity: int
    first: int


class Frame(NamedTuple):
    mark: bytes
    place: int
    end: int
    body: bytes


def pack_header(header: Header) -> bytes:
    unchecked = HEADER.pack(MAGIC, *header, 0)[:-4]
    return unchecked + zlib.crc32(unchecked).to_bytes(4)


def pack_frame(mark: bytes, body: bytes, salt: int) -> bytes:
    assert len(body) <= LARGEST_BODY
    return HEAD.pack(mark, len(body), _checksum(mark, body, salt)) + body


def _checksum(mark: bytes, body: bytes, salt: int) -> int:
    return zlib.crc32(body, zlib.crc32(mark, salt))


def find_segments(folder: Path) -> list[tuple[int, Path]]:
    """First offset and file of each segment, in order. TraceError: there is no recording."""
    try:
        found = sorted(
            (int(path.stem), path) for path in folder.glob("*" + SUFFIX) if path.stem.isdecimal()
        )
        missing = not folder.is_dir()
    except OSError as error:
        raise _unreadable(folder, error) from error
    if missing:
        raise TraceError(f"{folder} does not exist, or is no folder: a recording is one.")
    if not found:
        raise TraceError(f"{folder} is no recording: there is no *{SUFFIX} file.")
    return found


def is_recording(folder: Path) -> bool:
    return any(True for _ in folder.glob("*" + SUFFIX))


def read_header(path: Path) -> Header:
    """What a segment says of itself. TraceError: it is none, or one of another version."""
    try:
        with path.open("rb") as file:
            data = file.read(HEADER.size)
    except OSError as error:
        raise _unreadable(path, error) from error
    if data[: len(MAGIC)] != MAGIC:
        raise TraceError(f"{path} is no segment of a recording.")
    if len(data) < HEADER.size:
        raise TraceError(f"{path} is cut off in its header.")
    _, version, salt, identity, first, checksum = HEADER.unpack(data)
    if version != RECORDING_VERSION:
        raise TraceError(
            f"{path} is a recording of version {version}, and this ordercast reads version "
            f"{RECORDING_VERSION}."
        )
    if zlib.crc32(data[:-4]) != checksum:
        raise TraceError(f"{path} is damaged at byte 0: the checksum of its header is wrong.")
    return Header(version, salt, identity, first)


class Walk:
    """The whole frames of one segment from a place on; `place` is where the last of them ends."""

    def __init__(self, path: Path, salt: int, place: int = HEADER.size) -> None:
        self.place = place
        self._path = path
        self._salt = salt

    def __iter__(self) -> Iterator[Frame]:
        try:
            with self._path.open("rb") as file:
                file.seek(self.place)
                yield from self._frames(file)
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def _frames(self, file: BinaryIO) -> Iterator[Frame]:
        data, at, missing = b"", 0, 0
        while chunk := file.read(max(missing, _READ)):
            data, at, missing = data[at:] + chunk, 0, 0
            while len(data) - at >= HEAD.size:
                mark, length, checksum = HEAD.unpack_from(data, at)
                begin, end = at + HEAD.size, at + HEAD.size + length
                if mark not in MARKS or length > LARGEST_BODY:
                    return
                if end > len(data):
                    missing = end - len(data)
                    break
                body = data[begin:end]
                if _checksum(mark, body, self._salt) != checksum:
                    return
                frame = Frame(mark, self.place, self.place + HEAD.size + length, body)
                self.place, at = frame.end, end
                yield frame

    def objection(self) -> str | None:
        """Why what is behind the whole frames can be no torn tail. None: it can, or is nothing."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.place)
                rest = file.read()
        except OSError as error:
            raise _unreadable(self._path, error) from error
        again = Walk(self._path, self._salt, self.place)  # the writer may have gone on meanwhile
        for _ in again._frames(BytesIO(rest)):
            pass
        size = HEAD.size + OFFSET.size
        at = rest.find(COMMIT, again.place - self.place + 1)
        while at >= 0:
            body = rest[at + HEAD.size : at + size]
            if rest[at : at + size] == pack_frame(COMMIT, body, self._salt):
                return f"{self._path} is damaged at byte {again.place}: the checksum is wrong."
            at = rest.find(COMMIT, at + 1)
        return None


class Place(NamedTuple):
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
        self.identity = read_header(find_segments(folder)[0][1]).identity
        self._segment = -1
        self._walk: Walk | None = None
        self._seen = 0  # of the last segment, committed or not
        self._places: list[Place] = []
        self.look()

    def look(self) -> int:
        """Reads on. Returns the latest offset."""
        segments = find_segments(self.folder)
        self.first = segments[0][0]
        last, path = segments[-1]
        if last != self._segment:
            header = checked_header(path, last, self.identity)
            self._walk = Walk(path, header.salt)
            self._segment = self._seen = last
            self.latest = max(self.latest, last)
            self._remember(Place(last, last, HEADER.size))
        assert self._walk is not None
        for frame in self._walk:
            if frame.mark == RECORD:
                self._seen += 1
            elif frame.mark == COMMIT:
                self.latest = max(self.latest, OFFSET.unpack(frame.body)[0])
                self._remember(Place(self._seen, last, frame.end))
        if path.stat().st_size > self._walk.place and (said := self._walk.objection()):
            raise TraceError(said)
        return self.latest

    def place_of(self, offset: int) -> Place:
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
            known = Place(first, first, HEADER.size)
        if offset - known.offset > _PLACES:
            known = self._scan(path, known, offset)
        return known

    def _scan(self, path: Path, known: Place, offset: int) -> Place:
        walk = Walk(path, read_header(path).salt, known.byte)
        count = known.offset
        for frame in walk:
            count += frame.mark == RECORD
            if count == offset:
                known = Place(offset, known.segment, frame.end)
                self._remember(known)
                break
        return known

    def _remember(self, place: Place) -> None:
        insort(self._places, place)
        if len(self._places) > _PLACES:
            del self._places[::2]


def checked_header(path: Path, first: int, identity: int) -> Header:
    header = read_header(path)
    if header.first != first or header.identity != identity:
        raise TraceError(f"{path} is of another recording, or was renamed.")
    return header


def read_records(
    folder: Path, start: int, end: int, place: Place | None = None
) -> Iterator[Record]:
    """The records of a range of offsets that is committed, in order.

    TraceError: a checksum is wrong, or records are missing, with the place.
    """
    if start >= end:
        return
    place = place or Follower(folder).place_of(start)
    expected, byte, following = place.offset, place.byte, place.segment
    for first, path in find_segments(folder):
        if first < place.segment:
            continue
        if first != following:
            break
        walk = Walk(path, read_header(path).salt, byte)
        for frame in walk:
            if frame.mark == RECORD:
                if expected >= start:
                    yield decode_record(path, frame, expected)
                expected += 1
                if expected >= end:
                    return
        if walk.place < path.stat().st_size:
            raise TraceError(f"{path} is damaged at byte {walk.place}: the checksum is wrong.")
        byte, following = HEADER.size, expected
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


def _unreadable(path: Path, error: OSError) -> TraceError:
    return TraceError(f"{path} cannot be read: {error.strerror or error}.")

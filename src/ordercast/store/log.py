"""The form of every log on disk: segments of frames, and what may be believed of them.

A segment is one file: a header and frames. The header has a magic word that says what the log is
for, a version, a random salt, the identity of the log, the position of the first entry and a
checksum. A frame is a mark, a length, a checksum and a body:

  entry    something that is at its position for ever
  state    a record, of which the newest of its slot counts
  forget   the name of a group: none of its states before this counts
  summary  at the head of a segment: what its reader must know of the segments before it
  commit   all before it is on the disk: written after the disk has said so, never earlier. It
           names the position that comes next; in some logs, what the entries before it are, too

Rules:

 1. A checksum starts from the salt, so that no payload can imitate a frame, and from the place of
    the frame, so that no frame can be missing, doubled or moved. A commit's checksum has no place:
    a commit is recognised wherever it ended up.
 2. A bad frame with no commit after it is a torn tail: a crash interrupted the writer, and nothing
    of it was acknowledged. It is cut off, with a warning, when the segment is carried on.
 3. A bad frame with a commit after it is rot: the disk has lost what it had confirmed. Every reader
    and every writer raises an error with the place, and nothing is cut off.
 4. Frames with no commit after them are written again when the segment is carried on. After a
    failed sync the system may show frames that are not on the disk, and would not write them again.
 5. A segment gets its name when its head is on the disk.
 6. The writer rejects bodies that a reader would reject. Files can be read by their owner only.

Four policies use this form: records with slots and compaction (store/file.py), recordings in many
segments that are read while they grow (trace/recording.py), trace rows that are never synced
(trace/log.py), and the durable log of a group (store/group_log). A log without syncs has no
commits: there, a whole entry after a bad frame shows that the frame is rot. The log of a group has
commits with an index: it knows what was lost, and its reader goes on behind it instead of rule 3.

Version 1 of a recording has the same form, without places in its checksums.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple, TypeAlias
from zlib import crc32

from ordercast.errors import OrdercastError

log = logging.getLogger("ordercast.store")

VERSION = 2
READABLE_LOGS = (1, 2)
HEADER = Struct("!16sIIQQI")  # magic, version, salt, identity, first position, checksum
HEAD = Struct("!4sII")  # mark, length, checksum
HEAD_SIZE = HEAD.size
POSITION = Struct("!Q")
ENTRY, STATE, FORGET, SUMMARY, COMMIT = MARKS = (b"oREC", b"oSTA", b"oFGT", b"oSUM", b"oCOM")
TEMPORARY = ".tmp"
PRIVATE = 0o600
PRIVATE_FOLDER = 0o700

_CHUNK = 1 << 20
Checks: TypeAlias = dict[bytes, tuple[int, int, int]]
"""By mark: what its checksums begin with, which bits of the place come in, and whether it has a
position."""


class LogKind(NamedTuple):
    """What a log is for."""

    magic: bytes
    name: str  # for sentences: "a recording"
    largest: int  # bytes of one body
    error: type[OrdercastError]  # what cannot be read, or will not be written
    synced: bool = True
    indexed: bool = False  # commits have an index, and entries alone have positions


class SegmentHeader(NamedTuple):
    version: int
    salt: int
    identity: int
    first: int


class Frame(NamedTuple):
    mark: bytes
    place: int
    end: int
    body: bytes


def read_header(path: Path, kind: LogKind) -> SegmentHeader:
    """What a segment says of itself. It raises the kind's error if it is none that we read."""
    try:
        with path.open("rb") as file:
            data = file.read(HEADER.size)
    except OSError as error:
        raise _unreadable(path, kind, error) from error
    if data[: len(kind.magic)] != kind.magic:
        raise kind.error(f"{path} is not {kind.name}: something else is in its place")
    if len(data) < HEADER.size:
        raise kind.error(f"{path} is damaged: it is cut off in its header")
    _, version, salt, identity, first, checksum = HEADER.unpack(data)
    if version not in READABLE_LOGS:
        known = " and ".join(map(str, READABLE_LOGS))
        raise kind.error(
            f"{path} is {kind.name} of version {version}, and this ordercast reads versions {known}"
        )
    if crc32(data[:-4]) != checksum:
        raise kind.error(f"{path} is damaged at byte 0: the checksum of its header is wrong")
    return SegmentHeader(version, salt, identity, first)


def pack_header(kind: LogKind, header: SegmentHeader) -> bytes:
    unchecked = HEADER.pack(kind.magic, *header, 0)[:-4]
    return unchecked + crc32(unchecked).to_bytes(4)


def checks_of(kind: LogKind, header: SegmentHeader) -> Checks:
    placed = 0xFFFFFFFF if header.version > 1 else 0
    positioned = (ENTRY,) if kind.indexed else (ENTRY, STATE, FORGET)
    return {
        mark: (
            crc32(mark, header.salt),
            0 if mark == COMMIT else placed,
            mark in positioned,
        )
        for mark in MARKS
    }


# --- reading -------------------------------------------------------------------------------------


class SegmentWalk:
    """The whole frames of a segment from a place on. It may be iterated again when there are more.

    `place` is where the last of them ends, and `position` the one that comes next.
    """

    def __init__(self, path: Path, kind: LogKind, place: int = 0, position: int = 0) -> None:
        """From the first frame on, or from a place of which the position is known."""
        self.path = path
        self.header = read_header(path, kind)
        self.place = place or HEADER.size
        self.position = position if place else self.header.first
        self._committed = self.place  # where the last commit ends
        self._kind = kind
        self._checks = checks_of(kind, self.header)

    def __iter__(self) -> Iterator[Frame]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.place)
                yield from self._frames(file)
        except OSError as error:
            raise _unreadable(self.path, self._kind, error) from error

    def _frames(self, file: BinaryIO) -> Iterator[Frame]:
        data, at, missing = b"", 0, 0
        checks, largest = self._checks, self._kind.largest
        while chunk := file.read(max(missing, _CHUNK)):
            data, at, missing = data[at:] + chunk, 0, 0
            while len(data) - at >= HEAD_SIZE:
                mark, length, checksum = HEAD.unpack_from(data, at)
                begin, end = at + HEAD_SIZE, at + HEAD_SIZE + length
                check = checks.get(mark)
                if check is None or length > largest:
                    return
                if end > len(data):
                    missing = end - len(data)
                    break
                place, body = self.place, data[begin:end]
                if crc32(body, check[0] ^ (place & check[1])) != checksum:
                    return
                self.place, at = place + HEAD_SIZE + length, end
                if mark == COMMIT:
                    self._check_commit(place, body)
                self.position += check[2]
                yield Frame(mark, place, self.place, body)

    def _check_commit(self, place: int, body: bytes) -> None:
        position = int.from_bytes(body[: POSITION.size])
        if position != self.position:
            raise self._kind.error(
                f"{self.path} is damaged at byte {place}: a commit of position {position} is where "
                f"{self.position} should be"
            )
        self._committed = self.place

    def check_rest(self) -> None:
        """Raises the kind's error if what is behind the whole frames can be no torn tail."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.place)
                rest = file.read()
        except OSError as error:
            raise _unreadable(self.path, self._kind, error) from error
        again = SegmentWalk(self.path, self._kind, self.place, self.position)
        for _ in again._frames(BytesIO(rest)):  # the writer may have gone on meanwhile
            pass
        at = again.place - self.place
        if not self._has_witness(rest, at + 1):
            return
        _, length, _ = HEAD.unpack_from(rest, at)
        largest = self._kind.largest
        long = f" or its length is: {length} bytes, and the limit is {largest}"
        raise self._kind.error(
            f"{self.path} is damaged at byte {again.place}: the checksum is wrong"
            f"{long if length > largest else ''}, and what follows was written later"
        )

    def _has_witness(self, rest: bytes, at: int) -> bool:
        """Whether a whole frame is there that is only written when all before it was."""
        mark = COMMIT if self._kind.synced else ENTRY
        start, placed, _ = self._checks[mark]
        while (at := rest.find(mark, at)) >= 0 and at + HEAD_SIZE <= len(rest):
            _, length, checksum = HEAD.unpack_from(rest, at)
            end = at + HEAD_SIZE + length
            if end <= len(rest) and (mark != COMMIT or length >= POSITION.size):
                body = memoryview(rest)[at + HEAD_SIZE : end]
                if crc32(body, start ^ (self.place + at & placed)) == checksum:
                    return True
            at += 1
        return False

    def carry_on(self) -> Segment:
        """The segment, open for appending behind its whole frames. OSError: as the system says.

        To be called when all frames were walked through, by the only writer.
        """
        self.check_rest()
        file = os.open(self.path, os.O_RDWR)
        try:
            torn = os.fstat(file).st_size - self.place
            if torn:
                log.warning("%s: a torn tail of %d bytes is cut off", self.path, torn)
            segment = Segment(self.path, self._kind, self.header, file)
            segment.size, segment.position = self.place, self.position
            synced = self._kind.synced
            if synced:
                # The name may not be on the disk either: its writer may have died right before.
                sync_folder(self.path.parent)
                uncommitted = os.pread(file, self.place - self._committed, self._committed)
                os.lseek(file, self._committed, os.SEEK_SET)
                _write_all(file, uncommitted)
            os.ftruncate(file, self.place)
            os.lseek(file, self.place, os.SEEK_SET)
            if synced and (torn or self.place > self._committed):
                segment.commit()
        except BaseException:
            os.close(file)
            raise
        return segment


# --- writing -------------------------------------------------------------------------------------


class Segment:
    """One file, open for appending. OSError: as the system says; after it nothing is to be added.

    `size` and `position` count what was added, written or not. The file may be longer: up to `room`
    it has its place on the disk, and zeros.
    """

    __slots__ = (
        *("_checks", "_file", "_kind", "_unwritten"),
        *("header", "path", "position", "room", "size"),
    )

    def __init__(self, path: Path, kind: LogKind, header: SegmentHeader, file: int) -> None:
        self.path = path
        self.header = header
        self.size = 0
        self.room = 0
        self.position = header.first
        self._kind = kind
        self._file = file
        self._checks = checks_of(kind, header)
        self._unwritten = bytearray()

    def begin(self) -> None:
        """Puts the header into a file that is empty."""
        self._unwritten += pack_header(self._kind, self.header)
        self.size += HEADER.size

    def add(self, mark: bytes, body: bytes) -> None:
        """A frame, to be written by the next `write` or `commit`."""
        length = len(body)
        if length > self._kind.largest:
            raise too_long(self.path, self._kind, length)
        start, placed, counts = self._checks[mark]
        self._unwritten += HEAD.pack(mark, length, crc32(body, start ^ (self.size & placed)))
        self._unwritten += body
        self.size += HEAD_SIZE + length
        self.position += counts

    def add_all(self, mark: bytes, bodies: Sequence[bytes]) -> None:
        """Many frames of one mark."""
        start, placed, counts = self._checks[mark]
        place, largest, parts = self.size, self._kind.largest, []
        for body in bodies:
            length = len(body)
            if length > largest:
                raise too_long(self.path, self._kind, length)
            parts.append(HEAD.pack(mark, length, crc32(body, start ^ (place & placed))))
            parts.append(body)
            place += HEAD_SIZE + length
        self._unwritten += b"".join(parts)
        self.size = place
        self.position += counts * len(bodies)

    def write(self) -> None:
        """What was added is the operating system's now: killing us does not lose it."""
        unwritten = self._unwritten
        while unwritten:
            # What is written is gone even if the rest is not: no frame may be there twice.
            del unwritten[: os.write(self._file, unwritten)]

    def commit(self, index: bytes = b"") -> None:
        """When it returns, all that was added is on the disk, and the segment says so."""
        self.write()
        flush(self._file)
        self.add_commit(index)
        self.write()

    def add_commit(self, index: bytes = b"") -> None:
        """To be written when all before it is on the disk, or gets its name when it is."""
        self.add(COMMIT, POSITION.pack(self.position) + index)

    def allocate(self, end: int) -> None:
        """What is written up to there has its place on the disk. OSError: it has not."""
        begin = max(self.room, self.size)
        if end > begin:
            try:
                _allocate(self._file, begin, end - begin)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(self._file, begin)  # a part of it may be there
                raise
            self.room = end

    def end(self) -> None:
        """Gives back the room behind what was added and written."""
        os.ftruncate(self._file, self.size)
        self.room = self.size

    def sync(self) -> None:
        """All that was written, the last commit too, is on the disk."""
        flush(self._file)

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            with suppress(OSError):  # all that matters was synced
                os.close(file)


def begin_segment(
    path: Path,
    kind: LogKind,
    header: SegmentHeader,
    frames: Iterable[tuple[bytes, bytes]],
    *,
    index: bytes = b"",
    room: int = 0,
) -> Segment:
    """A new segment with these frames, in place of what has this name. OSError: nothing is there.

    It is on the disk before it has its name, so there is always one that is whole. `index`: of its
    commit; `room`: bytes that have their place on the disk behind it.
    """
    fresh = path.with_name(path.name + TEMPORARY)
    fresh.unlink(missing_ok=True)  # of a process that was killed right here
    file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
    segment = Segment(path, kind, header, file)
    try:
        segment.begin()
        for mark, body in frames:
            segment.add(mark, body)
            if len(segment._unwritten) >= _CHUNK:
                segment.write()
        segment.add_commit(index)
        segment.write()
        segment.allocate(segment.size + room)
        segment.sync()
        fresh.rename(path)
        sync_folder(path.parent)
    except BaseException:
        segment.close()
        with suppress(OSError):
            fresh.unlink()  # what is left of it would only fill the disk
        raise
    return segment


def new_header(identity: int, first: int = 0) -> SegmentHeader:
    return SegmentHeader(VERSION, secrets.randbits(32), identity, first)


def new_identity() -> int:
    return secrets.randbits(63)


def too_long(path: Path, kind: LogKind, length: int) -> OrdercastError:
    return kind.error(f"{path}: a record of {length} bytes; the limit is {kind.largest}")


def _allocate(file: int, begin: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, begin, size)
        return
    while size > 0:
        written = os.pwrite(file, bytes(min(size, _CHUNK)), begin)
        begin, size = begin + written, size - written


def flush(file: int) -> None:
    """To the disk itself, and not only out of the system's memory."""
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fsync(file)


def replace_file(path: Path, content: bytes) -> None:
    """A small file that is no log, whole: after a crash it is as before, or as it should be.

    Only its owner can read it. OSError: as the system says; what was there is there.
    """
    fresh = path.with_suffix(TEMPORARY)
    fresh.touch(PRIVATE)
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        flush(file.fileno())
    fresh.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """The names in it are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        flush(handle)
    finally:
        os.close(handle)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _unreadable(path: Path, kind: LogKind, error: OSError) -> OrdercastError:
    return kind.error(f"{path} cannot be read: {error.strerror or error}")

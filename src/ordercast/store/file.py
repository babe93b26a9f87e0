"""The durable log of one node: the records that its machines keep, in one file that grows.

The file is a header and frames. A frame is a mark, a length, a checksum and a body:

  record  one record, as the codec encodes it
  forget  the name of a group: of its records none that is before this counts
  synced  all that is before it is on the disk: written after the disk has said so, never earlier

Rules:

 1. `append` only gathers. `sync` writes, and returns when the disk has it all.
 2. A frame that is not whole is a torn tail if no synced mark follows it: a crash came in between,
    nobody was told that it is kept, and it is cut off with a warning. If a mark does follow, the
    disk has lost what it had promised. That is an error: who forgets half must not go on as if it
    knew all. Records cannot feign a mark: checksums begin with a random number of the file. Those
    of records go on with their place, so that none can be missing or be there twice.
 3. What was not marked is written again when the file is opened. After a sync that failed, the
    system may show what is not on the disk, and would not write it a second time by itself.
 4. After an error of the disk nothing is written any more, and every call says so: a sync that
    failed says nothing about an earlier one that is tried again. A new process may try.
 5. The newest record of a slot stands for all of it (`Packet.slot`). When what no longer counts is
    more than what does, all that counts is written to a new file, in the order of its last
    writing. It gets its name when it is on the disk, so there is always one that is whole.

The caller sees to it that one process at a time has the folder. `append` and `records` may be
called while another thread is in `sync`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Protocol

from ordercast.errors import DiskError, PeerError
from ordercast.kernel.packet import Packet
from ordercast.store.slots import Slots

log = logging.getLogger("ordercast.store")

STORE_VERSION = 1
NAME = "records"
TEMPORARY = "records.tmp"
MAGIC = b"ordercast stored"
HEADER = Struct("!16sIII")  # magic, version, salt, checksum
HEAD = Struct("!4sII")  # mark, length, checksum
RECORD, FORGET, SYNCED = MARKS = (b"oREC", b"oFGT", b"oSYN")
LARGEST = 256 << 20
"""Bytes of all records that count, on the disk and in memory."""
LARGEST_RECORD = 64 << 20
LEAST_GARBAGE = 1 << 20
"""Bytes that no longer count; for fewer the file is not written anew."""
_CHECKED = Struct("!IQ4sI")  # salt, place, mark, length: what a checksum begins with
_CHUNK = 1 << 20


class Codec(Protocol):
    """Records to bytes and back. PeerError: these bytes are no record that it knows."""

    def encode(self, packet: Packet) -> bytes: ...

    def decode(self, data: bytes | memoryview) -> Packet: ...


class FileStore:
    def __init__(
        self,
        folder: Path,
        codec: Codec,
        *,
        largest: int = LARGEST,
        least_garbage: int = LEAST_GARBAGE,
    ) -> None:
        """Opens the store of a folder that is there, or begins one.

        DiskError: it cannot be read or written, is damaged, or is of another version.
        """
        self.path = folder / NAME
        self._codec = codec
        self._largest = largest
        self._least_garbage = least_garbage
        self._file = -1
        self._salt = 0
        self._size = 0  # of the file
        self._live = 0  # bytes of the frames that count
        self._slots: Slots[bytes] = Slots()  # of what is on the disk, encoded
        # Records, and names of groups that are to be forgotten; each with its body.
        self._pending: list[tuple[Packet | str, bytes]] = []
        self._pending_size = 0
        self._over: str | None = None  # why nothing is written any more
        self._syncing = threading.Lock()  # held by who writes
        self._lock = threading.Lock()  # for `_pending` and `_slots`, never held for long
        with self._until_error():
            (folder / TEMPORARY).unlink(missing_ok=True)
            if os.path.lexists(self.path):
                self._resume()
            else:
                self._write_anew()

    def append(self, records: Sequence[Packet]) -> None:
        """Takes all of them, to be kept by the next `sync`.

        DiskError: none is taken. They are too large, and others may be kept; or the disk has
        failed, and nothing is.
        """
        bodies = [self._codec.encode(record) for record in records]
        added = sum(HEAD.size + len(body) for body in bodies)
        longest = max(map(len, bodies), default=0)
        if longest > LARGEST_RECORD:
            raise DiskError(
                f"{self.path}: a record of {longest} bytes; the limit is {LARGEST_RECORD}"
            )
        with self._lock:
            self._check_open()
            # What it will replace counts until it is replaced.
            used = self._live + self._pending_size
            if used + added > self._largest:
                raise DiskError(
                    f"{self.path} is full: {used} bytes of records, {added} more, "
                    f"and the limit is {self._largest}"
                )
            self._pending += zip(records, bodies, strict=True)
            self._pending_size += added

    def forget(self, group: str) -> None:
        """Of a group nothing that was appended before counts any more, after the next `sync`."""
        with self._lock:
            self._check_open()
            body = group.encode()
            self._pending.append((group, body))
            self._pending_size += HEAD.size + len(body)

    def sync(self) -> None:
        """When it returns, all that was appended before is on the disk.

        DiskError: nobody knows what is, and nothing is written any more.
        """
        with self._syncing:
            with self._lock:
                self._check_open()
                batch, self._pending = self._pending, []
            if batch:
                with self._until_error():
                    self._keep(batch)

    def records(self, group: str | None = None) -> list[Packet]:
        """What is on the disk and counts, in the order of writing: of one group, or of all."""
        with self._lock:
            bodies = self._slots.values(group)
        return [self._codec.decode(body) for body in bodies]

    def close(self) -> None:
        """What was appended and not synced is not kept."""
        with self._syncing:
            with self._lock:
                self._over = self._over or f"{self.path} is closed"
                self._pending.clear()
            self._close_file()

    # --- writing -----------------------------------------------------------------------------

    def _keep(self, batch: list[tuple[Packet | str, bytes]]) -> None:
        buffer = bytearray()
        for record, body in batch:
            mark = FORGET if isinstance(record, str) else RECORD
            buffer += _pack(mark, body, self._salt, self._size + len(buffer))
        self._write(buffer)
        _flush(self._file)
        self._mark()
        with self._lock:
            for record, body in batch:
                if isinstance(record, str):
                    self._drop(record)
                else:
                    self._count(record, body)
            self._pending_size -= len(buffer)
        if self._size - self._live > max(self._live, self._least_garbage):
            self._write_anew()

    def _count(self, record: Packet, body: bytes) -> None:
        before = self._slots.put(record, body)
        self._live += HEAD.size + len(body)
        if before is not None:
            self._live -= HEAD.size + len(before)

    def _drop(self, group: str) -> None:
        self._live -= sum(HEAD.size + len(body) for body in self._slots.drop(group))

    def _mark(self) -> None:
        self._write(_pack_mark(self._salt))

    def _write(self, data: bytes | bytearray) -> None:
        _write_all(self._file, data)
        self._size += len(data)

    def _write_anew(self) -> None:
        """A new file with all that counts. It is on the disk before it has its name."""
        salt = secrets.randbits(32)
        buffer = bytearray(_pack_header(salt))
        size = 0
        fresh = self.path.with_name(TEMPORARY)
        file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for body in self._slots.values():
                buffer += _pack(RECORD, body, salt, size + len(buffer))
                if len(buffer) > _CHUNK:
                    _write_all(file, buffer)
                    size += len(buffer)
                    buffer.clear()
            buffer += _pack_mark(salt)
            _write_all(file, buffer)
            _flush(file)
            fresh.rename(self.path)
            _sync_folder(self.path.parent)
        except BaseException:
            os.close(file)
            with suppress(OSError):
                fresh.unlink()  # what is left of it would only fill the disk
            raise
        self._close_file()
        self._file, self._salt, self._size = file, salt, size + len(buffer)

    # --- opening -----------------------------------------------------------------------------

    def _resume(self) -> None:
        self._file = os.open(self.path, os.O_RDWR)
        data = self._read_all()
        self._salt = _checked_header(self.path, data)
        place = marked = HEADER.size
        for frame in _whole_frames(data, self._salt):
            if frame.mark == RECORD:
                self._count(self._decode(frame), frame.body)
            elif frame.mark == FORGET:
                self._drop(frame.body.decode())
            else:
                marked = frame.end
            place = frame.end
        torn = len(data) - place
        if torn and _pack_mark(self._salt) in data[place:]:
            raise DiskError(
                f"{self.path} is damaged at byte {place}: the checksum is wrong, "
                "and what follows was on the disk already"
            )
        if torn:
            log.warning("%s: a torn tail of %d bytes is cut off", self.path, torn)
        # The new name may not be on the disk either: its writer may have died right before.
        _sync_folder(self.path.parent)
        self._size = os.lseek(self._file, marked, os.SEEK_SET)
        if len(data) > marked:
            self._write(data[marked:place])
            os.ftruncate(self._file, place)
            _flush(self._file)
            self._mark()

    def _read_all(self) -> bytes:
        size = os.fstat(self._file).st_size
        # What counts, as much again that does not, and one batch.
        most = 3 * self._largest + 2 * self._least_garbage
        if size > most:
            raise DiskError(f"{self.path} has {size} bytes: the limit is {most}")
        chunks = []
        while chunk := os.read(self._file, _CHUNK):
            chunks.append(chunk)
        return b"".join(chunks)

    def _decode(self, frame: _Frame) -> Packet:
        size = len(frame.body)
        if size > LARGEST_RECORD:
            raise DiskError(
                f"{self.path} has a record of {size} bytes at byte {frame.place}; "
                f"the limit is {LARGEST_RECORD}"
            )
        try:
            return self._codec.decode(frame.body)
        except PeerError as error:
            raise DiskError(
                f"{self.path} has a record at byte {frame.place} that this ordercast does not "
                f"know: {error}"
            ) from error

    # --- errors ------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._over is not None:
            raise DiskError(self._over)

    @contextmanager
    def _until_error(self) -> Iterator[None]:
        """Whatever goes wrong inside is the end: half a frame may be in the file."""
        try:
            yield
        except BaseException as error:
            why = error.strerror or error if isinstance(error, OSError) else error
            said = f"{self.path} cannot be used: {why}"
            with self._lock:
                self._over = f"{self.path} takes no more records since an error: {why}"
                self._pending.clear()
            self._close_file()
            if isinstance(error, OSError):
                raise DiskError(said) from error
            raise

    def _close_file(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            with suppress(OSError):  # all that matters was synced
                os.close(file)


# --- the form of the file ------------------------------------------------------------------------


class _Frame(NamedTuple):
    mark: bytes
    place: int
    end: int
    body: bytes


def _pack_header(salt: int) -> bytes:
    unchecked = HEADER.pack(MAGIC, STORE_VERSION, salt, 0)[:-4]
    return unchecked + zlib.crc32(unchecked).to_bytes(4)


def _checked_header(path: Path, data: bytes) -> int:
    """The salt of the file."""
    if not data.startswith(MAGIC):
        raise DiskError(f"{path} is no store of records: something else is in its place")
    if len(data) < HEADER.size:
        raise DiskError(f"{path} is damaged: it is cut off in its header")
    _, version, salt, checksum = HEADER.unpack_from(data)
    if version != STORE_VERSION:
        raise DiskError(
            f"{path} is a store of version {version}, and this ordercast reads version "
            f"{STORE_VERSION}"
        )
    if zlib.crc32(data[: HEADER.size - 4]) != checksum:
        raise DiskError(f"{path} is damaged at byte 0: the checksum of its header is wrong")
    return int(salt)


def _checksum(mark: bytes, body: bytes, salt: int, place: int) -> int:
    return zlib.crc32(body, zlib.crc32(_CHECKED.pack(salt, place, mark, len(body))))


def _pack(mark: bytes, body: bytes, salt: int, place: int) -> bytes:
    return HEAD.pack(mark, len(body), _checksum(mark, body, salt, place)) + body


def _pack_mark(salt: int) -> bytes:
    """Without its place: it is to be known wherever it got to."""
    return HEAD.pack(SYNCED, 0, _checksum(SYNCED, b"", salt, 0))


def _whole_frames(data: bytes, salt: int) -> Iterator[_Frame]:
    """Up to the first that is not."""
    place = HEADER.size
    while place + HEAD.size <= len(data):
        mark, length, checksum = HEAD.unpack_from(data, place)
        begin = place + HEAD.size
        end = begin + length
        if mark not in MARKS or end > len(data):
            return
        body = data[begin:end]
        if _checksum(mark, body, salt, 0 if mark == SYNCED else place) != checksum:
            return
        yield _Frame(mark, place, end, body)
        place = end


# --- the disk ------------------------------------------------------------------------------------


def _write_all(file: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _flush(file: int) -> None:
    """To the disk itself, and not only out of the system's memory."""
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fsync(file)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        _flush(handle)
    finally:
        os.close(handle)

"""The durable records of one node: what its machines persist, in one log that grows.

The form of the file, and what is torn and what is damaged, is store/log.py's. Records are states:
the newest of a slot stands for all of it (`Packet.slot`). Besides:

 1. `append` only gathers. `sync` writes, and returns when the disk has it all.
 2. After an error of the disk nothing is written any more, and every call says so: a sync that
    failed says nothing about an earlier one that is tried again. A new process may try.
 3. When what no longer counts is more than what does, all that counts is written to a new file, in
    the order of its last writing. So is a file of version 1 when it is opened.
 4. Nothing is taken that the next process could not read: not too much, and no unknown packets.

The caller sees to it that one process at a time has the folder. `append` and `records` may be
called while another thread is in `sync`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

from ordercast.errors import DiskError, PeerError
from ordercast.kernel.packet import Packet
from ordercast.store.log import (
    FORGET,
    HEAD_SIZE,
    STATE,
    TEMPORARY,
    Frame,
    LogKind,
    Segment,
    SegmentWalk,
    begin_segment,
    new_header,
    new_identity,
    too_long,
)
from ordercast.store.slots import Slots
from ordercast.store.version1 import frames_of_version_1, is_version_1

NAME = "records"
RECORDS = LogKind(b"ordercast stored", "a store of records", 64 << 20, DiskError)
LARGEST = 256 << 20
"""Bytes of all records that count, on the disk and in memory."""
LEAST_GARBAGE = 1 << 20
"""Bytes that no longer count; for fewer the file is not written anew."""


_Change: TypeAlias = tuple[Sequence[Packet] | str, list[bytes]]


class RecordCodec(Protocol):
    """Records to bytes and back. PeerError: these bytes are no record that it knows."""

    def encode(self, packet: Packet) -> bytes: ...

    def decode(self, data: bytes | memoryview) -> Packet: ...


class FileStore:
    def __init__(
        self,
        folder: Path,
        codec: RecordCodec,
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
        self._segment: Segment | None = None
        self._live = 0  # bytes of the frames that count
        self._slots: Slots[bytes] = Slots()  # of what is on the disk, encoded
        self._readable: set[type[Packet]] = set()  # of which the codec has read one back
        # Records, or the name of a group that is to be forgotten; with their bodies.
        self._pending: list[_Change] = []
        self._pending_size = 0
        self._over: str | None = None  # why nothing is written any more
        self._syncing = threading.Lock()  # held by who writes
        self._lock = threading.Lock()  # for `_pending` and `_slots`, never held for long
        with self._until_error():
            self.path.with_name(NAME + TEMPORARY).unlink(missing_ok=True)
            self._open()

    def append(self, records: Sequence[Packet]) -> None:
        """Takes all of them, to be persisted by the next `sync`.

        DiskError: none is taken. They are too large or unknown, and others may be persisted; or
        the disk has failed, and nothing is.
        """
        bodies = [self._encode(record) for record in records]
        added = sum(HEAD_SIZE + len(body) for body in bodies)
        with self._lock:
            self._check_open()
            # What it will replace counts until it is replaced.
            used = self._live + self._pending_size
            if used + added > self._largest:
                raise DiskError(
                    f"{self.path} is full: {used} bytes of records, {added} more, "
                    f"and the limit is {self._largest}"
                )
            self._pending.append((records, bodies))
            self._pending_size += added

    def forget(self, group: str) -> None:
        """Of a group nothing that was appended before counts any more, after the next `sync`."""
        with self._lock:
            self._check_open()
            body = group.encode()
            self._pending.append((group, [body]))
            self._pending_size += HEAD_SIZE + len(body)

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
                    self._persist(batch)

    def records(self, group: str | None = None) -> list[Packet]:
        """What is on the disk and counts, in the order of writing: of one group, or of all."""
        with self._lock:
            bodies = self._slots.values(group)
        return [self._codec.decode(body) for body in bodies]

    def close(self) -> None:
        """What was appended and not synced is not persisted."""
        with self._syncing:
            with self._lock:
                self._over = self._over or f"{self.path} is closed"
                self._pending.clear()
            self._close_file()

    # --- writing -----------------------------------------------------------------------------

    def _encode(self, record: Packet) -> bytes:
        body = self._codec.encode(record)
        if len(body) > RECORDS.largest:
            raise too_long(self.path, RECORDS, len(body))
        if type(record) not in self._readable:
            self._decode(body, "was given")
            self._readable.add(type(record))
        return body

    def _persist(self, batch: list[_Change]) -> None:
        segment = self._segment
        assert segment is not None
        before = segment.size
        for change, bodies in batch:
            mark = FORGET if isinstance(change, str) else STATE
            for body in bodies:
                segment.add(mark, body)
        added = segment.size - before
        segment.commit()
        with self._lock:
            for change, bodies in batch:
                if isinstance(change, str):
                    self._drop(change)
                else:
                    for record, body in zip(change, bodies, strict=True):
                        self._count(record, body)
            self._pending_size -= added
        if segment.size - self._live > max(self._live, self._least_garbage):
            self._write_anew(segment.header.identity, segment.position)

    def _count(self, record: Packet, body: bytes) -> None:
        before = self._slots.put(record, body)
        self._live += HEAD_SIZE + len(body)
        if before is not None:
            self._live -= HEAD_SIZE + len(before)

    def _drop(self, group: str) -> None:
        self._live -= sum(HEAD_SIZE + len(body) for body in self._slots.drop(group))

    def _write_anew(self, identity: int, position: int) -> None:
        """A new file with all that counts, in place of the one that there was."""
        header = new_header(identity, position)
        states = ((STATE, body) for body in self._slots.values())
        fresh = begin_segment(self.path, RECORDS, header, states)
        self._close_file()
        self._segment = fresh

    # --- opening -----------------------------------------------------------------------------

    def _open(self) -> None:
        if not os.path.lexists(self.path):
            self._write_anew(new_identity(), 0)
            return
        size = self.path.stat().st_size
        # What counts, as much again that does not, and one batch.
        most = 3 * self._largest + 2 * self._least_garbage
        if size > most:
            raise DiskError(f"{self.path} has {size} bytes: the limit is {most}")
        with self.path.open("rb") as file:
            if is_version_1(file.read(32), RECORDS.magic):
                file.seek(0)
                self._resume(frames_of_version_1(self.path, file.read()))
                self._write_anew(new_identity(), 0)
                return
        walk = SegmentWalk(self.path, RECORDS)
        self._resume(walk)
        self._segment = walk.carry_on()

    def _resume(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            if frame.mark == STATE:
                record = self._decode(frame.body, f"has at byte {frame.place}")
                self._count(record, frame.body)
            elif frame.mark == FORGET:
                self._drop(frame.body.decode())

    def _decode(self, body: bytes, found: str) -> Packet:
        try:
            return self._codec.decode(body)
        except PeerError as error:
            raise DiskError(
                f"{self.path} {found} a record that this ordercast does not know: {error}"
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
        if self._segment is not None:
            self._segment.close()
            self._segment = None

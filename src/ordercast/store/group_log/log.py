"""The durable log of one group at one node: what a committer's thread writes to.

Rules.
 1. `append` only gathers. `sync` writes, and returns when the disk has it all, in the order of the
    calls. If we are killed meanwhile, the first of it may be there and the last not.
 2. An entry has the next position, for ever. All records but those of kernel/log.py are states: the
    newest of a slot counts.
 3. A trim removes whole segments. What was there is in the vector of the floor before they go.
 4. After an error of the disk nothing is written any more, and every call says so.
 5. Nothing is taken that could not be read back: not too much, no unknown packets, and nothing of
    another group.
 6. One process has the folder: it is locked. Its files can be read by their owner only.

One thread may write while any others read. `strained` is called by the thread that writes.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from ordercast.errors import DiskError, PeerError, UsageError
from ordercast.kernel.log import Appended, Entry, Opened, Place, Repaired, Trimmed
from ordercast.kernel.packet import Packet
from ordercast.store.file import RecordCodec
from ordercast.store.group_log.entries import pack_entry
from ordercast.store.group_log.form import (
    FORGOTTEN,
    LARGEST,
    LOCK,
    LOGGED,
    SEGMENT,
    find_files,
)
from ordercast.store.group_log.opening import FoundLog, carry_on, files_of_log, find_log
from ordercast.store.group_log.parts import IndexShelf
from ordercast.store.group_log.repairs import Repairs
from ordercast.store.group_log.retention import (
    Extent,
    bytes_from,
    extents_of,
    keeping,
    written_before,
)
from ordercast.store.group_log.room import Room
from ordercast.store.group_log.view import LogView, Parts, Reading
from ordercast.store.group_log.writing import LogLimits, Writing, first_segment
from ordercast.store.log import (
    PRIVATE,
    PRIVATE_FOLDER,
    TEMPORARY,
    Segment,
    new_identity,
    sync_folder,
    too_long,
)

LARGEST_SEGMENT = 1 << 30
"""Bytes from which on another segment is begun, at the most: places in it have 32 bits."""
LARGEST_PENDING = 1 << 30
"""Bytes that may be appended before a sync."""

POSITIONED = (Appended, Repaired, Trimmed)
"""Records that are no states."""

_Pending: TypeAlias = tuple[Packet | None, bytes]
"""A record with its body; None: all before is to be forgotten."""


class GroupLog:
    def __init__(
        self,
        folder: Path,
        group: str,
        codec: RecordCodec,
        *,
        limits: LogLimits | None = None,
        strained: Callable[[bool], None] = lambda full: None,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        """Opens the log of a folder, or begins one. The codec knows the states.

        DiskError: it cannot be read or written, is another's, or is in use.
        """
        self.folder = folder
        self.group = group
        self._codec = codec
        self._limits = limits or LogLimits()
        if not 1 <= self._limits.segment <= LARGEST_SEGMENT or self._limits.reserve < 1:
            raise UsageError(f"a segment has 1 to {LARGEST_SEGMENT} bytes, and a reserve some")
        self._now = now
        self._readable: set[type[Packet]] = set()  # of which the codec has read one back
        self._pending: list[_Pending] = []
        self._pending_size = 0
        self._pending_states = 0  # bytes of states that wait
        self._over: str | None = None  # why nothing is written any more
        self._syncing = threading.Lock()  # held by who writes
        self._lock = threading.Lock()  # for `_pending`, never held for long
        self._lock_file = -1
        self._writing: Writing | None = None
        self._room = Room(folder, self._limits.reserve, strained)
        with self._until_error():
            folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._take_lock()
            self._writing = self._open()
            self._view = self._writing.view
            self._room.look(self._writing.segment)

    # --- what is given -----------------------------------------------------------------------

    def append(self, records: Sequence[Packet]) -> None:
        """Takes all of them, to be written by the next `sync`. DiskError: none is taken."""
        added: list[_Pending] = []
        size = states = 0
        for record in records:
            body = self._body_of(record)
            added.append((record, body))
            size += len(body)
            if not isinstance(record, POSITIONED):
                states += len(body)
        with self._lock:
            self._check_open()
            if self._pending_size + size > LARGEST_PENDING:
                raise DiskError(
                    f"{self.folder}: {self._pending_size} bytes wait for a sync, {size} more, and "
                    f"the limit is {LARGEST_PENDING}"
                )
            if states:
                self._count_states(states)
            self._pending += added
            self._pending_size += size

    def forget(self, group: str) -> None:
        """After the next `sync` nothing is left that was appended before: another log begins."""
        self._check_group(group)
        with self._lock:
            self._check_open()
            self._pending.append((None, b""))

    def sync(self) -> None:
        """When it returns, all that was appended before is on the disk, and readers see it.

        DiskError: nobody knows what is, and nothing is written any more.
        """
        with self._syncing:
            with self._lock:
                self._check_open()
                batch, self._pending = self._pending, []
                self._pending_size = self._pending_states = 0
            if batch:
                with self._until_error():
                    self._persist(batch)

    def look_for_room(self) -> None:
        """Whether the disk has room again: to be called now and then while it is strained."""
        with self._syncing:
            self._check_open()
            with self._until_error():
                assert self._writing is not None
                self._writing.begin_if_full(again=True)
                self._room.look(self._writing.segment)

    def close(self) -> None:
        """What was appended and not synced is not written. Reading goes on."""
        with self._syncing:
            with self._lock:
                was_over, self._over = self._over, self._over or f"{self.folder} is closed"
                self._pending.clear()
            if was_over is None and self._writing is not None:
                with suppress(OSError):  # the last commit; all before it is on the disk
                    self._writing.segment.sync()
            self._close_files()

    # --- what there is -----------------------------------------------------------------------

    @property
    def is_strained(self) -> bool:
        return self._room.is_strained

    @property
    def identity(self) -> int:
        return self._view.identity

    @property
    def floor(self) -> int:
        return self._view.floor

    @property
    def tail(self) -> int:
        """The position that comes next, of what is on the disk."""
        return self._view.tail

    def opened(self, clock: int = 0) -> Opened:
        """What a machine is built with, before its states. `clock` is passed on."""
        view = self._view
        size = sum(extent.size for extent in self.extents())
        return Opened(
            *(self.group, view.identity, view.tail, view.floor, view.received(), size, clock)
        )

    def records(self, group: str | None = None) -> list[Packet]:
        """The states on the disk that count, in the order of their writing."""
        if group is not None:
            self._check_group(group)
        with self._syncing:
            writing = self._writing
            bodies = writing.slots.values() if writing else []
        return [self._codec.decode(body) for body in bodies]

    def read(self, place: Place, limit: int) -> Reading:
        """As `Recalled` has it, of what is on the disk. In any thread.

        `limit`: bytes of frames, after which reading ends; one entry comes always.
        """
        return self._view.read(place, limit)

    def vector_at(self, position: int) -> dict[int, int]:
        """By the key of the stream (`key_of`), the last number below a position. In any thread."""
        return self._view.vector_at(position)

    # --- what may go -------------------------------------------------------------------------

    def extents(self) -> list[Extent]:
        """Its segments: what a trim can remove."""
        writing = self._writing
        return extents_of(self._view.parts, writing.segment.size if writing else 0)

    def written_before(self, time: int) -> int:
        """A position: all below it was written before that time, Unix nanoseconds."""
        return written_before(self.extents(), time)

    def surplus(self) -> int:
        """A position: what is below it is more than is to be kept (`LogLimits.keep`)."""
        return keeping(self.extents(), self._limits.keep)

    def bytes_from(self, position: int) -> int:
        """About how many bytes are from there on."""
        return bytes_from(self.extents(), position)

    # --- writing -----------------------------------------------------------------------------

    def _body_of(self, record: Packet) -> bytes:
        if record.group != self.group:
            self._check_group(record.group)
        if isinstance(record, Appended | Repaired):
            return pack_entry(record.entry)
        if isinstance(record, Trimmed):
            return b""
        if isinstance(record, Opened):
            raise DiskError(f"{self.folder}: what a log was found to be is not written to it")
        body = self._codec.encode(record)
        if len(body) > LARGEST:
            raise too_long(self.folder, LOGGED, len(body))
        if type(record) not in self._readable:
            self._decode(body, "was given")
            self._readable.add(type(record))
        return body

    def _count_states(self, size: int) -> None:
        """What they will replace counts until it is replaced."""
        used = self._pending_states + (self._writing.states_size if self._writing else 0)
        if used + size > self._limits.states:
            raise DiskError(
                f"{self.folder} is full: {used} bytes of states, {size} more, and the limit is "
                f"{self._limits.states}"
            )
        self._pending_states += size

    def _persist(self, batch: list[_Pending]) -> None:
        writing = self._writing
        assert writing is not None
        entries: list[Entry] = []
        bodies: list[bytes] = []
        repairs: list[tuple[int, Entry, bytes]] = []
        below = 0
        for record, body in batch:
            if isinstance(record, Appended):
                entries.append(record.entry)
                bodies.append(body)
                continue
            if entries:
                writing.add_entries(entries, bodies)
                entries, bodies = [], []
            if isinstance(record, Repaired):
                repairs.append((record.position, record.entry, body))
            elif isinstance(record, Trimmed):
                below = max(below, record.below)
            elif record is not None:
                writing.add_state(record, body)
            else:
                writing = self._begin_anew(writing)
                repairs, below = [], 0
        writing.add_entries(entries, bodies)
        writing.commit()
        if repairs:
            writing.repair(repairs)
        if below:
            writing.trim(below)
        writing.begin_if_full(again=below > 0)
        if below or self._room.is_strained:
            self._room.look(writing.segment)

    def _begin_anew(self, writing: Writing) -> Writing:
        """Forgets all. A process that opens it after a crash in between does the same."""
        writing.commit()
        marker = os.open(self.folder / FORGOTTEN, os.O_WRONLY | os.O_CREAT, PRIVATE)
        os.close(marker)
        sync_folder(self.folder)
        writing.segment.close()
        self._writing = self._open()
        self._view = self._writing.view
        return self._writing

    # --- opening -----------------------------------------------------------------------------

    def _take_lock(self) -> None:
        self._lock_file = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, PRIVATE)
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DiskError(f"{self.folder} is in use: another process writes there") from error

    def _open(self) -> Writing:
        found_files = files_of_log(self.folder)
        if (self.folder / FORGOTTEN) in found_files:
            for path in found_files:
                if path.name != FORGOTTEN:
                    path.unlink(missing_ok=True)
            (self.folder / FORGOTTEN).unlink()
            sync_folder(self.folder)
        for path in found_files:
            if path.suffix == TEMPORARY:
                path.unlink(missing_ok=True)
        found = find_log(self.folder, self.group, writes=True)
        if found is None:
            return self._begin()
        segment = carry_on(found.newest)
        writing = Writing(found.view, found.shelf, segment, self._limits, self._room, self._now)
        self._finish_trim(writing)
        self._take_states(writing, found)
        return writing

    def _begin(self) -> Writing:
        identity = new_identity()
        part, segment = first_segment(self.folder, self.group, identity, self._limits, self._now())
        repairs = Repairs(self.folder, identity)
        shelf = IndexShelf(self.folder, repairs, writes=True)
        view = LogView(self.folder, identity, self.group, Parts((), part), repairs)
        return Writing(view, shelf, segment, self._limits, self._room, self._now)

    def _take_states(self, writing: Writing, found: FoundLog) -> None:
        for body in found.states:
            writing.count_state(self._decode(body, "has"), body)

    def _finish_trim(self, writing: Writing) -> None:
        floor = writing.view.floor
        for first in find_files(self.folder, SEGMENT):
            if first < floor:
                writing.remove_segment(first, floor)

    def _decode(self, body: bytes, found: str) -> Packet:
        try:
            return self._codec.decode(body)
        except PeerError as error:
            raise DiskError(
                f"{self.folder} {found} a record that this ordercast does not know: {error}"
            ) from error

    # --- errors ------------------------------------------------------------------------------

    def _check_group(self, group: str) -> None:
        if group != self.group:
            raise DiskError(f"{self.folder} is the log of the group {self.group}, not of {group}")

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
            with self._lock:
                self._over = f"{self.folder} takes no more records since an error: {why}"
                self._pending.clear()
            self._close_files()
            if isinstance(error, OSError):
                raise DiskError(f"{self.folder} cannot be used: {why}") from error
            raise

    def _close_files(self) -> None:
        segment: Segment | None = self._writing.segment if self._writing else None
        if segment is not None:
            segment.close()
        lock, self._lock_file = self._lock_file, -1
        if lock >= 0:
            os.close(lock)

"""Writes a group's log: entries and states, commits, new segments. For one thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ordercast.errors import DiskError
from ordercast.kernel.log import Entry, Stream
from ordercast.kernel.packet import Packet
from ordercast.store.group_log.entries import IndexRecord
from ordercast.store.group_log.form import (
    EMPTY_INDEX,
    FLOOR,
    FLOOR_COPY,
    INDEX,
    LARGEST_BATCH,
    LOGGED,
    RECEIVED,
    RECORD,
    SEGMENT,
    Summary,
    file_of,
    find_files,
    pack_index,
    pack_summary,
)
from ordercast.store.group_log.index import write_index
from ordercast.store.group_log.parts import IndexShelf, OpenPart, Part, SealedPart
from ordercast.store.group_log.room import Room, is_no_room
from ordercast.store.group_log.streams import Numbers, StreamKeys, StreamTable
from ordercast.store.group_log.vectors import last_numbers, read_vector, write_vector
from ordercast.store.group_log.view import LogView, Parts
from ordercast.store.log import (
    ENTRY,
    HEAD_SIZE,
    STATE,
    SUMMARY,
    Segment,
    begin_segment,
    new_header,
)
from ordercast.store.slots import Slots

log = logging.getLogger("ordercast.store")

_AROUND = 1 << 10
"""Bytes of a frame and of a commit, besides bodies, records and names."""
_AROUND_NAME = 1 << 10
LARGEST_STREAMS = 1 << 16
"""Streams of one segment, about: they are in memory until it is sealed."""
_MOST = 4096
"""Entries that are put into a segment at once."""
_CHECKPOINT_ROWS = 250_000
"""Streams of segments since a checkpoint, after which there is another one."""


class LogLimits(NamedTuple):
    """Bytes."""

    segment: int = 64 << 20  # from here on another segment is begun
    reserve: int = 4 << 20  # that the newest segment has behind what is written
    keep: int = 64 << 30  # of all segments; what is more is to be trimmed
    checkpoint: int = 1 << 30  # of segments that are read when the log is opened
    states: int = 64 << 20  # of all states that count


def first_segment(
    folder: Path, group: str, identity: int, limits: LogLimits, begun: int
) -> tuple[OpenPart, Segment]:
    """Of a new log. OSError: as the system says, and there is none."""
    return _begin(folder, Summary(group, begun, 0, 0), identity, 0, [], limits)


def _begin(
    folder: Path,
    summary: Summary,
    identity: int,
    position: int,
    states: list[bytes],
    limits: LogLimits,
) -> tuple[OpenPart, Segment]:
    header = new_header(identity, position)
    path = file_of(folder, position, SEGMENT)
    frames = [(SUMMARY, pack_summary(summary)), *((STATE, body) for body in states)]
    room = 2 * limits.reserve
    segment = begin_segment(path, LOGGED, header, frames, index=EMPTY_INDEX, room=room)
    with suppress(OSError):  # a copy of the header
        write_index(folder, header, summary.begun, None, None)
    return OpenPart(path, header, summary.begun, None), segment


class Writing:
    def __init__(
        self,
        view: LogView,
        shelf: IndexShelf,
        segment: Segment,
        limits: LogLimits,
        room: Room,
        now: Callable[[], int],
    ) -> None:
        self.view = view
        self.segment = segment
        self.slots: Slots[bytes] = Slots()  # what counts, on the disk, encoded
        self.states_size = 0
        self._shelf = shelf
        self._limits = limits
        self._room = room
        self._now = now
        self._key = StreamKeys()
        # Since the last commit.
        self._records: list[bytes] = []
        self._named: list[Stream] = []  # that the segment did not have
        self._named_size = 0  # bytes of their names, at the most
        self._changed: dict[int, tuple[Stream, Numbers]] = {}
        self._states: list[tuple[Packet, bytes]] = []

    # --- records -----------------------------------------------------------------------------

    def add_entries(self, entries: Sequence[Entry], bodies: Sequence[bytes]) -> None:
        while entries:
            if self._is_full or len(self._records) >= LARGEST_BATCH:
                self.commit()
                self.begin_if_full()
            count = self._add_some(entries, bodies)
            entries, bodies = entries[count:], bodies[count:]

    def _add_some(self, entries: Sequence[Entry], bodies: Sequence[bytes]) -> int:
        """As many as the segment takes before another one is to be begun, one at the least."""
        segment, records, changed = self.segment, self._records, self._changed
        place, end = segment.size, max(self._limits.segment, segment.size + 1)
        pack, key_of, is_known = RECORD.pack, self._key, self.view.parts.newest.has_stream
        count = 0
        for entry, body in zip(entries[:_MOST], bodies, strict=False):
            if place >= end:
                break
            stream, number = (entry.origin, entry.birth), entry.number
            prev = number - 1 if entry.is_gap else entry.prev
            key, length = key_of(stream), len(body)
            records.append(pack(key, number, prev, place, length))
            known = changed.get(key)
            changed[key] = stream, (prev if known is None else known[1][0], number)
            if known is None and not is_known(stream, key):
                self._named.append(stream)
                self._named_size += _AROUND_NAME + 4 * len(entry.origin)
            place += HEAD_SIZE + length
            count += 1
        self._make_room(place - segment.size)
        segment.add_all(ENTRY, bodies[:count])
        return count

    def _make_room(self, added: int) -> None:
        """For frames, and for the commit that will follow."""
        segment = self.segment
        need = added + _AROUND + (len(self._records) + 1) * RECORD.size + self._named_size
        if segment.size + need + self._limits.reserve > segment.room:
            self._room.make(segment, need)

    def add_state(self, state: Packet, body: bytes) -> None:
        self._make_room(len(body))
        self.segment.add(STATE, body)
        self._states.append((state, body))

    def commit(self) -> None:
        """When it returns, all that was added is on the disk, and readers see it."""
        if not self._records and not self._states:
            return
        records, self._records = self._records, []
        states, self._states = self._states, []
        changed, self._changed = self._changed, {}
        named, self._named, self._named_size = self._named, [], 0
        self.segment.commit(pack_index(records, named))
        self.view.parts.newest.add(b"".join(records), changed)
        for state, body in states:
            self.count_state(state, body)

    def count_state(self, state: Packet, body: bytes) -> None:
        before = self.slots.put(state, body)
        self.states_size += HEAD_SIZE + len(body)
        if before is not None:
            self.states_size -= HEAD_SIZE + len(before)

    # --- segments ----------------------------------------------------------------------------

    @property
    def _is_full(self) -> bool:
        if self.segment.size >= self._limits.segment:
            return True
        return self.view.parts.newest.streams + len(self._named) >= LARGEST_STREAMS

    def begin_if_full(self, *, again: bool = False) -> None:
        """Begins another segment if the newest one is large enough; all of it is on the disk.

        `again`: also if there was no room the last time.
        """
        if not self._is_full:
            return
        if not (again or self._room.begins_segments):
            return
        view, segment = self.view, self.segment
        old, position = view.parts.newest, segment.position
        segment.sync()  # its last commit too
        states = self.slots.values()
        summary = Summary(view.group, self._now(), len(states), view.checkpoint)
        try:
            part, fresh = _begin(
                view.folder, summary, view.identity, position, states, self._limits
            )
        except OSError as error:
            if not is_no_room(error):
                raise
            self._room.lacks_segment(segment)
            return
        self._room.begins_segments = True
        self.segment = fresh
        if position == old.first:  # it had states only, and is replaced
            segment.close()
            view.parts = view.parts._replace(newest=part)
            return
        with suppress(OSError):
            segment.end()
        segment.close()
        size = segment.size + len(old.records(old.first, old.end))
        sealed = SealedPart(old.header, position, old.begun, size, self._shelf)
        self._shelf.put(sealed, old.index())
        view.parts = Parts((*view.parts.sealed, sealed), part)
        self._write_checkpoint_if_due()

    def _write_checkpoint_if_due(self) -> None:
        view = self.view
        begin = max(view.checkpoint, view.floor)
        since = [part for part in view.parts.sealed if part.first >= begin]
        if sum(part.size for part in since) < self._limits.checkpoint:
            rows = sum(part.ask(len) for part in since[-3:])  # whose indexes are at hand
            if rows < _CHECKPOINT_ROWS:
                return
        position = view.parts.newest.first
        path = file_of(view.folder, position, RECEIVED)
        try:
            base, blocks = view.base_blocks(view.parts)
            added = (part.ask(last_numbers) for part in view.parts.sealed if part.first >= base)
            write_vector(path, view.identity, position, blocks, added)
        except (OSError, DiskError) as error:
            log.warning("%s could not be written: %s", path, error)
            return
        view.checkpoint = position
        self._remove_old(RECEIVED, position)

    # --- repairs and trims -------------------------------------------------------------------

    def repair(self, repairs: list[tuple[int, Entry, bytes]]) -> None:
        """Puts back what was lost; on the disk on return. What is not lost stays as it is."""
        for part in self.view.parts.all():
            wanted = [
                (at, entry, body)
                for at, entry, body in repairs
                if part.first <= at < part.end and self._is_lost(part, at, entry)
            ]
            if not wanted:
                continue
            self.view.repairs.write(part.first, [(at, body) for at, _, body in wanted])
            if isinstance(part, OpenPart):
                for at, entry, _ in wanted:
                    part.repair(at, entry)
            else:
                before = part.index()
                index = before.with_repairs((at, entry) for at, entry, _ in wanted)
                if index is not before:
                    self._shelf.put(part, index)

    def _is_lost(self, part: Part, position: int, entry: Entry) -> bool:
        if self.view.is_whole_at(part, position):
            return False
        record = IndexRecord.of(part.records(position, position + 1))
        if record.is_unknown or record.describes(entry, self._key(entry.stream)):
            return True
        log.warning(
            "%s: position %d had another entry than %s: it is not put back",
            self.view.folder,
            position,
            entry.stream,
        )
        return False

    def trim(self, below: int) -> None:
        """Removes the segments that are wholly below a position."""
        view = self.view
        gone = [part for part in view.parts.sealed if part.end <= below]
        if not gone:
            return
        floor = gone[-1].end
        try:
            self._write_floor(floor, gone)
        except OSError as error:
            if not is_no_room(error):
                raise
            log.warning("%s: no room to trim: nothing was removed", view.folder)
            return
        view.parts = view.parts._replace(sealed=view.parts.sealed[len(gone) :])
        if view.checkpoint <= floor:
            view.checkpoint = 0
            self._remove_old(RECEIVED, floor + 1)
        for part in gone:
            self.remove_segment(part.first, part.end)
        for suffix in (FLOOR, FLOOR_COPY):
            self._remove_old(suffix, floor)

    def remove_segment(self, first: int, end: int) -> None:
        view = self.view
        file_of(view.folder, first, SEGMENT).unlink(missing_ok=True)
        file_of(view.folder, first, INDEX).unlink(missing_ok=True)
        view.repairs.drop(first, end)
        self._shelf.drop(first)

    def _write_floor(self, floor: int, gone: list[SealedPart]) -> None:
        view = self.view
        old = view.floor_vector(view.floor)
        path, copy = (file_of(view.folder, floor, suffix) for suffix in (FLOOR, FLOOR_COPY))

        def write() -> None:
            blocks = read_vector(old, view.identity, view.floor, width=2) if old else iter(())
            added = (_trimmed(part) for part in gone)
            write_vector(path, view.identity, floor, blocks, added, width=2)
            whole = read_vector(path, view.identity, floor, width=2)
            write_vector(copy, view.identity, floor, whole, (), width=2)

        try:
            write()
        except OSError as error:
            if not is_no_room(error):
                raise
            self._room.give_spare()
            write()

    def _remove_old(self, suffix: str, below: int) -> None:
        for position, path in find_files(self.view.folder, suffix).items():
            if position < below:
                path.unlink(missing_ok=True)


def _trimmed(part: SealedPart) -> StreamTable:
    """What the vector of the floor says of its streams when it is gone."""
    return part.ask(lambda streams: last_numbers(streams, part.end - 1))

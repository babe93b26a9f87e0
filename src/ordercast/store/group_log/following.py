"""Reads a group's log while another process writes it, without its lock.

Rules.
 1. Only what a commit follows counts (`LogFollower.tail`). What is written and not committed may be
    lost in a power failure, and then something else gets its position.
 2. Entries are read frame by frame, from a place that is known or that the index has. Where that
    does not go on, the log is opened as its writer would open it, which tells damage from a trim.
 3. A reader is never atomic: what looks damaged counts as lost if it looks the same a second time.
    The second look begins when the first one is over, so a frame that a commit confirmed is there.
 4. What was trimmed or replaced meanwhile is `Gone`, and never left out without a word.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ordercast.errors import DiskError
from ordercast.kernel.log import At, Bad, Entry, key_of
from ordercast.store.group_log.entries import IndexRecord, unpack_entry
from ordercast.store.group_log.form import (
    FLOOR,
    FLOOR_COPY,
    LOGGED,
    RECORD,
    SEGMENT,
    find_files,
    same_log,
)
from ordercast.store.group_log.index import read_hints
from ordercast.store.group_log.inspection import found_to_read
from ordercast.store.group_log.scan import Scan
from ordercast.store.group_log.view import LogView
from ordercast.store.log import COMMIT, ENTRY, HEADER, SegmentWalk

_PLACES = 4096
_READ_BYTES = 4 << 20
_TRIES = 10


class LogPlace(NamedTuple):
    """Where the entry of a position begins, or something before it in the same segment."""

    position: int
    segment: int  # its first position
    byte: int


class Gone(NamedTuple):
    """Entries that were committed and are not there any more."""

    end: int  # the position behind the last of them
    why: str


Found: TypeAlias = tuple[int, Entry | Bad | Gone]
"""A position, and what is there; of what is gone, the first position."""


class LogFollower:
    """Knows which entries of a log are committed, as it grows."""

    def __init__(self, folder: Path) -> None:
        """DiskError: there is no log that can be read."""
        self.folder = folder
        self.group = ""
        self.identity = 0
        self.floor = 0
        self.tail = 0  # the position behind the last entry that is committed
        self.written = 0  # the same of what is written, committed or not
        self._walk: SegmentWalk | None = None  # of the newest segment, from its last commit on
        self._floors: set[Path] = set()
        self._places: list[LogPlace] = []  # of the newest segment
        self._open()

    def look(self) -> None:
        """Reads on. DiskError: it cannot be read any more."""
        if not self._goes_on():
            self._open()

    def place_of(self, position: int) -> LogPlace | None:
        """Where to begin reading. None: the position is not in the newest segment."""
        at = bisect_right(self._places, position, key=lambda each: each.position)
        return self._places[at - 1] if at else None

    def _open(self) -> None:
        self._floors = _floors(self.folder)
        view, _, scan, _ = found_to_read(self.folder)
        self.group, self.identity, self.floor = view.group, view.identity, view.floor
        self.tail, self.written = scan.confirmed, view.tail
        first = scan.header.first
        self._places = [LogPlace(first, first, HEADER.size), *_places_of(scan)]
        self._remember(scan.committed)
        try:
            self._walk = SegmentWalk(scan.path, LOGGED, scan.committed, scan.confirmed)
        except DiskError:  # the header is damaged; the index has a copy of it
            self._walk = None

    def _goes_on(self) -> bool:
        """Whether its newest segment has grown, and nothing else has happened to the log."""
        old = self._walk
        if old is None:
            return False
        try:
            newest = max(find_files(self.folder, SEGMENT), default=-1)
            if newest != old.header.first or _floors(self.folder) != self._floors:
                return False
            walk = SegmentWalk(old.path, LOGGED, self._places[-1].byte, self.tail)
            if walk.header != old.header:
                return False
            for frame in walk:
                if frame.mark == COMMIT:
                    self.tail = walk.position
                    self._remember(frame.end)
            self._walk, self.written = walk, walk.position
            walk.check_rest()
        except (OSError, DiskError):
            return False
        return True

    def _remember(self, byte: int) -> None:
        """Where the commit of the tail ends."""
        self._places.append(LogPlace(self.tail, self._places[0].segment, byte))
        if len(self._places) > _PLACES:
            del self._places[1:-1:2]


def _places_of(scan: Scan) -> Iterator[LogPlace]:
    first = scan.header.first
    step = 2 * (scan.confirmed - first) // _PLACES + 1
    for position in range(first, scan.confirmed, step):
        record = IndexRecord.of(scan.records, (position - first) * RECORD.size)
        if record.place:
            yield LogPlace(position, first, record.place)


def _floors(folder: Path) -> set[Path]:
    try:
        return {*find_files(folder, FLOOR).values(), *find_files(folder, FLOOR_COPY).values()}
    except OSError:
        return set()


# --- entries ---------------------------------------------------------------------------------


def read_range(
    folder: Path, identity: int, begin: int, end: int, place: LogPlace | None = None
) -> Iterator[Found]:
    """What is at positions that were committed, in order. `place` as a follower has it.

    DiskError: the log cannot be read, or ends earlier than it did.
    """
    position = begin
    while position < end:
        before = position
        for entry in _walked(folder, identity, position, end, place):
            yield position, entry
            position += 1
        if position > before:
            continue  # in the next segment, or at something that is not whole
        for at, found in _opened(folder, identity, position, end):
            yield at, found
            position = found.end if isinstance(found, Gone) else at + 1


def _walked(
    folder: Path, identity: int, begin: int, end: int, place: LogPlace | None
) -> Iterator[Entry]:
    """From a position on, within its segment and as far as the frames are whole."""
    try:
        segments = find_files(folder, SEGMENT)
        first = max((at for at in segments if at <= begin), default=-1)
        if first < 0:
            return
        record = None
        if place is None or place.segment != first or place.position > begin:
            place, record = _place_by_index(folder, first, begin)
        walk = SegmentWalk(segments[first], LOGGED, place.byte, place.position)
        if not same_log(walk.header, identity, first):
            return
        for frame in walk:
            if frame.mark != ENTRY or walk.position <= begin:
                continue
            entry = unpack_entry(frame.body)
            if record and not record.describes(entry, key_of(entry.stream)):
                return  # nothing says that the index is whole
            record = None
            yield entry
            if walk.position >= end:
                return
    except (OSError, DiskError):
        return


def _place_by_index(folder: Path, first: int, position: int) -> tuple[LogPlace, IndexRecord | None]:
    hint = read_hints(folder, first, position, position + 1)
    if hint is not None:
        record = IndexRecord.of(hint)
        if record.place:
            return LogPlace(position, first, record.place), record
    return LogPlace(first, first, HEADER.size), None


def _opened(folder: Path, identity: int, position: int, end: int) -> Iterator[Found]:
    """The same, whatever is damaged there."""
    view = found_to_read(folder).view
    until = min(end, _segment_end(view, position))
    before: tuple[Entry | Bad, ...] = ()
    tries = 0
    while position < until:
        if view.identity != identity:
            yield position, Gone(end, f"{folder} has another log now, {view.identity:016x}")
            return
        if position < view.floor:
            gone = min(view.floor, end)
            yield position, Gone(gone, f"{folder} was trimmed up to position {view.floor}")
            return
        try:
            found = view.read(At(position), _READ_BYTES).entries[: until - position]
        except DiskError:
            if tries == _TRIES:
                raise
            found = ()
        if found and (found == before or not any(isinstance(each, Bad) for each in found)):
            yield from enumerate(found, position)
            position += len(found)
            before, tries = (), 0
            continue
        if position >= view.tail or tries == _TRIES:
            raise DiskError(
                f"{folder} cannot be read at position {position}: it ends at position {view.tail}, "
                f"and had entries up to {end - 1} before. Put the whole log back"
            )
        view, before, tries = found_to_read(folder).view, found, tries + 1


def _segment_end(view: LogView, position: int) -> int:
    """The position behind the last one of its segment; of what is in none, behind everything."""
    ends = [part.end for part in view.parts.all() if part.first <= position < part.end]
    return ends[0] if ends else max(view.tail, position + 1)

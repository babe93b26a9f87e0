"""Looks at a group's log from outside: what is whole in it, torn or lost.

It changes nothing and needs no lock, so it may be done while the log is written; then the newest
segment may show a torn tail that is only not finished.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ordercast.errors import DiskError
from ordercast.kernel.log import Bad
from ordercast.store.group_log.entries import IndexRecord
from ordercast.store.group_log.form import (
    FLOOR,
    FLOOR_COPY,
    INDEX,
    LOGGED,
    RECEIVED,
    RECORD,
    SEGMENT,
    file_of,
    find_files,
)
from ordercast.store.group_log.index import (
    read_index,
)
from ordercast.store.group_log.opening import FoundLog, files_of_log, find_log
from ordercast.store.group_log.parts import SealedPart
from ordercast.store.group_log.scan import Scan
from ordercast.store.group_log.vectors import is_whole
from ordercast.store.group_log.view import LogView
from ordercast.store.log import TEMPORARY, read_header

_TRIES = 10


class SegmentState(NamedTuple):
    path: Path
    first: int
    end: int
    size: int  # bytes
    lost: list[tuple[int, Bad]]  # positions, and what was there, without what was put back
    repaired: int
    damage: list[str]
    torn: int  # bytes

    @property
    def is_whole(self) -> bool:
        return not self.lost and not self.damage


class LogState(NamedTuple):
    group: str
    identity: int
    floor: int
    tail: int
    segments: list[SegmentState]
    notes: list[str]  # what is wrong beside the segments
    caches: list[str]  # caches that will be made again

    @property
    def is_whole(self) -> bool:
        return all(each.is_whole for each in self.segments) and not self.notes


def found_to_read(folder: Path) -> FoundLog:
    """It needs no lock: the writer may go on. DiskError: there is no log that can be read."""
    for _ in range(_TRIES):
        before = _names(folder)
        try:
            found = _found(folder)
        except DiskError:
            if _names(folder) == before:
                raise
            continue
        # What is missing may have been trimmed in between.
        if not any(part.is_missing for part in found.view.parts.sealed) or _names(folder) == before:
            return found
    raise DiskError(f"{folder} is trimmed faster than it can be read")


def _names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir() if path.suffix != TEMPORARY}
    except OSError:
        return set()


def _found(folder: Path) -> FoundLog:
    try:
        if not folder.is_dir():
            raise DiskError(f"{folder} does not exist, or is no folder: the log of a group is one")
        files_of_log(folder)
        found = find_log(folder, None, writes=False)
    except OSError as error:
        raise DiskError(f"{folder} cannot be read: {error.strerror or error}") from error
    if found is None:
        raise DiskError(f"{folder} is no log of a group: there is no *{SEGMENT} file")
    return found


def look_at(folder: Path) -> LogState:
    """Reads everything. DiskError: there is no log that can be opened, and why."""
    found = found_to_read(folder)
    view = found.view
    segments = [
        _state_of(view, part, Scan(part.path, part.header, part.end), part.end)
        for part in view.parts.sealed
        if not part.is_missing
    ]
    segments += [_missing_state(view, part) for part in view.parts.sealed if part.is_missing]
    segments.append(_state_of(view, None, found.newest, view.tail))
    notes, caches = [], []
    for suffix in (FLOOR, FLOOR_COPY):
        path = file_of(folder, view.floor, suffix)
        if view.floor and not is_whole(path, view.identity, view.floor):
            notes.append(f"{path.name} is damaged or missing; its copy is whole")
    notes += [
        f"{path.name} is damaged: it counts as far as it is whole" for path in view.repairs.damaged
    ]
    for position, path in find_files(folder, RECEIVED).items():
        if position > view.floor and not is_whole(path, view.identity, position):
            caches.append(f"{path.name} is damaged")
    for part in view.parts.sealed:
        if read_index(folder, part.header) is None:
            caches.append(f"{file_of(folder, part.first, INDEX).name} is damaged or missing")
    segments.sort(key=lambda state: state.first)
    return LogState(view.group, view.identity, view.floor, view.tail, segments, notes, caches)


def _state_of(view: LogView, part: SealedPart | None, scan: Scan, end: int) -> SegmentState:
    first = scan.header.first
    known = part and read_index(view.folder, part.header)
    records = known.records if known else scan.records
    streams = known.streams if known else scan.streams
    lost, repaired = [], 0
    for position in scan.lost:
        if view.repairs.read(position) is not None:
            repaired += 1
        else:
            record = IndexRecord.of(records, (position - first) * RECORD.size)
            row = None if record.is_unknown else streams.of_key(record.key)
            lost.append((position, record.lost(row.stream if row else None)))
    damage = [f"{bad.what} at byte {bad.place}" for bad in scan.damage]
    if header_is_damaged(scan.path):
        damage.insert(0, "the header")
    if repaired and repaired == len(scan.damage):
        damage = []
    return SegmentState(scan.path, first, end, scan.size, lost, repaired, damage, scan.torn)


def _missing_state(view: LogView, part: SealedPart) -> SegmentState:
    lost = []
    index = part.index()
    for position, record in index.from_position(part.first):
        if position < part.end and view.repairs.read(position) is None:
            row = None if record.is_unknown else index.streams.of_key(record.key)
            lost.append((position, record.lost(row.stream if row else None)))
    repaired = part.end - part.first - len(lost)
    return SegmentState(part.path, part.first, part.end, 0, lost, repaired, ["it is missing"], 0)


def header_is_damaged(path: Path) -> bool:
    try:
        read_header(path, LOGGED)
    except DiskError:
        return True
    return False

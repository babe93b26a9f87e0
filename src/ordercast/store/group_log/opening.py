"""Finds a group's log in its folder, whatever happened to it.

Rules.
 1. A trim that was interrupted is completed: the vector of its floor is there, so it was decided.
 2. A sealed segment may be damaged, or missing with its index there: its entries are lost, at
    their positions. Where neither is there nobody knows what was, and the log is not opened.
 3. The newest segment says where the log ends. If nothing is whole in it, the log is not opened.
 4. A reader changes nothing, and does not warn of damage: what it sees may be half of a change.
"""

from __future__ import annotations

import logging
import os
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ordercast.errors import DiskError
from ordercast.store.group_log.entries import IndexRecord
from ordercast.store.group_log.form import (
    FLOOR,
    FLOOR_COPY,
    FORGOTTEN,
    INDEX,
    LOCK,
    LOGGED,
    RECEIVED,
    RECORD,
    REPAIRED,
    SEGMENT,
    SPARE,
    Summary,
    file_of,
    find_files,
    pack_index,
    unpack_summary,
)
from ordercast.store.group_log.index import header_of, read_index_head
from ordercast.store.group_log.parts import IndexShelf, OpenPart, SealedPart, say_damage
from ordercast.store.group_log.repairs import Repairs
from ordercast.store.group_log.scan import Scan
from ordercast.store.group_log.vectors import is_whole
from ordercast.store.group_log.view import LogView, Parts
from ordercast.store.log import (
    HEADER,
    STATE,
    SUMMARY,
    TEMPORARY,
    Segment,
    flush,
    pack_header,
    sync_folder,
)

log = logging.getLogger("ordercast.store")

SUFFIXES = (SEGMENT, INDEX, REPAIRED, RECEIVED, FLOOR, FLOOR_COPY)
OTHERS = (SPARE, LOCK, FORGOTTEN)


class FoundLog(NamedTuple):
    view: LogView
    shelf: IndexShelf
    newest: Scan
    states: list[bytes]  # in the order of their writing; several of one slot may be there


def files_of_log(folder: Path) -> list[Path]:
    """All files that are a log's, but for the lock. DiskError: others are there too."""
    found = sorted(path for path in folder.iterdir() if path.name != LOCK)
    for path in found:
        name = path.name.removesuffix(TEMPORARY)
        if name not in OTHERS and not (
            path.suffix == TEMPORARY or (path.suffix in SUFFIXES and path.stem.isdecimal())
        ):
            raise DiskError(f"{folder} holds {path.name}, which is no file of a group's log")
    return found


def find_log(folder: Path, group: str | None, *, writes: bool) -> FoundLog | None:
    """None: there is none yet. OSError: as the system says. DiskError: it cannot be used."""
    firsts = find_files(folder, SEGMENT)
    indexes = find_files(folder, INDEX)
    floors = sorted({*find_files(folder, FLOOR), *find_files(folder, FLOOR_COPY)})
    if not firsts:
        if indexes or floors:
            raise DiskError(f"{folder}: the segments of the log are gone; put them back")
        return None
    newest = max(firsts)
    if indexes and max(indexes) > newest:
        lost = file_of(folder, max(indexes), SEGMENT)
        raise DiskError(f"{lost} is missing: it was the newest segment; put it back")
    header = header_of(folder, newest)
    floor = _floor(folder, header.identity, floors, min(firsts), newest)
    repairs = Repairs(folder, header.identity)
    shelf = IndexShelf(folder, repairs, writes=writes)
    every = sorted(at for at in {*firsts, *indexes} if at >= floor)
    if every[0] != floor:
        raise _missing(folder, floor)
    sealed = tuple(_sealed(shelf, first, end, header.identity) for first, end in pairwise(every))
    scan = Scan(file_of(folder, newest, SEGMENT), header, None)
    if writes:
        say_damage(scan.path, scan.damage)
    found = _states(scan, sealed)
    if found is None:
        raise DiskError(f"{scan.path} is damaged: nothing is whole in it; put a copy of it back")
    summary, states = found
    if summary is None:
        summary = Summary(group or "", 0, 0, 0)
        log.warning("%s: the summary is damaged: nothing else says whose log it is", scan.path)
    if group is not None and summary.group != group:
        raise DiskError(f"{folder} is the log of the group {summary.group}, and not of {group}")
    part = OpenPart(scan.path, header, summary.begun, scan)
    view = LogView(folder, header.identity, summary.group, Parts(sealed, part), repairs)
    view.floor_vector(floor)
    view.checkpoint = max(
        (at for at in find_files(folder, RECEIVED) if floor < at <= newest), default=0
    )
    return FoundLog(view, shelf, scan, states)


def _floor(folder: Path, identity: int, floors: list[int], oldest: int, newest: int) -> int:
    """The first position that was not trimmed."""
    for at in reversed(floors):
        copies = (file_of(folder, at, suffix) for suffix in (FLOOR, FLOOR_COPY))
        if at <= newest and any(is_whole(path, identity, at) for path in copies):
            return at
    # Where there is none but should be one, reading it will say so.
    return oldest if floors else 0


def _missing(folder: Path, first: int) -> DiskError:
    return DiskError(
        f"{file_of(folder, first, SEGMENT)} is missing: put it back. `ordercast log repair` gives "
        "up what was in it"
    )


def _sealed(shelf: IndexShelf, first: int, end: int, identity: int) -> SealedPart:
    folder = shelf.folder
    head = read_index_head(folder, first, identity)
    if head is not None and head.end is not None and head.end != end:
        raise _missing(folder, min(head.end, end))
    path = file_of(folder, first, SEGMENT)
    if path.exists():
        header, size = header_of(folder, first, identity), path.stat().st_size
    elif head is not None and head.end is not None:
        header, size = head.header, 0
        if shelf.writes:
            log.warning("%s is missing: its entries are lost until others give them", path)
    else:
        raise _missing(folder, first)
    begun = head.begun if head else 0
    has_unknown = head.unknown > 0 if head is not None and head.end is not None else None
    size += (end - first) * RECORD.size
    return SealedPart(header, end, begun, size, shelf, has_unknown)


def _states(
    newest: Scan, sealed: tuple[SealedPart, ...]
) -> tuple[Summary | None, list[bytes]] | None:
    """The last summary, and all states from it on; if something is damaged, from further back.

    None: nothing is whole in the newest segment.
    """
    scans = [newest]
    older = list(sealed)
    while older and _lacks_states(scans[0]):
        part = older.pop()
        if part.path.exists():
            scans.insert(0, Scan(part.path, part.header, part.end))
    summary, states = None, []
    for scan in scans:
        for mark, body in scan.states:
            if mark == SUMMARY:
                summary = unpack_summary(scan.path, body)
            elif mark == STATE:
                states.append(body)
    if not newest.states and not newest.records:
        return None
    return summary, states


def _lacks_states(scan: Scan) -> bool:
    has_summary = any(mark == SUMMARY for mark, _ in scan.states)
    return not has_summary or any(bad.what != "an entry" for bad in scan.damage)


# --- carrying on ---------------------------------------------------------------------------------


def carry_on(scan: Scan) -> Segment:
    """The newest segment, open for appending behind what is whole. OSError: as the system says.

    What is torn becomes zeros, and so keeps its place on the disk. What was not committed is
    written again: after a failed sync the system may show what is not on the disk.
    """
    path, header = scan.path, scan.header
    sync_folder(path.parent)
    file = os.open(path, os.O_RDWR)
    try:
        segment = Segment(path, LOGGED, header, file)
        segment.position, segment.size = scan.position, scan.place
        segment.room = max(scan.size, scan.place)
        if os.pread(file, HEADER.size, 0) != pack_header(LOGGED, header):
            os.pwrite(file, pack_header(LOGGED, header), 0)
        _write_at(file, scan.committed, scan.uncommitted)
        _write_at(file, scan.place, bytes(scan.torn))
        os.lseek(file, scan.place, os.SEEK_SET)
        if scan.torn or scan.uncommitted:
            segment.commit(_index_of_uncommitted(scan))
        flush(file)
    except BaseException:
        os.close(file)
        raise
    return segment


def _index_of_uncommitted(scan: Scan) -> bytes:
    records = []
    for begin in range(0, len(scan.records), RECORD.size):
        record = bytes(scan.records[begin : begin + RECORD.size])
        if IndexRecord.of(record).place >= scan.committed:
            records.append(record)
    rows = (scan.streams.of_key(IndexRecord.of(record).key) for record in records)
    return pack_index(records, list(dict.fromkeys(row.stream for row in rows if row)))


def _write_at(file: int, place: int, data: bytes) -> None:
    while data:
        written = os.pwrite(file, data, place)
        place, data = place + written, data[written:]

"""Mends a group's log whose node is stopped.

It destroys nothing that can be read. It cuts off what is torn, makes indexes again, copies the
vector of the floor where one of its two copies is damaged, and marks what nobody can read as lost:
so the log can be opened, and others can give the entries again.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from ordercast.errors import DiskError
from ordercast.store.group_log.form import (
    FLOOR,
    FLOOR_COPY,
    FORGOTTEN,
    INDEX,
    LOCK,
    LOGGED,
    RECEIVED,
    SEGMENT,
    UNKNOWN,
    file_of,
    find_files,
)
from ordercast.store.group_log.index import (
    SegmentIndex,
    header_of,
    read_index,
    read_index_head,
    write_index,
)
from ordercast.store.group_log.inspection import header_is_damaged
from ordercast.store.group_log.opening import FoundLog, carry_on, files_of_log, find_log
from ordercast.store.group_log.streams import StreamTable
from ordercast.store.group_log.vectors import is_whole, read_vector, write_vector
from ordercast.store.log import (
    HEADER,
    PRIVATE,
    TEMPORARY,
    VERSION,
    SegmentHeader,
    pack_header,
)

_MOST_UNKNOWN = 1 << 24
"""Positions of one missing segment."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """DiskError: a node writes there."""
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, PRIVATE)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DiskError(f"{folder} is in use: stop the node that writes there") from error
        yield
    finally:
        os.close(file)


def mend(folder: Path) -> list[str]:
    """What was done. DiskError: it cannot be mended, and nothing was changed, or it cannot be
    written."""
    if not folder.is_dir():
        raise DiskError(f"{folder} does not exist, or is no folder: the log of a group is one")
    with locked(folder):
        try:
            done = _mend_names(folder)
            done += _mend_missing(folder)
            found = find_log(folder, None, writes=True)
            if found is None:
                raise DiskError(f"{folder} is no log of a group: there is no *{SEGMENT} file")
            done += _mend_found(found)
        except OSError as error:
            raise DiskError(f"{folder} cannot be written: {error.strerror or error}") from error
    return done


def _mend_names(folder: Path) -> list[str]:
    done = []
    for path in files_of_log(folder):
        if path.name == FORGOTTEN:
            raise DiskError(f"{folder} was being forgotten: the node finishes that when it starts")
        if path.suffix == TEMPORARY:
            path.unlink()
            done.append(f"{path.name} is removed: it was never finished")
    return done


def _mend_missing(folder: Path) -> list[str]:
    """Indexes of what nobody can read: so that its positions stay, and are known to be lost."""
    firsts = find_files(folder, SEGMENT)
    indexes = find_files(folder, INDEX)
    if not firsts:
        return []
    newest = max(firsts)
    done, identity = [], None
    for first in sorted(firsts, reverse=True):
        header, said = _mended_header(folder, first, identity)
        done += said
        if header is None:
            if first == newest:
                header_of(folder, first, identity)  # it says what is wrong
            continue
        identity = header.identity
    assert identity is not None
    floors = [
        at for at in (*find_files(folder, FLOOR), *find_files(folder, FLOOR_COPY)) if at <= newest
    ]
    floor = max(floors, default=0)
    starts = sorted(at for at in {floor, *firsts, *indexes} if at >= floor)
    for first, end in pairwise(starts):
        head = read_index_head(folder, first, identity)
        sealed_end = head.end if head else None
        if sealed_end is not None and sealed_end < end:
            # The segment behind this one is missing, and so is its index.
            done.append(_mark_lost(folder, sealed_end, end, identity))
        elif sealed_end is None and not _has_header(folder, first, identity):
            done.append(_mark_lost(folder, first, end, identity))
    return done


def _mark_lost(folder: Path, first: int, end: int, identity: int) -> str:
    if end - first > _MOST_UNKNOWN:
        raise DiskError(
            f"{folder}: {end - first} entries from {first} on are missing: put them back"
        )
    header = SegmentHeader(VERSION, secrets.randbits(32), identity, first)
    index = SegmentIndex(first, bytearray(UNKNOWN * (end - first)), StreamTable(2))
    write_index(folder, header, 0, end, index)
    return f"positions {first} to {end - 1} are marked as lost: nobody knows what was there"


def _has_header(folder: Path, first: int, identity: int) -> bool:
    try:
        header_of(folder, first, identity)
    except DiskError:
        return False
    return True


def _mended_header(
    folder: Path, first: int, identity: int | None
) -> tuple[SegmentHeader | None, list[str]]:
    """The header of a segment; where one bit of it is wrong and there is no copy, put right."""
    try:
        return header_of(folder, first, identity), []
    except DiskError:
        path = file_of(folder, first, SEGMENT)
        data = bytearray(path.read_bytes()[: HEADER.size])
        if len(data) < HEADER.size:
            return None, []
        for bit in range(8 * HEADER.size):
            data[bit // 8] ^= 1 << bit % 8
            magic, *fields, _ = HEADER.unpack(data)
            header = SegmentHeader(*fields)
            if magic == LOGGED.magic and pack_header(LOGGED, header) == data:
                if header.first != first or header.version != VERSION:
                    return None, []
                write_index(folder, header, 0, None, None)
                return header, [f"{path.name}: one bit of the header was wrong"]
            data[bit // 8] ^= 1 << bit % 8
        return None, []


def _mend_found(found: FoundLog) -> list[str]:
    view, done = found.view, []
    scan = found.newest
    header_was_damaged = header_is_damaged(scan.path)
    carry_on(scan).close()
    if scan.torn:
        done.append(f"{scan.path.name}: a torn tail of {scan.torn} bytes is cut off")
    if scan.uncommitted:
        done.append(f"{scan.path.name}: {len(scan.uncommitted)} whole bytes are committed")
    if header_was_damaged:
        done.append(f"{scan.path.name}: the header is written again")
    head = read_index_head(view.folder, scan.header.first, view.identity)
    if head is None:
        write_index(view.folder, scan.header, view.parts.newest.begun, None, None)
        done.append(f"{file_of(view.folder, scan.header.first, INDEX).name} is made again")
    for part in view.parts.sealed:
        if read_index(view.folder, part.header) is None:
            part.index()
            done.append(f"{file_of(view.folder, part.first, INDEX).name} is made again")
    if floor := view.floor_vector(view.floor):
        for suffix in (FLOOR, FLOOR_COPY):
            path = file_of(view.folder, view.floor, suffix)
            if not is_whole(path, view.identity, view.floor):
                whole = read_vector(floor, view.identity, view.floor, width=2)
                write_vector(path, view.identity, view.floor, whole, (), width=2)
                done.append(f"{path.name} is made again, from its copy")
    for position, path in find_files(view.folder, RECEIVED).items():
        if not is_whole(path, view.identity, position):
            path.unlink()
            done.append(f"{path.name} is removed: it was a damaged cache")
    return done

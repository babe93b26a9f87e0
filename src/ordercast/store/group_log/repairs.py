"""Entries that the disk had lost and that were fetched again, in files beside their segments.

A file of repairs has the form of store/log.py; each entry has its position before it. A repair that
is damaged itself counts for nothing: its entry is lost again.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ordercast.errors import DiskError
from ordercast.kernel.log import Entry
from ordercast.store.group_log.entries import unpack_entry
from ordercast.store.group_log.form import REPAIRED, REPAIRS, file_of, find_files
from ordercast.store.log import (
    ENTRY,
    POSITION,
    Segment,
    SegmentHeader,
    SegmentWalk,
    begin_segment,
    new_header,
)


class _Place(NamedTuple):
    path: Path
    begin: int  # of the frame
    length: int  # of its body


class Repairs:
    """Those of one log. Any thread may read while one writes."""

    def __init__(self, folder: Path, identity: int) -> None:
        self._folder = folder
        self._identity = identity
        self._places: dict[int, _Place] = {}  # by position
        self.damaged: list[Path] = []
        for first, path in find_files(folder, REPAIRED).items():
            self._look(first, path)

    def __contains__(self, position: int) -> bool:
        return position in self._places

    def between(self, begin: int, end: int) -> list[int]:
        """Positions of repairs."""
        return sorted(at for at in self._places if begin <= at < end)

    def read(self, position: int) -> Entry | None:
        """What was put back there."""
        place = self._places.get(position)
        if place is None:
            return None
        try:
            walk = SegmentWalk(place.path, REPAIRS, place.begin)
            frame = next(iter(walk))
        except (DiskError, StopIteration):
            return None
        return unpack_entry(frame.body[POSITION.size :])

    def write(self, first: int, repairs: list[tuple[int, bytes]]) -> None:
        """Positions and entries of the segment that begins with `first`; synced on return."""
        path = file_of(self._folder, first, REPAIRED)
        segment = self._opened(path, first)
        added = {}
        try:
            for position, body in repairs:
                length = POSITION.size + len(body)
                added[position] = _Place(path, segment.size, length)
                segment.add(ENTRY, POSITION.pack(position) + body)
            segment.commit()
            segment.sync()
        finally:
            segment.close()
        self._places = {**self._places, **added}

    def drop(self, first: int, end: int) -> None:
        """The segment is gone."""
        self._places = {at: place for at, place in self._places.items() if not first <= at < end}
        file_of(self._folder, first, REPAIRED).unlink(missing_ok=True)

    def _look(self, first: int, path: Path) -> None:
        try:
            walk = SegmentWalk(path, REPAIRS)
            if walk.header.identity != self._identity or walk.header.first != first:
                raise DiskError(f"{path} is of another log, or was renamed")
            for frame in walk:
                if frame.mark == ENTRY and len(frame.body) > POSITION.size:
                    (position,) = POSITION.unpack_from(frame.body)
                    self._places[position] = _Place(path, frame.place, len(frame.body))
            if path.stat().st_size > walk.place:
                self.damaged.append(path)
        except (DiskError, OSError):
            self.damaged.append(path)

    def _opened(self, path: Path, first: int) -> Segment:
        if path not in self.damaged and path.exists():
            walk = SegmentWalk(path, REPAIRS)
            for _ in walk:
                pass
            return walk.carry_on()
        # What is whole in a damaged file is written again.
        kept = [
            (ENTRY, POSITION.pack(at) + body)
            for at, place in self._places.items()
            if place.path == path and (body := self._body(at)) is not None
        ]
        if path in self.damaged:
            self.damaged.remove(path)
        header: SegmentHeader = new_header(self._identity, first)
        return begin_segment(path, REPAIRS, header, kept)

    def _body(self, position: int) -> bytes | None:
        place = self._places[position]
        try:
            frame = next(iter(SegmentWalk(place.path, REPAIRS, place.begin)))
        except (DiskError, StopIteration):
            return None
        return frame.body[POSITION.size :]

"""The writer of a recording: appends records, begins segments, removes the oldest.

The form is in recording.py. A writer that is opened on a recording goes on with its last segment,
without what was torn, in the version in which that segment was begun; the next is of the newest.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ordercast.errors import DiskError, TraceError, UsageError
from ordercast.store.log import (
    ENTRY,
    HEADER,
    PRIVATE,
    PRIVATE_FOLDER,
    SUMMARY,
    TEMPORARY,
    Segment,
    begin_segment,
    new_header,
    new_identity,
    read_header,
    too_long,
)
from ordercast.trace.recording import (
    RECORDING,
    SUFFIX,
    Numbers,
    Record,
    checked_walk,
    decode_record,
    find_segments,
    is_recording,
)

SEGMENT_BYTES = 64 << 20
KEEP_BYTES = 64 << 30
"""The oldest segments go when all of them together are larger."""
ORIGINS = 10_000
"""Of how many origins the numbers are remembered; who was silent longest is forgotten."""

Recorded = dict[tuple[str, str], Numbers]
"""Which numbers of an origin, in a group, are in the recording."""


class RecordLog:
    """Not for two at once: the folder is locked."""

    def __init__(
        self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES, keep_bytes: int = KEEP_BYTES
    ) -> None:
        if segment_bytes < 1 << 12 or keep_bytes < 2 * segment_bytes:
            raise UsageError("a segment has at least 4 KiB, and at least two are kept")
        self.folder = folder
        self.next_offset = 0
        self.recorded: Recorded = {}
        self._segment_bytes = segment_bytes
        self._keep_bytes = keep_bytes
        self._segment: Segment | None = None
        self._encode = msgspec.msgpack.Encoder().encode
        with self._writing():
            folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, PRIVATE)
        try:
            self._take_lock()
            with self._writing():
                self._open()
        except BaseException:
            self.close()
            raise

    def append(self, records: list[Record]) -> int:
        """Writes them with the next offsets; when it returns they are committed.

        Returns the offset that comes next. DiskError: nothing can be written any more. TraceError:
        one is too long, and none of them was written.
        """
        if self._segment is None:
            raise DiskError(f"{self.folder}: the recording is closed")
        numbered = [
            msgspec.structs.replace(record, offset=offset)
            for offset, record in enumerate(records, self.next_offset)
        ]
        bodies = [self._encode(record) for record in numbered]
        for body in bodies:
            if len(body) > RECORDING.largest:
                raise too_long(self.folder, RECORDING, len(body))
        with self._writing():
            try:
                if self._segment.size > self._segment_bytes:
                    self._begin_segment(self._segment.header.identity)
                for body in bodies:
                    self._segment.add(ENTRY, body)
                self._segment.commit()
            except BaseException:
                self._close_segment()  # half a frame may be there: who opens it again cuts it
                raise
        for record in numbered:
            self._remember(record)
        self.next_offset += len(records)
        return self.next_offset

    def close(self) -> None:
        with self._writing():
            try:
                if self._segment is not None:
                    self._segment.sync()
            finally:
                self._close_segment()
                lock, self._lock = self._lock, -1
                if lock >= 0:
                    os.close(lock)

    # --- opening -----------------------------------------------------------------------------

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"{self.folder} is in use: another recorder writes there") from error

    def _open(self) -> None:
        for path in self.folder.glob("*" + SUFFIX + TEMPORARY):
            path.unlink()
        if not is_recording(self.folder):
            if others := sorted(path.name for path in self.folder.iterdir() if path.name != "lock"):
                raise UsageError(
                    f"{self.folder} holds {others[0]}, and is no recording: give an empty folder"
                )
            self._begin_segment(new_identity())
            return
        segments = find_segments(self.folder)
        self._resume(*segments[-1], read_header(segments[0][1], RECORDING).identity)

    def _resume(self, first: int, path: Path, identity: int) -> None:
        """Goes on with the last segment, without what was torn."""
        walk = checked_walk(path, first, identity)
        for frame in walk:
            if frame.mark == ENTRY:
                self._remember(decode_record(path, frame, walk.position - 1))
            elif frame.mark == SUMMARY:
                self.recorded = _unpack_summary(path, frame.body)
        self._segment = walk.carry_on()
        self.next_offset = walk.position

    # --- segments ----------------------------------------------------------------------------

    def _begin_segment(self, identity: int) -> None:
        """All of the last one is on the disk before."""
        if self._segment is not None:
            self._segment.sync()  # its last commit too
        path = self.folder / f"{self.next_offset:020}{SUFFIX}"
        header = new_header(identity, self.next_offset)
        summary = [(SUMMARY, self._encode(_summary(self.recorded)))]
        fresh = begin_segment(path, RECORDING, header, summary)
        self._close_segment()
        self._segment = fresh
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        sizes = [(path, path.stat().st_size) for _, path in find_segments(self.folder)]
        total = sum(size for _, size in sizes)
        for path, size in sizes[:-1]:
            if total <= self._keep_bytes:
                break
            path.unlink()
            total -= size

    def _remember(self, record: Record) -> None:
        if record.origin is None or record.number is None:
            return
        key = (record.group, record.origin)
        numbers = self.recorded.pop(key, None) or Numbers()
        self.recorded[key] = numbers  # the last one spoke last
        numbers.add(record.number)
        if len(self.recorded) > ORIGINS:
            del self.recorded[next(iter(self.recorded))]

    def _close_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskError(f"{self.folder} cannot be written: {error.strerror}") from error


def _summary(recorded: Recorded) -> list[tuple[str, str, int, list[int]]]:
    return [
        (group, origin, numbers.floor, numbers.spans)
        for (group, origin), numbers in recorded.items()
    ]


def _unpack_summary(path: Path, body: bytes) -> Recorded:
    try:
        rows = msgspec.msgpack.decode(body, type=list[tuple[str, str, int, list[int]]])
    except msgspec.MsgspecError as error:
        raise TraceError(f"{path} is damaged at byte {HEADER.size}: {error}.") from error
    return {(group, origin): Numbers(spans, floor) for group, origin, floor, spans in rows}

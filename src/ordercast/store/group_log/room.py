"""Room on the disk that is ours before it is needed, so that a full disk is told early.

Behind what is written the newest segment has room that the system has given it already (`reserve`
bytes or more). When the system gives no more, entries and states still fit into that room, and
`strained` is called. A spare file holds room for what is written beside the segments: the vector of
a trim, which makes room, and repairs. It is given up for that, and taken again when there is room.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ordercast.errors import DiskError
from ordercast.store.group_log.form import SPARE
from ordercast.store.log import PRIVATE, Segment

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def is_no_room(error: OSError) -> bool:
    return error.errno in NO_ROOM


class Room:
    def __init__(self, folder: Path, reserve: int, strained: Callable[[bool], None]) -> None:
        self.is_strained = False
        self._spare = folder / SPARE
        self._reserve = reserve
        self._notify = strained
        self.begins_segments = True  # there was room for the last one

    def make(self, segment: Segment, need: int) -> None:
        """So many bytes fit into the segment. DiskError: they do not."""
        self._look(segment, need)
        if segment.size + need > segment.room:
            raise DiskError(
                f"{segment.path}: the disk is full: {segment.room - segment.size} bytes are left "
                f"for the log, and {need} are to be written"
            )

    def look(self, segment: Segment) -> None:
        """Whether there is room again, or none any more."""
        self._look(segment, 0)

    def lacks_segment(self, segment: Segment) -> None:
        """Another one could not be begun: this one goes on."""
        self.begins_segments = False
        self._look(segment, 0)

    def give_spare(self) -> None:
        """For what is to be written now."""
        self._spare.unlink(missing_ok=True)

    def _look(self, segment: Segment, need: int) -> None:
        # Twice as much is wanted as must be there, and after a strain no less will do: or every
        # record that is written would end it, and the next one begin it again.
        has_room = not self.is_strained and segment.room >= segment.size + need + self._reserve
        has_room = has_room or self._allocate(segment, need + 2 * self._reserve)
        if not has_room and not self.is_strained:
            has_room = self._allocate(segment, need + self._reserve)
        if not has_room:
            self._allocate(segment, need)
        is_strained = not (has_room and self.begins_segments and self._has_spare())
        if is_strained != self.is_strained:
            self.is_strained = is_strained
            self._notify(is_strained)

    def _allocate(self, segment: Segment, more: int) -> bool:
        try:
            segment.allocate(segment.size + more)
        except OSError as error:
            if not is_no_room(error):
                raise
            return False
        return True

    def _has_spare(self) -> bool:
        size = max(self._reserve // 4, 1)
        with suppress(FileNotFoundError):
            if self._spare.stat().st_size >= size:
                return True
        file = os.open(self._spare, os.O_RDWR | os.O_CREAT, PRIVATE)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, size)
            else:
                os.pwrite(file, bytes(size), 0)
        except OSError as error:
            if not is_no_room(error):
                raise
            self._spare.unlink(missing_ok=True)
            return False
        finally:
            os.close(file)
        return True

"""What a group's machine must know of its log to decide what may go: sizes and ages."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.store.group_log.parts import SealedPart
from ordercast.store.group_log.view import Parts


class Extent(NamedTuple):
    """A segment. It is removed as a whole."""

    first: int
    end: int
    begun: int  # Unix nanoseconds, by this node's clock: nothing in it is older
    size: int  # bytes, with its index


def extents_of(parts: Parts, newest_size: int) -> list[Extent]:
    """All of them, the oldest first. A time that is not known is that of the one before it."""
    found: list[Extent] = []
    for part in parts.all():
        size = part.size if isinstance(part, SealedPart) else newest_size
        begun = max(part.begun, found[-1].begun if found else 0)
        found.append(Extent(part.first, part.end, begun, size))
    return found


def written_before(extents: list[Extent], time: int) -> int:
    """A position: all segments below it were complete at that time."""
    position = extents[0].first
    for extent in extents[1:]:
        if extent.begun > time:
            break
        position = extent.first
    return position


def keeping(extents: list[Extent], size: int) -> int:
    """The least position that leaves no more than so many bytes; the newest segment stays."""
    position = extents[-1].first
    left = size - extents[-1].size
    for extent in reversed(extents[:-1]):
        left -= extent.size
        if left < 0:
            break
        position = extent.first
    return position


def bytes_from(extents: list[Extent], position: int) -> int:
    """About how many bytes are from a position on: of one inside a segment, its share of it."""
    size = 0
    for extent in extents:
        count = extent.end - extent.first
        if position <= extent.first:
            size += extent.size
        elif position < extent.end:
            size += extent.size * (extent.end - position) // count
    return size

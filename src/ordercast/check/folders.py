"""Which incarnations of a process had the same data folder.

In durable families a process remembers what it delivered, as long as it has its folder. So its
process history is what the incarnations of one folder wrote. An incarnation whose `start` row has
the cause `empty` begins with another folder than those before it.

Incarnations have the order of their numbers. But a process that lost its folder may have drawn a
number below that of an earlier incarnation. So where one of its folders was lost, an incarnation
that started before the one with the next smaller number, by the process's own clock, is of another
folder than that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple


class Start(NamedTuple):
    """How an incarnation began. `at`: None where it has no `start` row."""

    process: Hashable
    at: int | None
    is_empty: bool


def numbered_folders(starts: Iterable[Start]) -> list[int]:
    """By incarnation the number of its folder, from 0: incarnations of one folder are neighbours.

    They are given process by process, in the order of their numbers.
    """
    starts = list(starts)
    lost = {start.process for start in starts if start.is_empty}
    found: list[int] = []
    before: Start | None = None
    for start in starts:
        goes_on = before is not None and before.process == start.process and not start.is_empty
        if goes_on and before is not None and start.process in lost:
            goes_on = before.at is None or start.at is None or before.at <= start.at
        last = found[-1] if found else -1
        found.append(last if goes_on else last + 1)
        before = start
    return found

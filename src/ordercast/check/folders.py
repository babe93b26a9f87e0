"""Which incarnations of a process had the same data folder.

In durable families a process remembers what it delivered, as long as it has its folder. So its
process history is what the incarnations of one folder wrote. An incarnation whose `start` row has
the cause `empty` begins with another folder than those before it.

Incarnations have the order of their numbers. But a process that lost its folder may have drawn a
number below that of an earlier incarnation. So where one of its folders was lost, an incarnation
that started before the one with the next smaller number, by the process's own clock, is of another
folder than that. Incarnations without a `start` row go on with the folder of the one before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple


class FolderStart(NamedTuple):
    """How an incarnation began. `at`: None where it has no `start` row."""

    process: Hashable
    at: int | None
    is_empty: bool


def numbered_folders(starts: Iterable[FolderStart]) -> list[int]:
    """By incarnation the number of its folder, from 0: incarnations of one folder are neighbours.

    They are given process by process, in the order of their numbers.
    """
    starts = list(starts)
    lost = {start.process for start in starts if start.is_empty}
    found: list[int] = []
    process: Hashable = None
    started: int | None = None  # the latest incarnation of the process of which it is known
    number = -1
    for start in starts:
        is_other = not found or start.process != process
        is_earlier = started is not None and start.at is not None and start.at < started
        if is_other or start.is_empty or (start.process in lost and is_earlier):
            number += 1
        found.append(number)
        if is_other or start.at is not None:
            process, started = start.process, start.at
    return found

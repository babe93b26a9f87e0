"""What was given up and has not been told yet.

Whoever was away for a day may have missed millions of events. They are given up as ranges, which
cost nothing, and told one by one, a limited number in each call of a door.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")

LOSSES_AT_ONCE = 1000
"""Losses that are told in one call of a door, at the most."""


class Losses(Generic[K]):
    """Ranges of numbers, each of one stream, oldest first."""

    __slots__ = ("_most", "_untold")

    def __init__(self, most: int | None = None) -> None:
        self._most = most  # of one gap: of a longer one only the end is told
        self._untold: deque[tuple[K, range]] = deque()

    def add(self, stream: K, numbers: range) -> None:
        if numbers:
            self._untold.append((stream, numbers if self._most is None else numbers[-self._most :]))

    def take(self) -> list[tuple[K, int]]:
        """The next that are to be told."""
        taken: list[tuple[K, int]] = []
        while self._untold and len(taken) < LOSSES_AT_ONCE:
            stream, numbers = self._untold.popleft()
            room = LOSSES_AT_ONCE - len(taken)
            taken += [(stream, number) for number in numbers[:room]]
            if numbers[room:]:
                self._untold.appendleft((stream, numbers[room:]))
        return taken

    def __len__(self) -> int:
        """How many ranges wait."""
        return len(self._untold)

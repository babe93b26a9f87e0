"""Events that were given up and are not reported yet.

A member that was away for a day may have missed millions of events. They are given up as ranges,
which cost nothing, and reported one by one, a limited number for each input of the machine.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")

LOSSES_AT_ONCE = 1000
"""Losses that are reported for one input, at most."""


class Losses(Generic[K]):
    """Ranges of numbers, each of one stream, oldest first."""

    __slots__ = ("_most", "_unreported")

    def __init__(self, most: int | None = None) -> None:
        self._most = most  # of one gap: of a longer one only the end is reported
        self._unreported: deque[tuple[K, range]] = deque()

    def add(self, stream: K, numbers: range) -> None:
        if numbers:
            self._unreported.append(
                (stream, numbers if self._most is None else numbers[-self._most :])
            )

    def take(self) -> list[tuple[K, int]]:
        """The next losses to report."""
        taken: list[tuple[K, int]] = []
        while self._unreported and len(taken) < LOSSES_AT_ONCE:
            stream, numbers = self._unreported.popleft()
            room = LOSSES_AT_ONCE - len(taken)
            taken += [(stream, number) for number in numbers[:room]]
            if numbers[room:]:
                self._unreported.appendleft((stream, numbers[room:]))
        return taken

    def __len__(self) -> int:
        """How many ranges wait."""
        return len(self._unreported)

"""What will happen, in order of virtual time; ties in the order in which they were added."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Agenda:
    __slots__ = ("_heap", "_ticket", "done", "now")

    def __init__(self) -> None:
        self.now = 0  # nanoseconds of true virtual time
        self.done = 0  # how many entries have happened
        self._ticket = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def add(self, at: int, act: Callable[..., None], *arguments: Any) -> None:
        self._ticket = ticket = self._ticket + 1
        heappush(self._heap, (at, ticket, act, arguments))

    def run(self, until: int, at_most: int) -> bool:
        """Lets everything up to `until` happen. False if `at_most` entries were not enough."""
        heap = self._heap
        left = at_most
        while heap and heap[0][0] <= until:
            if left == 0:
                return False
            left -= 1
            self.now, _, act, arguments = heappop(heap)
            act(*arguments)
        self.done += at_most - left
        self.now = until
        return True

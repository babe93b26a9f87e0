"""What will happen, in order of virtual time; ties in the order in which they were added."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

Entry: TypeAlias = tuple[int, int, Callable[..., None], tuple[Any, ...]]
"""When, the ticket that orders what happens at the same time, what, and with what."""


class Agenda:
    __slots__ = ("done", "heap", "now", "ticket")

    def __init__(self) -> None:
        self.now = 0  # nanoseconds of true virtual time
        self.done = 0  # how many entries have happened
        self.ticket = 0  # of the entry that was added last
        self.heap: list[Entry] = []

    def add(self, at: int, act: Callable[..., None], *arguments: Any) -> None:
        self.ticket = ticket = self.ticket + 1
        heappush(self.heap, (at, ticket, act, arguments))

    def run(self, until: int, at_most: int) -> bool:
        """Lets everything up to `until` happen. False if `at_most` entries were not enough."""
        heap, pop = self.heap, heappop
        left = at_most
        try:
            while heap and heap[0][0] <= until:
                if left == 0:
                    return False
                left -= 1
                self.now, _, act, arguments = pop(heap)
                act(*arguments)
        finally:
            self.done += at_most - left
        self.now = until
        return True

"""What was delivered to an application and not taken yet, in order and counted.

Arrivals are numbered over all groups of a node, so that what several of them have delivered can be
taken in the order in which it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ordercast.kernel.step import Heard
from ordercast.types import Event


class Inbox:
    __slots__ = (
        "_numbers",
        "arrivals",
        "count",
        "items",
        "last",
        "most_bytes",
        "most_count",
        "size",
        "taken",
    )

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers  # of arrivals in all groups of the node
        self.arrivals: deque[int] = deque()  # the number of each item
        self.last = 0  # the number of the last that was taken
        self.items: deque[Heard] = deque()
        self.size = 0  # bytes of the messages in it
        self.count = 0  # messages in it
        self.taken = 0  # items, so far
        self.most_bytes = 4 << 20  # that may wait before senders have to
        self.most_count = 65_536  # the same, in messages

    def put(self, item: Heard) -> bool:
        """Whether it is over its limit now."""
        self.items.append(item)
        self.arrivals.append(next(self._numbers))
        if isinstance(item, Event):
            self.count += len(item.payloads)
            self.size += item.size
        return self.size > self.most_bytes or self.count > self.most_count

    def take(self) -> Heard:
        item = self.items.popleft()
        self.last = self.arrivals.popleft()
        self.taken += 1
        if isinstance(item, Event):
            self.count -= len(item.payloads)
            self.size -= item.size
        return item

    @property
    def is_over_limit(self) -> bool:
        return self.size > self.most_bytes or self.count > self.most_count

    @property
    def is_half_empty(self) -> bool:
        return 2 * self.size <= self.most_bytes and 2 * self.count <= self.most_count

"""Buffers with limits: what is retained for others, and what is remembered about the past.

Nothing in a member grows without a bound. `Retained` knows its limit but never drops by itself:
whether being over it means waiting, dropping or disconnecting a member is the protocol's
decision, and so is what to report. `Bounded` forgets the oldest by itself and counts it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Limit(msgspec.Struct, frozen=True, gc=False):
    """The most that a buffer should hold, of items and of their bytes."""

    count: int
    size: int  # bytes


class Retained(Generic[T]):
    """A FIFO of items with increasing numbers, gaps allowed, such as a stream until stable."""

    # Three lists side by side, so that a search touches integers only. Deleting at the front
    # moves the rest, which for the thousands of items that a limit allows takes a microsecond
    # or two, and unlike a moving head it frees the items at once.
    __slots__ = ("_items", "_numbers", "_sizes", "limit", "size")

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.size = 0  # bytes; always the sum of `_sizes`
        self._numbers: list[int] = []  # strictly increasing
        self._items: list[T] = []
        self._sizes: list[int] = []

    def append(self, number: int, item: T, size: int) -> None:
        """Retains one more item, whose number is above all that were retained before it."""
        assert not self._numbers or number > self._numbers[-1], "numbers increase"
        self._numbers.append(number)
        self._items.append(item)
        self._sizes.append(size)
        self.size += size

    def discard_up_to(self, number: int) -> int:
        """Discards everything up to a number. Returns how many items that was."""
        count = bisect_right(self._numbers, number)
        if count:
            self.size -= sum(self._sizes[:count])
            del self._numbers[:count]
            del self._items[:count]
            del self._sizes[:count]
        return count

    def after(self, number: int) -> list[T]:
        """The items numbered above, in order."""
        return self._items[bisect_right(self._numbers, number) :]

    def drop_oldest(self) -> tuple[int, T]:
        """Discards the oldest item. Returns its number and the item."""
        assert self._numbers, "nothing is retained"
        self.size -= self._sizes.pop(0)
        return self._numbers.pop(0), self._items.pop(0)

    @property
    def oldest(self) -> int | None:
        return self._numbers[0] if self._numbers else None

    @property
    def newest(self) -> int | None:
        return self._numbers[-1] if self._numbers else None

    @property
    def count(self) -> int:
        return len(self._numbers)

    @property
    def full(self) -> bool:
        return len(self._numbers) >= self.limit.count or self.size >= self.limit.size

    @property
    def over_limit(self) -> bool:
        return len(self._numbers) > self.limit.count or self.size > self.limit.size


class Bounded(Generic[T]):
    """The last so many different keys, such as the ids of events seen: the oldest make room."""

    # An OrderedDict and not a dict, which takes ever longer to find its first key when keys
    # are deleted at the front.
    __slots__ = ("capacity", "evicted", "keys")

    def __init__(self, capacity: int) -> None:
        assert capacity > 0, "a history remembers something"
        self.capacity = capacity
        self.evicted = 0  # how many keys made room for others so far
        self.keys: OrderedDict[T, None] = OrderedDict()  # the oldest first

    def add(self, key: T) -> bool:
        """Remembers a key. True if it is new; a known key keeps its age."""
        if key in self.keys:
            return False
        self.keys[key] = None
        if len(self.keys) > self.capacity:
            self.keys.popitem(last=False)
            self.evicted += 1
        return True

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    def __len__(self) -> int:
        return len(self.keys)

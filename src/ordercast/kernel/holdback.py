"""A hold-back queue: items that arrived before their predecessors.

`HoldBack` holds items that wait for named predecessors, in any partial order, and releases them in
an order in which each follows all that it waited for.

What it does not do: know what was there before. The caller says which predecessors are missing,
because only the protocol has the clock that shows it. Nor does it ask for what is missing, or give
up.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from ordercast.kernel.buffers import Limit

K = TypeVar("K")
T = TypeVar("T")


class _Held(Generic[K, T]):
    __slots__ = ("item", "missing", "size", "waits_for")

    def __init__(self, item: T, waits_for: tuple[K, ...], size: int) -> None:
        self.item = item
        self.waits_for = waits_for
        self.missing = 0  # how many different keys of `waits_for` are not there yet
        self.size = size


class HoldBack(Generic[K, T]):
    """Items by key, each waiting for other keys. The cost is constant for each such edge.

    It exceeds its limit by one item at most: after `enqueue` the caller must call `drop_oldest` (or
    `abandon` another, or force one through) until it is no longer `over_limit`. So the caller
    learns what was given up. The next `enqueue` asserts that.

    To force an item through without its predecessors: `abandon` it, deliver what that
    returns, then `satisfy` its key. To do without an item that will never come: `satisfy` its
    key.
    """

    __slots__ = ("_followers", "_held", "limit", "size")

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.size = 0  # bytes of all that is held
        self._held: OrderedDict[K, _Held[K, T]] = OrderedDict()  # oldest first
        # For each key that is not there: the keys that wait for it, oldest first. Never empty.
        self._followers: dict[K, dict[K, None]] = {}

    def enqueue(self, key: K, item: T, waits_for: tuple[K, ...], size: int = 0) -> list[T]:
        """Takes an item that waits for the given keys, all of them not there yet.

        Returns what is released, in order: the item itself if it waits for nothing, and all
        that waited for it alone. A key that is held already changes nothing.
        """
        assert not self.over_limit, "drop_oldest() until it is no longer over its limit"
        if key in self._held:
            return []
        if not waits_for:
            return [item, *self.satisfy(key)]
        held = _Held(item, waits_for, size)
        for missing in waits_for:
            followers = self._followers.setdefault(missing, {})
            if key not in followers:
                followers[key] = None
                held.missing += 1
        self._held[key] = held
        self.size += size
        return []

    def satisfy(self, key: K) -> list[T]:
        """The key is there, or will be done without. Returns what that releases, in order.

        An item held under the key itself is dropped, for it is there already.
        """
        self.abandon(key)
        released: list[T] = []
        there = [key]
        for done in there:  # grows while we go: what is released satisfies others
            for follower in self._followers.pop(done, ()):
                held = self._held[follower]
                held.missing -= 1
                if not held.missing:
                    del self._held[follower]
                    self.size -= held.size
                    released.append(held.item)
                    there.append(follower)
        return released

    def abandon(self, key: K) -> T | None:
        """Stops holding an item and returns it. Those that wait for its key go on waiting."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        self.size -= held.size
        for missing in held.waits_for:
            followers = self._followers.get(missing)
            if followers is not None:
                followers.pop(key, None)
                if not followers:
                    del self._followers[missing]
        return held.item

    def drop_oldest(self) -> tuple[K, T]:
        """Abandons the item that has been held longest. Returns its key and the item."""
        key = next(iter(self._held))
        item = self._held[key].item
        self.abandon(key)
        return key, item

    def peek(self, key: K) -> T | None:
        """The item held under a key."""
        held = self._held.get(key)
        return None if held is None else held.item

    def items(self) -> list[T]:
        """All that is held, oldest first."""
        return [held.item for held in self._held.values()]

    def awaited(self) -> tuple[K, ...]:
        """The keys that items wait for, held or not, longest wanted first."""
        return tuple(self._followers)

    def missing(self) -> tuple[K, ...]:
        """The keys that items wait for and that are not held either, longest wanted first."""
        return tuple(key for key in self._followers if key not in self._held)

    @property
    def held(self) -> tuple[K, ...]:
        """The keys of all that is held, oldest first."""
        return tuple(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    @property
    def over_limit(self) -> bool:
        return len(self._held) > self.limit.count or self.size > self.limit.size

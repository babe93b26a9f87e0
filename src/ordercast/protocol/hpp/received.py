"""What a node has received: a number for each stream, and hashes over all of them.

The vector has the last number that is in our log, or was given up, for every stream that was ever
seen. It is never shortened: a node that forgot a stream would take its old entries again. Streams
stand there as their keys, of 63 bits. Up to some thousands are in a dictionary; beyond that they
are in sorted arrays, 16 bytes each.

The tree of hashes is over ranges of keys. A leaf is the exclusive or of a hash for each stream in
it, with its number; an inner node is the exclusive or of its branches. So two nodes that have
received the same have the same tree, and find what differs by going down where hashes differ.

What it does not do: protect against streams that were made so that their hashes cancel out.

Adly, Kumar: HPP, 1994, section 4 (message vectors); the tree of hashes is our own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable

from ordercast.kernel.log import KEY_BITS, bucket_of, hash_of

MOST_RECENT = 10_000
"""Streams in the dictionary, beside a sixteenth of those in the arrays."""
_SORTED_AT_ONCE = 1 << 16
"""About so many streams, when many are taken: sorting takes ten times the memory of the arrays."""


class LastNumbers:
    """By key: the last number of a stream. 0: none."""

    def __init__(self) -> None:
        self._recent: dict[int, int] = {}
        # Keys, in order, and the number of each. No key is in the dictionary too.
        self._sorted: tuple[array[int], array[int]] | None = None

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]], count: int) -> LastNumbers:
        """Of so many pairs in any order. Of a key that comes twice the greatest number counts."""
        new = cls()
        if count <= MOST_RECENT:
            new._recent = dict(sorted(pairs))
            return new
        # Each array is made once, of its size: one that grows leaves holes in memory.
        unsorted, ordered = (_pair_of_arrays(count), _pair_of_arrays(count))
        for at, (key, number) in enumerate(pairs):
            unsorted[0][at], unsorted[1][at] = key, number
        parts, size = 1 + count // _SORTED_AT_ONCE, 0
        for part in range(parts):
            begin, end = ((at << KEY_BITS) // parts for at in (part, part + 1))
            found = zip(*unsorted, strict=True)
            chosen = dict(sorted(pair for pair in found if begin <= pair[0] < end))
            ordered[0][size : size + len(chosen)] = array("Q", chosen)
            ordered[1][size : size + len(chosen)] = array("Q", chosen.values())
            size += len(chosen)
        for column in ordered:
            del column[size:]
        new._sorted = ordered
        return new

    def __len__(self) -> int:
        return len(self._recent) + (0 if self._sorted is None else len(self._sorted[0]))

    def get(self, key: int) -> int:
        number = self._recent.get(key)
        if number is None and self._sorted is not None:
            keys, numbers = self._sorted
            at = bisect_left(keys, key)
            number = numbers[at] if at < len(keys) and keys[at] == key else 0
        return number or 0

    def put(self, key: int, number: int) -> None:
        if key not in self._recent and self._sorted is not None:
            keys, numbers = self._sorted
            at = bisect_left(keys, key)
            if at < len(keys) and keys[at] == key:
                numbers[at] = number
                return
        self._recent[key] = number
        if len(self._recent) > MOST_RECENT + (len(self) >> 4):
            self._merge()

    def _merge(self) -> None:
        """The dictionary joins the arrays, with slices: a list of all of them would be large."""
        old_keys, old_numbers = self._sorted or (array("Q"), array("Q"))
        keys, numbers = array("Q"), array("Q")
        copied = 0
        for key in sorted(self._recent):
            at = bisect_left(old_keys, key, copied)
            keys.extend(old_keys[copied:at])
            numbers.extend(old_numbers[copied:at])
            keys.append(key)
            numbers.append(self._recent[key])
            copied = at
        keys.extend(old_keys[copied:])
        numbers.extend(old_numbers[copied:])
        self._sorted, self._recent = (keys, numbers), {}

    def within(self, buckets: Collection[int], of: int) -> list[tuple[int, int]]:
        """The streams in these buckets, of so many: keys and numbers."""
        found = [pair for pair in self._recent.items() if bucket_of(pair[0], of) in buckets]
        if self._sorted is not None:
            keys, numbers = self._sorted
            for bucket in buckets:
                at = bisect_left(keys, -((-bucket << KEY_BITS) // of))
                while at < len(keys) and bucket_of(keys[at], of) == bucket:
                    found.append((keys[at], numbers[at]))
                    at += 1
        return found

    def items(self) -> list[tuple[int, int]]:
        return self.within(range(1), 1)


def _pair_of_arrays(count: int) -> tuple[array[int], array[int]]:
    return array("Q", bytes(8)) * count, array("Q", bytes(8)) * count


class HashTree:
    """The hashes of a vector, kept up as it changes."""

    def __init__(self, fan_out: int, levels: int, items: Iterable[tuple[int, int]]) -> None:
        self.fan_out = fan_out
        self.levels = levels  # below the root
        self._sums = [array("Q", bytes(8 * fan_out**level)) for level in range(1, levels + 1)]
        for key, number in items:
            self.change(key, 0, number)

    def change(self, key: int, before: int, after: int) -> None:
        change = hash_of(key, after) ^ (hash_of(key, before) if before else 0)
        for sums in self._sums:
            sums[bucket_of(key, len(sums))] ^= change

    def branches(self, level: int, node: int) -> list[int]:
        """The hashes of the branches of a node; level 0 is the root."""
        first = node * self.fan_out
        return self._sums[level][first : first + self.fan_out].tolist()

"""Numbers by stream, for millions of streams in little memory.

A table has a row for each stream: its key and a few numbers. Rows that are new are in a dictionary,
up to `RECENT` of them. Then they are merged into arrays that are sorted by the keys of the streams:
a row takes 28 bytes there, 8 more for each further number, and its name. No row is ever removed:
who forgets a stream would take its old events again.

`packed` and `add_packed` are the form of rows on a disk, the same on every machine.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from heapq import merge
from struct import Struct
from typing import NamedTuple, TypeAlias

from ordercast.kernel.log import Stream, key_of

RECENT = 10_000
"""Rows that are in a dictionary."""
_HEAD = Struct("<IIQ")  # rows, numbers in a row, bytes of names
_LENGTH = Struct("<H")  # of a name
_WORD, _PLACE = 8, 4

Numbers: TypeAlias = tuple[int, ...]


class StreamRow(NamedTuple):
    key: int
    stream: Stream
    numbers: Numbers


class StreamKeys:
    """The keys of streams, of the last thousands without computing them."""

    def __init__(self) -> None:
        self._known: dict[Stream, int] = {}

    def __call__(self, stream: Stream) -> int:
        found = self._known.get(stream)
        if found is None:
            if len(self._known) >= RECENT:
                self._known.clear()
            found = self._known[stream] = key_of(stream)
        return found


class StreamTable:
    """Each row has `width` numbers, each below 2**64. The key of a stream may be given with it."""

    __slots__ = ("_births", "_columns", "_keys", "_names", "_places", "_recent", "width")

    def __init__(self, width: int = 1) -> None:
        self.width = width
        self._recent: dict[int, tuple[Stream, Numbers]] = {}  # by key; none is in the arrays
        self._keys = array("Q")  # sorted
        self._births = array("Q")
        self._places = array("I")  # where in `_names` the length of the name is
        self._columns = tuple(array("Q") for _ in range(width))
        self._names = bytearray()  # in the order of their coming

    def __len__(self) -> int:
        return len(self._recent) + len(self._keys)

    def get(self, stream: Stream, key: int | None = None) -> Numbers | None:
        key = key_of(stream) if key is None else key
        found = self._recent.get(key)
        if found is not None and found[0] == stream:
            return found[1]
        at = self._place_of(stream, key)
        return None if at is None else tuple(column[at] for column in self._columns)

    def put(self, stream: Stream, numbers: Numbers, key: int | None = None) -> None:
        """Adds the row, or changes it."""
        key = key_of(stream) if key is None else key
        found = self._recent.get(key)
        if found is None or found[0] != stream:
            at = self._place_of(stream, key)
            if at is not None:
                for column, number in zip(self._columns, numbers, strict=True):
                    column[at] = number
                return
            if found is not None:  # two streams of one key
                self.merge()
        self._recent[key] = stream, numbers
        if len(self._recent) > RECENT:
            self.merge()

    def of_key(self, key: int) -> StreamRow | None:
        """The row of a stream of which only the key is known."""
        found = self._recent.get(key)
        if found is not None:
            return StreamRow(key, *found)
        at = bisect_left(self._keys, key)
        if at < len(self._keys) and self._keys[at] == key:
            return self._row(at)
        return None

    def rows(self) -> Iterator[StreamRow]:
        """In the order of their keys. Nothing may be added meanwhile."""
        recent = (StreamRow(key, *found) for key, found in sorted(self._recent.items()))
        return merge(recent, (self._row(at) for at in range(len(self._keys))))

    def last_numbers(self) -> Iterator[tuple[int, int]]:
        """The key and the last number of each row, in no order."""
        for key, (_, numbers) in self._recent.items():
            yield key, numbers[-1]
        yield from zip(self._keys, self._columns[-1], strict=True)

    def with_columns(self, *columns: int, constant: int | None = None) -> StreamTable:
        """The same streams with some of their numbers, and perhaps one that is the same for all.

        It shares what this table has: afterwards only one of the two may be changed.
        """
        self.merge()
        table = StreamTable()
        table._keys, table._births, table._places = self._keys, self._births, self._places
        table._names = self._names
        table._columns = tuple(self._columns[column] for column in columns)
        if constant is not None:
            table._columns += (array("Q", [constant]) * len(self._keys),)
        table.width = len(table._columns)
        return table

    @property
    def size(self) -> int:
        """About its bytes in memory."""
        row = 2 * _WORD + _PLACE + self.width * _WORD
        return len(self._recent) * 5 * row + len(self._keys) * row + len(self._names)

    @property
    def last_key(self) -> int:
        """The greatest; 0: there are no rows."""
        return max(max(self._recent, default=0), self._keys[-1] if self._keys else 0)

    # --- merging -----------------------------------------------------------------------------

    def merge(self) -> None:
        """Puts what is in the dictionary into the arrays."""
        if self._recent:
            rows = [(key, *found) for key, found in sorted(self._recent.items())]
            self._recent.clear()
            self._merge(rows)

    def update(self, other: StreamTable, begin: int = 0, end: int | None = None) -> None:
        """Puts the rows of another table, or those from one to another in the order of keys."""
        self.merge()
        other.merge()
        keys, size = self._keys, len(self._keys)
        added: list[tuple[int, int]] = []  # where to, and which row of the other
        at = 0
        for row in range(begin, len(other._keys) if end is None else end):
            key = other._keys[row]
            at = bisect_left(keys, key, at)
            if at < size and keys[at] == key:
                same: int | None = at
                if self._stream(at) != other._stream(row):  # two streams of one key
                    same = self._place_of(other._stream(row), key)
                if same is not None:
                    for column, fresh in zip(self._columns, other._columns, strict=True):
                        column[same] = fresh[row]
                    continue
            added.append((at, row))
        if added:
            self._insert(other, added)

    def _insert(self, other: StreamTable, added: Sequence[tuple[int, int]]) -> None:
        places = array("I")
        names, others = self._names, other._names
        for _, row in added:
            place = other._places[row]
            end = place + _LENGTH.size + _LENGTH.unpack_from(others, place)[0]
            places.append(len(names))
            names += others[place:end]
        self._keys = _inserted(self._keys, added, other._keys)
        self._births = _inserted(self._births, added, other._births)
        moved = [(at, row) for row, (at, _) in enumerate(added)]
        self._places = _inserted(self._places, moved, places)
        pairs = zip(self._columns, other._columns, strict=True)
        self._columns = tuple(_inserted(column, added, fresh) for column, fresh in pairs)

    def rows_up_to(self, key: int) -> int:
        """How many rows have this key or a lower one; to be asked after a `merge`."""
        return bisect_right(self._keys, key)

    def _merge(self, rows: Sequence[tuple[int, Stream, Numbers]]) -> None:
        """Of streams that are not in the arrays, in the order of their keys."""
        fresh = StreamTable(self.width)
        for key, (name, birth), numbers in rows:
            fresh._keys.append(key)
            fresh._births.append(birth)
            fresh._places.append(fresh._add_name(name))
            for column, number in zip(fresh._columns, numbers, strict=True):
                column.append(number)
        self.update(fresh)

    def _add_name(self, name: str) -> int:
        place, data = len(self._names), name.encode()
        self._names += _LENGTH.pack(len(data)) + data
        return place

    def _place_of(self, stream: Stream, key: int) -> int | None:
        keys = self._keys
        at = bisect_left(keys, key)
        while at < len(keys) and keys[at] == key:
            if self._stream(at) == stream:
                return at
            at += 1
        return None

    def _stream(self, at: int) -> Stream:
        place = self._places[at]
        (length,) = _LENGTH.unpack_from(self._names, place)
        begin = place + _LENGTH.size
        return self._names[begin : begin + length].decode(), self._births[at]

    def _row(self, at: int) -> StreamRow:
        numbers = tuple(column[at] for column in self._columns)
        return StreamRow(self._keys[at], self._stream(at), numbers)

    # --- on a disk ---------------------------------------------------------------------------

    def packed(self, begin: int = 0, end: int | None = None) -> bytes:
        """The rows from one to another, in the order of their keys."""
        self.merge()
        end = len(self._keys) if end is None else min(end, len(self._keys))
        names, places = bytearray(), array("I")
        for place in self._places[begin:end]:
            (length,) = _LENGTH.unpack_from(self._names, place)
            places.append(len(names))
            names += self._names[place : place + _LENGTH.size + length]
        columns = [self._keys[begin:end], self._births[begin:end], places]
        columns += [column[begin:end] for column in self._columns]
        head = _HEAD.pack(end - begin, self.width, len(names))
        return b"".join([head, *map(_in_order, columns), names])

    def add_packed(self, data: bytes) -> None:
        """Appends rows whose keys are not below those that are there. ValueError: they are no
        rows of such a table."""
        self.merge()
        count, width, length = _HEAD.unpack_from(data)
        row_bytes = (2 + width) * _WORD + _PLACE
        if width != self.width or len(data) != _HEAD.size + count * row_bytes + length:
            raise ValueError("these are no rows of such a table")
        at, base = _HEAD.size, len(self._names)
        for column in (self._keys, self._births, self._places, *self._columns):
            fresh = array(column.typecode)
            size = count * fresh.itemsize
            fresh.frombytes(data[at : at + size])
            if sys.byteorder == "big":
                fresh.byteswap()
            if column is self._places and base:
                fresh = array("I", (place + base for place in fresh))
            column.extend(fresh)
            at += size
        self._names += data[at:]


class StreamNumbers(Mapping[Stream, int]):
    """A number by stream, such as the last that was received; as a mapping."""

    __slots__ = ("_key", "_table")

    def __init__(self, table: StreamTable | None = None) -> None:
        self._table = StreamTable() if table is None else table
        self._key = StreamKeys()
        assert self._table.width == 1

    def __getitem__(self, stream: Stream) -> int:
        found = self._table.get(stream, self._key(stream))
        if found is None:
            raise KeyError(stream)
        return found[0]

    def __setitem__(self, stream: Stream, number: int) -> None:
        self._table.put(stream, (number,), self._key(stream))

    def __iter__(self) -> Iterator[Stream]:
        return (row.stream for row in self._table.rows())

    def __len__(self) -> int:
        return len(self._table)

    def items(self) -> ItemsView[Stream, int]:
        return _Items(self, self._table)


class _Items(ItemsView[Stream, int]):
    """Without a search for each stream."""

    __slots__ = ("_table",)

    def __init__(self, numbers: StreamNumbers, table: StreamTable) -> None:
        super().__init__(numbers)
        self._table = table

    def __iter__(self) -> Iterator[tuple[Stream, int]]:
        return ((row.stream, row.numbers[0]) for row in self._table.rows())


def _in_order(column: array[int]) -> bytes:
    """Least byte first, whatever this machine has."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _inserted(
    column: array[int], added: Sequence[tuple[int, int]], fresh: array[int]
) -> array[int]:
    """A column with others between: where to, and which of the fresh ones."""
    # Made once, of its size: an array that grows leaves holes in memory.
    result = array(column.typecode, bytes(column.itemsize)) * (len(column) + len(added))
    place = done = 0
    for at, row in added:
        if at > done:
            result[place : place + at - done] = column[done:at]
            place += at - done
            done = at
        result[place] = fresh[row]
        place += 1
    result[place:] = column[done:]
    return result

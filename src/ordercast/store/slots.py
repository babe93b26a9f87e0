"""What counts of a log of records: the newest of each slot, and each that has no slot.

The order is that of writing: who replaces a record goes to the end.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeAlias, TypeVar

from ordercast.kernel.packet import Packet

Value = TypeVar("Value")
_Key: TypeAlias = tuple[str, type[Packet] | None, Hashable]


class Slots(Generic[Value]):
    """By record, whatever a store holds for it."""

    def __init__(self) -> None:
        self._values: dict[_Key, Value] = {}
        self._count = 0  # of records without a slot: each has a key of its own

    def __len__(self) -> int:
        return len(self._values)

    def put(self, record: Packet, value: Value) -> Value | None:
        """Returns what it stands for from now on, and is gone."""
        slot = record.slot()
        if slot is None:
            self._count += 1
            self._values[record.group, None, self._count] = value
            return None
        key = (record.group, type(record), slot)
        before = self._values.pop(key, None)  # out first, so that the key goes to the end
        self._values[key] = value
        return before

    def values(self, group: str | None = None) -> list[Value]:
        """Of one group, or of all."""
        if group is None:
            return list(self._values.values())
        return [value for key, value in self._values.items() if key[0] == group]

    def drop(self, group: str) -> list[Value]:
        """Takes out what there is of one group."""
        keys = [key for key in self._values if key[0] == group]
        return [self._values.pop(key) for key in keys]

    def clear(self) -> None:
        self._values.clear()

"""A simulated disk: it keeps what was synced, and forgets or refuses what a real one would.

It stands for the whole folder of a process: its records, the number of its last incarnation, and
with whom it was last in open groups.

Records go to a cache first and are durable after `sync`. A crash loses the cache. The disk can
be told to be full, to fail or to be slow; a file that is full or failing raises DiskError at
the next record, because a member must not go on as if its word were kept.

Of a slot the newest durable record counts, as in a file, so a long run needs no more room.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from ordercast.errors import DiskError
from ordercast.kernel.packet import Packet
from ordercast.store.slots import Slots

DISK_RECORDS = 10_000_000


class Trouble(StrEnum):
    FAIL = "fail"
    FULL = "full"
    SLOW = "slow"


class SimulatedDisk:
    def __init__(self, capacity: int = DISK_RECORDS) -> None:
        self.capacity = capacity  # records that count
        self.trouble: Trouble | None = None
        self.sync_time = 0  # nanoseconds that one sync takes now
        # The last that started on it: none yet. None: that is lost, with all the rest.
        self.incarnation: int | None = -1
        self.reborn = False  # whether others knew its name when it was empty
        self.drawn: int | None = None  # the number that was drawn when it was empty
        self.members: dict[str, tuple[str, ...]] = {}  # by open group: the names in it
        self._durable: Slots[Packet] = Slots()
        self._cached: list[Packet] = []

    def append(self, records: Sequence[Packet]) -> None:
        if not records:
            return
        if self.trouble is Trouble.FAIL:
            raise DiskError("the disk fails")
        used = len(self._durable) + len(self._cached)
        if self.trouble is Trouble.FULL or used + len(records) > self.capacity:
            raise DiskError(f"the disk is full: {used} of {self.capacity} records")
        self._cached += records

    def forget(self, group: str) -> None:
        """Of a group nothing that is durable counts any more."""
        self._durable.drop(group)

    def sync(self, up_to: int | None = None) -> None:
        """Makes the oldest cached records durable: all of them, or so many."""
        count = len(self._cached) if up_to is None else up_to
        for record in self._cached[:count]:
            self._durable.put(record, record)
        del self._cached[:count]

    def crash(self) -> None:
        """Power is gone: what was not synced never was."""
        self._cached.clear()

    def erase(self) -> None:
        """The folder itself is lost."""
        self.crash()
        self.incarnation = None
        self.reborn, self.drawn = False, None
        self.members.clear()
        self._durable.clear()

    def records(self) -> list[Packet]:
        """What a restarted process finds."""
        return self._durable.values()

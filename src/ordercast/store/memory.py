"""A simulated disk: it keeps what was synced, and forgets or refuses what a real one would.

It stands for the whole folder of a process: its records, the number of its last incarnation, and
with whom it was last in open groups.

Records go to a cache first and are durable after `sync`. A crash loses the cache, or all of it but
the first records: what was not acknowledged may be there all the same. The disk can be told to be
full, to fail or to be slow; a file that is full or failing raises DiskError at the next record,
because a member must not go on as if its word were kept.

Of a slot the newest durable record counts, as in a file, so a long run needs no more room.

The records of a group with a log (`Family.logged`) are in that log. Where there are logs the disk
has a reserve: it takes so many records when it is full, for members that are told in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from ordercast.errors import DiskError
from ordercast.kernel.log import Appended, Entry
from ordercast.kernel.packet import Packet
from ordercast.store.memory_log import MemoryLog
from ordercast.store.slots import Slots

DISK_RECORDS = 10_000_000
RESERVE = 100
"""Records that a full disk takes where there are logs."""


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
        self.logs: dict[str, MemoryLog] = {}  # by group
        # By group with a log: what it has, and the process has not seen take effect.
        self.unseen: dict[str, list[Entry]] = {}
        self._durable: Slots[Packet] = Slots()
        self._cached: list[Packet] = []
        self._reserve = RESERVE  # records that are left of it

    def append(self, records: Sequence[Packet]) -> None:
        if not records:
            return
        if self.trouble is Trouble.FAIL:
            raise DiskError("the disk fails")
        used = len(self._durable) + len(self._cached)
        full = self.trouble is Trouble.FULL
        if full and self.logs and len(records) <= self._reserve:
            self._reserve -= len(records)
        elif full or used + len(records) > self.capacity:
            raise DiskError(f"the disk is full: {used} of {self.capacity} records")
        self._cached += records

    def open_log(self, group: str, identity: Callable[[], int]) -> MemoryLog:
        """The log of a group. One that is not there begins, with a new identity."""
        if group not in self.logs:
            self.logs[group] = MemoryLog(group, identity())
        return self.logs[group]

    @property
    def is_strained(self) -> bool:
        """Whether members with a log must append no more. There is a new reserve when they may."""
        if self.trouble is not Trouble.FULL:
            self._reserve = RESERVE
        return self.trouble is Trouble.FULL

    def forget(self, group: str) -> None:
        """Of a group nothing that is durable counts any more."""
        self._durable.drop(group)
        self.logs.pop(group, None)
        self.unseen.pop(group, None)

    def sync(self, up_to: int | None = None) -> None:
        """Makes the oldest cached records durable: all of them, or so many."""
        count = len(self._cached) if up_to is None else up_to
        logs = self.logs
        for record in self._cached[:count]:
            if logs and record.group in logs:
                logs[record.group].take(record)
            else:
                self._durable.put(record, record)
        del self._cached[:count]

    def crash(self, chance: int = 0) -> None:
        """Power is gone. Of what was not synced the first records may be there, by this chance."""
        kept = self._cached[: chance % (len(self._cached) + 1)]
        for record in kept:
            if isinstance(record, Appended):
                self.unseen.setdefault(record.group, []).append(record.entry)
        self.sync(len(kept))
        self._cached.clear()

    def erase(self) -> None:
        """The folder itself is lost."""
        self.crash()
        self.incarnation = None
        self.reborn, self.drawn = False, None
        self.members.clear()
        self._durable.clear()
        self.logs.clear()
        self.unseen.clear()

    def records(self) -> list[Packet]:
        """What a restarted process finds."""
        found = self._durable.values()
        for log in self.logs.values():
            found += log.records()
        return found

"""A simulated disk: it keeps what was synced, and forgets or refuses what a real one would.

Records go to a cache first and are durable after `sync`. A crash loses the cache. The disk can
be told to be full, to fail or to be slow; a file that is full or failing raises DiskError at
the next record, because a member must not go on as if its word were kept.

`commit` is what a world gives to its host: a callback when the records are durable. It comes at
once if a sync takes no time, and else when that time has passed; commits end in their order.

Of a slot the newest durable record counts, as in a file, so a long run needs no more room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from ordercast.errors import DiskError
from ordercast.kernel.packet import Packet
from ordercast.store.slots import Slots


class Clock(Protocol):
    """The time of who uses the disk, in nanoseconds."""

    def now(self) -> int: ...

    def at(self, time: int, act: Callable[[], None]) -> None:
        """Calls it then, in the order of asking if together; in a pause, when that is over."""


class Trouble(StrEnum):
    FAIL = "fail"
    FULL = "full"
    SLOW = "slow"


class SimulatedDisk:
    def __init__(self, capacity: int, clock: Clock | None = None) -> None:
        """Without a clock no sync may take time."""
        self.capacity = capacity  # records that count
        self.trouble: Trouble | None = None
        self.sync_time = 0  # nanoseconds that one sync takes now
        self._durable: Slots[Packet] = Slots()
        self._cached: list[Packet] = []
        self._clock = clock
        self._free_at = 0  # when the last of the commits ends
        self._commits: deque[tuple[int, Callable[[], None]]] = deque()  # that are underway
        self._crashes = 0  # a commit that a crash has ended does not come back

    def commit(self, records: Sequence[Packet], done: Callable[[], None]) -> None:
        """Calls `done` when they are durable. DiskError: none is taken, and it is never called."""
        self.append(records)
        if not self.sync_time and not self._commits:
            self.sync()
            done()
            return
        assert self._clock is not None, "a disk that takes time needs a clock"
        self._commits.append((len(records), done))
        crashes = self._crashes
        self._free_at = max(self._free_at, self._clock.now() + self.sync_time)
        self._clock.at(self._free_at, lambda: self._end_commit(crashes))

    def _end_commit(self, crashes: int) -> None:
        if crashes == self._crashes:
            count, done = self._commits.popleft()
            self.sync(count)
            done()

    def append(self, records: Sequence[Packet]) -> None:
        if not records:
            return
        if self.trouble is Trouble.FAIL:
            raise DiskError("the disk fails")
        used = len(self._durable) + len(self._cached)
        if self.trouble is Trouble.FULL or used + len(records) > self.capacity:
            raise DiskError(f"the disk is full: {used} of {self.capacity} records")
        self._cached += records

    def sync(self, up_to: int | None = None) -> None:
        """Makes the oldest cached records durable: all of them, or so many."""
        count = len(self._cached) if up_to is None else up_to
        for record in self._cached[:count]:
            self._durable.put(record, record)
        del self._cached[:count]

    def crash(self) -> None:
        """Power is gone: what was not synced never was."""
        self._cached.clear()
        self._commits.clear()
        self._free_at = 0
        self._crashes += 1

    def erase(self) -> None:
        """The disk itself is lost."""
        self.crash()
        self._durable.clear()

    def records(self) -> list[Packet]:
        """What a restarted process finds."""
        return self._durable.values()

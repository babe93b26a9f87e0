"""The logs of a node: opened when their groups are joined, read in threads, watched for room.

The committer's thread alone writes to them (store/node_store.py). Readers are machines, by what
they recall, and subscriptions. A log that cannot be read is a disk that has failed: the node stops,
because a machine that waits for what it wrote would wait for ever.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from ordercast.errors import DiskError, UsageError
from ordercast.kernel.family import Family, Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.log import At, Bad, Entry, Place, Recall, Recalled, Strained
from ordercast.kernel.packet import Packet
from ordercast.net.committer import Committer
from ordercast.store.group_log.log import GroupLog
from ordercast.store.group_log.view import Reading
from ordercast.store.node_store import NodeStore

T = TypeVar("T")
_CHUNK = 1 << 20

READERS = 2
"""Threads that read."""
LOOK_SECONDS = 1.0
"""How often the disk is asked for room while it is nearly full."""


class NodeLogs:
    def __init__(
        self,
        store: NodeStore,
        committer: Committer,
        give: Callable[[str, Input], bool],  # to the machine of a group
        clock: Callable[[], int],  # Unix nanoseconds when the time of steps is 0
    ) -> None:
        self._store = store
        self._committer = committer
        self._give = give
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(READERS, "ordercast-read")
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False

    def open(self, family: Family, plan: Plan) -> GroupLog:
        """The log of a group that is joined. UsageError: it cannot be used."""
        group = plan.group

        def strained(full: bool) -> None:  # in the thread that writes
            self._loop.call_soon_threadsafe(self._strained, group, full)

        try:
            return self._store.open_log(group, family.log_size(plan.options), strained)
        except DiskError as error:
            raise UsageError(f"{group!r} cannot be joined: {error}") from error

    def joined(self, group: str) -> None:
        """Its machine is driven now: it hears if the disk is nearly full already."""
        _give_memory_back()
        if self._store.logs[group].is_strained:
            self._strained(group, True)

    def of(self, group: str) -> GroupLog:
        return self._store.logs[group]

    def from_position(self, group: str, position: int) -> tuple[int, list[Entry]]:
        """All that a log has from there on, and where that is. What the disk has lost is a gap."""
        log = self._store.logs[group]
        first = at = max(position, log.floor)
        found: list[Entry] = []
        while at < log.tail:
            for one in log.read(At(at), _CHUNK).entries:
                if isinstance(one, Bad):
                    found.append(Entry(*one.stream, one.number, one.prev, is_gap=True))
                else:
                    found.append(one)
                at += 1
        return first, found

    async def commit(self, record: Packet) -> None:
        """Returns when it is on the disk. DiskError: it may not be."""
        await self._committer.awaited(lambda done: self._committer.commit([record], done))

    def records(self, group: str | None) -> list[Packet]:
        """What a machine is built with."""
        log = None if group is None else self._store.logs.get(group)
        if log is None:
            return self._store.records(group)
        return [log.opened(self._clock()), *log.records()]

    def close(self) -> None:
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- reading -----------------------------------------------------------------------------

    def recall(self, recall: Recall, answer: Callable[[Recalled], object]) -> None:
        """`answer` is called in a later turn of the loop."""
        reading = self._begin(lambda: self._read(recall.group, recall.place, recall.limit))

        def done(future: asyncio.Future[Reading]) -> None:
            if self._closed or future.cancelled():
                return
            if (error := future.exception()) is not None:
                self._committer.fail(error)
                return
            answer(Recalled(recall.group, recall.token, recall.place, *future.result()))

        reading.add_done_callback(done)

    async def read(self, group: str, place: Place, limit: int) -> Reading:
        """DiskError: the disk does not let us read."""
        return await self._begin(lambda: self._read(group, place, limit))

    async def ask(self, group: str, question: Callable[[GroupLog], T]) -> T:
        """Anything else of a log that takes time."""
        return await self._begin(lambda: question(self._store.logs[group]))

    def _read(self, group: str, place: Place, limit: int) -> Reading:
        return self._store.logs[group].read(place, limit)

    def _begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._threads, work)

    # --- room --------------------------------------------------------------------------------

    def _strained(self, group: str, full: bool) -> None:
        if self._closed:
            return
        self._give(group, Strained(group, full))
        if full and self._watch is None:
            self._watch = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        strained = [log for log in self._store.logs.values() if log.is_strained]
        self._watch = None
        if not strained or self._closed:
            return

        def look() -> None:
            for log in strained:
                log.look_for_room()

        def looked() -> None:
            if not self._closed and self._watch is None:
                self._watch = self._loop.call_later(LOOK_SECONDS, self._look)

        self._committer.act(look, looked)


def _give_memory_back() -> None:
    """To the system: opening a log of a million streams takes as much memory again as they need
    afterwards, and glibc would keep it."""
    with suppress(OSError, AttributeError):  # elsewhere there is no such call
        ctypes.CDLL(None).malloc_trim(0)

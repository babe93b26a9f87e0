"""A group with a log: what an application posts is on its disk, and it reads from any place.

Nothing is held in memory for the application: a subscription (`subscription.py`) reads the log on
disk. So there is no slow reader to throttle, and none is ejected. Reading the group itself, as one
reads any group, begins with what comes after the join.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, cast
from weakref import WeakSet

from ordercast.errors import UsageError
from ordercast.kernel.log import Committed, Place, Reference, Unreadable, key_of
from ordercast.kernel.machine import Logging, TreePlace
from ordercast.kernel.outbox import Batch
from ordercast.kernel.step import Heard
from ordercast.net.condition import Condition
from ordercast.net.group import Group
from ordercast.net.marks import Mark, Post, PostedMarks, Vector
from ordercast.net.message import as_bytes
from ordercast.net.receipt import Receipt, Until
from ordercast.net.subscription import Since, Subscription
from ordercast.store.group_log.view import Reading
from ordercast.types import Event, Gap, Payloads, Waiting
from ordercast.units import SECOND

LOOK_TIME = SECOND // 2
"""How often a step may look whether this member is in the tree."""
MOST_NAMES = 1000
"""Subscribers that may commit a mark at one node."""
LONGEST_NAME = 100
FULL = "the disk is nearly full, and the log takes nothing before there is room"


class LoggedGroup(Group):
    """Made by `node.join` for a level whose groups have logs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._logs = self._driver.logs
        self._log = self._logs.of(self.name)
        self.changed = Condition()  # a step took effect, or the group has ended
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        self._reader = self.since("latest") if self.reads else None
        self._committed = {
            record.name: Mark(self.log, record.position, record.index)
            for record in self._log.records()
            if isinstance(record, Committed)
        }
        self._look_at = 0  # the next time
        self._waits_for = ""  # why, as it was said last

    # --- posting -----------------------------------------------------------------------------

    async def post(self, data: bytes, *, reply_to: Reference | Post | None = None) -> Mark:
        """Posts a message. Returns when it is on this node's disk: then nothing but the loss of
        that disk loses it, and once it is `stable` not even that.

        A reply comes after its original at every node. UsageError: the original is not in the log.
        """
        return (await self.post_many([data], reply_to=reply_to))[0]

    async def post_many(
        self, messages: Payloads, *, reply_to: Reference | Post | None = None
    ) -> Sequence[Mark]:
        """Posts several messages as part of one batch. Returns a mark for each."""
        first, receipt, batch = await self._add(messages, self._original(reply_to))
        await receipt.wait("delivered")
        indices = range(first, first + len(messages))
        return PostedMarks(self.log, self._me.name, receipt, indices, len(batch.payloads))

    async def send(
        self,
        data: bytes,
        *,
        until: Until = "queued",
        service: str = "",
        reply_to: Reference | Post | None = None,
    ) -> Receipt:
        """As `post`, but returns when the message is queued."""
        return await self.send_many([data], until=until, service=service, reply_to=reply_to)

    async def send_many(
        self,
        messages: Payloads,
        *,
        until: Until = "queued",
        service: str = "",
        reply_to: Reference | Post | None = None,
    ) -> Receipt:
        if reply_to is None:
            return await super().send_many(messages, until=until, service=service)
        self._check(until, service)
        _, receipt, _ = await self._add(messages, self._original(reply_to))
        return receipt if until == "queued" else await receipt.wait(until)

    async def _add(
        self, messages: Payloads, original: Reference | None
    ) -> tuple[int, Receipt, Batch[Receipt]]:
        """To the next batch of such replies; and which message of it is the first of these."""
        self._check_may_send()
        if not messages:
            raise UsageError("give one message at the least")
        messages = [each if type(each) is bytes else as_bytes(each) for each in messages]
        size, count, queue = sum(map(len, messages)), len(messages), self.queue
        asked: Any = original or ""
        batch = queue.batch_for(size, count, asked) or await self._credit(size, count, asked)
        first, receipt = len(batch.payloads), batch.receipt
        batch.payloads += messages
        batch.size += size
        queue.plan(queue.outbox.added())
        return first, receipt, batch

    def _original(self, reply_to: Reference | Post | None) -> Reference | None:
        original: object = reply_to.reference if isinstance(reply_to, Post) else reply_to
        if original is None:
            return None
        if not isinstance(original, Reference):
            what = type(original).__name__
            raise UsageError(f"reply_to is a message of the group or its reference, not {what}")
        machine = self._machine()
        if machine is not None and not machine.has(original):
            raise UsageError(
                f"{self.name!r} has no event {original.number} of {original.origin} here: a reply "
                "can be posted where its original is, or was, in the log"
            )
        return original

    # --- reading -----------------------------------------------------------------------------

    def since(self, since: Since) -> Subscription:
        """A reader that begins at a mark, with what a vector lacks, with the "earliest" message
        that is there, or with the "latest": what comes from now on. Any number of them may read, at
        their own pace."""
        subscription = Subscription(self, since)
        self._subscriptions.add(subscription)
        return subscription

    async def vector(self, mark: Mark | None = None) -> Vector:
        """What is in front of a mark, for a reader at any node; without a mark: all that is here.

        UsageError: what is in front of it is not all there any more.
        """
        mark = Mark(self.log, self.tail) if mark is None else self._own(mark)
        numbers = await self._logs.ask(self.name, lambda log: log.vector_at(mark.position))
        if not mark.index:
            return Vector(numbers)
        reading = await self.read(mark, 1)
        if reading.first != mark.position or not reading.entries:
            raise UsageError(f"{mark}: there is no batch at this position")
        entry = reading.entries[0]
        return Vector(numbers, (key_of(entry.stream), entry.number, mark.index))

    async def commit(self, mark: Mark, name: str = "main") -> None:
        """Keeps a mark under the name of a subscriber, in the log of this node. Returns when it is
        on the disk. Messages that were done with after the last commit come again: at least once.
        """
        if not 1 <= len(name) <= LONGEST_NAME:
            raise UsageError(f"a subscriber has a name of 1 to {LONGEST_NAME} characters")
        if name not in self._committed and len(self._committed) >= MOST_NAMES:
            raise UsageError(f"{MOST_NAMES} subscribers have committed marks here: no more may")
        if self.ended is not None:
            raise self.ended
        mark = self._own(mark)
        self._committed[name] = mark
        await self._logs.commit(Committed(self.name, name, mark.position, mark.index))

    def committed(self, name: str = "main") -> Mark | None:
        """What was committed last under this name."""
        return self._committed.get(name)

    def _own(self, mark: object) -> Mark:
        """UsageError: it is no mark of this log."""
        if not isinstance(mark, Mark):
            raise UsageError(f"a mark is wanted, and not {mark!r}")
        return mark.check(self.name, self.log, self.tail)

    # --- what subscriptions use --------------------------------------------------------------

    @property
    def log(self) -> int:
        """The identity of its log at this node."""
        return self._log.identity

    @property
    def tail(self) -> int:
        """The position that comes next in the log."""
        return self._log.tail

    @property
    def floor(self) -> int:
        """The position of the oldest entry that is there."""
        return self._log.floor

    async def read(self, place: Place | Mark, limit: int) -> Reading:
        place = place.place() if isinstance(place, Mark) else place
        return await self._logs.read(self.name, place, limit)

    def ask_for(self, lost: Unreadable) -> None:
        self._give(lost)

    def awaits(self, position: int) -> bool:
        machine = self._machine()
        return machine is not None and machine.awaits(position)

    async def settled(self) -> None:
        done = asyncio.Event()
        self._driver.after(self.name, done.set)
        while not done.is_set() and self.ended is None:
            await self.changed.wait()

    # --- the group itself as a reader --------------------------------------------------------

    def _own_reader(self) -> Subscription:
        self.check_reads()
        assert self._reader is not None
        return self._reader

    def __aiter__(self) -> Any:
        return self._own_reader()

    async def __anext__(self) -> Heard:
        return await self._own_reader().__anext__()

    def next_batch(self) -> Coroutine[Any, Any, Heard]:
        return self._own_reader().next_batch()

    async def run(self, handler: Callable[[Heard], Awaitable[None] | None]) -> None:
        await self._own_reader().run(handler)

    # --- what the driver reports -------------------------------------------------------------

    def take(self, item: Heard) -> None:
        if isinstance(item, Event):
            if item.origin == self._me:
                self._progress.delivered_up_to = item.number
                self._progress.changed.notify()
        elif not isinstance(item, Gap):  # both are in the log
            super().take(item)

    def _put(self, item: Heard) -> None:
        for subscription in self._subscriptions:
            subscription.tell(item)
        self.changed.notify()

    def stepped(self) -> None:
        super().stepped()
        self.changed.notify()
        now = time.monotonic_ns()
        if now >= self._look_at or not self.readiness.is_in:
            self._look_at = now + LOOK_TIME
            self._look(now)

    def _machine(self) -> Logging | None:
        return cast("Logging | None", self._driver.machine(self.name))

    def _look(self, now: int) -> None:
        """Whether this member is in the tree, and takes what is posted."""
        machine = self._machine()
        if machine is None or self.ended is not None:
            return
        place = machine.place()
        is_placed = bool(place.parent or place.children or place.is_root)
        if is_placed and not self.readiness.is_in:
            self.readiness.enter()
        why = _why(place, self._log.is_strained)
        if why == self._waits_for:
            return
        self._waits_for = why
        since = now if place.seeks_since is None else place.seeks_since
        self.take(Waiting(self.name, (), why, since if why else 0))

    def status(self) -> dict[str, Any]:
        machine = self._machine()
        place = machine.place() if machine is not None else TreePlace()
        since = place.seeks_since
        return super().status() | {
            "place": {
                "parent": place.parent,
                "path": list(place.path),
                "children": list(place.children),
                "is_root": place.is_root,
                "seeks": None if since is None else (time.monotonic_ns() - since) / SECOND,
            },
            "log": {
                "identity": f"{self.log:016x}",
                "floor": self.floor,
                "tail": self.tail,
                "strained": self._log.is_strained,
                "folder": str(self._log.folder),
            },
            "committed": {name: str(mark) for name, mark in self._committed.items()},
        }

    # --- the end -----------------------------------------------------------------------------

    def _is_underway(self) -> bool:
        machine = self._machine()
        place = machine.place() if machine is not None else TreePlace()
        if place.parent or place.children:
            return super()._is_underway()
        # Nobody is there to take it: it stays in the log.
        return len(self.queue.outbox) > 0 or not self._is_level()

    def _is_level(self) -> bool:
        return self._progress.delivered_up_to >= self._progress.submitted_up_to

    def close(self, why: Exception) -> None:
        super().close(why)
        self.changed.notify()


def _why(place: TreePlace, is_strained: bool) -> str:
    """Why this member waits; "": it does not."""
    if place.refuses:
        return place.refuses
    if is_strained:
        return FULL
    if place.seeks_since is not None and not place.is_root:
        return "it looks for a parent, and goes on with what its log has"
    return ""

"""What the application has sent and the machine has not taken yet, and who waits for credit.

The outbox (`kernel/outbox.py`) decides what travels together, how long it gathers and how much may
wait. This class adds what it knows nothing of: the event loop whose turns it counts, the senders
without credit, which are served in their order, and the machine, which is asked for room.

No batch grows beyond what the machine's window can ever take: a message that is larger alone is
refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic_ns
from typing import Protocol

import msgspec

from ordercast.errors import OrdercastError, UsageError
from ordercast.kernel.outbox import AS_PLANNED, NOW, Batch, Limits, Outbox, When
from ordercast.net.message import too_much
from ordercast.net.progress import Progress
from ordercast.net.receipt import Receipt

LIMITS = Limits()
SHARED_BYTES, SHARED_COUNT = 48 << 10, 1700
"""Of a batch that should fit into one datagram, with all that is around its messages."""


class Submitting(Protocol):
    """Where batches go."""

    def room(self) -> int | None:
        """The time, if one more batch may be submitted now. None: `flush` is called again."""

    def submit(self, now: int, batch: Batch[Receipt]) -> None:
        """At the time that `room` gave. Raises nothing: if this fails the group ends."""


class SendQueue:
    def __init__(
        self, progress: Progress, largest: int, target: Submitting, is_shared: bool = False
    ) -> None:
        self.largest = largest  # bytes of one batch, and so of one message
        credit = min(LIMITS.credit_bytes, largest)
        limits = msgspec.structs.replace(LIMITS, credit_bytes=credit, batch_bytes=credit)
        if is_shared:  # it goes by multicast
            limits = msgspec.structs.replace(
                limits,
                full_bytes=min(credit, SHARED_BYTES),
                batch_bytes=min(credit, SHARED_BYTES),
                batch_count=SHARED_COUNT,
            )
        self.outbox = Outbox(limits, partial(Receipt, progress, self.hurry))
        self.in_line = 0  # senders that wait for credit
        self.blocked_since = 0  # in ns: since then nothing has left, and senders wait; 0: none do
        self.blocked: Callable[[], None] = lambda: None  # called when that begins
        self._line = asyncio.Lock()  # held by the first of them
        self._progress = progress
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._flushing = False

    @property
    def unsent(self) -> int:
        """Messages that were accepted and are in no event yet; those who wait for room count."""
        return len(self.outbox) + self.in_line

    def hurry(self) -> None:
        """Somebody waits for what is not sent yet: it leaves when this turn ends."""
        self.outbox.hurry()

    # --- in ------------------------------------------------------------------------------------

    def batch_for(self, size: int, count: int, service: str) -> Batch[Receipt] | None:
        """The batch that so much can join right now; None: it must wait. Refuses what never can.

        The messages of one batch have one service, which is its attribute.
        """
        if size > self.largest:
            raise too_much(size, count, self._progress.group, self.largest)
        if count > LIMITS.credit_count:
            raise UsageError(f"{count} messages at once; send_many takes {LIMITS.credit_count}")
        return None if self.in_line else self.outbox.offer(size, count, service)

    async def wait_for_credit(self, size: int, count: int, service: str) -> Batch[Receipt]:
        """The batch that so much can join, once there is credit for it."""
        self.in_line += 1
        if not self.blocked_since:
            self.blocked_since = monotonic_ns()
            self.blocked()
        try:
            async with self._line:
                while (batch := self.outbox.offer(size, count, service)) is None:
                    if not self.flush():
                        await self._progress.change()
        finally:
            self.in_line -= 1
            if not self.in_line:
                self.blocked_since = 0
            self._progress.changed.notify()
        return batch

    def plan(self, when: When) -> None:
        """The outbox has grown."""
        if when is NOW:
            self.flush()
        elif when is not AS_PLANNED:
            self._loop.call_soon(self._end_of_turn)

    # --- out -----------------------------------------------------------------------------------

    def _end_of_turn(self) -> None:
        """A turn in which nothing happens takes microseconds, and a busy one as long as it takes to
        do what has come in meanwhile: so a batch gathers more where there is more to do."""
        if self.outbox.turn_ended(monotonic_ns()):
            self.flush()
        else:
            self._loop.call_soon(self._end_of_turn)

    def flush(self) -> bool:
        """What waits becomes events while the machine has room: whether anything did.

        A submission makes a step, after which there may be room again: that asks us to flush while
        we do.
        """
        if self._flushing:
            return False
        self._flushing, left = True, False
        outbox, progress, target = self.outbox, self._progress, self._target
        while outbox and progress.ended is None and (now := target.room()) is not None:
            batch = outbox.take(monotonic_ns())
            assert batch is not None
            target.submit(now, batch)
            left = True
        self._flushing = False
        if left:
            if self.in_line:
                self.blocked_since = monotonic_ns()
            progress.changed.notify()
        return left

    def stepped(self) -> None:
        """There may be room now."""
        if self.outbox and not self.outbox.is_planned:
            self.flush()

    def give_up(self, why: OrdercastError) -> None:
        """Nothing of what waits is sent: whoever asks for its receipt hears why."""
        for batch in self.outbox.give_up():
            batch.receipt.failure = why

"""A group as an application has it: send, and one ordered stream of messages and views.

Sends of one turn of the event loop travel as one batch: the first of them asks for a flush at the
end of the turn, so a lone message waits for nothing but that. In a stream of messages a batch may
gather for a few turns more, unless somebody waits for it: small batches cost as much as large ones,
and who is busy with them delivers late. A batch that has grown to the byte limit leaves at once.

While the machine has no room the open batch collects what is sent, up to the limits of the credit;
then `send` waits, and whoever comes later waits behind it. The same while too much is on its way to
a member, of whatever groups: a link has one limit for all of them. No batch grows beyond what the
machine's window can ever take: a message that is larger alone is refused.

What is delivered waits in a queue for the application. When that is over its limit the machine is
told, and acknowledges no more: so the senders' windows fill, and a slow consumer slows its senders
by exactly what it cannot take. Its own sends wait too. After `eject_after` without a sign of life
it is put out of the group, with an error in its stream.

Where it takes a ticket to send, `licence.py` has it: nothing is accepted without one, and what was
accepted and not sent when it is lost is given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ordercast.errors import OrdercastError, UsageError, unknown_word
from ordercast.net.bell import Bell
from ordercast.net.licence import Licence
from ordercast.net.message import LARGEST_BATCH, GroupClosed, Message, as_bytes, state_of
from ordercast.net.receipt import UNTIL, Receipt, Until
from ordercast.types import Event, Payloads, StateGiven, StateWanted, Updating, View

if TYPE_CHECKING:
    from ordercast.net.node import Node

log = logging.getLogger("ordercast.net")

BATCH_BYTES = 64 << 10
GATHER = 300_000  # nanoseconds
GATHER_TURNS = 8
"""A batch that follows another one this closely may grow for so many turns of the event loop."""
CREDIT_BYTES = 512 << 10
CREDIT_COUNT = 16_384
QUEUE_BYTES = 4 << 20
QUEUE_COUNT = 65_536
LEAVE_SECONDS = 2.0
Item: TypeAlias = Event | View | Updating
"""What an application is handed, in order."""


class Group:
    """Made by `node.join`; an async context manager and an async iterator."""

    def __init__(
        self,
        node: Node,
        name: str,
        eject_after: float,
        may_send: bool = True,
        largest: int = LARGEST_BATCH,
        *,
        family: str = "fifo",
        lease: float | None = None,  # of tickets, in seconds; None: it takes none to send
        tells_stability: bool = True,
        snapshot: Callable[[], bytes] | None = None,
        restore: Callable[[bytes], None] | None = None,
    ) -> None:
        self.name = name
        self.family = family
        self.may_send = may_send
        self.largest = min(int(largest), LARGEST_BATCH)  # bytes of one batch, and so of one message
        self.view: View | None = None  # the last one that the application has taken
        self._installed: View | None = None  # the last one that the machine installed
        self.delivered_up_to = 0
        self.stable_up_to = 0
        self._tells_stability = tells_stability
        self._snapshot = snapshot
        self._restore = restore
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._eject_after = eject_after
        self._closed: Exception | None = None
        self.licence: Licence | None = None
        if lease is not None:
            self.licence = Licence(self, node.driver, lease)
        # Out.
        self._batch: Payloads = []
        self._batch_size = 0
        self._credit = min(CREDIT_BYTES, self.largest)
        self._receipt = Receipt(self)
        self._flushing = False
        self._leaving = False
        self._line = asyncio.Lock()  # held by the first of those who wait for credit
        self._in_line = 0
        self._hurried = False  # somebody waits for the open batch
        self._turns_gathered = 0  # that the open batch has been held back
        self._flushed_at = -(1 << 62)  # long ago, however short this machine has been up
        self._changed = Bell(self._loop)  # whoever waits for anything about sends waits here
        # In.
        self._queue: deque[Item | StateWanted | StateGiven] = deque()
        self._queue_size = 0
        self._queue_count = 0
        self._throttled: asyncio.TimerHandle | None = None
        self._items_taken = 0
        self._sign_of_life = (0, 0)  # what the application had taken when that was last looked at
        self._payloads: Payloads = []  # of the event that is being handed out
        self._place = 0
        self._event: Event | None = None
        self._arrived = Bell(self._loop)

    # --- sending -----------------------------------------------------------------------------

    async def send(self, data: bytes, *, until: Until = "queued") -> Receipt:
        """Sends to every member. Returns when the message is queued, delivered here, or stable."""
        if type(data) is not bytes:
            data = as_bytes(data)
        size = len(data)
        if self._needs_attention(size, 1, until):
            await self._wait_for_credit(size, 1)
        self._batch.append(data)
        self._batch_size += size
        receipt = self._added()
        return receipt if until == "queued" else await receipt.wait(until)

    async def send_many(self, messages: Payloads, *, until: Until = "queued") -> Receipt:
        """Sends several messages as part of one batch: cheaper than one by one, the same else."""
        if not isinstance(messages, list):
            raise UsageError("send_many takes a list of messages; send takes one")
        messages = [each if type(each) is bytes else as_bytes(each) for each in messages]
        size, count = sum(map(len, messages)), len(messages)
        if self._needs_attention(size, count, until):
            await self._wait_for_credit(size, count)
        self._batch += messages
        self._batch_size += size
        receipt = self._added() if count else Receipt(self, 0)  # nothing has arrived everywhere
        return receipt if until == "queued" else await receipt.wait(until)

    def check_until(self, until: str) -> None:
        if until not in UNTIL:
            raise UsageError(unknown_word("word for until", str(until), UNTIL))
        if until == "stable" and not self._tells_stability:
            raise UsageError(
                f"{self.name!r} is a cluster, in which nobody knows who has what: wait until "
                "'delivered', there is no 'stable'"
            )

    def _needs_attention(self, size: int, count: int, until: str) -> bool:
        """Whether somebody must wait before this can join the open batch. Refuses what never can.

        All that can be wrong with a send is found here, and told to the one who sends.
        """
        if self._closed is not None:
            raise self._closed
        if not self.may_send:
            raise self._only_reads()
        if self.licence is not None:
            self.licence.refuse()
        self.check_until(until)
        if size > self.largest:
            what = f"a message of {size} bytes" if count == 1 else f"{count} messages, {size} bytes"
            raise UsageError(
                f"{what}: {self.name!r} takes {self.largest} at once (its window_size, at most "
                f"{LARGEST_BATCH})"
            )
        if count > CREDIT_COUNT:
            raise UsageError(f"{count} messages at once; send_many takes {CREDIT_COUNT}")
        return self._in_line > 0 or not self._has_credit(size, count)

    def _only_reads(self) -> UsageError:
        return UsageError(f"{self._node.me.name} may not send in {self.name!r}: it only reads")

    def _has_credit(self, size: int, count: int) -> bool:
        waiting = len(self._batch)
        return not waiting or (
            self._batch_size + size <= self._credit and waiting + count <= CREDIT_COUNT
        )

    async def _wait_for_credit(self, size: int, count: int) -> None:
        self._in_line += 1
        try:
            async with self._line:
                while not self._has_credit(size, count):
                    self._flush()
                    if not self._has_credit(size, count):
                        await self.change()
        finally:
            self._in_line -= 1
            self._changed.ring()
        if self._closed is not None:
            raise self._closed
        if self.licence is not None:
            self.licence.refuse(waited=True)

    def _added(self) -> Receipt:
        """The open batch has grown: it leaves now if it is large, or else when the turn ends."""
        receipt = self._receipt
        if self._batch_size >= BATCH_BYTES:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._end_of_turn)
        return receipt

    def _end_of_turn(self) -> None:
        """The open batch leaves, unless one has just left: then it may gather for some turns more.

        A turn in which nothing happens takes microseconds, and a busy one as long as it takes to
        do what has come in meanwhile: so it gathers more where there is more to do.
        """
        if (
            self._turns_gathered < GATHER_TURNS
            and not self._hurried
            and monotonic_ns() - self._flushed_at < GATHER
        ):
            self._turns_gathered += 1
            self._loop.call_soon(self._end_of_turn)
            return
        self._flushing = False
        self._flush()

    def hurry(self) -> None:
        """Somebody waits for the open batch: it leaves when this turn ends."""
        self._hurried = True

    def _flush(self) -> None:
        """The open batch becomes an event, if the machine has room for one."""
        if not self._batch or self._closed is not None:
            return
        if self._throttled is not None and not self._leaving:
            return  # our own events would lie in our own queue, without a bound
        if self._node.driver.crowd.full and self._must_wait_for_a_peer():
            return  # the driver tells when there is room; a view without that peer does as well
        step = self._node.driver.room(self.name)
        if step is None:
            return  # `stepped` tries again after every step
        payloads, size, receipt = self._batch, self._batch_size, self._receipt
        self._batch, self._batch_size, self._receipt = [], 0, Receipt(self)
        self._hurried, self._turns_gathered, self._flushed_at = False, 0, monotonic_ns()
        try:
            receipt.number = self._node.driver.submit(step, self.name, payloads, size).number
        except Exception as error:
            self.failed(error)  # reaches whoever sends or waits, and not the event loop
        self._changed.ring()

    def _must_wait_for_a_peer(self) -> bool:
        """Too much of all our groups is on its way to a member. Who leaves adds one batch more."""
        view = self._installed
        crowd = self._node.driver.crowd
        return view is not None and not self._leaving and crowd.holds_up(view.members)

    def stepped(self) -> None:
        if self._batch and not self._flushing:
            self._flush()
        if self._closed is not None:
            return  # that flush has failed, and this member is out
        if self._leaving and self.licence is not None:
            self._changed.ring()  # perhaps we may go
        stable = self._node.driver.machines[self.name].stable_up_to(self.name)
        if stable != self.stable_up_to:
            self.stable_up_to = stable
            self._changed.ring()

    def failed(self, error: Exception) -> None:
        """The driver could not do what the machine decided: this member cannot go on."""
        if self._closed is None:
            self._node.fail(self, error)

    async def change(self) -> None:
        """Until something about this group's sends has changed."""
        if self._closed is not None:
            raise self._closed
        await self._changed.wait()
        if self._closed is not None:
            raise self._closed

    # --- tickets -----------------------------------------------------------------------------

    @property
    def updating(self) -> int | None:
        """The ticket with which we may send, where that takes one."""
        return self.licence.updating if self.licence is not None else None

    async def become_updater(self, timeout: float | None = None) -> int:
        """Returns our ticket once we have one. TimeoutError: nobody gave one up in time."""
        if self._closed is not None:
            raise self._closed
        if not self.may_send:
            raise self._only_reads()
        return await self._licence_or_refuse().become(timeout)

    async def stop_updating(self) -> None:
        """Gives our ticket back, after what was accepted before has been sent."""
        if self._closed is not None:
            raise self._closed
        await self._licence_or_refuse().stop()

    def _licence_or_refuse(self) -> Licence:
        if self.licence is None:
            why = "its updaters are named for ever" if self.family == "causal" else "all may send"
            raise UsageError(f"{self.name!r} is {self.family}, without tickets: {why}")
        return self.licence

    @property
    def is_open(self) -> bool:
        return self._closed is None

    @property
    def unsent(self) -> int:
        """Messages that were accepted and are in no event yet; those who wait for room count."""
        return len(self._batch) + self._in_line

    def give_up_unsent(self, why: OrdercastError) -> None:
        """Whoever asks for the receipt of what waits is told."""
        self._receipt.failure = why
        self._batch, self._batch_size, self._receipt = [], 0, Receipt(self)

    # --- receiving ---------------------------------------------------------------------------

    def take(self, item: Item | StateWanted | StateGiven) -> None:
        """The driver hands over what the machine delivered, or asks of the application."""
        if isinstance(item, Event):
            if item.origin == self._node.me:
                self.delivered_up_to = item.number
            self._queue_count += len(item.payloads)
            self._queue_size += item.size
            if self._throttled is None and self._is_over_limit():
                self._loop.call_soon(self._throttle)
        elif isinstance(item, View):
            self._installed = item
        elif isinstance(item, Updating):
            assert self.licence is not None
            told = self.licence.heard(item)
            self._changed.ring()
            if told is None:
                return
            item = told
        self._queue.append(item)
        self._arrived.ring()

    def _is_over_limit(self) -> bool:
        return self._queue_size > QUEUE_BYTES or self._queue_count > QUEUE_COUNT

    def _throttle(self) -> None:
        """Outside the step that delivered: machines are called one door at a time."""
        if self._throttled is None and self._closed is None and self._is_over_limit():
            self._sign_of_life = (self._items_taken, self._place)
            self._throttled = self._loop.call_later(self._eject_after, self._eject)
            self._node.driver.throttle(self.name, True)

    def _relieve(self) -> None:
        """The application has caught up to half the limit: more may come."""
        caught_up = 2 * self._queue_size <= QUEUE_BYTES and 2 * self._queue_count <= QUEUE_COUNT
        if self._throttled is not None and self._closed is None and caught_up:
            self._throttled.cancel()
            self._throttled = None
            self._node.driver.throttle(self.name, False)

    def _eject(self) -> None:
        """The time is over. Who has taken anything meanwhile is slow, but alive."""
        taken = (self._items_taken, self._place)
        if taken != self._sign_of_life:
            self._sign_of_life = taken
            self._throttled = self._loop.call_later(self._eject_after, self._eject)
            return
        self._node.eject(self, "the application took nothing for too long")

    def __aiter__(self) -> Group:
        return self

    async def __anext__(self) -> Message | View | Updating:
        place = self._place
        if place < len(self._payloads):
            self._place = place + 1
            event = self._event
            assert event is not None
            return Message(event.origin, self._payloads[place], event.group, event.number)
        while True:
            try:
                item = await self._next_item()
            except GroupClosed:
                raise StopAsyncIteration from None
            if not isinstance(item, Event):
                return item
            if item.payloads:
                self._event, self._payloads, self._place = item, item.payloads, 1
                return Message(item.origin, item.payloads[0], item.group, item.number)

    async def next_batch(self) -> Item:
        """The next whole event, or what comes in between: one call a batch, for those who count
        microseconds."""
        if self._place < len(self._payloads) and self._event is not None:
            rest = msgspec.structs.replace(self._event, payloads=self._payloads[self._place :])
            self._payloads = []
            return rest
        return await self._next_item()

    async def _next_item(self) -> Item:
        while True:
            while not self._queue:
                if self._closed is not None:
                    raise self._closed
                await self._arrived.wait()
            item = self._queue.popleft()
            self._items_taken += 1
            # The application has done with all that it was handed before, so its state is that of
            # this place in the stream.
            if isinstance(item, StateWanted):
                self._node.driver.provide(self.name, item.token, state_of(self._snapshot))
            elif isinstance(item, StateGiven):
                if item.state is None:
                    log.warning("%s begins without the state that others have", self.name)
                elif self._restore is not None:
                    self._restore(item.state)
            else:
                return self._taken(item)

    def _taken(self, item: Item) -> Item:
        if not isinstance(item, Event):
            self.view = item if isinstance(item, View) else self.view
            return item
        self._queue_count -= len(item.payloads)
        self._queue_size -= item.size
        if self._throttled is not None:
            self._relieve()
        return item

    def status(self) -> dict[str, Any]:
        """How the group is, as plain values."""
        members = self._installed.members if self._installed else ()
        machine = self._node.driver.machines.get(self.name)
        return {
            "members": [str(member) for member in members],
            "waiting_in": self._queue_count,
            "waiting_out": len(self._batch),
            "throttled": self._throttled is not None,
            "updating": self.licence.status() if self.licence is not None else None,
            "delivered_up_to": self.delivered_up_to,
            "stable_up_to": self.stable_up_to,
            "figures": machine.figures(self.name) if machine is not None else {},
        }

    # --- leaving -----------------------------------------------------------------------------

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Leaves in an orderly way: what was sent reaches the others first, if they answer, and
        what they need us for is handed over."""
        if self._closed is not None:
            return
        self._leaving = True
        try:
            self._flush()
            await self._wait_while(self._is_underway, LEAVE_SECONDS)
            if self.licence is not None:
                await self._wait_while(self.licence.is_needed, self.licence.retire())
        except OrdercastError:
            return  # it was closed meanwhile
        finally:
            if self._closed is None:  # also if we were told to hurry: the others must hear of it
                self._node.leave(self)

    def _is_underway(self) -> bool:
        unstable = self._tells_stability and self.stable_up_to < self.delivered_up_to
        return bool(self._batch) or unstable

    async def _wait_while(self, busy: Callable[[], bool], seconds: float) -> None:
        """Not for ever: somebody may not answer, and the others have it or get it somehow."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while busy():
                    await self.change()

    def close(self, why: Exception) -> None:
        """No more sends; what was delivered can still be read."""
        self._closed = why
        if self._throttled is not None:
            self._throttled.cancel()
        self._changed.ring()
        self._arrived.ring()

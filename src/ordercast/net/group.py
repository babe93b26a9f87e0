"""A group as an application has it: send, and one ordered stream of messages and views.

Sends of one turn of the event loop travel as one batch, and a stream of messages may gather for a
few turns more: `kernel/outbox.py` decides that, and how much may wait.

While the machine has no room the outbox collects what is sent, up to the limits of the credit;
then `send` waits, and later senders wait behind it. The same while too much is on its way to a
member, of whatever groups: a link has one limit for all of them. No batch grows beyond what the
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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.errors import OrdercastError, UsageError
from ordercast.kernel.inputs import StateProvided
from ordercast.kernel.outbox import AS_PLANNED, NOW, Batch, Limits, Outbox, When
from ordercast.net.bell import Bell
from ordercast.net.formations import Formations, Vote
from ordercast.net.inbox import Inbox
from ordercast.net.licence import Licence
from ordercast.net.message import (
    LARGEST_BATCH,
    GroupClosed,
    Handed,
    Handover,
    Item,
    Message,
    Told,
    as_bytes,
    too_much,
)
from ordercast.net.patience import Patience
from ordercast.net.receipt import Receipt, Until, check_until
from ordercast.types import (
    Event,
    Invitation,
    Payloads,
    Refused,
    StateGiven,
    StateWanted,
    Updating,
    View,
)

if TYPE_CHECKING:
    from ordercast.kernel.family import Family, Plan
    from ordercast.net.node import Node

log = logging.getLogger("ordercast.net")

LIMITS = Limits()
LEAVE_SECONDS = 2.0


class Group:
    """Made by `node.join`; an async context manager and an async iterator."""

    def __init__(
        self,
        node: Node,
        family: Family,
        plan: Plan,
        eject_after: float,
        may_send: bool = True,  # by the rules of this cluster
        *,
        snapshot: Callable[[], bytes] | None = None,
        restore: Callable[[bytes], None] | None = None,
        vote: Vote | None = None,
    ) -> None:
        self.name = plan.group
        self.family = family.name
        self.may_send = may_send and family.may_send(plan, node.me.name)
        # Bytes of one batch, and so of one message.
        self.largest = min(family.largest_batch(plan.options), LARGEST_BATCH)
        self.view: View | None = None  # the last one that the application has taken
        self._installed: View | None = None  # the last one that the machine installed
        self.delivered_up_to = 0
        self.stable_up_to = 0
        self.tells_stability = family.tells_stability
        self._handover = Handover(snapshot, restore)
        self.node = node
        self._loop = asyncio.get_running_loop()
        self._closed: Exception | None = None
        self.licence: Licence | None = None
        if family.permit is not None and family.needs_permit(plan):
            self.licence = Licence(self, node.driver, family.permit.lease(plan.options) / 1e9)
        self._no_permit = (
            "all may send" if family.permit is None else "its updaters are named for ever"
        )
        self.formations = Formations(self, node, vote) if family.formation is not None else None
        # Out.
        credit = min(LIMITS.credit_bytes, self.largest)
        limits = msgspec.structs.replace(LIMITS, credit_bytes=credit, batch_bytes=credit)
        self.outbox = Outbox(limits, partial(Receipt, self))
        self._leaving = False
        self._submitting = False  # a submission makes a step, after which there may be room again
        self._line = asyncio.Lock()  # held by the first of those who wait for credit
        self._in_line = 0
        self._changed = Bell(self._loop)  # whoever waits for anything about sends waits here
        # In.
        self.inbox = Inbox(node.arrivals)
        self._patience = Patience(self, self.inbox, eject_after, self._progress)
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
        batch = self._batch_for(size, 1, until) or await self._wait_for_credit(size, 1)
        batch.payloads.append(data)
        batch.size += size
        receipt, when = batch.receipt, self.outbox.added()
        if when is not AS_PLANNED:
            self._plan(when)
        return receipt if until == "queued" else await receipt.wait(until)

    async def send_many(self, messages: Payloads, *, until: Until = "queued") -> Receipt:
        """Sends several messages as part of one batch: cheaper than one by one, the same else."""
        if not isinstance(messages, list):
            raise UsageError("send_many takes a list of messages; send takes one")
        messages = [each if type(each) is bytes else as_bytes(each) for each in messages]
        size, count = sum(map(len, messages)), len(messages)
        batch = self._batch_for(size, count, until) or await self._wait_for_credit(size, count)
        batch.payloads += messages
        batch.size += size
        receipt = batch.receipt if count else Receipt(self, 0)  # nothing has arrived everywhere
        if count:
            self._plan(self.outbox.added())
        return receipt if until == "queued" else await receipt.wait(until)

    def _batch_for(self, size: int, count: int, until: str) -> Batch[Receipt] | None:
        """The batch that this can join right now; None: it must wait. Refuses what never can.

        All that can be wrong with a send is found here, and told to the one who sends.
        """
        if self._closed is not None:
            raise self._closed
        if not self.may_send:
            raise self._only_reads()
        if self.licence is not None:
            self.licence.refuse()
        if until != "queued":
            check_until(until, self.name, self.tells_stability)
        if size > self.largest:
            raise too_much(size, count, self.name, self.largest)
        if count > LIMITS.credit_count:
            raise UsageError(f"{count} messages at once; send_many takes {LIMITS.credit_count}")
        return None if self._in_line else self.outbox.offer(size, count)

    def _only_reads(self) -> UsageError:
        return UsageError(f"{self.node.me.name} may not send in {self.name!r}: it only reads")

    async def _wait_for_credit(self, size: int, count: int) -> Batch[Receipt]:
        self._in_line += 1
        try:
            async with self._line:
                while (batch := self.outbox.offer(size, count)) is None:
                    if not self._flush():
                        await self.change()
        finally:
            self._in_line -= 1
            self._changed.ring()
        if self._closed is not None:
            raise self._closed
        if self.licence is not None:
            self.licence.refuse(waited=True)
        return batch

    def _plan(self, when: When) -> None:
        if when is NOW:
            self._flush()
        elif when is not AS_PLANNED:
            self._loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        """A turn in which nothing happens takes microseconds, and a busy one as long as it takes to
        do what has come in meanwhile: so a batch gathers more where there is more to do."""
        if self.outbox.turn_ended(monotonic_ns()):
            self._flush()
        else:
            self._loop.call_soon(self._end_of_turn)

    def hurry(self) -> None:
        """Somebody waits for what is not sent yet: it leaves when this turn ends."""
        self.outbox.hurry()

    def _flush(self) -> bool:
        """What waits becomes events while the machine has room: whether anything did."""
        if self._submitting:
            return False
        self._submitting, left = True, False
        while self.outbox and self._closed is None and (now := self._room()) is not None:
            batch = self.outbox.take(monotonic_ns())
            assert batch is not None
            try:
                event = self.node.driver.submit(now, self.name, batch.payloads, batch.size)
                batch.receipt.number = event.number
                if self.formations is not None:
                    self.formations.sent(event, batch.receipt)
            except Exception as error:
                self.failed(error)  # reaches whoever sends or waits, and not the event loop
            left = True
        self._submitting = False
        if left:
            self._changed.ring()
        return left

    def _room(self) -> int | None:
        """The time, if one more batch may be submitted now. None: `stepped` tries again."""
        if self._patience.is_tried and not self._leaving:
            return None  # our own events would lie in our own queue, without a bound
        if self.node.driver.crowd.full and self._must_wait_for_a_peer():
            return None  # the driver tells when there is room; so does a view without that peer
        return self.node.driver.room(self.name)

    def _must_wait_for_a_peer(self) -> bool:
        """Too much of all our groups is on its way to a member. Who leaves adds one batch more."""
        view = self._installed
        crowd = self.node.driver.crowd
        return view is not None and not self._leaving and crowd.holds_up(view.members)

    def stepped(self) -> None:
        if self.outbox and not self.outbox.is_planned:
            self._flush()
        if self._closed is not None:
            return  # that flush has failed, and this member is out
        if self._leaving and self.licence is not None:
            self._changed.ring()  # perhaps we may go
        stable = self.node.driver.host.stable_up_to(self.name)
        if stable != self.stable_up_to:
            self.stable_up_to = stable
            if self.formations is not None:
                self.formations.stable(stable)
            self._changed.ring()

    def failed(self, error: Exception) -> None:
        """The driver could not do what the machine decided: this member cannot go on."""
        if self._closed is None:
            self.node.fail(self, error)

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
        if self._closed is None and not self.may_send:
            raise self._only_reads()
        return await self._licence_or_refuse().become(timeout)

    async def stop_updating(self) -> None:
        """Gives our ticket back, after what was accepted before has been sent."""
        await self._licence_or_refuse().stop()

    def _licence_or_refuse(self) -> Licence:
        if self._closed is not None:
            raise self._closed
        if self.licence is None:
            why = f"{self.name!r} is {self.family}, without tickets: {self._no_permit}"
            raise UsageError(why)
        return self.licence

    @property
    def is_open(self) -> bool:
        return self._closed is None

    @property
    def ended(self) -> Exception | None:
        """Why it is closed."""
        return self._closed

    @property
    def unsent(self) -> int:
        """Messages that were accepted and are in no event yet; those who wait for room count."""
        return len(self.outbox) + self._in_line

    def give_up_unsent(self, why: OrdercastError) -> None:
        """Whoever asks for the receipt of what waits is told."""
        for batch in self.outbox.give_up():
            batch.receipt.failure = why

    # --- receiving ---------------------------------------------------------------------------

    def take(self, item: Told) -> None:
        """The driver hands over what the machine delivered, or asks of the application."""
        if isinstance(item, Event):
            if item.origin == self.node.me:
                self.delivered_up_to = item.number
                self._changed.ring()  # a step that had to wait for the disk comes later
        elif isinstance(item, View):
            self._installed = item
            if self.formations is not None:
                self.formations.installed(item)
                self._changed.ring()
        elif isinstance(item, Invitation | Refused):
            assert self.formations is not None
            self.formations.told(item)
            self._changed.ring()
            return
        elif isinstance(item, StateWanted) and self._handover.snapshot is None:
            # There is none: nobody has to wait until the application reads.
            none = StateProvided(self.name, item.token, None)
            self._loop.call_soon(self.node.driver.give, self.name, none)
            return
        elif isinstance(item, Updating):
            assert self.licence is not None
            told = self.licence.heard(item)
            self._changed.ring()
            if told is None:
                return
            item = told
        self.inbox.put(item)
        self._patience.look()
        self._arrived.ring()
        self.node.arrived.ring()

    def _progress(self) -> tuple[int, int]:
        return self.inbox.taken, self._place

    def __aiter__(self) -> Group:
        return self

    async def __anext__(self) -> Handed:
        place = self._place
        if place < len(self._payloads):
            self._place = place + 1
            event = self._event
            assert event is not None
            return Message(event.origin, self._payloads[place], event.group, event.number)
        while (handed := self.next_ready()) is None:
            try:
                await self._arrival()
            except GroupClosed:
                raise StopAsyncIteration from None
        return handed

    def next_ready(self) -> Handed | None:
        """What comes next, if it is here."""
        place = self._place
        if place < len(self._payloads) and self._event is not None:
            self._place, event = place + 1, self._event
            return Message(event.origin, self._payloads[place], event.group, event.number)
        while (item := self._take_item()) is not None:
            if not isinstance(item, Event):
                return item
            if item.payloads:
                self._event, self._payloads, self._place = item, item.payloads, 1
                return Message(item.origin, item.payloads[0], item.group, item.number)
        return None

    @property
    def next_arrival(self) -> int | None:
        """The place of what comes next among all that came to this node; None: nothing is here."""
        if self._place < len(self._payloads):
            return self.inbox.last
        return self.inbox.arrivals[0] if self.inbox.arrivals else None

    async def next_batch(self) -> Item:
        """The next whole event, or what comes in between: one call a batch, for those who count
        microseconds."""
        if self._place < len(self._payloads) and self._event is not None:
            rest = msgspec.structs.replace(self._event, payloads=self._payloads[self._place :])
            self._payloads = []
            return rest
        while (item := self._take_item()) is None:
            await self._arrival()
        return item

    async def _arrival(self) -> None:
        if self._closed is not None:
            raise self._closed
        await self._arrived.wait()

    def _take_item(self) -> Item | None:
        while self.inbox.items:
            item = self.inbox.take()
            # The application has done with all that it was handed before, so its state is that of
            # this place in the stream.
            if isinstance(item, StateWanted):
                state = StateProvided(self.name, item.token, self._handover.give())
                self.node.driver.give(self.name, state)
            elif isinstance(item, StateGiven):
                self._handover.take(item)
            else:
                self.view = item if isinstance(item, View) else self.view
                if self._patience.is_tried:
                    self._patience.relieve()
                return item
        return None

    def status(self) -> dict[str, Any]:
        """How the group is, as plain values."""
        members = self._installed.members if self._installed else ()
        machine = self.node.driver.machine(self.name)
        return {
            "members": [str(member) for member in members],
            "formation": self._installed.formation if self._installed else "",
            "waiting_in": self.inbox.count,
            "waiting_out": len(self.outbox),
            "throttled": self._patience.is_tried,
            "updating": self.licence.status() if self.licence is not None else None,
            "delivered_up_to": self.delivered_up_to,
            "stable_up_to": self.stable_up_to,
            "counters": machine.counters(self.name) if machine is not None else {},
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
                self.node.leave(self)

    def _is_underway(self) -> bool:
        unstable = self.tells_stability and self.stable_up_to < self.delivered_up_to
        return len(self.outbox) > 0 or unstable

    async def _wait_while(self, busy: Callable[[], bool], seconds: float) -> None:
        """Not for ever: somebody may not answer, and the others have it or get it somehow."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while busy():
                    await self.change()

    def close(self, why: Exception) -> None:
        """No more sends; what was delivered can still be read."""
        self._closed = why
        self._patience.end()
        self._changed.ring()
        self._arrived.ring()
        self.node.arrived.ring()

"""A group as an application has it: send, and one ordered stream of messages and views.

Sends of one turn of the event loop travel as one batch, and a stream of messages may gather for a
few turns more. While the machine has no room, or the link to a member is full with what any of the
groups sent, sends wait: first in the queue, then the senders themselves (`send_queue.py`).

Delivered events wait in a queue for the application (`stream.py`). When that is over its limit
the machine acknowledges no more: so the senders' windows fill, and a slow consumer slows its
senders by exactly what it cannot take. Its own sends wait too. A consumer that takes nothing for
`eject_after` is ejected from the group, with an error in its stream (`slow_consumer.py`).

Where it takes a ticket to send, `send_permit.py` has it: nothing is accepted without one, and what
was accepted and not sent when it is lost is given up. Where groups are re-formed under one name,
`formations.py` knows which formation is the current one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from ordercast.errors import OrdercastError, UsageError
from ordercast.kernel.departure import FLUSH_TIME, Departure
from ordercast.kernel.inputs import GIVEN_BY_HOST, Backpressure, Input
from ordercast.kernel.outbox import AS_PLANNED, Batch
from ordercast.kernel.step import Heard
from ordercast.net.formations import Formations
from ordercast.net.merges import MergeQuestions
from ordercast.net.message import (
    LARGEST_BATCH,
    Handover,
    Hooks,
    StateMissing,
    as_bytes,
    ejected,
    no_service,
    only_reads,
    state_failed,
)
from ordercast.net.primary_view import PrimaryStatus
from ordercast.net.progress import Progress
from ordercast.net.readiness import NEWS_OF_MEMBERS, Readiness, waiting_text
from ordercast.net.receipt import Receipt, Until, check_until
from ordercast.net.send_permit import SendPermit
from ordercast.net.send_queue import SendQueue
from ordercast.net.slow_consumer import SlowConsumerMonitor
from ordercast.net.stream import GroupStream
from ordercast.types import (
    Difference,
    Event,
    Invitation,
    Merged,
    NodeId,
    Payloads,
    Primary,
    Refused,
    Secured,
    StateGiven,
    StateWanted,
    Unreached,
    Updating,
    View,
    Waiting,
)

if TYPE_CHECKING:
    from ordercast.kernel.family import Family, Plan
    from ordercast.net.absence import Absence
    from ordercast.net.condition import Condition
    from ordercast.net.driver import Asked, Driver


class GroupNode(Protocol):
    """What a group uses of its node."""

    me: NodeId
    driver: Driver
    arrivals: Iterator[int]  # numbers what is delivered in any group of the node
    arrived: Condition  # of something in any group of the node

    def absence(self, plan: Plan, family: Family) -> Absence:
        """What the node sees of the other members."""

    def changed(self, group: str) -> None:
        """This member is in the group now, or the group has other members."""

    def leave(self, group: Group) -> None:
        """The others are notified, and the group is closed."""

    def end(self, group: Group, why: OrdercastError, *, sound: bool = True) -> None:
        """The same, but not because the application wants it. Not sound: its machine is broken."""


class Group:
    """Made by `node.join`; an async context manager and an async iterator."""

    def __init__(
        self,
        node: GroupNode,
        family: Family,
        plan: Plan,
        hooks: Hooks,
        *,
        may_send: bool,
        eject_after: float,  # seconds
    ) -> None:
        self.name = plan.group
        self.family, self._services = family.name, family.services
        self.node, self._me, self._driver = node, node.me, node.driver
        self.may_send = may_send and family.may_send(plan, node.me.name)
        self.reads, self._leaving = hooks.reads, False
        self.departure = Departure(family, plan)
        quorum = family.quorum if family.has_quorum(plan) else None
        self._progress = progress = Progress(self.name, family.tells_stability, quorum is not None)
        largest = min(family.largest_batch(plan.options), LARGEST_BATCH)
        self.queue = SendQueue(progress, largest, self, bool(family.multicasts_to(plan)))
        self._handover = Handover(hooks, self._give)
        self._merges = MergeQuestions(progress, self._give)
        self.stream = GroupStream(node.arrivals, self._handover, progress)
        self.monitor = SlowConsumerMonitor(
            self.stream.inbox,
            eject_after,
            lambda: self.stream.position,
            lambda full: self._give(Backpressure(self.name, full)),
            self._eject,
            lambda: self._handover.is_due and self.readiness.has_company,
        )
        self.stream.taken, self.stream.failed = self.monitor.taken, self._state_failed
        self.readiness = Readiness(
            *(self.name, node.me, node.absence(plan, family)),
            *(self._put, partial(node.changed, self.name), lambda: self._handover.is_due),
            partial(node.driver.behind, self.name),
            lambda: self.queue.blocked_since,
        )
        self.queue.blocked = self.readiness.blocked
        self._handover.listeners = self.monitor.state_wanted, self.readiness.state_wanted
        self.reason = progress.reason = self.readiness.reason
        progress.late = self.readiness.late
        self.permit: SendPermit | None = None
        if family.permit is not None and family.needs_permit(plan):
            self.permit = SendPermit(progress, self.queue, node.driver, self.departure)
        self._no_permit = "all may send" if family.permit is None else family.permit.unneeded
        self.formations: Formations | None = None
        if family.formation is not None:
            self.formations = Formations(progress, node.driver, hooks.vote, self._refused)
        self.primary: PrimaryStatus | None = None
        if quorum is not None:
            self.primary = PrimaryStatus(node.me, progress, self.queue, quorum, plan.options)
        # Whether something may be wrong with any send: it is closed, or not everybody may.
        self._guarded = bool(self.permit or self.primary) or not self.may_send

    # --- sending -----------------------------------------------------------------------------

    async def send(self, data: bytes, *, until: Until = "queued", service: str = "") -> Receipt:
        """Sends to every member. Returns when the message is queued, delivered here, or stable, or
        with a quorum when a majority has it. `service`: in families that have several."""
        if type(data) is not bytes:
            data = as_bytes(data)
        if self._guarded or service or until != "queued":
            self._check(until, service)
        size, queue = len(data), self.queue
        batch = queue.batch_for(size, 1, service) or await self._credit(size, 1, service)
        batch.payloads.append(data)
        batch.size += size
        receipt, when = batch.receipt, queue.outbox.added()
        if when is not AS_PLANNED:
            queue.plan(when)
        return receipt if until == "queued" else await receipt.wait(until)

    async def send_many(
        self, messages: Payloads, *, until: Until = "queued", service: str = ""
    ) -> Receipt:
        """Sends several messages as part of one batch: cheaper than one by one, the same else."""
        if not isinstance(messages, list):
            raise UsageError("send_many takes a list of messages; send takes one")
        messages = [each if type(each) is bytes else as_bytes(each) for each in messages]
        self._check(until, service)
        size, count, queue = sum(map(len, messages)), len(messages), self.queue
        batch = queue.batch_for(size, count, service) or await self._credit(size, count, service)
        if not count:
            return Receipt(self._progress, queue.hurry, 0)  # nothing has arrived everywhere
        batch.payloads += messages
        batch.size += size
        receipt = batch.receipt
        queue.plan(queue.outbox.added())
        return receipt if until == "queued" else await receipt.wait(until)

    def _check(self, until: str, service: str) -> None:
        """All that can be wrong with a send, but for its size, is raised to the one who sends."""
        self._check_may_send()
        check_until(until, self._progress)
        if service and service not in self._services:
            raise no_service(service, self.name, self.family, self._services)

    def _check_may_send(self, waited: bool = False) -> None:
        if self._progress.ended is not None:
            raise self._progress.ended
        if not self.may_send:
            raise only_reads(self._me, self.name)
        if self.permit is not None:
            self.permit.refuse(waited=waited)
        if self.primary is not None:
            self.primary.refuse()

    async def _credit(self, size: int, count: int, service: str) -> Batch[Receipt]:
        batch = await self.queue.wait_for_credit(size, count, service)
        self._check_may_send(waited=True)
        return batch

    # --- what the queue asks -----------------------------------------------------------------

    def room(self) -> int | None:
        """The time, if one more batch may be submitted now; when leaving, always one more."""
        driver, view = self._driver, self.readiness.view
        if not self._leaving:
            if self.monitor.is_throttled:
                return None  # our own events would lie in our own queue, without a bound
            backpressure = driver.backpressure
            if backpressure.full and view is not None and backpressure.blocks(view.members):
                return None  # until the driver reports room, or a view has no such peer
        return driver.room(self.name)

    def submit(self, now: int, batch: Batch[Receipt]) -> None:
        try:
            asked = cast("Asked", batch.attribute)
            event = self._driver.submit(now, self.name, batch.payloads, batch.size, asked)
            batch.receipt.number = self._progress.submitted_up_to = event.number
            batch.receipt.position = event.position
            if self.formations is not None:
                self.formations.sent(event, batch.receipt)
            if self.primary is not None:
                self.primary.sent(batch.receipt)
        except Exception as error:
            self.failed(error)  # reaches whoever sends or waits, and not the event loop

    # --- tickets -----------------------------------------------------------------------------

    @property
    def updating(self) -> int | None:
        """The ticket with which we may send, where that takes one."""
        return self.permit.updating if self.permit is not None else None

    async def become_updater(self, timeout: float | None = None) -> int:
        """Returns our ticket once we have one. TimeoutError: nobody gave one up in time."""
        if self.is_open and not self.may_send:
            raise only_reads(self._me, self.name)
        return await self._permit_or_refuse().become(timeout)

    async def stop_updating(self) -> None:
        """Gives our ticket back, after what was accepted before has been sent."""
        await self._permit_or_refuse().stop()

    def _permit_or_refuse(self) -> SendPermit:
        if self.ended is not None:
            raise self.ended
        if self.permit is None:
            why = f"{self.name!r} is {self.family}, without tickets: {self._no_permit}"
            raise UsageError(why)
        return self.permit

    def give(self, given: Input) -> None:
        """Anything else that the family takes of an application."""
        if self.ended is not None:
            raise self.ended
        if isinstance(given, GIVEN_BY_HOST) or not self._driver.give(self.name, given):
            raise UsageError(f"{self.name!r} is {self.family}: no {type(given).__name__} is taken")

    async def change(self) -> None:
        """Until something about sends, tickets or formations has changed."""
        await self._progress.change()

    # --- what the driver reports -------------------------------------------------------------

    def take(self, item: Heard) -> None:
        """The driver hands over what the machine delivered, or asks of the application."""
        if isinstance(item, Event):
            if not self.readiness.is_in:
                self.readiness.enter()
            if item.origin == self._me:
                self._progress.delivered_up_to = item.number
                self._progress.changed.notify()  # a step that had to wait for the disk comes later
        elif isinstance(item, NEWS_OF_MEMBERS):
            if isinstance(item, View) and self.formations is not None:
                self.formations.installed(item)
            if isinstance(item, View) and self.primary is not None:
                self.primary.installed(item)
            is_read = self.readiness.heard(item)
            self._progress.changed.notify()
            if isinstance(item, StateGiven) and item.failure and not self.readiness.is_in:
                # It may wait for `ready`, and read nothing. A machine takes one input at a time.
                missing = StateMissing(item.failure)
                asyncio.get_running_loop().call_soon(self._state_failed, missing)
                return
            if not is_read:
                return
        elif isinstance(item, Primary | Secured):
            assert self.primary is not None
            self.primary.heard(item)
            self._progress.changed.notify()
            if isinstance(item, Secured):
                return
        elif isinstance(item, Invitation | Refused):
            assert self.formations is not None
            self.formations.notify(item)
            self._progress.changed.notify()
            return
        elif isinstance(item, StateWanted) and not self._handover.answers_later(item):
            return
        elif isinstance(item, Updating):
            assert self.permit is not None
            shown = self.permit.heard(item)
            self.readiness.heard(item)
            self._progress.changed.notify()
            if shown is None:
                return
            item = shown
        elif isinstance(item, Unreached):
            self._driver.unreached(item)
            return
        elif isinstance(item, Merged | Difference):
            if (merged := self._merges.heard(item)) is None:
                return
            item = merged
        self._put(item)

    def _put(self, item: Heard) -> None:
        if self.reads:
            if self.stream.put(item):
                self.monitor.over_limit()
            self.node.arrived.notify()

    def stepped(self) -> None:
        self.queue.stepped()
        progress = self._progress
        if progress.ended is not None:
            return  # that flush has failed, and this member is out
        if self._leaving and self.permit is not None:
            progress.changed.notify()  # perhaps we may go
        stable = self._driver.host.stable_up_to(self.name)
        if stable != progress.stable_up_to:
            progress.stable_up_to = stable
            if self.formations is not None:
                self.formations.stable(stable)
            progress.changed.notify()

    def failed(self, error: Exception) -> None:
        """The driver could not do what the machine decided: this member cannot go on."""
        if self.is_open:
            why = OrdercastError(f"{self._me} cannot go on in {self.name}: {error}")
            why.__cause__ = error
            self.node.end(self, why, sound=False)

    def _state_failed(self, error: Exception) -> Exception:
        why = state_failed(self._me, self.name, error)
        if self.is_open:
            self.node.end(self, why)
        return why

    # --- who is in it ------------------------------------------------------------------------

    async def ready(self, timeout: float | None = None) -> View | None:
        """Returns once this member is in the group: the view, or None where there are no views.

        TimeoutError says for whom it waits, why and since when. If the group has ended, this raises
        why. Nothing is taken from the stream.
        """
        if self.ended is not None:
            raise self.ended
        try:
            async with asyncio.timeout(timeout):
                while not self.readiness.is_in:
                    await self._progress.change()
        except TimeoutError:
            why = f"{self._me} is not in {self.name!r} after {timeout} s{self.reason()}"
            raise TimeoutError(why) from None
        return self.readiness.view

    @property
    def waiting(self) -> Waiting | None:
        """For whom this member waits, and why: before it is in the group, or cannot go on."""
        return self.readiness.waiting if self.is_open else None

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Now, as far as this member knows. The stream may not have shown it yet."""
        return self.readiness.members

    # --- reading -----------------------------------------------------------------------------

    @property
    def view(self) -> View | None:
        """The last one that the application has taken."""
        return self.stream.view if self.reads else self.readiness.view

    def check_reads(self) -> None:
        if not self.reads:
            raise UsageError(f"{self._me.name} joined {self.name!r} with read=False: it only sends")

    async def run(self, handler: Callable[[Heard], Awaitable[None] | None]) -> None:
        """Reads the group until it is left: one item at a time, the next when `handler` returned.

        A slow handler slows down the senders. If it raises, this member leaves the group, and the
        error is raised here.
        """
        self.check_reads()
        await self.stream.run(handler, self.leave)

    def __aiter__(self) -> GroupStream:
        self.check_reads()
        return self.stream

    async def __anext__(self) -> Heard:
        self.check_reads()
        return await self.stream.__anext__()

    def next_batch(self) -> Coroutine[Any, Any, Heard]:
        """The next whole event, or what comes in between: one call a batch, for those who count
        microseconds."""
        # Not one more coroutine around the stream's: that costs as much as the rest of it.
        return self.stream.next_batch() if self.reads else anext(self)

    def status(self) -> dict[str, Any]:
        """How the group is, as plain values."""
        view, waiting = self.readiness.view, self.waiting
        machine = self._driver.machine(self.name)
        return {
            "members": [str(member) for member in (view.members if view else ())],
            "formation": view.formation if view else "",
            "waits": waiting_text(waiting) if waiting is not None else "",
            "waiting_in": self.stream.inbox.count,
            "waiting_out": len(self.queue.outbox),
            "throttled": self.monitor.is_throttled,
            "primary": self.primary.news.is_primary if self.primary and self.primary.news else None,
            "updating": self.permit.status() if self.permit is not None else None,
            "delivered_up_to": self._progress.delivered_up_to,
            "stable_up_to": self._progress.stable_up_to,
            "counters": machine.counters(self.name) if machine is not None else {},
        }

    # --- the end -----------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._progress.ended is None

    @property
    def ended(self) -> Exception | None:
        """Why it is closed."""
        return self._progress.ended

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Leaves in an orderly way: what was sent reaches the others first, if they answer, and
        what they need us for is handed over."""
        if not self.is_open:
            return
        self._leaving = True
        try:
            self.queue.flush()
            await self._progress.wait_while(self._is_underway, FLUSH_TIME / 1e9)
            if self.permit is not None:
                await self._progress.wait_while(self.permit.is_needed, self.permit.retire())
        except OrdercastError:
            return  # it was closed meanwhile
        finally:
            if self.is_open:  # also when cancelled: the others must be notified
                self.node.leave(self)

    def _is_underway(self) -> bool:
        progress, waiting = self._progress, len(self.queue.outbox) > 0
        return self.departure.is_underway(waiting, progress.submitted_up_to, progress.stable_up_to)

    def close(self, why: Exception) -> None:
        """No more sends; what was delivered can still be read."""
        self._progress.ended, self._guarded = why, True
        self.monitor.end()
        self.readiness.end()
        self._progress.changed.notify()
        self.stream.wake()
        self.node.arrived.notify()

    # --- what the parts ask ------------------------------------------------------------------

    def _give(self, given: Input) -> None:
        self._driver.give(self.name, given)

    def _eject(self) -> None:
        self.node.end(self, ejected(self._me, self.name, full=self.monitor.is_throttled))

    def _refused(self, why: UsageError) -> None:
        if not self.readiness.has_company:  # which would have compared its terms with ours
            self.node.end(self, why)

"""The load: applications that submit messages, and wait when the group has no room.

Messages become batches by the same outbox as live (`kernel/outbox.py`). An application that must
wait keeps collecting messages up to a limit; when there is room again they leave in batches of a
limited size. At the limit it makes no more.
"""

from __future__ import annotations

from random import Random
from typing import cast

from ordercast.kernel.inputs import Seek
from ordercast.kernel.log import Reference
from ordercast.kernel.outbox import TURN_ENDS, Limits, Outbox
from ordercast.scenario.schema import BACKLOG_LIMIT, WorkloadSettings
from ordercast.sim.event_queue import EventQueue
from ordercast.sim.process import Process, Session
from ordercast.units import SECOND

NO_LIMIT = 1 << 62
BATCH_SIZE = 64 << 10
"""Bytes up to which messages that waited are put into one batch: larger frames gain nothing."""


class PermitSeeker:
    """Wants to send in a group where that takes a right: always, or for a while now and then."""

    def __init__(
        self,
        queue: EventQueue,
        process: Process,
        group: str,
        load: WorkloadSettings,
        draw: Random,
        until: int,
    ) -> None:
        self._queue = queue
        self._process = process
        self._group = group
        self._hold_for = load.hold_for
        self._draw = draw
        self._until = until
        self._from = int(load.begins.get(process.name, 0))
        process.on_enter.setdefault(group, []).append(self._begin)

    def _begin(self) -> None:
        if self._queue.now < self._from:
            session = self._process.session(self._group)
            self._queue.add(self._from, self._change, (session, True))
        else:
            self._process.give(self._group, Seek(self._group, True))
            self._plan_next(False)

    def _plan_next(self, wanted: bool) -> None:
        if self._hold_for is None:
            return
        at = self._queue.now + max(1, round(self._draw.expovariate(1 / self._hold_for)))
        if at < self._until:
            session = self._process.session(self._group)
            self._queue.add(at, self._change, (session, wanted))

    def _change(self, change: tuple[Session | None, bool]) -> None:
        session, wanted = change
        if session is not None and session == self._process.session(self._group):
            self._process.give(self._group, Seek(self._group, wanted))
            self._plan_next(not wanted)


class Sender:
    """The application of one process in one group."""

    def __init__(
        self,
        queue: EventQueue,
        process: Process,
        group: str,
        load: WorkloadSettings,
        rate: float,
        draw: Random,
        until: int,
        window_size: int = BATCH_SIZE,
    ) -> None:
        self._queue = queue
        self._process = process
        self._group = group
        self._draw = draw
        self._services = load.services
        self._replies = load.replies
        if load.replies:
            process.recent[group] = None
        self._until = until
        self._gap = SECOND * load.batch / rate
        self._steady = load.pattern == "steady"
        self._messages = [b"x" * load.payload] * load.batch  # what it makes at once
        self._size = load.payload * load.batch
        largest = min(BATCH_SIZE, window_size)
        self._limits = Limits(
            batch_bytes=max(self._size, largest),
            batch_count=max(load.batch, largest // (load.payload or 1)),
            credit_bytes=NO_LIMIT,
            credit_count=BACKLOG_LIMIT + load.batch - 1,  # below the limit it makes them all
        )
        self._outbox = self._empty()
        self._session: Session | None = None  # that the outbox belongs to
        self._submitting = False  # a submission makes a step, after which room is asked for again
        self._plan_next(load.begins.get(process.name, 0))

    def _plan_next(self, earliest: int = 0) -> None:
        gap = self._gap if self._steady else self._draw.expovariate(1 / self._gap)
        at = max(self._queue.now, earliest) + max(1, round(gap))
        if at < self._until:
            self._queue.add(at, self._make, None)

    def _empty(self) -> Outbox[None]:
        return Outbox(self._limits, lambda: None)

    def _make(self, _: None) -> None:
        """The application makes its next messages, if its process runs."""
        process = self._process
        session = process.session(self._group)
        if session is not None and session != self._session:
            self._session, self._outbox = session, self._empty()
        if session is not None and not process.is_paused and self._add():
            self._submit()
            if self._outbox:
                process.await_room(self._group, self._submit)
        self._plan_next()

    def _add(self) -> bool:
        """Whether there was credit for the next messages, which wait now."""
        outbox = self._outbox
        batch = outbox.offer(self._size, len(self._messages), (self._service(), self._reply()))
        if batch is None:
            return False
        batch.payloads += self._messages
        batch.size += self._size
        if outbox.added() is TURN_ENDS:
            while not outbox.turn_ended(self._queue.now):
                pass  # a turn takes no simulated time, so nothing can happen in it
        return True

    def _service(self) -> str:
        """Of the next messages. It takes no chance where there is nothing to choose."""
        several = self._services
        if len(several) > 1:
            return self._draw.choice(several)
        return several[0] if several else ""

    def _reply(self) -> Reference | None:
        """What the next messages reply to: a share of them, to the last that was delivered."""
        if not self._replies or self._draw.random() >= self._replies:
            return None
        event = self._process.recent[self._group]
        if event is None:
            return None
        return Reference(event.origin.name, event.birth, event.number)

    def _submit(self) -> None:
        if self._submitting:
            return
        process, outbox = self._process, self._outbox
        if self._queue.now >= self._until:  # the load is over: what still waits is given up
            outbox.give_up()
        self._submitting = True
        while outbox and process.accepts(self._group):
            batch = outbox.take(self._queue.now)
            assert batch is not None
            service, reply = cast("tuple[str, Reference | None]", batch.attribute)
            process.submit(self._group, batch.payloads, batch.size, service, reply)
        self._submitting = False
        if not outbox:
            process.on_room.pop(self._group, None)

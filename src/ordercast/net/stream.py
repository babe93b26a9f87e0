"""What an application reads of a group, in one order: messages, or whole batches, and views."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from inspect import isawaitable

import msgspec

from ordercast.errors import UsageError
from ordercast.kernel.step import Heard
from ordercast.net.condition import Condition
from ordercast.net.inbox import Inbox
from ordercast.net.message import GroupClosed, Handover, Message
from ordercast.net.progress import Progress
from ordercast.types import Event, NodeId, StateGiven, StateWanted, View

NOTHING = Event("", NodeId("nobody"), 0, [])


async def hand_out(
    items: AsyncIterator[Heard],
    handler: Callable[[Heard], Awaitable[None] | None],
    leave: Callable[[], Awaitable[None]],  # the group, because the handler has raised
) -> None:
    """Hands out one item after the other, until there are no more."""
    try:
        async for item in items:
            done: object = handler(item)
            if isawaitable(done):
                await done
            elif done is not None:
                what = type(done).__name__
                raise UsageError(f"a handler returns None or an awaitable, not {what}")
    except Exception:
        await leave()
        raise


class GroupStream:
    """An async iterator. It ends when the group was left, and raises why it ended otherwise."""

    __slots__ = (
        *("_arrived", "_event", "_handover", "_is_run", "_place", "_progress", "failed", "inbox"),
        *("taken", "view"),
    )

    def __init__(self, numbers: Iterator[int], handover: Handover, progress: Progress) -> None:
        self.inbox = Inbox(numbers)
        self.taken: Callable[[], None]  # the application has taken something
        # The state is missing, or `restore` has raised this. Returns what the reader gets.
        self.failed: Callable[[Exception], Exception]
        self.view: View | None = None  # the last one that it has taken
        self._handover = handover
        self._progress = progress
        self._arrived = Condition()
        self._is_run = False  # `run` has not returned
        self._event = NOTHING  # that is being handed out
        self._place = 0  # of its next message

    def put(self, item: Heard) -> bool:
        """Whether more waits for the application now than should."""
        if self._arrived.waiting:
            self._arrived.notify()
        return self.inbox.put(item)

    def wake(self) -> None:
        """The group has ended."""
        self._arrived.notify()

    @property
    def position(self) -> tuple[int, int]:
        """How much the application has taken."""
        return self.inbox.taken, self._place

    def __aiter__(self) -> GroupStream:
        return self

    async def __anext__(self) -> Heard:
        place, event = self._place, self._event
        payloads = event.payloads
        if place < len(payloads):  # the usual case, without one more call
            self._place = place + 1
            return Message(event.origin, payloads[place], event.group, event.number, event.service)
        while (handed := self.next_ready()) is None:
            try:
                await self._arrival()
            except GroupClosed:
                raise StopAsyncIteration from None
        return handed

    async def run(
        self,
        handler: Callable[[Heard], Awaitable[None] | None],
        leave: Callable[[], Awaitable[None]],  # the group, because the handler has raised
    ) -> None:
        """Hands out one item after the other, until the stream ends."""
        if self._is_run:
            raise UsageError(f"{self._progress.group!r} is read by another call of run already")
        self._is_run = True
        try:
            await hand_out(self, handler, leave)
        finally:
            self._is_run = False

    def next_ready(self) -> Heard | None:
        """What comes next, if it is here."""
        place, event = self._place, self._event
        payloads = event.payloads
        if place < len(payloads):
            self._place = place + 1
            return Message(event.origin, payloads[place], event.group, event.number, event.service)
        while (item := self._take()) is not None:
            if not isinstance(item, Event):
                return item
            if item.payloads:
                self._event, self._place = item, 1
                return Message(item.origin, item.payloads[0], item.group, item.number, item.service)
        return None

    @property
    def next_arrival(self) -> int | None:
        """The place of what comes next among all that came to this node; None: nothing is here."""
        if self._place < len(self._event.payloads):
            return self.inbox.last
        return self.inbox.arrivals[0] if self.inbox.arrivals else None

    async def next_batch(self) -> Heard:
        """The next whole event, or what is left of it, or what comes in between."""
        if self._place < len(self._event.payloads):
            rest = msgspec.structs.replace(
                self._event, payloads=self._event.payloads[self._place :]
            )
            self._event = NOTHING
            return rest
        while (item := self._take()) is None:
            await self._arrival()
        return item

    async def _arrival(self) -> None:
        if self._progress.ended is not None:
            raise self._progress.ended
        await self._arrived.wait()

    def _take(self) -> Heard | None:
        while self.inbox.items:
            item = self.inbox.take()
            # The application has done with all that it was handed before, so its state is that of
            # this place in the stream.
            if not isinstance(item, Event):
                if isinstance(item, StateWanted):
                    failed = self._handover.give(item)
                    if failed is not None:
                        return failed
                    continue
                if isinstance(item, StateGiven):
                    self._restore(item)
                    continue
                if isinstance(item, View):
                    self.view = item
            self.taken()
            return item
        return None

    def _restore(self, given: StateGiven) -> None:
        """The others wait for us: an application that fails here ends its membership at once."""
        try:
            self._handover.take(given)
        except Exception as error:
            raise self.failed(error) from error

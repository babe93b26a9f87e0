"""What became of a send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from ordercast.errors import OrdercastError, UsageError, unknown_word
from ordercast.net.progress import Progress

Until = Literal["queued", "delivered", "stable", "majority"]
UNTIL = ("queued", "delivered", "stable", "majority")


def check_until(until: str, progress: Progress) -> None:
    if until not in UNTIL:
        raise UsageError(unknown_word("word for until", str(until), UNTIL))
    if until == "stable" and not progress.knows_stability:
        raise UsageError(
            f"{progress.group!r} is a cluster, in which nobody knows who has what: wait until "
            "'delivered', there is no 'stable'"
        )
    if until == "majority" and not progress.has_quorum:
        raise UsageError(
            f"{progress.group!r} has no quorum, so a majority of its view may be a minority of "
            "its members: join with quorum='majority', or wait until 'stable'"
        )


class Receipt:
    """What became of a send. Shared by the messages of one batch, which share their fate."""

    __slots__ = ("_hurry", "_progress", "doubt", "failure", "number", "position")

    def __init__(
        self, progress: Progress, hurry: Callable[[], None], number: int | None = None
    ) -> None:
        self._progress = progress
        self._hurry = hurry  # the open batch, because somebody waits for it
        self.number = number  # of the event, once it was submitted
        self.position = -1  # of the event in the log of this node, where groups have one
        self.failure: OrdercastError | None = None  # why it was not, and will not be
        self.doubt: OrdercastError | None = None  # why nobody knows who has it

    def __repr__(self) -> str:
        return f"Receipt(group={self._progress.group!r}, number={self.number})"

    @property
    def delivered(self) -> bool:
        """This member has delivered it to its own stream."""
        return self.number is not None and self.number <= self._progress.delivered_up_to

    @property
    def stable(self) -> bool:
        """Every present member has it."""
        known = self.number is not None and self.failure is None
        return known and (self.number or 0) <= self._progress.stable_up_to

    @property
    def secured(self) -> bool:
        """A majority has it: it is in the state of every later primary view."""
        known = self.number is not None and self.failure is None and self.doubt is None
        return known and (self.number or 0) <= self._progress.secured_up_to

    def _is(self, until: Until) -> bool:
        match until:
            case "queued":
                return True
            case "delivered":
                return self.delivered
            case "stable":
                return self.stable
            case "majority":
                return self.secured

    async def wait(self, until: Until = "stable", timeout: float | None = None) -> Receipt:
        """Waits until it is so. GroupClosed if the group ends before, TicketLost if our right to
        send does, Reformed if the group is re-formed, NoQuorum if a majority was waited for and
        this member is not in the primary view. TimeoutError says for whom it waits."""
        check_until(until, self._progress)
        if self.number is None:
            self._hurry()
        if timeout is None:
            await self._until(until)
            return self
        try:
            async with asyncio.timeout(timeout):
                await self._until(until)
        except TimeoutError:
            progress = self._progress
            is_sent = self.number is not None and until != "delivered"
            why = progress.late() if is_sent else progress.reason()
            what = f"a message in {progress.group!r} is not {until} after {timeout} s"
            raise TimeoutError(f"{what}{why}") from None
        return self

    async def _until(self, until: Until) -> None:
        while not self._is(until):
            if self.failure is not None:
                raise self.failure
            if self.doubt is not None and until == "majority":
                raise self.doubt
            await self._progress.change()

"""The permit to send, in a group where members hold a ticket for a while: sought, held, lost.

              acquired  suspended  resumed  released  disconnected
    NONE      HELD      -          -        -         -
    HELD      HELD      SUSPENDED  HELD     NONE      NONE, and senders hear of the loss
    SUSPENDED HELD      SUSPENDED  HELD     NONE      NONE, and senders hear of the loss

Rules.
 1. A call of `become` makes the machine seek a ticket. A call that stops waiting withdraws that,
    unless another call waits or has already returned a ticket.
 2. A lost ticket is not sought again automatically: the application decides whether it wants one.
    Until then every send raises the loss.
 3. Before a ticket is given back, what was accepted is sent. Meanwhile nothing more is accepted,
    and `become` waits for another ticket, even if the call of `stop` was cancelled.
 4. The application hears of tickets that it had: neither of one that was gone again before it could
    be used, nor of a new epoch of the same one.

The machine is never called from inside one of its own steps: what is to be done about a loss is
done in a turn of its own.
"""

from __future__ import annotations

import asyncio
import time
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.errors import OrdercastError, UsageError
from ordercast.kernel.departure import Departure
from ordercast.kernel.inputs import Retire, Seek
from ordercast.net.progress import Progress
from ordercast.net.send_queue import SendQueue
from ordercast.types import Updating

if TYPE_CHECKING:
    from ordercast.net.driver import Driver


class TicketLost(OrdercastError):
    """Somebody else has our ticket, or will have: what was not sent is not sent."""

    def __init__(self, why: str, unsent: int) -> None:
        super().__init__(why)
        self.unsent = unsent  # messages that were accepted, and given up with it


class PermitState(Enum):
    NONE = "none"
    HELD = "held"
    SUSPENDED = "suspended"


AFTER = {
    "acquired": PermitState.HELD,
    "suspended": PermitState.SUSPENDED,
    "resumed": PermitState.HELD,
    "released": PermitState.NONE,
    "disconnected": PermitState.NONE,
}


class SendPermit:
    def __init__(
        self, progress: Progress, queue: SendQueue, driver: Driver, departure: Departure
    ) -> None:
        self.state = PermitState.NONE
        self._number = 0  # HELD or SUSPENDED: which ticket it is
        self._group = progress.group
        self._progress = progress
        self._queue = queue
        self._driver = driver
        self._departure = departure
        self._retired_at = 0
        self._sought = False  # the machine knows that we want one
        self._waiting = 0  # calls of `become`
        self._had = False  # one of them has returned
        self._stopping = 0  # calls of `stop`
        self._giving_back = 0  # `Seek(False)` inputs that have not taken effect
        self._loss: TicketLost | None = None

    @property
    def ticket(self) -> int | None:
        """Ours, suspended or not."""
        return None if self.state is PermitState.NONE else self._number

    @property
    def updating(self) -> int | None:
        """The ticket with which more can be sent, now or when it is no longer suspended."""
        return None if self._is_ending else self.ticket

    @property
    def _is_ending(self) -> bool:
        """Whether our ticket, if we have one, is being given back."""
        return self._stopping > 0 or self._giving_back > 0

    def status(self) -> dict[str, Any]:
        return {
            "ticket": self.ticket,
            "suspended": self.state is PermitState.SUSPENDED,
            "wanted": self._sought,
        }

    # --- what the application does -----------------------------------------------------------

    def refuse(self, *, waited: bool = False) -> None:
        """Raises why nothing can be sent. A send that `waited` for credit was accepted before."""
        if self.ticket is not None and (waited or not self._is_ending):
            return
        if self._loss is not None:
            raise self._loss
        name, me = self._group, self._driver.me.name
        why = f"{me} is not an updater of {name!r}: await group.become_updater() before it sends"
        raise UsageError(why)

    async def become(self, timeout: float | None) -> int:
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout):
                while self.ticket is None or self._is_ending:
                    if not self._sought and not self._stopping:
                        self._seek(True)
                    else:
                        await self._progress.change()
            self._had = True
            return self.ticket
        except TimeoutError:
            what = f"{self._driver.me} got no ticket of {self._group!r} within {timeout} s"
            raise TimeoutError(f"{what}{self._why_none()}") from None
        finally:
            self._waiting -= 1
            self._withdraw()

    def _why_none(self) -> str:
        """The known reason comes first: a guess may contradict it."""
        advice = "wait longer, or let an updater call group.stop_updating()"
        known = self._progress.reason()
        if known:
            return f"{known}. If that is not the cause, other members hold all tickets: {advice}"
        some = "other members hold all of them, or too few members are connected to grant one"
        return f": {some}; {advice}"

    async def stop(self) -> None:
        before = self._loss
        self._stopping += 1
        try:
            while self.ticket is not None and self._queue.unsent:
                self._queue.hurry()
                await self._progress.change()
            if self._loss is not None and self._loss is not before and self._loss.unsent:
                raise self._loss
            if self.ticket is not None and self._sought:
                self._had = False
                self._seek(False)
            while self._giving_back:  # until that is on the disk
                await self._progress.change()
        finally:
            self._stopping -= 1

    def retire(self) -> float:
        """We are about to leave the group. How many seconds that should be waited for."""
        self._retired_at = time.monotonic_ns()
        self._driver.give(self._group, Retire(self._group))
        return self._departure.longest / 1e9

    def is_needed(self) -> bool:
        """Whether there is something to be handed over, and somebody who takes it."""
        now, machine = time.monotonic_ns(), self._driver.machine(self._group)
        elapsed = now - self._retired_at
        return self._driver.has_company() and self._departure.is_needed(machine, elapsed, now)

    def _withdraw(self) -> None:
        """Nobody wants it any more."""
        if self._sought and not self._had and not self._waiting and self._progress.ended is None:
            self._seek(False)

    def _seek(self, wanted: bool) -> None:
        self._sought = wanted
        if wanted:
            self._loss = None
        else:
            self._giving_back += 1
        self._driver.give(self._group, Seek(self._group, wanted))
        if not wanted:
            self._driver.after(self._group, self._given_back)

    def _given_back(self) -> None:
        """The machine has given up what it had, and what it was about to get."""
        self._giving_back -= 1
        self._progress.changed.notify()

    # --- what the machine reports ------------------------------------------------------------

    def heard(self, news: Updating) -> Updating | None:
        """What of it the application should hear, if anything."""
        before, had = self.state, self.ticket
        if before is PermitState.NONE and news.cause != "acquired":
            return None
        self.state = AFTER[news.cause]
        if news.cause == "acquired":
            self._number = news.ticket
            if had == news.ticket:
                is_new = before is PermitState.SUSPENDED
                return msgspec.structs.replace(news, cause="resumed") if is_new else None
        if news.cause == "disconnected":
            self._had = False
            self._loss = self._lost(news.ticket)
            self._queue.give_up(self._loss)
            asyncio.get_running_loop().call_soon(self._withdraw)
        return news

    def _lost(self, ticket: int) -> TicketLost:
        unsent = self._queue.unsent
        return TicketLost(
            f"{self._driver.me} has lost ticket {ticket} of {self._group!r}, and {unsent} "
            "messages were not sent: group.become_updater() asks for another",
            unsent,
        )

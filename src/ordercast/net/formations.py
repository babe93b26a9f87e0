"""The application's side of a group that is formed several times under one name.

Rules.
 1. A view names its formation. The first view of another formation ends every message that was sent
    before and is not stable: its receipt fails with `Reformed`. Whether the message was lost is
    known only from the application's state, if it has one.
 2. A call of `reform` waits for the first view of the new formation, or raises why there is none.
 3. The application votes on an invitation at once, ahead of the messages that wait in its stream,
    because the other members wait for the answer. Without a `vote` function the answer is yes.
 4. A member that joined with other terms than the rest can never be in a formation. Connected nodes
    compare their terms (`directory.py`). If this member hears of the difference in another way, and
    no connected node has joined the group, its group ends with the same error a little later.

A machine is never called from inside one of its own steps: its answer is a later turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ordercast.errors import OrdercastError, UsageError
from ordercast.kernel import inputs
from ordercast.net.absence import listing
from ordercast.net.directory import Mismatch
from ordercast.net.progress import Progress
from ordercast.types import Event, Invitation, Refused, View

if TYPE_CHECKING:
    from ordercast.net.driver import Driver
    from ordercast.net.receipt import Receipt

log = logging.getLogger("ordercast.net")

COMPARE_SECONDS = 2.0
"""Nodes that connect have compared their terms by then."""

Vote: TypeAlias = Callable[[Invitation], bool]
"""The application's vote: whether this member joins the formation."""


class NotFormed(OrdercastError):
    """The group was not re-formed, and is as it was."""


class Reformed(OrdercastError):
    """The group was re-formed before all members had this: nobody here knows who has it."""


class Formations:
    def __init__(
        self,
        progress: Progress,
        driver: Driver,
        vote: Vote | None,
        refuse: Callable[[Mismatch], None],  # nobody takes this member into its group
    ) -> None:
        self.view: View | None = None  # the last that was installed
        self._group = progress.group
        self._progress = progress
        self._driver = driver
        self._vote = vote
        self._refuse = refuse
        self._under_way: deque[tuple[str, Receipt]] = deque()  # at most a window of them
        self._refused = 0  # how often
        self._why = ""
        self._waiting = 0  # calls of `reform`

    @property
    def current(self) -> str | None:
        """The formation that the last view was of; None: there was none yet."""
        return self.view.formation if self.view is not None else None

    # --- what is sent ------------------------------------------------------------------------

    def sent(self, event: Event, receipt: Receipt) -> None:
        if not receipt.stable:  # a member that is alone has stable events as soon as they are made
            self._under_way.append((event.formation, receipt))

    def stable(self, up_to: int) -> None:
        """All of ours up to this number is with everybody."""
        under_way = self._under_way
        while under_way and (under_way[0][1].number or 0) <= up_to:
            under_way.popleft()

    # --- what the machine reports ------------------------------------------------------------

    def installed(self, view: View) -> None:
        if view.formation != self.current:
            lost = Reformed(f"{self._group!r} was re-formed before all members had this")
            for formation, receipt in self._under_way:
                if formation != view.formation:
                    receipt.failure = lost
            current = [each for each in self._under_way if each[0] == view.formation]
            self._under_way = deque(current)
        self.view = view

    def notify(self, news: Invitation | Refused) -> None:
        if isinstance(news, Refused):
            self._refused += 1
            self._why = news.why
            if self.view is None and not self._waiting:
                asyncio.get_running_loop().call_later(COMPARE_SECONDS, self._end, news.why)
            else:
                log.warning("%s", news.why)
        else:
            asyncio.get_running_loop().call_soon(self._answer, news)

    def _end(self, why: str) -> None:
        if self._progress.ended is None and self.view is None:
            me, name = self._driver.me, self._group
            self._refuse(Mismatch(f"{me} is not taken into {name!r}: {why}"))

    def _answer(self, invitation: Invitation) -> None:
        if self._progress.ended is None:
            yes, why = True, ""
            if self._vote is not None:
                why = f"the application of {self._driver.me} does not want it"
                try:
                    yes = bool(self._vote(invitation))
                except Exception:  # a bug of the application's, which the others need not know
                    log.exception("%s: the vote on %s", self._group, invitation.formation)
                    yes = False
            vote = inputs.Vote(invitation.group, invitation.formation, yes, "" if yes else why)
            self._driver.give(invitation.group, vote)

    # --- what the application wants ----------------------------------------------------------

    async def reform(
        self, planned: Sequence[str], members: list[str] | None, timeout: float | None
    ) -> View:
        """The first view of another formation. NotFormed: there is none, and why.

        `planned`: all that may be members.
        """
        me, name = self._driver.me, self._group
        for one in members or ():
            if one not in planned:
                raise UsageError(f"{one} is not a member of {name!r}: {listing(planned)}")
        if members is not None and me.name not in members:
            raise UsageError(f"{me.name} forms {name!r}, and so is in it: give it too")
        wanted = None if members is None else tuple(sorted(set(members)))
        try:
            async with asyncio.timeout(timeout):
                return await self._reform(wanted)
        except TimeoutError:
            raise TimeoutError(
                f"{me} saw no new formation of {name!r} within {timeout} s: it may still be "
                "formed; wait for its view in the group's stream, or call reform again"
                f"{self._progress.reason()}"
            ) from None

    async def _reform(self, members: tuple[str, ...] | None) -> View:
        before, refused = self.current, self._refused
        self._waiting += 1
        try:
            self._driver.give(self._group, inputs.Form(self._group, members))
            while self.view is None or self.current == before:
                if self._refused != refused:
                    raise NotFormed(self._why)
                await self._progress.change()
            return self.view
        finally:
            self._waiting -= 1

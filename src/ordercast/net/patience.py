"""With an application that does not take what it is handed: it slows its senders, or is put out.

When its queue is over the limit the machine is told, and acknowledges no more. When it has caught
up to half of that, more may come. One that took nothing at all meanwhile, for a given time, is put
out of the group; who has taken anything is slow, but alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ordercast.kernel.inputs import Backpressure
from ordercast.net.inbox import Inbox

if TYPE_CHECKING:
    from ordercast.net.group import Group


class Patience:
    def __init__(
        self,
        group: Group,
        inbox: Inbox,
        seconds: float,
        progress: Callable[[], tuple[int, int]],  # what the application has taken so far
    ) -> None:
        self._group = group
        self._inbox = inbox
        self._seconds = seconds
        self._progress = progress
        self._sign_of_life = (0, 0)  # the progress when that was last looked at
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def is_tried(self) -> bool:
        """The machine was told that no more can be taken."""
        return self._timer is not None

    def look(self) -> None:
        """Something was put into the queue. Machines are called one door at a time: later."""
        if self._timer is None and self._inbox.is_over_limit:
            self._loop.call_soon(self._throttle)

    def _throttle(self) -> None:
        if self._timer is None and self._group.is_open and self._inbox.is_over_limit:
            self._sign_of_life = self._progress()
            self._timer = self._loop.call_later(self._seconds, self._eject)
            self._set(True)

    def _set(self, full: bool) -> None:
        name = self._group.name
        self._group.node.driver.give(name, Backpressure(name, full))

    def relieve(self) -> None:
        """Something was taken. At half of the limit more may come."""
        if self._timer is not None and self._group.is_open and self._inbox.is_half_empty:
            self._timer.cancel()
            self._timer = None
            self._set(False)

    def _eject(self) -> None:
        taken = self._progress()
        if taken != self._sign_of_life:
            self._sign_of_life = taken
            self._timer = self._loop.call_later(self._seconds, self._eject)
            return
        self._group.node.eject(self._group, "the application took nothing for too long")

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

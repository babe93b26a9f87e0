"""Watches an application that does not take what it is handed: it slows its senders, or is ejected.

When its queue is over the limit the machine acknowledges no more. When the application has caught
up to half of that, more may come. One that took nothing at all meanwhile, for a given time, is
ejected from the group; an application that has taken anything is slow, but alive. So is one that
reads nothing while others wait for its state, however empty its queue is.

               over the limit    half empty    time is over
    READING    THROTTLED         -             -
    THROTTLED  -                 READING       THROTTLED if it took anything, else ejected
    While others wait for its state, time runs in READING, too.

ENDED, for whatever reason the group ends, is left by nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from ordercast.net.inbox import Inbox


class ReaderState(Enum):
    READING = "reading"
    THROTTLED = "throttled"
    ENDED = "ended"


class SlowConsumerMonitor:
    def __init__(
        self,
        inbox: Inbox,
        eject_after: float,  # seconds
        progress: Callable[[], tuple[int, int]],  # what the application has taken so far
        throttle: Callable[[bool], object],  # the senders
        eject: Callable[[], None],
        owes_state: Callable[[], bool],  # others wait for it, and the application has not read
    ) -> None:
        self.state = ReaderState.READING
        self._inbox = inbox
        self._eject_after = eject_after
        self._progress = progress
        self._throttle = throttle
        self._eject = eject
        self._owes_state = owes_state
        self._loop = asyncio.get_running_loop()
        self._progress_seen = (0, 0)  # the progress when that was last looked at
        self._timer: asyncio.TimerHandle | None = None  # until it is looked at again

    @property
    def is_throttled(self) -> bool:
        return self.state is ReaderState.THROTTLED

    def over_limit(self) -> None:
        """Something was put into a full queue. A machine takes one input at a time: later."""
        if self.state is ReaderState.READING:
            self._loop.call_soon(self._stop_senders)

    def _stop_senders(self) -> None:
        if self.state is ReaderState.READING and self._inbox.is_over_limit:
            self.state = ReaderState.THROTTLED
            self._look_later()
            self._throttle(True)

    def taken(self) -> None:
        """The application has taken something."""
        if self.state is ReaderState.THROTTLED and self._inbox.is_half_empty:
            self.state = ReaderState.READING
            self._throttle(False)

    def state_wanted(self) -> None:
        """The application is asked for its state, at a place up to which it has to read."""
        if self._timer is None and self.state is not ReaderState.ENDED:
            self._look_later()

    def time_is_over(self) -> None:
        self._timer = None
        if self.is_throttled or self._owes_state():
            if self._progress() == self._progress_seen:
                self._eject()
            else:
                self._look_later()

    def _look_later(self) -> None:
        self._progress_seen = self._progress()
        self._stop_timer()
        self._timer = self._loop.call_later(self._eject_after, self.time_is_over)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        self.state = ReaderState.ENDED
        self._stop_timer()

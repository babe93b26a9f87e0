"""Keepalive: a ping each second on every connection that carried nothing of ours meanwhile. One
that brings nothing is aborted. A ping also asks the other end to acknowledge what it has.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ordercast.net.contacts import Contacts
from ordercast.units import SECOND
from ordercast.wire.framing import FrameKind, frame

log = logging.getLogger("ordercast.net")

PING_SECONDS = 1.0
PING = frame(FrameKind.PING, b"")
RECENT = 0.9
"""A frame written within this part of that time says that we are there, as a ping would."""
FORGIVEN = SECOND
"""After our own event loop stalled for longer than this, no connection is aborted for silence."""
SILENCE = 8 * SECOND
"""A connection that brings nothing for so long, not even a ping, is dead."""


class Keepalive:
    def __init__(self, contacts: Contacts, tend: Callable[[], None]) -> None:
        self.loop_lag = 0  # nanoseconds that our own event loop was late
        self._contacts = contacts
        self._tend = tend  # what else is done once a second
        self._due = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self.ping)
        self._due = time.monotonic_ns() + round(PING_SECONDS * SECOND)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def ping(self) -> None:
        now = time.monotonic_ns()
        late = now - self._due
        self.loop_lag = max(late, self.loop_lag // 2)  # the latest lateness, slowly forgotten
        self.start()
        self._contacts.incidents.report_suppressed()
        self._tend()
        for contact in self._contacts.values():
            connection = contact.connection
            if connection is None:
                continue
            if late > FORGIVEN:
                connection.heard_at = now  # our loop stalled: what came is not read yet
            if now - connection.heard_at > SILENCE:
                log.info("%s: nothing came for %s s", contact, SILENCE // SECOND)
                connection.abort()
            elif now - connection.wrote_at >= RECENT * PING_SECONDS * SECOND:
                connection.put(PING)

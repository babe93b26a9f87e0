"""What follows when others speak of our name: this incarnation ends, or this node does.

Rules.
 1. Somebody has met a newer incarnation of our name, or another one with our number: ours is
    abandoned, at most one every few seconds, however often it is said. So it is if an older one was
    met and we cannot know what it has done: our folder was empty, and we founded a group alone.
    What was said of an incarnation does not count for the next one.
 2. Another node has our name: we try on, because that one may be gone and not be missed yet. After
    ten seconds in which nobody accepted us this node ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ordercast.errors import NameTaken

log = logging.getLogger("ordercast.net")

TAKEN_SECONDS = 10.0
ABANDON_SECONDS = 2.0


class NameWatch:
    def __init__(
        self,
        abandon: Callable[[int], None],
        end: Callable[[NameTaken], None],
        is_outdated_by: Callable[[int], bool],  # an incarnation before ours
    ) -> None:
        self._abandon = abandon
        self._is_outdated_by = is_outdated_by
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._opened_at = self._loop.time() - ABANDON_SECONDS
        self._newest = -1  # that others know
        self._timer: asyncio.TimerHandle | None = None  # until we abandon ours
        self._taken_since: float | None = None

    def reported(self, ours: int, known: int) -> None:
        """Somebody has met this incarnation of our name. It may be ours."""
        if known > ours or (known < ours and self._is_outdated_by(known)):
            self.superseded(known)

    def superseded(self, newest: int) -> None:
        """Somebody has met this incarnation of our name, and will not talk to ours."""
        self._newest = max(self._newest, newest)
        if self._timer is None:
            wait = max(0.0, self._opened_at + ABANDON_SECONDS - self._loop.time())
            self._timer = self._loop.call_later(wait, self._over)

    def _over(self) -> None:
        self._timer, self._opened_at = None, self._loop.time()
        newest, self._newest = self._newest, -1
        self._abandon(newest)

    def reopened(self) -> None:
        """The next incarnation is open: what was said until now was said of the one before. If it
        holds for this one too, it will be said again."""
        self.close()
        self._timer, self._newest, self._opened_at = None, -1, self._loop.time()

    def taken(self, reason: str) -> None:
        """Another node has our name, and had it first."""
        now = self._loop.time()
        if self._taken_since is None:
            self._taken_since = now
        elif now - self._taken_since >= TAKEN_SECONDS:
            self._taken_since = None
            self._end(NameTaken(reason))

    def accepted(self) -> None:
        """A node talks to us."""
        self._taken_since = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

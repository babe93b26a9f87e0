"""What follows when others speak of our name: this incarnation ends, or this node does.

Rules.
 1. Somebody has met a newer incarnation of our name, or another one with our number: ours is
    abandoned, however often it is said; the next one not within two seconds, the one after that not
    within four, and so on. So a liar costs a name few of its numbers. It is also abandoned if an
    older one was met and we cannot know what it has done: our folder was empty, and we founded a
    group alone. What was said of an incarnation does not count for the next one.
 2. Others say that another node has our name: we try on, because that one may be gone and not be
    missed yet. After ten seconds in which nobody accepted us this node ends. While somebody talks
    to us it does not: a single node could end any other.
 3. We have met the node that has our name, and it was first. After ten seconds of that this node
    ends, whoever talks to us; at once if it has our number too, for no restart explains that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ordercast.errors import NameTaken

log = logging.getLogger("ordercast.net")

TAKEN_SECONDS = 10.0
FORGOTTEN_SECONDS = 10.0
"""After so long without another word of it, what was said of our name counts no more."""
ABANDON_SECONDS = 2.0
MOST_DOUBLINGS = 9
"""Of the time between two abandonments: a quarter of an hour then."""
CALM_SECONDS = 3600.0
"""After so long without an abandonment, the first of these times counts again."""


class _Claim:
    """What is said again and again: since when."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last = 0.0

    def repeat(self, now: float) -> float:
        """It is said once more: for how long it was."""
        if self._since is None or now - self._last > FORGOTTEN_SECONDS:
            self._since = now
        self._last = now
        return now - self._since

    def end(self) -> None:
        self._since = None


class NameWatch:
    def __init__(
        self,
        abandon: Callable[[list[int]], None],  # what others have met, each of them
        end: Callable[[NameTaken], None],
        is_outdated_by: Callable[[int], bool],  # an incarnation before ours
    ) -> None:
        self._abandon = abandon
        self._is_outdated_by = is_outdated_by
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._opened_at = self._loop.time() - ABANDON_SECONDS
        self._doublings = 0
        self._newest: dict[str, int] = {}  # by teller: the newest that it knows
        self._timer: asyncio.TimerHandle | None = None  # until we abandon ours
        self._refused, self._met = _Claim(), _Claim()

    def reported(self, ours: int, known: int, teller: str = "") -> None:
        """Somebody has met this incarnation of our name. It may be ours."""
        if known > ours or (known < ours and self._is_outdated_by(known)):
            self.superseded(known, teller)

    def superseded(self, newest: int, teller: str = "") -> None:
        """Somebody has met this incarnation of our name, and will not talk to ours."""
        self._newest[teller] = max(self._newest.pop(teller, -1), newest)
        if len(self._newest) > 2:  # two are believed, and the highest
            del self._newest[min(self._newest, key=self._newest.__getitem__)]
        if self._timer is None:
            pause = ABANDON_SECONDS * 2.0 ** max(0, self._doublings - 1)
            wait = max(0.0, self._opened_at + pause - self._loop.time())
            self._timer = self._loop.call_later(wait, self._over)

    def _over(self) -> None:
        now = self._loop.time()
        is_calm = now - self._opened_at > CALM_SECONDS
        self._doublings = 1 if is_calm else min(self._doublings + 1, MOST_DOUBLINGS)
        self._timer, self._opened_at = None, now
        newest, self._newest = list(self._newest.values()), {}
        self._abandon(newest)

    def reopened(self) -> None:
        """The next incarnation is open: what was said until now was said of the one before. If it
        holds for this one too, it will be said again."""
        self.close()
        self._timer, self._newest, self._opened_at = None, {}, self._loop.time()

    def taken(self, reason: str, company: int) -> None:
        """Another node has our name and had it first, as somebody says. Others talk to us: so
        many."""
        if company:
            self._refused.end()
        elif self._refused.repeat(self._loop.time()) >= TAKEN_SECONDS:
            self._refused.end()
            self._end(NameTaken(reason))

    def met_first(self, reason: str, is_same: bool) -> None:
        """We have met the node that had our name first. Same: it has our number too."""
        if is_same or self._met.repeat(self._loop.time()) >= TAKEN_SECONDS:
            self._met.end()
            self._end(NameTaken(reason))

    def accepted(self) -> None:
        """A node talks to us."""
        self._refused.end()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

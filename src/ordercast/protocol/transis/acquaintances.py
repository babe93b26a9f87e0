"""The names that may be in a group, and whom we announce ourselves to.

Of a closed group they are given. Of an open one they are learned: from the host, from packets, and
from the members that others name. A name that somebody told us and that never answered is dropped
after a while, and there is a limit: beyond it the name that was silent longest goes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.kernel.family import Plan
from ordercast.protocol.transis.options import LARGEST_GROUP

MOST_NAMES = 2 * LARGEST_GROUP
TRIES = 200
"""Announcements that a name which others told us of may leave unanswered."""


class KnownNames:
    def __init__(self, me: str, plan: Plan) -> None:
        self.me = me
        self.is_open = plan.entry is not None
        # The longest silent first; tries left, or None for a name that was given.
        self._names: dict[str, int | None] = {name: None for name in plan.members if name != me}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def may_be_member(self, name: str) -> bool:
        return name != self.me and (self.is_open or name in self._names)

    def give(self, names: Iterable[str]) -> None:
        """The host knows them."""
        for name in names:
            if self.may_be_member(name):
                self._names[name] = None
        self._limit()

    def tell(self, names: Iterable[str]) -> bool:
        """Somebody named them. Whether there are new ones among them."""
        new = [name for name in names if name not in self._names and self.may_be_member(name)]
        for name in new:
            self._names[name] = TRIES
        self._limit()
        return bool(new)

    def heard(self, name: str) -> None:
        if self.is_open:
            tries = self._names.pop(name, TRIES)
            self._names[name] = None if tries is None else TRIES
            self._limit()

    def outside(self, view: Iterable[str]) -> tuple[str, ...]:
        """Those that are announced to: all that are not in our view."""
        inside = set(view)
        return tuple(name for name in self._names if name not in inside)

    def tried(self, names: Iterable[str]) -> None:
        """They were announced to."""
        for name in names:
            tries = self._names.get(name)
            if tries is not None:
                self._names[name] = tries - 1
                if tries <= 1:
                    del self._names[name]

    def _limit(self) -> None:
        while len(self._names) > MOST_NAMES:
            del self._names[next(iter(self._names))]

"""The names that may be in a group, and whom we announce ourselves to.

Of a closed group they are given. Of an open one they are learned: from the host, from packets, and
from the members that others name.

Rules for an open group.
 1. A name that does not answer is announced to more and more rarely (`kernel/pauses.py`), and then
    dropped. If it is heard, or named again by the host or by somebody whom we hear, it counts as
    new.
 2. There is a limit: beyond it the name that was silent longest goes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.kernel.family import Plan
from ordercast.kernel.pauses import pause_after
from ordercast.protocol.transis.options import LARGEST_GROUP

MOST_NAMES = 2 * LARGEST_GROUP
TRIES = 200
"""Announcements that a name of an open group may leave unanswered."""


class _Unanswered:
    """How long a name has not answered, in rounds of our announcements."""

    __slots__ = ("due", "since", "tries")

    def __init__(self, now: int) -> None:
        self.since = self.due = now
        self.tries = TRIES  # that are left


class KnownNames:
    def __init__(self, me: str, plan: Plan) -> None:
        self.me = me
        self.is_open = plan.entry is not None
        # The longest silent first; None for a name that is listed.
        self._names: dict[str, _Unanswered | None] = {
            name: None for name in plan.members if name != me
        }
        self._now = 0  # rounds of announcements

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def may_be_member(self, name: str) -> bool:
        return name != self.me and (self.is_open or name in self._names)

    def tell(self, names: Iterable[str]) -> None:
        """The host knows them, or somebody named them."""
        for name in names:
            if self.is_open and name != self.me:
                self._names[name] = _Unanswered(self._now)
        self._limit()

    def heard(self, name: str) -> None:
        if self.is_open:
            self._names.pop(name, None)
            self._names[name] = _Unanswered(self._now)
            self._limit()

    def next_round(self, view: Iterable[str]) -> tuple[str, ...]:
        """Another round of announcements begins. Returns to whom: all that are not in our view,
        unless they pause."""
        self._now += self.is_open  # what is listed needs no count
        inside = dict.fromkeys(view)
        for name in inside:
            if self._names.get(name) is not None:
                self._names[name] = _Unanswered(self._now)
        due = tuple(
            name
            for name, one in self._names.items()
            if name not in inside and (one is None or one.due <= self._now)
        )
        for name in due:
            one = self._names[name]
            if one is not None:
                one.due = self._now + pause_after(self._now - one.since, 1)
                one.tries -= 1
                if one.tries <= 0:
                    del self._names[name]
        return due

    def _limit(self) -> None:
        while len(self._names) > MOST_NAMES:
            del self._names[next(iter(self._names))]

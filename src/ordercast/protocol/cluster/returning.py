"""Members of an open cluster that come back when nobody is in it: when they begin it again.

Rules.
 1. A member that was in the cluster with others begins it again only with more than half of those,
    all of them there and in no cluster. What each of them remembers must allow it
    (kernel/founding.py): one that knows of more members, which are not there, does not count. One
    that remembers nothing does: it was about to join when we heard of it, or lost its folder.
 2. Of those that remember the cluster and may begin it, the first by name begins, and the others
    join it. If they hear nothing of it for long, they begin too.
 3. A member that was in the cluster before creates no tickets when it begins it again. They are
    those that there were: a majority of the lease replicas must be back before anybody has one
    (tickets/lease_replica.py).

So it does not matter whether one member begins again, or several that do not hear each other, or
some while others are still in the cluster and cut off: they are one cluster, and no ticket has two
owners. They begin at nothing, and recover what others still buffer when they meet.
"""

from __future__ import annotations

from ordercast.kernel.family import FoundingRule
from ordercast.kernel.founding import founders_of, suffices
from ordercast.protocol.cluster.packets import MOST_LAST, Ask
from ordercast.types import NodeId

KEPT = 3
"""How many times longer than a newcomer waits for an answer others count as there."""
ASKED_IN_TURN = 4
"""Of those with whom we were in the cluster, so many are asked in a round."""
MOST_NAMED = 16
"""Names of members that we wait for, as the application is notified of them."""


class Returning:
    """Those that were in an open cluster together, as one of them sees it."""

    def __init__(self, me: str, last: tuple[str, ...], patience: int) -> None:
        """`last`: with whom we were in it. `patience`: rounds that we wait for an answer."""
        self._me = me
        self._last = tuple(name for name in last if name != me)
        self._entry = FoundingRule(last=last)
        self._rounds = KEPT * patience
        self._now = 0
        # By name, of those that came back too: with whom they were in it, and our round.
        self._back: dict[str, tuple[FoundingRule, int]] = {}
        self._able = 0  # rounds for which we could have begun

    def heard(self, sender: NodeId, ask: Ask) -> None:
        if sender.name in self._last:
            entry = FoundingRule(founds=not ask.last, last=ask.last)
            self._back[sender.name] = entry, self._now

    def round(self) -> None:
        self._now += 1
        since = self._now - self._rounds
        self._back = {name: one for name, one in self._back.items() if one[1] > since}
        self._able = self._able + 1 if self._me in self._founders() else 0

    def stalled(self) -> None:
        self._back.clear()
        self._able = 0

    def _founders(self) -> set[str]:
        entries = {name: entry for name, (entry, _) in self._back.items()}
        entries[self._me] = self._entry
        return founders_of(entries, lambda one, some: suffices(entries[one], some))

    def may_begin(self) -> bool:
        if not self._able:
            return False
        return self._able > self._rounds or self._first() == self._me

    def _first(self) -> str:
        """Who begins of those that may, ourselves among them."""
        newcomers = {name for name, (entry, _) in self._back.items() if not entry.last}
        return min(self._founders() - newcomers)

    def question(self, group: str, state: bool) -> Ask:
        return Ask(group, state, last=self._entry.last[:MOST_LAST])

    def favourite(self) -> tuple[str, ...]:
        first = self._now * ASKED_IN_TURN % len(self._last)
        return self._last[first : first + ASKED_IN_TURN]

    def waits_for(self) -> tuple[tuple[str, ...], str]:
        here = (self._me, *self._back)
        if self._able:
            first = self._first()
            return (first,), f"{first} begins the group again, and has not answered yet"
        if not suffices(self._entry, here):
            missing = [name for name in self._last if name not in self._back]
            there = len({*self._entry.last} & {*here})
            return tuple(missing[:MOST_NAMED]), (
                "no member answers, and this node was in the group with others: of "
                f"{len(self._entry.last)} members {there} are back, and "
                f"{len(self._entry.last) // 2 + 1} are needed to begin it again"
            )
        blocked = {
            name: sorted({*entry.last} - {*here})
            for name, (entry, _) in self._back.items()
            if not suffices(entry, here)
        }
        missing = sorted({name for names in blocked.values() for name in names})
        return tuple(missing[:MOST_NAMED]), (
            f"no member answers, and {' '.join(sorted(blocked)[:MOST_NAMED])} had other members "
            "beside them in the group, which may be in it"
        )

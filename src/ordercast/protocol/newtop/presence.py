"""Which members have joined a group and are reachable, in any formation or none.

Of each member the newest incarnation counts, and what it said last, if that was within the last few
rounds of our own announcements: time is counted in those. In a closed group the names are given. In
an open one they are learned, up to a limit: beyond it the name that was silent longest goes. A name
that does not answer is announced to more and more rarely (`kernel/pauses.py`), until it is heard or
named again.

What it does not do: send anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ordercast.kernel.pauses import pause_after
from ordercast.protocol.newtop.packets import LARGEST_GROUP, Here
from ordercast.types import NodeId

FRESH = 3
"""For so many rounds of announcements it counts what a member said."""
FEW = 3
"""One that waits asks so many of those that are in the group."""
MOST_KNOWN = 2 * LARGEST_GROUP
"""Names that are remembered of an open group: those of a full one, and of as many that wait."""


class Known(NamedTuple):
    node: NodeId
    here: Here
    tick: int


class AnnouncedMembers:
    def __init__(self, others: Iterable[str]) -> None:
        self.others = dict.fromkeys(others)  # names; of an open group, the longest silent first
        self.ticks = 0  # rounds of announcements
        # Of an open group: from which round on a name has not answered, and the round of the next
        # announcement to it.
        self._unanswered: dict[str, tuple[int, int]] = {}
        self._known: dict[str, Known] = {}
        self._objected: dict[str, NodeId] = {}  # whose terms the application was notified of
        self._turn = -1  # the round in which we last invited, or asked

    def learn(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names of an open group, which are there. Returns those that are new."""
        told = dict.fromkeys(names)
        new = [name for name in told if name not in self.others]
        for name in told:
            self.others.pop(name, None)
            self.others[name] = None
            self._unanswered[name] = self.ticks, self.ticks
        while len(self.others) > MOST_KNOWN:
            oldest = next(iter(self.others))
            del self.others[oldest]
            del self._unanswered[oldest]
            self._known.pop(oldest, None)
        return tuple(name for name in new if name in self.others)

    def due(self, names: Iterable[str], view: Iterable[str]) -> tuple[str, ...]:
        """To which of these names of an open group we announce ourselves in this round. Those in
        our view count as heard."""
        for name in view:
            if name in self._unanswered:
                self._unanswered[name] = self.ticks, self.ticks
        due = tuple(name for name in names if self._unanswered[name][1] <= self.ticks)
        for name in due:
            since, _ = self._unanswered[name]
            self._unanswered[name] = since, self.ticks + pause_after(self.ticks - since, 1)
        return due

    def is_old(self, node: NodeId) -> bool:
        """Whether we have heard of a later incarnation of the same member."""
        known = self._known.get(node.name)
        return known is not None and node.incarnation < known.node.incarnation

    def note(self, node: NodeId, here: Here) -> None:
        self._known[node.name] = Known(node, here, self.ticks)

    def is_new_objection(self, node: NodeId) -> bool:
        """True once for each incarnation."""
        if self._objected.get(node.name) == node:
            return False
        self._objected[node.name] = node
        if len(self._objected) > MOST_KNOWN:
            del self._objected[next(iter(self._objected))]
        return True

    def take_turn(self) -> bool:
        """True once a round."""
        if self._turn == self.ticks:
            return False
        self._turn = self.ticks
        return True

    def _fresh(self, rounds: int = FRESH) -> list[Known]:
        return [known for known in self._known.values() if self.ticks - known.tick <= rounds]

    def unformed(self) -> list[Known]:
        """Others that answered last and are in no formation."""
        return [known for known in self._fresh(1) if known.here.formation is None]

    def all_unformed(self) -> list[NodeId] | None:
        """The other members, if all are reachable and none is in a formation."""
        found = [known.node for known in self._fresh() if known.here.formation is None]
        return found if len(found) == len(self.others) else None

    def largest_view(self) -> Known | None:
        """A reachable member of the largest view of which we have heard."""
        known = [known for known in self._fresh() if known.here.size]
        return min(known, key=lambda one: (one.here.place, one.node), default=None)

    def inside(self) -> tuple[str, ...]:
        """A few names of members that are in a formation, the largest view first."""
        views = [
            (known.here.place, name)
            for name, known in self._known.items()
            if known.here.size and self.ticks - known.tick <= FRESH
        ]
        return tuple(name for _, name in sorted(views)[:FEW])

    def silent(self) -> tuple[str, ...]:
        """Names that have not answered lately."""
        fresh = {known.node.name for known in self._fresh()}
        return tuple(name for name in self.others if name not in fresh)

    def is_largest(self, view: tuple[NodeId, ...], ours: Here) -> bool:
        """Whether we have heard of no view that comes before ours. `ours`: our announcement."""
        others = [
            known.here.place
            for known in self._fresh()
            if known.here.size and known.node not in view
        ]
        return not others or ours.place <= min(others)

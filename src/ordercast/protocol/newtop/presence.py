"""Which members have joined a group and are reachable, in any formation or none.

Of each member the newest incarnation counts, and what it said last, if that was within the last few
rounds of our own announcements: time is counted in those.

What it does not do: send anything.
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.protocol.newtop.packets import Here
from ordercast.types import NodeId

FRESH = 3
"""For so many rounds of announcements it counts what a member said."""


class Known(NamedTuple):
    node: NodeId
    here: Here
    tick: int


class Presence:
    def __init__(self, others: tuple[str, ...]) -> None:
        self.others = others
        self.ticks = 0  # rounds of announcements
        self._known: dict[str, Known] = {}
        self._objected: dict[str, NodeId] = {}  # whose terms the application was notified of
        self._turn = -1  # the round in which we last invited

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
        return True

    def take_turn(self) -> bool:
        """True once a round."""
        if self._turn == self.ticks:
            return False
        self._turn = self.ticks
        return True

    def _fresh(self) -> list[Known]:
        return [known for known in self._known.values() if self.ticks - known.tick <= FRESH]

    def all_unformed(self) -> list[NodeId] | None:
        """The other members, if all are reachable and none is in a formation."""
        found = [known.node for known in self._fresh() if known.here.formation is None]
        return found if len(found) == len(self.others) else None

    def is_largest(self, view: tuple[NodeId, ...]) -> bool:
        """Whether we have heard of no larger view, nor of an earlier one of the same size."""
        others = [
            (-known.here.size, known.here.first)
            for known in self._fresh()
            if known.here.size and known.node not in view
        ]
        return (-len(view), view[0].name) <= min(others, default=(0, ""))

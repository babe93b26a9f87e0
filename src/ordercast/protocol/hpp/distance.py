"""How far this node is below the root, as measured, and when it moves for that.

Rules.
 1. Every few beats a node asks its parent, and some of its neighbourhood, and measures the time to
    the answer. Its delay is that of the parent and half a round trip, smoothed.
 2. It moves if its delay was above `slow_delay` for `slow_for`, and a candidate was nearer by 30 %
    three times in a row. It then rests for `settle`, or half of it.
 3. No such move makes it deeper than `deepest`, unless it is that deep already; and it moves only
    to nodes with normal room. Of a nearer one without room the children are candidates too:
    nobody would come past a root that is full.

What it does not do: look at clocks of others. Delays are of packets, without the disk.

Adly, Kumar: HPP, 1994, section 4.3: a node whose average receive delay is above a threshold for a
period moves within its neighbourhood.
"""

from __future__ import annotations

from random import Random

from ordercast.kernel.step import Step
from ordercast.protocol.hpp.edges import Edges
from ordercast.protocol.hpp.hierarchy import Hierarchy
from ordercast.protocol.hpp.options import FeedOptions
from ordercast.protocol.hpp.packets import Offer
from ordercast.protocol.hpp.relocation import Relocation
from ordercast.units import SECOND

BEATS = 10
"""Between two measurements."""
NEARER = 0.7
IN_A_ROW = 3
CANDIDATES = 4
MOST_REFERRED = 32
"""Children of others that are candidates."""
LONGEST = 60 * SECOND
"""An answer that takes longer tells nothing: a clock jumped, or the node stood still."""


class Distance:
    def __init__(
        self,
        edges: Edges,
        hierarchy: Hierarchy,
        relocation: Relocation,
        options: FeedOptions,
        chance: Random,
    ) -> None:
        self.edges = edges
        self.hierarchy = hierarchy
        self.relocation = relocation
        self.options = options
        self.chance = chance
        self._beats = chance.randrange(BEATS)
        self._nearer: dict[str, int] = {}  # by name: how often in a row
        self._referred: dict[str, None] = {}  # children of nearer nodes that have no room
        self._slow_since: int | None = None
        self._rests_until = 0
        self.moves = 0

    def beat(self, step: Step) -> None:
        hierarchy, parent = self.hierarchy, self.edges.parent
        if parent is None:
            hierarchy.delay = 0
            self._nearer, self._referred, self._slow_since = {}, {}, None
            return
        self._beats = (self._beats + 1) % BEATS
        if self._beats:
            return
        is_slow = self._is_slow(step.now)
        self.relocation.seek(step, parent.peer.name, False)
        if is_slow and self.options.moves == "delay" and not self.relocation.target:
            for name in self._candidates(parent.peer.name):
                self.relocation.seek(step, name, False)

    def _is_slow(self, now: int) -> bool:
        """For long enough."""
        if self.hierarchy.delay <= self.options.slow_delay:
            self._slow_since = None
            return False
        if self._slow_since is None:
            self._slow_since = now
        return now - self._slow_since >= self.options.slow_for and now >= self._rests_until

    def _candidates(self, parent: str) -> list[str]:
        """Those that were nearer before, and others of the neighbourhood."""
        hierarchy = self.hierarchy
        below = {edge.peer.name for edge in self.edges.children}
        near = [*hierarchy.path, *hierarchy.siblings, *self._referred]
        others = [name for name in near if name != parent and name not in below]
        others = [name for name in dict.fromkeys(others) if name != hierarchy.me.name]
        known = [name for name in self._nearer if name in others]
        rest = [name for name in others if name not in self._nearer]
        self._nearer = {name: self._nearer[name] for name in known}
        some = self.chance.sample(rest, min(len(rest), max(CANDIDATES - len(known), 1)))
        return [*known, *some]

    def measured(self, step: Step, name: str, offer: Offer) -> None:
        """An answer came."""
        took = step.now - offer.sent
        parent = self.edges.parent
        if parent is None or not offer.sent or not 0 <= took <= LONGEST:
            return
        hierarchy = self.hierarchy
        delay = min(offer.delay, LONGEST) + took // 2
        if name == parent.peer.name:
            before = hierarchy.delay
            hierarchy.delay = delay if not before else before + (delay - before) // 4
        elif self.options.moves == "delay" and self._is_slow(step.now):
            self._compare(step, name, offer, delay)

    def _compare(self, step: Step, name: str, offer: Offer, delay: int) -> None:
        is_nearer = delay < NEARER * self.hierarchy.delay
        if not is_nearer:
            self._referred.pop(name, None)
        elif not offer.room:
            self._refer(offer.children)
        depth, deepest = offer.depth + 1, self.options.deepest
        if not (is_nearer and offer.room and depth <= max(deepest, self.hierarchy.depth)):
            self._nearer.pop(name, None)
            return
        count = self._nearer[name] = self._nearer.get(name, 0) + 1
        if count >= IN_A_ROW:
            self._nearer, self._referred = {}, {}
            self.moves += 1
            settle = self.options.settle
            self._rests_until = step.now + settle // 2 + self.chance.randrange(settle // 2 + 1)
            self.relocation.wish(step, name)

    def _refer(self, names: list[str]) -> None:
        """To these, too; the last ones that were heard of stay."""
        for name in names:
            self._referred.pop(name, None)
            self._referred[name] = None
        while len(self._referred) > MOST_REFERRED:
            del self._referred[next(iter(self._referred))]

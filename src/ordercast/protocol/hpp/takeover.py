"""Nodes without a parent: whom they ask, when one becomes the root, and how parts of a feed meet.

Rules.
 1. An edge that is silent for too long ends. A child's acknowledgement is held. A node whose
    parent is gone is an orphan: it keeps its own children, whose parent is alive, so a cut orphans
    one node and not what is below it.
 2. An orphan asks in turn: the node that was configured as its parent, the path upwards, its
    siblings, the anchors, and nodes that it knows, by chance; and the children of those that have
    no room. It joins the first that offers a greater beat.
 3. An orphan that finds nobody for two limits of silence, and one more for each sibling before it,
    becomes the root of its part: its epoch is above all that it has heard of.
 4. A node that may found the group, and knows of nobody at its start, is the root at once.
 5. A root asks one node a period: an anchor or any that it knows. If it hears of a greater beat, of
    a root that it is preferred to, it outbids that one: its next epoch is above. If not it looks
    for a parent there, and remains the root until it has one. A child passes such a rumour upwards.

There is no election, no quorum and no state of a coordinator. Two roots do no harm: both parts go
on, and one session brings both up to date when they meet.

Adly, Kumar: HPP, 1994, section 5: the transition, the coordinator, diffusion and the hand-back are
replaced by these rules.
"""

from __future__ import annotations

from random import Random

from ordercast.kernel.step import Step
from ordercast.protocol.hpp.edges import Edges
from ordercast.protocol.hpp.hierarchy import Hierarchy
from ordercast.protocol.hpp.options import FeedOptions
from ordercast.protocol.hpp.packets import Beat
from ordercast.protocol.hpp.relocation import Relocation
from ordercast.types import NodeId

ASKED_AT_ONCE = 3
MOST_CONTACTS = 1024
"""Names that a node remembers."""
BY_CHANCE = 4
"""Names drawn for each round of questions."""
HINTED = 3
"""Beats from the start on in which only the node that is configured as the parent is asked: others
may be met before it."""
MOST_TURNS = 8
"""Limits of silence that siblings wait for those before them, at most."""


class Takeover:
    def __init__(
        self,
        me: NodeId,
        edges: Edges,
        hierarchy: Hierarchy,
        relocation: Relocation,
        options: FeedOptions,
        chance: Random,
    ) -> None:
        self.me = me
        self.edges = edges
        self.hierarchy = hierarchy
        self.relocation = relocation
        self.options = options
        self.chance = chance
        self.contacts: dict[str, None] = {}  # names, those heard of last at the end
        self.queue: list[str] = []  # to ask next
        self.hinted_until = 0  # by our clock
        self.asked: dict[str, None] = {}  # in this round
        self.seeking_since: int | None = None  # by our clock; None: it seeks no parent
        self.sought_at = -(1 << 62)  # by our clock
        self.roots = 0  # how often this node became the root
        self.outbids = 0
        self.abdications = 0

    def meet(self, name: str) -> None:
        """A name that may be in the group."""
        if name == self.me.name:
            return
        self.contacts.pop(name, None)
        self.contacts[name] = None
        if len(self.contacts) > MOST_CONTACTS:
            del self.contacts[next(iter(self.contacts))]

    # --- without a parent --------------------------------------------------------------------

    def seek(self, step: Step, first: tuple[str, ...] = ()) -> None:
        """Begins to look for a parent; at once, unless it did so a moment ago."""
        self.seeking_since = step.now
        self.asked, self.queue = {}, [name for name in first if name != self.me.name]
        if step.now - self.sought_at >= self.options.beat:
            self.sought_at = step.now
            self.ask(step)

    def begin(self, step: Step) -> None:
        """At the start."""
        if self.options.parent not in ("", self.me.name):
            self.hinted_until = step.now + HINTED * self.options.beat
        self.seek(step)

    def found(self) -> None:
        self.seeking_since = None
        self.queue, self.asked = [], {}

    def ask(self, step: Step) -> None:
        """The next few."""
        if step.now < self.hinted_until:
            self.queue = [self.options.parent]
        elif not self.queue:
            self._refill()
        for name in self.queue[:ASKED_AT_ONCE]:
            self.asked[name] = None
            self.relocation.seek(step, name, True)
        del self.queue[:ASKED_AT_ONCE]

    def _refill(self) -> None:
        """Everybody who might be above us, once a round."""
        known = [*self.contacts]
        some = self.chance.sample(known, min(BY_CHANCE, len(known)))
        hierarchy, options = self.hierarchy, self.options
        near = [options.parent, *hierarchy.path, *hierarchy.siblings, *options.anchors]
        wanted = dict.fromkeys([*near, *some])
        below = {edge.peer.name for edge in self.edges.children}
        names = [name for name in wanted if name and name != self.me.name and name not in below]
        fresh = [name for name in names if name not in self.asked]
        if not fresh:
            self.asked = {}
            fresh = names
        self.queue = fresh

    def redirected(self, step: Step, names: list[str]) -> None:
        """Somebody has no room, and names its children."""
        fresh = [name for name in names if name not in self.asked and name != self.me.name]
        self.queue = [*fresh, *(name for name in self.queue if name not in fresh)]
        self.ask_further(step)

    def ask_further(self, step: Step) -> None:
        """Asks at once, but nobody twice in a beat: a round of questions begins with a beat."""
        if self.queue:
            self.ask(step)

    @property
    def patience(self) -> int:
        """Nanoseconds before an orphan becomes the root."""
        siblings = sorted(self.hierarchy.siblings)
        turn = siblings.index(self.me.name) if self.me.name in siblings else 0
        return self.options.silence * (2 + min(turn, MOST_TURNS))

    def beat(self, step: Step) -> None:
        """Once a period."""
        hierarchy = self.hierarchy
        if self.seeking_since is None:
            if hierarchy.is_root:
                self._probe(step)
            return
        waited = step.now - self.seeking_since
        if hierarchy.is_root:
            if waited >= self.options.silence:
                self.found()  # nobody took us in: we remain the root, and hear of it again
            else:
                self.ask(step)
        elif waited >= self.patience and self.relocation.awaited is None:
            self.found()
            self.reign(step)
        elif self.relocation.awaited is None:
            self.ask(step)

    def reign(self, step: Step) -> None:
        """This node is the root, because nobody is above it."""
        self.roots += 1
        self.hierarchy.reign(step)

    def _probe(self, step: Step) -> None:
        """The root looks for other parts of the feed."""
        anchors = [name for name in self.options.anchors if name != self.me.name]
        below = {edge.peer.name for edge in self.edges.children}
        others = [name for name in self.contacts if name not in below]
        some = anchors if anchors and self.chance.random() < 0.5 else others
        if some:
            self.relocation.seek(step, self.chance.choice(some), False)

    # --- other roots -------------------------------------------------------------------------

    def hear(self, step: Step, beat: Beat, teller: str) -> None:
        """Somebody has this beat."""
        hierarchy = self.hierarchy
        hierarchy.hear(beat)
        if beat <= hierarchy.beat or not hierarchy.is_foreign(beat):
            return
        if self.edges.parent is not None:
            hierarchy.rumoured(beat, teller, step.now)
        elif hierarchy.is_root:
            if hierarchy.prefers(self.me.name, beat.root):
                self.outbids += 1
                hierarchy.reign(step)
                self.found()
            elif self.seeking_since is None:
                self.abdications += 1
                self.seek(step, (teller, beat.root))

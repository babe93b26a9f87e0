"""The tree: beats, and who is above, beside and below this node.

A beat is (epoch, root, incarnation of the root, count), compared in this order. The root counts up
every period and tells its children; every other node takes beats from its parent only, and tells
its own children.

Rules.
 1. A beat of a node never falls in one incarnation.
 2. A node changes its parent only to an incarnation whose beat is greater than its own, at the
    moment in which it does, and takes that beat.
 3. A node that wants to move is frozen: it takes no new beats for a few periods, so that a node
    that is not below it can pass it. Its children go on with the beat that it has.
 4. The node that is first among the anchors, or else by name, should be the root (`prefers`).

From 1 and 2 it follows that parents never form a circle: a node's beat is at most its parent's, and
if they are equal the parent had it first. (tests/paper/test_feed_theorems.py)

Adly, Kumar: HPP, 1994, section 3, has no rule against circles; section 5.1 has the neighbourhood,
which here travels with beats: the path to the root, and the children of the parent.
"""

from __future__ import annotations

from ordercast.errors import PeerError
from ordercast.kernel.step import Step
from ordercast.protocol.hpp.edges import Edge, Edges
from ordercast.protocol.hpp.options import FeedOptions
from ordercast.protocol.hpp.packets import LARGEST_EPOCH, MOST_NAMES, Beat, Pulse, Rumour
from ordercast.types import NodeId

FROZEN = 4
"""Beats for which a node is frozen."""
LARGEST_CLIMB = 1 << 32
"""Epochs grow by one where a root is replaced. Nobody is believed who is so far ahead."""
RUMOURED = 3
"""Beats for which a rumour is told."""


class Hierarchy:
    def __init__(self, me: NodeId, group: str, options: FeedOptions, edges: Edges) -> None:
        self.me = me
        self.group = group
        self.options = options
        self.edges = edges
        self.beat = Beat(0, me.name, me.incarnation, 0)
        self.epoch_heard = 0  # the greatest one, of anybody
        self.is_root = False
        self.path: list[str] = []  # from the parent up to the root
        self.siblings: list[str] = []  # the children of the parent, this node among them
        self.frozen_until = 0  # by our clock
        self.delay = 0  # nanoseconds below the root, smoothed
        self.rumour: Rumour | None = None
        self.rumour_until = 0
        self.must_tell = False  # children get a pulse with this step

    @property
    def depth(self) -> int:
        return len(self.path)

    @property
    def room(self) -> int:
        """How many more children are normal."""
        return self.options.fan_out - len(self.edges.children)

    def has_room(self, urgent: bool, beside: Edge | None = None) -> bool:
        children = self.edges.children
        count = len(children) - (beside in children)
        return count < (self.options.most_children if urgent else self.options.fan_out)

    def prefers(self, name: str, other: str) -> bool:
        """Whether the first of these should be the root, rather than the second."""
        return self._rank(name) <= self._rank(other)

    def _rank(self, name: str) -> tuple[int, str]:
        anchors = self.options.anchors
        return (anchors.index(name) if name in anchors else len(anchors)), name

    # --- beats -------------------------------------------------------------------------------

    def refuse_beat(self, sender: NodeId, beat: Beat) -> None:
        """No number may take everybody to the end of all numbers."""
        if beat.epoch > max(self.beat.epoch, self.epoch_heard) + LARGEST_CLIMB:
            raise PeerError(f"{sender} is in epoch {beat.epoch}, far ahead of {self.beat.epoch}")
        if beat.epoch >= LARGEST_EPOCH - LARGEST_CLIMB:
            raise PeerError(f"{sender} is in epoch {beat.epoch}, at the end of all numbers")

    def hear(self, beat: Beat) -> None:
        self.epoch_heard = max(self.epoch_heard, beat.epoch)

    def is_foreign(self, beat: Beat) -> bool:
        """Whether it is of another root, or of another reign of it."""
        return beat.reign != self.beat.reign

    def count(self) -> None:
        """The root, once a period."""
        beat = self.beat
        self.beat = Beat(beat.epoch, beat.root, beat.incarnation, beat.count + 1)

    def reign(self, step: Step) -> None:
        """This node is the root of a new reign."""
        epoch = max(self.beat.epoch, self.epoch_heard) + 1
        self.beat = Beat(epoch, self.me.name, self.me.incarnation, 0)
        self.is_root = True
        self.epoch_heard = epoch
        self._placed(step, None)

    def take(self, beat: Beat, now: int) -> None:
        """A beat of the parent."""
        if beat > self.beat and now >= self.frozen_until:
            self.beat = beat
            self.must_tell = True

    def freeze(self, now: int) -> None:
        self.frozen_until = now + FROZEN * self.options.beat

    def _placed(self, step: Step, parent: NodeId | None) -> None:
        self.path, self.siblings = [], []
        self.frozen_until, self.must_tell = 0, True
        name = None if parent is None else f"{parent.name}#{parent.incarnation}"
        step.note("parent", group=self.group, peer=name)

    def begin_alone(self, step: Step) -> None:
        """At the start, and when it joins again: then its beat stays, which must not fall."""
        self.is_root = False
        self._placed(step, None)

    def follow(self, step: Step, parent: NodeId, beat: Beat) -> None:
        """Another parent, from now on."""
        assert beat > self.beat, "the rule of beats"
        self.beat = beat
        self.is_root = False
        self.delay = 0
        self._placed(step, parent)

    def orphaned(self, step: Step) -> None:
        """The parent is gone. The path and the siblings stay, to find another one."""
        self.frozen_until = 0
        step.note("parent", group=self.group, peer=None)

    # --- pulses ------------------------------------------------------------------------------

    def pulse(self, step: Step, edge: Edge) -> None:
        """Tells a child, and what has changed."""
        path = [self.me.name, *self.path][:MOST_NAMES]
        siblings = sorted(child.peer.name for child in self.edges.children)[:MOST_NAMES]
        told_path = None if edge.told_path == path else path
        told_siblings = None if edge.told_siblings == siblings else siblings
        edge.told_path, edge.told_siblings, edge.told_at = path, siblings, step.now
        packet = Pulse(self.group, edge.session, self.beat, self.delay, told_path, told_siblings)
        step.send(edge.peer, packet)

    def receive(self, packet: Pulse, now: int) -> None:
        if packet.path is not None:
            self.must_tell = self.must_tell or self.path != packet.path
            self.path = packet.path
        if packet.siblings is not None:
            self.siblings = packet.siblings
        self.take(packet.beat, now)

    # --- rumours -----------------------------------------------------------------------------

    def rumoured(self, beat: Beat, teller: str, now: int) -> None:
        """Somebody has a greater beat, of another root: ours will hear of it."""
        current = self.current_rumour(now)
        if current is None or current.beat <= beat:
            self.rumour = Rumour(beat, teller)
            self.rumour_until = now + RUMOURED * self.options.beat

    def current_rumour(self, now: int) -> Rumour | None:
        rumour = self.rumour
        if rumour is None or now >= self.rumour_until or rumour.beat <= self.beat:
            self.rumour = None
        return self.rumour

"""Courting: which sides are merged with which.

Rules.
 1. A member announces itself by `Hello` to every name that is not in its view: often at first,
    then at longer intervals. The more members a view has, the less often each of them does.
 2. A `Hello` names the members of its sender's view, and whom it has heard lately (the echo). It is
    answered at once if it is the first one, or if we are not in its echo. A member that hears one
    that was not heard for long announces itself to all at once: so two sides that can reach each
    other again know it within a few trips.
 3. An incarnation is mutual if we hear it and it hears all members of our view. A side is courted
    if all of its members are mutual. So where some pairs do not reach each other nobody is courted,
    and views do not flap.
 4. Candidates are told to all members of our view, and one that does not hear a candidate declines
    it. Nothing is proposed before that, so a doubtful candidate costs no view.
 5. Sides are courted together if they hear each other as well. Of two that do not, the one with the
    greater name waits. A side that is heard early enough in stage 1 is courted along.
 6. An incarnation that failed in a change, or was declined, rests: longer each time, until it has
    been in a view with us. A member that was excluded rests for a short time, and so do the others
    from then on: it may have been the one that declined them.

What it does not do: decide a change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ordercast.protocol.transis.options import LARGEST_GROUP, SynchronyOptions
from ordercast.protocol.transis.packets import ConfigurationId, Hello
from ordercast.types import NodeId

MOST_HEARD = 2 * LARGEST_GROUP


class Announced(NamedTuple):
    """What an incarnation that is not in our view said last."""

    node: NodeId
    cid: ConfigurationId
    echo: frozenset[NodeId]  # never iterated
    hears_us: bool  # all members of our view are in its echo
    members: tuple[NodeId, ...]
    since: int  # from when on it was heard without a long pause; patient time
    at: int  # when it was heard last


class Courting:
    def __init__(self, me: NodeId, options: SynchronyOptions, phase: float) -> None:
        """`phase`: a number from 0 to 1 that makes members announce themselves out of step."""
        self.me = me
        self.options = options
        self.heard: dict[str, Announced] = {}  # by name, the newest incarnation; oldest first
        self.members: dict[NodeId, None] = {}  # of our view, without us
        self._count = 1  # members of our view
        self._rests: dict[NodeId, tuple[int, int]] = {}  # until when, and how long that was
        self._factor = 0.75 + phase / 2
        self._interval = int(options.hello)
        self.hello_at = 0  # when we announce ourselves next
        self._announced_at = -(1 << 62)

    # --- announcements -----------------------------------------------------------------------

    def installed(self, members: tuple[NodeId, ...], time: int) -> None:
        """We are in another view."""
        self.members = {node: None for node in members if node != self.me}
        self._count = len(members)
        for node in members:
            self._rests.pop(node, None)
        for name, one in self.heard.items():
            self.heard[name] = one._replace(hears_us=self._hears_us(one.node, one.echo))
        self._interval = int(self.options.hello)
        self.hello_at = time + int(self._interval * self._factor)

    def announce_soon(self, time: int) -> None:
        """Somebody is there who was not: at once, or a little after the last time."""
        self._interval = int(self.options.hello)
        soonest = max(time, self._announced_at + self._interval // 2)
        self.hello_at = min(self.hello_at, soonest)

    def announced(self, time: int) -> None:
        """We have announced ourselves to all names outside of our view."""
        self._announced_at = time
        limit = self.options.hello_limit * max(2, self._count) // 2
        limit = min(limit, max(self.options.suspicion_limit, self.options.hello_limit))
        self.hello_at = time + int(self._interval * self._factor)
        self._interval = min(self._interval * 3 // 2, limit)

    def echo(self, time: int) -> tuple[NodeId, ...]:
        """Whom we have heard lately."""
        since = time - self.options.fresh
        return tuple(one.node for one in self.heard.values() if one.at >= since)

    # --- hearing -----------------------------------------------------------------------------

    def is_old(self, node: NodeId) -> bool:
        """Whether we have heard a later incarnation of the same name."""
        found = self.heard.get(node.name)
        return found is not None and node < found.node

    def hear(self, node: NodeId, hello: Hello, time: int) -> bool:
        """Takes note of an announcement. Whether the incarnation was not heard for long."""
        found = self.heard.pop(node.name, None)
        echo = frozenset(hello.echo)
        if found is not None and found.node == node and found.cid > hello.cid:
            hello_cid, members = found.cid, found.members  # datagrams overtake each other
        else:
            hello_cid, members = hello.cid, hello.members
        hears_us = self._hears_us(node, echo)
        since, is_new = time, True
        if found is not None and found.node == node and found.at >= time - self.options.fresh:
            since, is_new = found.since, False
        self.heard[node.name] = Announced(node, hello_cid, echo, hears_us, members, since, time)
        if len(self.heard) > MOST_HEARD:
            del self.heard[next(iter(self.heard))]
        return is_new

    def is_heard(self, node: NodeId, time: int) -> bool:
        found = self.heard.get(node.name)
        return found is not None and found.node == node and found.at >= time - self.options.fresh

    def view_of(self, node: NodeId) -> tuple[NodeId, ...]:
        """The members of the view that an incarnation outside of ours has announced."""
        found = self.heard.get(node.name)
        if found is None or found.node != node or node in self.members:
            return ()
        return found.members

    def _hears_us(self, node: NodeId, echo: frozenset[NodeId]) -> bool:
        # An older incarnation of its own name is not there for it to hear.
        return self.me in echo and all(
            other in echo or other.name == node.name for other in self.members
        )

    def _is_mutual(self, node: NodeId, time: int) -> bool:
        return self.is_heard(node, time) and self.heard[node.name].hears_us

    # --- candidates --------------------------------------------------------------------------

    def may_meet(self, one: NodeId, other: NodeId) -> bool:
        """Whether two incarnations outside of our view hear each other, as far as we know. One that
        announced itself a while after we first heard the other had the time to hear it too."""
        ours, its = self.heard.get(one.name), self.heard.get(other.name)
        if ours is None or its is None or one.name == other.name or ours.cid == its.cid:
            return True
        a_while = 2 * self.options.hello
        deaf = its.node not in ours.echo and ours.at >= its.since + a_while
        return not deaf and (ours.node in its.echo or its.at < ours.since + a_while)

    def candidates(
        self, nodes: Iterable[NodeId], time: int, courted: Iterable[NodeId] = ()
    ) -> list[tuple[NodeId, ConfigurationId]]:
        """Those of these incarnations that are courted: with them the others of their sides. They
        hear each other, and those that are `courted` already."""
        found: dict[NodeId, ConfigurationId] = {}
        others = [node for node in courted if node != self.me and node not in self.members]
        for node in nodes:
            side = self.heard[node.name].members
            if self._count + len(side) > LARGEST_GROUP:
                continue
            if not all(self._is_mutual(one, time) and not self.rests(one, time) for one in side):
                continue
            if all(self.may_meet(one, other) for one in side for other in (*others, *found)):
                for one in side:
                    found[one] = self.heard[one.name].cid
        return list(found.items())

    def outsiders(self, time: int) -> list[NodeId]:
        """Those heard lately that are not in our view, one of each side."""
        since = time - self.options.fresh
        sides: dict[ConfigurationId, NodeId] = {}
        for one in self.heard.values():
            if one.at >= since and one.node not in self.members:
                sides.setdefault(one.cid, one.node)
        return list(sides.values())

    # --- rests -------------------------------------------------------------------------------

    def rests(self, node: NodeId, time: int) -> bool:
        return self._rests.get(node, (0, 0))[0] > time

    def next_rest(self, time: int) -> int | None:
        """When somebody that we hear has rested."""
        ends = [
            until
            for node, (until, _) in self._rests.items()
            if until > time and node.name in self.heard
        ]
        return min(ends, default=None)

    def set_back(self, node: NodeId, time: int) -> None:
        """It failed, or was declined."""
        before = self._rests.pop(node, (0, 0))[1]
        first = self.options.suspicion_limit // 3
        pause = min(max(first, 2 * before), self.options.rest_limit)
        self._rests[node] = time + pause, pause
        self._limit()

    def excluded(self, node: NodeId, former: ConfigurationId, time: int) -> None:
        """It was in our former view, and is not in this one. What it said before is out of date."""
        found = self.heard.get(node.name)
        if found is not None and found.node == node and found.cid <= former:
            del self.heard[node.name]
        self._rests.pop(node, None)
        soon = time + self.options.suspicion_limit // 3
        for other, (until, _) in self._rests.items():  # for what it may have said of them
            self._rests[other] = min(until, soon), 0
        self._rests[node] = time + self.options.rest, 0
        self._limit()

    def _limit(self) -> None:
        while len(self._rests) > MOST_HEARD:
            del self._rests[next(iter(self._rests))]

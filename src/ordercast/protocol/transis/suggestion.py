"""What the next configuration should be made of, and when it is decided: functions of proposals.

Rules.
 1. A suggestion says who should come along, each from which configuration (J), and who has failed
    (F). Suggestions form a lattice: of one incarnation the later configuration counts, and failures
    only grow. So suggestions that are exchanged become equal.
 2. Of two incarnations of one name the older has failed.
 3. A configuration is decided for us when all who are in J and not in F have proposed our own
    suggestion, each from the configuration that J has for it.
 4. The id of the decided configuration has a height above those of all configurations that its
    members come from, and the serial number of its first member's proposal: so no two
    configurations share an id, even if one of them is decided by some members and another one by
    others.
 5. The cut of the former configuration: of members that come along all that they have sent, of
    others what anybody who comes along has admitted.

What it does not do: send anything, or know about time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ordercast.kernel.clocks import Vector, merge
from ordercast.protocol.transis.packets import (
    MOST_LIVES,
    ConfigurationId,
    Failed,
    GoneMember,
    Joined,
    Joint,
    Proposal,
    Ready,
    SideKnowledge,
)
from ordercast.types import NodeId


class Suggestion:
    def __init__(self, me: NodeId, cid: ConfigurationId, members: Iterable[NodeId]) -> None:
        self.me = me
        self.joined: dict[NodeId, ConfigurationId] = dict.fromkeys(members, cid)
        self.failed: dict[NodeId, None] = {}
        self._newest = {node.name: node for node in self.joined}

    def grow(
        self, joined: Iterable[tuple[NodeId, ConfigurationId]], failed: Iterable[NodeId]
    ) -> tuple[bool, list[NodeId]]:
        """Joins another suggestion into this one. Whether it grew, and who has failed now."""
        grew = False
        news: list[NodeId] = []  # older incarnations
        fresh: list[NodeId] = []  # in `failed` since now
        for node, cid in joined:
            found = self.joined.get(node)
            if node == self.me:
                continue  # where we are nobody knows better
            if (found is None and len(self.joined) < MOST_LIVES) or (found and found < cid):
                self.joined[node] = cid
                grew = True
                newest = self._newest.setdefault(node.name, node)
                if newest != node:
                    self._newest[node.name] = max(newest, node)
                    news.append(min(newest, node))
        for node in (*failed, *news):
            if node != self.me and node not in self.failed and len(self.failed) < MOST_LIVES:
                self.failed[node] = None
                fresh.append(node)
                grew = True
        return grew, fresh

    def drop(self, node: NodeId) -> None:
        """It is no candidate after all. Only while nothing was proposed."""
        self.joined.pop(node, None)
        self.failed.pop(node, None)  # an older incarnation: nobody fails who is not wanted
        if self._newest.get(node.name) == node:
            del self._newest[node.name]

    @property
    def accepted(self) -> tuple[NodeId, ...]:
        """Who comes along, if nothing changes."""
        return tuple(sorted(node for node in self.joined if node not in self.failed))

    def as_proposed(self) -> tuple[Joined, Failed]:
        return tuple(sorted(self.joined.items())), tuple(sorted(self.failed))


class Decision(NamedTuple):
    """The next configuration, as one of its members sees it."""

    id: ConfigurationId
    members: tuple[NodeId, ...]
    sides: tuple[tuple[ConfigurationId, tuple[NodeId, ...]], ...]  # our own first
    cut: Vector  # of our configuration

    @property
    def came_with(self) -> tuple[NodeId, ...]:
        """The members that come from our own configuration."""
        return self.sides[0][1]


def decide(
    cid: ConfigurationId,
    members: tuple[NodeId, ...],
    own: Proposal,
    proposals: Mapping[NodeId, Proposal],
) -> Decision | None:
    """What is decided by these proposals, seen from one of them; None: nothing yet."""
    failed = set(own.failed)
    accepted = [(node, of) for node, of in own.joined if node not in failed]
    for node, of in accepted:
        other = proposals.get(node)
        if other is None or other.cid != of:
            return None
        if other.failed != own.failed or other.joined != own.joined:
            return None
    by_side: dict[ConfigurationId, list[NodeId]] = {cid: []}
    for node, of in accepted:
        by_side.setdefault(of, []).append(node)
    first = accepted[0][0]
    height = 1 + max(of.height for _, of in accepted)
    others = sorted(side for side in by_side if side != cid)
    return Decision(
        ConfigurationId(height, first, proposals[first].serial),
        tuple(node for node, _ in accepted),
        tuple((side, tuple(by_side[side])) for side in (cid, *others)),
        _cut(members, by_side[cid], proposals),
    )


def _cut(
    members: tuple[NodeId, ...], side: list[NodeId], proposals: Mapping[NodeId, Proposal]
) -> Vector:
    reach = proposals[side[0]].received
    for node in side[1:]:
        reach = merge(reach, proposals[node].received)
    return tuple(
        proposals[node].sent if node in side else up_to
        for node, up_to in zip(members, reach, strict=True)
    )


def joint_knowledge(
    sides: Iterable[tuple[ConfigurationId, tuple[NodeId, ...]]],
    readies: Mapping[NodeId, Ready],
) -> Joint:
    """By side: what its members know together of those that do not come along."""
    joint = []
    for side, members in sides:
        found: dict[NodeId, GoneMember] = {}
        for member in members:
            for one in readies[member].known:
                before = found.get(one.node)
                if before is None or len(before.acks) != len(one.acks):
                    found[one.node] = one
                else:
                    acks = merge(before.acks, one.acks)
                    found[one.node] = GoneMember(one.node, acks, max(before.high, one.high))
        lineages = [(node, readies[node].lineage) for node in members]
        known = tuple(found[node] for node in sorted(found))
        said = tuple((node, lineage) for node, lineage in lineages if lineage is not None)
        joint.append(SideKnowledge(side, known, said))
    return tuple(joint)

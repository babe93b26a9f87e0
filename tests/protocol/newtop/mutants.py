"""Totally ordered groups with a planted bug each: the laws must catch them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from ordercast.kernel.family import Family, Plan
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.atomic import AtomicGroup
from ordercast.protocol.newtop.group import Group
from ordercast.protocol.newtop.member import Member
from ordercast.protocol.newtop.ordering import Ordering, Waiting
from ordercast.protocol.newtop.packets import Data, Turn
from ordercast.protocol.newtop.sequencer import SequencedGroup
from ordercast.protocol.newtop.suspicion import Detection, Suspicions
from ordercast.protocol.newtop.views import Views
from ordercast.types import NodeId, View, view_identity


class LooksAtOneGroup(Member):
    """Delivers what any of its groups has ready, whatever the others may yet bring."""

    breaks = "total"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...]) -> None:
        super().__init__(me, plans)
        order = _Greatest()
        order.groups = self.order.groups
        self.order = order
        for group in self.joined.values():
            group.order = order


class _Greatest(Ordering):
    def deliverable_up_to(self) -> int:
        bounds = [group.deliverable_up_to() for group in self.groups.values()]
        return max(bounds, default=self.clock.value)


class BreaksTiesByArrival(Member):
    """Delivers events of one number as they came."""

    breaks = "total"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...]) -> None:
        super().__init__(me, plans)
        self.order.waiting = _AsTheyCame()


class _AsTheyCame(Waiting):
    def push(self, numberer: NodeId, data: Data | Turn) -> None:
        super().push(NodeId("anybody", 0), data)

    def peek(self) -> tuple[NodeId, Data | Turn]:
        _, data = super().peek()
        return data.origin, data


class AsksNobody(Member):
    """Confirms what it suspects without hearing how far the others got."""

    breaks = "virtual-synchrony"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...]) -> None:
        super().__init__(me, plans)
        for group in self.joined.values():
            group.suspicions = _Lone(tuple(group.suspicions.heard))


class _Lone(Suspicions):
    def unanimous(self, live: tuple[NodeId, ...]) -> Detection | None:
        return tuple(sorted(self.held.items())) or None

    def is_shared(self, detection: Detection) -> bool:
        return all(peer in self.gossip for peer, _ in detection)


class CountsItsViews(Member):
    """Names a view by how many came before it at this member."""

    breaks = "view-agreement"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...]) -> None:
        super().__init__(me, plans)
        for group in self.joined.values():
            group.views = _Counted(group.name, me, group.views.members)


class _Counted(Views):
    def current(self) -> View:
        return View(self.group, view_identity(self.group, self.me, self.excluded), self.members)


class EverybodyOrders(Member):
    """Each member takes itself for the sequencer."""

    breaks = "total-in-view"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...]) -> None:
        super().__init__(me, plans)
        for group in self.joined.values():
            if isinstance(group, SequencedGroup):
                group.sequencer = me


class SendsBeforeItsTurn(Member):
    """Waits nowhere for the turn of what it sent elsewhere."""

    breaks = "optimistic-causal"  # across groups

    def _is_blocked(self, group: Group) -> bool:
        return False


class ConfirmsForAll(Member):
    """Installs a view when it has confirmed it, whatever the others have yet to send."""

    breaks = "virtual-synchrony"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...]) -> None:
        super().__init__(me, plans)
        for group in self.joined.values():
            if isinstance(group, AtomicGroup):
                group.__class__ = _Hasty


class _Hasty(AtomicGroup):
    def _is_due(self) -> bool:
        return bool(self.due)

    def _exclude(self, step: Step, detection: Detection, via: tuple[NodeId, int] | None) -> None:
        super()._exclude(step, detection, via)
        self.held[self.me].remove(detection)


class WaitsForTheDead(Member):
    """Makes a view of every exclusion, though who is gone will not confirm the one before."""

    breaks = "completeness"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...]) -> None:
        super().__init__(me, plans)
        for group in self.joined.values():
            if isinstance(group, AtomicGroup):
                group.__class__ = _Separate


class _Separate(AtomicGroup):
    def _first_unsaid(self, gone: tuple[NodeId, ...]) -> int:
        return len(self.due)

    def _is_due(self) -> bool:
        waits_for = self.views.members if self.due else ()
        gone = self.views.pending[0].gone if self.due else ()
        return bool(self.due) and all(
            self.due[0][-1] in self.said[peer] for peer in waits_for if peer not in gone
        )


MUTANTS: dict[str, Any] = {
    "looks-at-one-group": LooksAtOneGroup,
    "breaks-ties-by-arrival": BreaksTiesByArrival,
    "asks-nobody": AsksNobody,
    "counts-its-views": CountsItsViews,
}
OF_SEQUENCERS: dict[str, Any] = {
    "everybody-orders": EverybodyOrders,
    "sends-before-its-turn": SendsBeforeItsTurn,
}
OF_ATOMIC_GROUPS: dict[str, Any] = {
    "confirms-for-all": ConfirmsForAll,
    "waits-for-the-dead": WaitsForTheDead,
}


def mutant(name: str) -> Family:
    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, kept: Sequence[Packet]
    ) -> list[Machine]:
        return [(MUTANTS | OF_SEQUENCERS | OF_ATOMIC_GROUPS)[name](me, plans)]

    return FAMILY._replace(build=build)

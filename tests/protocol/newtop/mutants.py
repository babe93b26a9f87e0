"""Totally ordered groups with a planted bug each: the laws must catch them."""

from __future__ import annotations

from typing import Any

from ordercast.kernel.family import Family, Plan, machine_for_all
from ordercast.kernel.step import Step
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.atomic import Unordered
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.newtop.ordering import DeliveryQueue, Ordering
from ordercast.protocol.newtop.packets import Data, Turn
from ordercast.protocol.newtop.sequencer import BySequencer
from ordercast.protocol.newtop.suspicion import Detection, Suspicions, Via
from ordercast.protocol.newtop.views import Views
from ordercast.types import NodeId, View, view_identity


class LooksAtOneGroup(NewtopMember):
    """Delivers what any of its groups has ready, whatever the others may yet bring."""

    breaks = "total"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Any = ()) -> None:
        super().__init__(me, plans, records)
        self.order = _Greatest(self.joined)
        for epoch in self.joined.values():
            epoch.order = self.order


class _Greatest(Ordering):
    def deliverable_up_to(self) -> int:
        bounds = [
            epoch.placement.deliverable_up_to(epoch)
            for epoch in self.groups.values()
            if isinstance(epoch, GroupEpoch)
        ]
        return max(bounds, default=self.clock.value)


class BreaksTiesByArrival(NewtopMember):
    """Delivers events of one number as they came."""

    breaks = "total"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Any = ()) -> None:
        super().__init__(me, plans, records)
        self.order.queue = _AsTheyCame()


class _AsTheyCame(DeliveryQueue):
    def push(self, numberer: NodeId, data: Data | Turn) -> None:
        super().push(NodeId("anybody", 0), data)

    def peek(self) -> tuple[NodeId, Data | Turn]:
        _, data = super().peek()
        return data.origin, data


class AsksNobody(NewtopMember):
    """Confirms what it suspects without hearing how far the others got."""

    breaks = "virtual-synchrony"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Any = ()) -> None:
        super().__init__(me, plans, records)
        for epoch in self.joined.values():
            epoch.agreement.suspicions = _Lone(tuple(epoch.agreement.suspicions.last_heard))


class _Lone(Suspicions):
    def unanimous(self, live: tuple[NodeId, ...]) -> Detection | None:
        return tuple(sorted(self.suspected.items())) or None

    def is_shared(self, detection: Detection) -> bool:
        return all(peer in self.gossip for peer, _ in detection)


class CountsItsViews(NewtopMember):
    """Names a view by how many came before it at this member."""

    breaks = "view-agreement"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Any = ()) -> None:
        super().__init__(me, plans, records)
        for epoch in self.joined.values():
            epoch.views = _Counted(epoch.name, me, epoch.views.members)


class _Counted(Views):
    def current(self) -> View:
        return View(self.group, view_identity(self.group, self.me, self.excluded), self.members)


class EverybodyOrders(NewtopMember):
    """Each member takes itself for the sequencer."""

    breaks = "total-in-view"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Any = ()) -> None:
        super().__init__(me, plans, records)
        for epoch in self.joined.values():
            if isinstance(epoch.placement, BySequencer):
                epoch.placement.sequencer = me


class SendsBeforeItsTurn(NewtopMember):
    """Waits nowhere for the turn of what it sent elsewhere."""

    breaks = "optimistic-causal"  # across groups

    def _is_blocked(self, group: GroupEpoch) -> bool:
        return False


class ConfirmsForAll(NewtopMember):
    """Installs a view when it has confirmed it, whatever the others have yet to send."""

    breaks = "virtual-synchrony"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Any = ()) -> None:
        super().__init__(me, plans, records)
        for epoch in self.joined.values():
            if isinstance(epoch.placement, Unordered):
                epoch.placement.__class__ = _Hasty


class _Hasty(Unordered):
    def _is_due(self, epoch: GroupEpoch) -> bool:
        return bool(self.due)

    def exclude(self, epoch: GroupEpoch, step: Step, detection: Detection, via: Via) -> None:
        super().exclude(epoch, step, detection, via)
        self.undelivered[epoch.me].remove(detection)


class WaitsForTheDead(NewtopMember):
    """Makes a view of every exclusion, though a failed member cannot confirm the one before."""

    breaks = "completeness"

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Any = ()) -> None:
        super().__init__(me, plans, records)
        for epoch in self.joined.values():
            if isinstance(epoch.placement, Unordered):
                epoch.placement.__class__ = _Separate


class _Separate(Unordered):
    def _first_unconfirmed(self, gone: tuple[NodeId, ...]) -> int:
        return len(self.due)

    def _is_due(self, epoch: GroupEpoch) -> bool:
        waits_for = epoch.views.members if self.due else ()
        gone = epoch.views.pending[0].gone if self.due else ()
        return bool(self.due) and all(
            self.due[0][-1] in self.confirmed[peer] for peer in waits_for if peer not in gone
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
    return FAMILY._replace(
        build=machine_for_all((MUTANTS | OF_SEQUENCERS | OF_ATOMIC_GROUPS)[name])
    )

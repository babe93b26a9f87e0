"""Totally ordered groups with a planted bug. Each breaks one law, and the checker must catch it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ordercast.kernel.family import Mutant, Plan, machine_for_all
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.newtop.atomic import Unordered
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.newtop.ordering import DeliveryQueue, Ordering, Placed
from ordercast.protocol.newtop.packets import State
from ordercast.protocol.newtop.sequencer import BySequencer
from ordercast.protocol.newtop.suspicion import Detection, Suspicions, Via
from ordercast.protocol.newtop.views import Views
from ordercast.types import NodeId, View, view_identity


class LooksAtOneGroup(NewtopMember):
    """Delivers what any of its groups has ready, whatever the others may yet bring."""

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Sequence[Packet] = ()) -> None:
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

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Sequence[Packet] = ()) -> None:
        super().__init__(me, plans, records)
        self.order.queue = _AsTheyCame()


class _AsTheyCame(DeliveryQueue):
    def push(self, numberer: NodeId, data: Placed) -> None:
        super().push(numberer if isinstance(data, State) else NodeId("anybody", 0), data)

    def peek(self) -> tuple[NodeId, Placed]:
        numberer, data = super().peek()
        return numberer if isinstance(data, State) else data.origin, data


class AsksNobody(NewtopMember):
    """Confirms what it suspects without hearing how far the others got."""

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Sequence[Packet] = ()) -> None:
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

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Sequence[Packet] = ()) -> None:
        super().__init__(me, plans, records)
        for epoch in self.joined.values():
            epoch.views = _Counted(epoch.name, me, epoch.views.members)


class _Counted(Views):
    def current(self) -> View:
        return View(self.group, view_identity(self.group, self.me, self.excluded), self.members)


class EverybodyOrders(NewtopMember):
    """Each member takes itself for the sequencer."""

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Sequence[Packet] = ()) -> None:
        super().__init__(me, plans, records)
        for epoch in self.joined.values():
            if isinstance(epoch.placement, BySequencer):
                epoch.placement.sequencer = me


def _replace_unordered(placement: Any, kind: Any) -> None:
    if isinstance(placement, Unordered):
        placement.__class__ = kind


class ConfirmsForAll(NewtopMember):
    """Installs a view when it has confirmed it, whatever the others have yet to send."""

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Sequence[Packet] = ()) -> None:
        super().__init__(me, plans, records)
        for epoch in self.joined.values():
            _replace_unordered(epoch.placement, _Hasty)


class _Hasty(Unordered):
    def _is_due(self, epoch: GroupEpoch) -> bool:
        return bool(self.due)

    def exclude(self, epoch: GroupEpoch, step: Step, detection: Detection, via: Via) -> None:
        super().exclude(epoch, step, detection, via)
        self.undelivered[epoch.me].remove(detection)


class WaitsForTheDead(NewtopMember):
    """Makes a view of every exclusion, though a failed member cannot confirm the one before."""

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Sequence[Packet] = ()) -> None:
        super().__init__(me, plans, records)
        for epoch in self.joined.values():
            _replace_unordered(epoch.placement, _Separate)


class _Separate(Unordered):
    def _first_unconfirmed(self, gone: tuple[NodeId, ...]) -> int:
        return len(self.due)

    def _is_due(self, epoch: GroupEpoch) -> bool:
        waits_for = epoch.views.members if self.due else ()
        gone = epoch.views.pending[0].gone if self.due else ()
        return bool(self.due) and all(
            self.due[0][-1] in self.confirmed[peer] for peer in waits_for if peer not in gone
        )


OF_TOTAL = {
    "looks-at-one-group": Mutant("total", machine_for_all(LooksAtOneGroup)),
    "breaks-ties-by-arrival": Mutant("total", machine_for_all(BreaksTiesByArrival)),
    "asks-nobody": Mutant("virtual-synchrony", machine_for_all(AsksNobody)),
    "counts-its-views": Mutant("view-agreement", machine_for_all(CountsItsViews)),
}
OF_SEQUENCED = {
    "everybody-orders": Mutant("total-in-view", machine_for_all(EverybodyOrders)),
}
OF_ATOMIC = {
    "confirms-for-all": Mutant("virtual-synchrony", machine_for_all(ConfirmsForAll)),
    "waits-for-the-dead": Mutant("completeness", machine_for_all(WaitsForTheDead)),
}

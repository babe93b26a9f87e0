"""Stricter rules for groups with a sequencer, which were tried: docs/total.md says what came of it.

Each delivers a turn later than the sequencer's word allows, in the hope that then all, whatever
fails, deliver in one order. None of them gives that, and all are slower than no sequencer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.kernel.family import Family, Plan, machine_for_all
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.newtop import SEQUENCED
from ordercast.protocol.newtop.agreement import Agreement
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.newtop.packets import Data, Turn
from ordercast.protocol.newtop.sequencer import BySequencer
from ordercast.protocol.newtop.suspicion import Detection, Via
from ordercast.types import NodeId


class AllHaveSentMore(BySequencer):
    """When all have sent a larger number; a cut is the smallest last number of the excluded."""

    def deliverable_up_to(self, epoch: GroupEpoch) -> int:
        return epoch.received_by_all()

    def _cut(self, detection: Detection) -> int:
        return min(number for _, number in detection)

    def exclude(self, epoch: GroupEpoch, step: Step, detection: Detection, via: Via) -> None:
        self.last_numbers.update(detection)
        gone = tuple(peer for peer, _ in detection)
        pending = epoch.views.exclude(gone, self._cut(detection))
        assert pending.cut is not None
        epoch.order.queue.drop(epoch.label, pending.gone, pending.cut)

    def learn_cut(
        self, epoch: GroupEpoch, sender: NodeId, detection: Detection, order: int
    ) -> None:
        pass

    def is_ready(self, epoch: GroupEpoch, message: Data | Turn) -> bool:
        return message.origin not in epoch.views.members or super().is_ready(epoch, message)

    def deliver(
        self, epoch: GroupEpoch, step: Step, numberer: NodeId, message: Data | Turn
    ) -> None:
        if message.origin in epoch.views.members:
            super().deliver(epoch, step, numberer, message)


class AllHaveIt(AllHaveSentMore):
    """When all have reported that they have it; the same cut."""

    def deliverable_up_to(self, epoch: GroupEpoch) -> int:
        own = epoch.received_by_all()
        return min(own, epoch.streams.delivered.stable_up_to(own))

    def delivered_up_to(self, epoch: GroupEpoch) -> int:
        return epoch.received_by_all()


class AllHadIt(AllHaveIt):
    """The same; a cut is the smallest number that the excluded reported to have."""

    safe_cut = 0

    def _cut(self, detection: Detection) -> int:
        return self.safe_cut


class _NotesReports(Agreement):
    """Notes what the excluded have reported, before their streams are forgotten."""

    def confirm(self, epoch: GroupEpoch, step: Step, detection: Detection, via: Via = None) -> None:
        reported = [epoch.streams.delivered.acknowledged(peer) for peer, _ in detection]
        if isinstance(epoch.placement, AllHadIt):
            epoch.placement.safe_cut = min(number or 0 for number in reported)
        super().confirm(epoch, step, detection, via)


def by_rule(rule: type[BySequencer]) -> Family:
    """The family with this rule in its groups with a sequencer."""

    def strict(me: NodeId, plans: tuple[Plan, ...], records: Sequence[Packet]) -> NewtopMember:
        member = NewtopMember(me, plans, records)
        for epoch in member.joined.values():
            if isinstance(epoch.placement, BySequencer):
                epoch.placement.__class__ = rule
                epoch.agreement.__class__ = _NotesReports
        return member

    return SEQUENCED._replace(build=machine_for_all(strict))

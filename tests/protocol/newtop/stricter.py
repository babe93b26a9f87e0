"""Stricter rules for groups with a sequencer, which were tried: docs/total.md says what came of it.

Each delivers a turn later than the sequencer's word allows, in the hope that then all, whatever
fails, deliver in one order. None of them gives that, and all are slower than no sequencer.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ordercast.kernel.family import Family, Plan
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.newtop import SEQUENCED
from ordercast.protocol.newtop.member import Member
from ordercast.protocol.newtop.packets import Data, Turn
from ordercast.protocol.newtop.sequencer import SequencedGroup
from ordercast.protocol.newtop.suspicion import Detection
from ordercast.types import NodeId


class AllHaveSentMore(SequencedGroup):
    """When all have sent a larger number; a cut is the smallest last number of who is gone."""

    def deliverable_up_to(self) -> int:
        return self.received_by_all()

    def _cut(self, detection: Detection) -> int:
        return min(number for _, number in detection)

    def _exclude(self, step: Step, detection: Detection, via: tuple[NodeId, int] | None) -> None:
        self.last_numbers.update(detection)
        gone = tuple(peer for peer, _ in detection)
        install = self.views.exclude(gone, self._cut(detection))
        assert install.cut is not None
        self.order.waiting.drop(self.label, install.gone, install.cut)

    def _learn_cut(self, sender: NodeId, detection: Detection, order: int) -> None:
        pass

    def is_ready(self, message: Data | Turn) -> bool:
        return message.origin not in self.views.members or super().is_ready(message)

    def hand_over(self, step: Step, numberer: NodeId, message: Data | Turn) -> None:
        if message.origin in self.views.members:
            super().hand_over(step, numberer, message)


class AllHaveIt(AllHaveSentMore):
    """When all have said that they have it; the same cut."""

    def deliverable_up_to(self) -> int:
        own = self.received_by_all()
        return min(own, self.streams.delivered.stable_up_to(own))

    def _delivered_up_to(self) -> int:
        return self.told_up_to if self.is_full else self.received_by_all()


class AllHadIt(AllHaveIt):
    """The same; a cut is the smallest number that those who are gone said they have."""

    def _confirm(
        self, step: Step, detection: Detection, via: tuple[NodeId, int] | None = None
    ) -> None:
        said = [self.streams.delivered.acknowledged(peer) for peer, _ in detection]
        self.safe_cut = min(number or 0 for number in said)
        super()._confirm(step, detection, via)

    def _cut(self, detection: Detection) -> int:
        return self.safe_cut


def by_rule(kind: type[SequencedGroup]) -> Family:
    """The family with this rule in its groups with a sequencer."""

    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, kept: Sequence[Packet]
    ) -> list[Machine]:
        member = Member(me, plans)
        for group in member.joined.values():
            if isinstance(group, SequencedGroup):
                group.__class__ = kind
        return [member]

    return SEQUENCED._replace(build=build)

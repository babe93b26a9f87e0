"""Gossip and causal clusters with a planted bug. Each breaks one law: the checker must catch it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ordercast.kernel.family import Mutant, Plan, machine_per_group
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.cluster.beginning import Votes
from ordercast.protocol.cluster.causal_member import CausalMember, build
from ordercast.protocol.cluster.causality import OrderedUpdate
from ordercast.protocol.cluster.joining import Joining
from ordercast.protocol.cluster.member import GossipMember
from ordercast.protocol.cluster.packets import Rumour
from ordercast.types import Event, NodeId


class Echoes(GossipMember):
    """Delivers what is relayed at its last hop once more."""

    def _take(self, step: Step, rumour: Rumour, age: int) -> None:
        super()._take(step, rumour, age)
        if age > self.settings.hops // 2 and rumour.origin != self.me:
            step.deliver(self._event(rumour, age))


class Hurries(CausalMember):
    """Delivers what waits without waiting, once it has waited for three rounds."""

    def expire(self, step: Step, timer: Timer) -> None:
        super().expire(step, timer)
        if self.now % 3 == 0 and len(self.order):
            key = self.order.newest()
            update = self.order.peek(key)
            if update is not None:
                step.deliver(self._event(update, 1))


class ForgetsItsPast(CausalMember):
    """Stamps its events as if it had delivered nothing of others."""

    def submit(self, step: Step, group: str, payloads: list[bytes], size: int) -> Event:
        clock, index = self.order.clock, self.ownership.index
        assert index is not None
        self.order.clock = [0] * len(clock)
        self.order.clock[index] = clock[index]
        try:
            return super().submit(step, group, payloads, size)
        finally:
            clock[index] = self.order.clock[index]
            self.order.begin(clock)


class SharesTickets(CausalMember):
    """The second updater believes that it owns the ticket of the first, too."""

    def start(self, step: Step) -> None:
        super().start(step)
        if self.ownership.index == 1:
            step.note("ticket", group=self.group, index=0, cause="acquired")


class LetsGo(CausalMember):
    """Drops every fiftieth event of others without a word."""

    def _deliver(self, step: Step, delivered: list[OrderedUpdate]) -> None:
        own = [one for one in delivered if one.update.number % 50 or one.update.origin == self.me]
        super()._deliver(step, own)


class _Alone(Votes):
    """Takes it that there is nobody else where nobody else is heard."""

    def may_begin(self) -> bool:
        return super().may_begin() or not self._newcomers


def founds_twice(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    """Members that begin an open cluster when they are cut off, although others may begin it."""
    machines = build(me, plans, chance, records)
    for machine, plan in zip(machines, plans, strict=True):
        if plan.entry is not None:
            assert isinstance(machine, CausalMember) and isinstance(machine.phase, Joining)
            machine.phase.beginning = _Alone(
                me, plan.entry, machine.options.rounds_to_join, machine.choice
            )
    return machines


OF_GOSSIP = {"echoes": Mutant("no-duplication", machine_per_group(Echoes))}
OF_CAUSAL = {
    "hurries": Mutant("optimistic-causal", machine_per_group(Hurries)),
    "forgets-its-past": Mutant("optimistic-causal", machine_per_group(ForgetsItsPast)),
    "shares-tickets": Mutant("ticket-uniqueness", machine_per_group(SharesTickets)),
    "founds-twice": Mutant("ticket-uniqueness", founds_twice),
    "lets-go": Mutant("completeness", machine_per_group(LetsGo)),
}

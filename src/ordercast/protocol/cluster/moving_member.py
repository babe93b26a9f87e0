"""A member of a causal cluster in which tickets change hands: updaters come and go.

What a tenure is, and its rules: moving.py. Who decides about tickets: protocol/tickets. All else is
as with tickets that are fixed: causal_member.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ordercast.kernel import inputs
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.cluster.causal_member import CausalMember
from ordercast.protocol.cluster.moving import ANNOUNCED, Moving
from ordercast.protocol.cluster.options import CausalOptions
from ordercast.protocol.cluster.ownership import TicketsFor, leased_tickets
from ordercast.protocol.cluster.packets import SEQUENCE_BITS, Update
from ordercast.protocol.tickets.leased import Leased
from ordercast.protocol.tickets.tenure import News, TicketPacket
from ordercast.types import Event, NodeId, Payloads

TICKETS = "tickets"
"""The timer of who decides about tickets."""


class MovingMember(CausalMember):
    takes = (*CausalMember.takes, inputs.Seek, inputs.Retire)

    def __init__(
        self,
        me: NodeId,
        plan: Plan,
        chance: Random,
        kept: Sequence[Packet],
        tickets_for: TicketsFor = leased_tickets,
    ) -> None:
        super().__init__(me, plan, chance)
        self.part = tickets_for(me, plan, self.sampler, self._how_far, chance, kept)
        self.tickets = self.moving = Moving(me, plan.group, self.options.tickets, self.part)

    def _how_far(self) -> tuple[int, ...]:
        return self.order.stamp

    # --- doors -------------------------------------------------------------------------------

    def _start_tickets(self, step: Step) -> None:
        self._act(step, self.part.start(step))
        step.set_timer(TICKETS, self.part.period)

    def accepts(self, group: str, now: int) -> bool:
        return self._has_room() and self.part.may_create(now)

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        assert self.part.may_create(step.now), "the driver asks first, at the same time"
        return super().submit(step, group, payloads, size)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if isinstance(packet, TicketPacket):
            self._act(step, self.part.receive(step, sender, packet))
        else:
            super().receive(step, sender, packet)
            self._stand_aside(step)

    def expire(self, step: Step, timer: Timer) -> None:
        if timer == TICKETS:
            self._act(step, self.part.tick(step, self.sequence))
            step.set_timer(TICKETS, self.part.period)
            return
        super().expire(step, timer)
        self._stand_aside(step)
        self._begin_tenure(step)

    def on(self, step: Step, given: Input) -> None:
        match given:
            case inputs.StatusResult(token, arrived) if not isinstance(token, str):
                self._act(step, self.part.told(step, token, arrived))
            case inputs.Seek(wanted=wanted):
                self._seek(step, wanted)
            case inputs.Retire():
                self._seek(step, False)
                self.part.retire(step)
            case _:
                super().on(step, given)

    def _seek(self, step: Step, wanted: bool) -> None:
        if wanted:
            step.note("ticket", group=self.group, cause="wanted")
        else:
            self.moving.over(step, "released")
        sequence = self.sequence if self.part.ticket is not None else 0
        self._act(step, self.part.seek(step, wanted, sequence, self.order.stamp))

    def may_go(self, group: str) -> bool:
        return self.part.may_go()

    def has_heirs(self, group: str, now: int) -> bool:
        return not isinstance(self.part, Leased) or self.part.has_heirs(now)

    def _leave_tickets(self, step: Step) -> None:
        self._seek(step, False)

    def counters(self, group: str) -> dict[str, int]:
        moving = self.moving
        ours = {"not_believed": moving.refused, "outlived": moving.outlived}
        return {**super().counters(group), **ours, **self.part.counters()}

    # --- our tenure --------------------------------------------------------------------------

    def _act(self, step: Step, news: News) -> None:
        """What has become of our ticket."""
        options = self.options
        self.moving.act(step, news, options.rounds_to_terminate + options.rounds_to_recover)
        if news.acquired:
            self.sequence = 0
            self._begin_tenure(step)

    def _begin_tenure(self, step: Step) -> None:
        """Announces our tenure, once we have what its ticket was used for before."""
        moving, ticket = self.moving, self.part.ticket
        if ticket is None or moving.index is not None or self.joining is not None:
            return
        if not self.part.may_create(step.now):
            return
        if self.order.clock[ticket] >= moving.entry(ANNOUNCED):
            return  # of tickets that can have two owners: the other one was first
        behind = self.order.behind(moving.target)
        if behind and moving.patience > 0:
            moving.patience -= 1
            self._ask_for(step, behind, None)
            return
        update = self._make(ticket, self.made + 1, [], 0)
        moving.announced(step, update.number)
        self._begin_spreading(step, update)

    def _stand_aside(self, step: Step) -> None:
        """Whoever sees its own ticket in a higher epoch is no longer its owner."""
        ticket = self.part.ticket
        if ticket is None:
            return
        epoch = self.order.clock[ticket] >> SEQUENCE_BITS
        if epoch > self.part.epoch:
            self._act(step, self.part.heard(step, ticket, epoch, None))

    def _is_for_the_application(self, step: Step, update: Update) -> bool:
        if self.moving.is_announcement(update):
            return False
        if self.moving.is_outlived(update):
            self._note_event(step, "lose", update.index, update.entry, cause="obsolete")
            return False
        return True

    def _admit(self, step: Step, update: Update, age: int, *, asked: bool = False) -> None:
        """What was asked for may be the first of a tenure, and name what nobody knew that we lack:
        the end of the tenure before. Gossip is over for that too, so it is asked for at once."""
        super()._admit(step, update, age, asked=asked)
        if asked and update.key in self.order:
            self._ask_for(step, self.order.missing(update), None)

    def _believed(self, step: Step, updates: list[tuple[Update, int]]) -> list[tuple[Update, int]]:
        """Those events whose makers have the tenure that they are of."""
        found = []
        for update, age in updates:
            is_new = self.moving.learn(update)
            if is_new is None:
                continue
            found.append((update, age))
            if is_new:
                epoch = update.entry >> SEQUENCE_BITS
                self._act(step, self.part.heard(step, update.index, epoch, update.origin))
        return found


def build(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, kept: Sequence[Packet]
) -> list[Machine]:
    """One machine a cluster: clusters know nothing of each other."""
    machines: list[Machine] = []
    for plan in plans:
        assert isinstance(plan.options, CausalOptions)
        if plan.options.ownership == "fixed":
            machines.append(CausalMember(me, plan, chance))
        else:
            machines.append(MovingMember(me, plan, chance, kept))
    return machines

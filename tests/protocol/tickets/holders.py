"""A family of members that do nothing but want tickets, so that tickets are seen alone.

Each creates events while it owns one, and sends them to nobody: enough for `ticket-uniqueness`.
Now and then one stops wanting a ticket, or leaves the cluster for a while as the rules say.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from ordercast.kernel.family import Family, Plan
from ordercast.kernel.inputs import Input, Leave
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.tickets.interface import TicketNews
from ordercast.protocol.tickets.leased import Leased
from ordercast.protocol.tickets.packets import PACKETS, RECORDS, About
from ordercast.protocol.tickets.rules import Rules
from ordercast.types import Event, NodeId, Payloads, event_number
from ordercast.units import MILLISECOND, Duration, take_units

TICK = "tick"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tickets: Annotated[int, Meta(ge=1)] = 2
    lease: Duration = Duration(400 * MILLISECOND)
    drift: float = 0.05
    guards: int = 3
    fickle: float = 0.02  # how likely in a tick a member stops or begins to want a ticket
    restless: float = 0.0  # how likely in a tick it begins to leave

    def __post_init__(self) -> None:
        take_units(self)


class Holder:
    takes = (Leave,)

    def __init__(self, me: NodeId, plan: Plan, chance: Random, records: Sequence[Packet]) -> None:
        assert isinstance(plan.options, Options)
        self.me, self.group, self.groups = me, plan.group, (plan.group,)
        self.options = options = plan.options
        rules = Rules(options.tickets, int(options.lease), options.drift, options.guards)
        self.names = plan.members
        self.leased = Leased(me, plan.group, rules, self._names, chance, persisted=records)
        self.is_founder = me == NodeId(self.names[0])
        self.chance = chance
        self.sequence = self.made = 0
        # The ticket, and until when it is said to be ours.
        self.noted: tuple[int, int] | None = None
        self.away = False  # we have left

    def _names(self) -> tuple[str, ...]:
        return self.names

    def start(self, step: Step) -> None:
        self.leased.start(step)
        if self.is_founder:
            self.leased.bootstrap(step, 77)
        self._tell(step, self.leased.seek(step, True, 0, ()))
        step.set_timer(TICK, self.chance.randrange(1, self.leased.period))

    def accepts(self, group: str, now: int) -> bool:
        return False  # events are made by the clock, below

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        raise AssertionError("nobody submits")

    def _create(self, step: Step) -> None:
        """An event, if we may: written into the trace, and sent to nobody."""
        leased = self.leased
        if not leased.may_create(step.now):
            return
        self.made += 1
        self.sequence += 1
        entry = leased.epoch << 32 | self.sequence
        stamp = tuple(entry * (place == leased.ticket) for place in range(self.options.tickets))
        number = event_number(self.me.incarnation, self.made)
        step.note(
            "submit",
            group=self.group,
            origin=self.me.name,
            number=number,
            index=leased.ticket,
            stamp=stamp,
        )

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        assert isinstance(packet, About)
        if not self.away:
            self._tell(step, self.leased.receive(step, sender, packet))

    def expire(self, step: Step, timer: Timer) -> None:
        leased, draw = self.leased, self.chance.random
        if self.away:
            self.away = False
            leased.start(step)
            self._tell(step, leased.seek(step, True, self.sequence, ()))
        elif not leased.going and draw() < self.options.fickle:
            self._seek(step, not leased.owner.wanting)
        if not leased.going and draw() < self.options.restless:
            self._seek(step, False)
            leased.retire(step)
        self._create(step)
        self._tell(step, leased.tick(step, self.sequence))
        ticks = 1
        if leased.going and leased.may_go():
            self.away, ticks = True, self.chance.randrange(2, 20)
        step.set_timer(TICK, ticks * leased.period)

    def _seek(self, step: Step, wanted: bool) -> None:
        if not wanted:
            self._say(step, "released")
        self._tell(step, self.leased.seek(step, wanted, self.sequence, ()))

    def _tell(self, step: Step, news: TicketNews) -> None:
        ticket = self.leased.ticket
        if news.lost is not None or (self.noted is not None and ticket != self.noted[0]):
            self._say(step, "disconnected")
        if news.acquired:
            self.sequence = 0
        until = self.leased.valid_until()
        if ticket is not None and until > step.now:
            if self.noted is None or news.acquired:
                self._note(step, "acquired", ticket, until)
            elif until > self.noted[1]:
                self._note(step, "renewed", ticket, until)

    def _note(self, step: Step, cause: str, ticket: int, until: int) -> None:
        step.note("ticket", group=self.group, index=ticket, cause=cause, until=until)
        self.noted = (ticket, until)

    def _say(self, step: Step, cause: str) -> None:
        if self.noted is not None:
            step.note("ticket", group=self.group, index=self.noted[0], cause=cause)
            self.noted = None

    def stable_up_to(self, group: str) -> int:
        return 0

    def counters(self, group: str) -> dict[str, int]:
        return {"acquired": self.leased.acquired, "lost": self.leased.lost}

    def on(self, step: Step, given: Input) -> None:
        self._say(step, "released")


def build(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    return [Holder(me, plan, chance, records) for plan in plans]


FAMILY = Family("holders", Options, (*PACKETS, *RECORDS), build, largest_group=100)

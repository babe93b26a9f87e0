"""A family for the explorer: members that contend for tickets with the real parts, and say little.

Pings only show which members seem to be alive, and a reconfiguration leader may be wrong about that
in any way. So no member pings here: what each leader believes is given, and everything else is sent
as in a cluster. A replica set exists from the beginning. A member that wants a ticket at once takes
it to be available in every incarnation, right or wrong; one that wants a ticket later asks.

What is looked for, in every state and on every way:
  one valid owner      no two members may create events for one ticket at one moment
  one successor        no two replica sets have one number
  one owner an epoch   no ticket is acquired twice in one epoch
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from ordercast.check.verdict import Verdict, broken, holds
from ordercast.kernel.family import Family, Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.tickets.interface import TicketNews
from ordercast.protocol.tickets.leased import Leased
from ordercast.protocol.tickets.packets import (
    PACKETS,
    RECORDS,
    About,
    Configuration,
    Listed,
    Pong,
    ReplicaRecord,
    TicketState,
)
from ordercast.protocol.tickets.rules import Rules
from ordercast.sim.explore import Present, Setting, setting
from ordercast.trace.schema import Row, Trace
from ordercast.types import Event, NodeId, Payloads

TICK, BACK, PASS = "tick", "give back", "time passes"
CLUSTER = 7
LEASE = 8
"""D, in nanoseconds: a small number has few different moments."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    tickets: int = 1
    drift: float = 0.0
    guards: int = 3  # at the most
    first: tuple[str, ...] = ("n1", "n2", "n3")  # the replica set that is there
    wants: Mapping[
        str, tuple[int, ...]
    ] = {}  # members that want a ticket at once: which, by incarnation
    later: tuple[str, ...] = ()  # members that ask for one when they tick
    sees: Mapping[
        str, tuple[str, ...]
    ] = {}  # reconfiguration leaders, and the members that they take to be alive
    gives_back: tuple[str, ...] = ()  # members that release their tickets at some time
    ticks: Mapping[str, int] = {}  # when a member ticks, after each time; others never do
    waits: Mapping[str, int] = {}  # time passes at this member without anything being done


class Fixed:
    """No chance: the first of whatever could be drawn."""

    def choice(self, things: Sequence[Any]) -> Any:
        return things[0]

    def randrange(self, first: int, end: int) -> int:
        return first


class Silent(Leased):
    """Nobody is asked whether it is alive."""

    believed: Mapping[str, NodeId] = {}

    def _ping(self, step: Step) -> None:
        pass

    def _look_at(self, step: Step, sender: NodeId) -> None:
        pass

    def _lead(self, step: Step) -> None:
        self.leader.tick(step, self.believed, self.believed, self.liveness.everybody())


class Contender:
    takes: tuple[type[Input], ...] = ()

    def __init__(self, me: NodeId, plan: Plan, records: Sequence[Packet]) -> None:
        assert isinstance(plan.options, Options)
        self.me, self.group, self.groups = me, plan.group, (plan.group,)
        self.options = options = plan.options
        self.names = plan.members
        self.first = Configuration(1, tuple(NodeId(name) for name in options.first))
        rules = Rules(options.tickets, LEASE, options.drift, options.guards)
        chance: Any = Fixed()
        self.records = tuple(records)
        self.leased = Silent(self.owner_of(me), plan.group, rules, self._names, chance)
        self.leased.leader._hold = 0  # patience only makes it rarer that two try at once
        seen = options.sees.get(me.name, ())
        self.leased.believed = {name: NodeId(name) for name in seen}

    def owner_of(self, me: NodeId) -> NodeId:
        return me

    def _names(self) -> tuple[str, ...]:
        return self.names

    def start(self, step: Step) -> None:
        name, options = self.me.name, self.options
        table = (TicketState(),) * options.tickets
        if name in options.first:
            records = self.records
            if not records:
                record = ReplicaRecord(
                    self.group, CLUSTER, NodeId(name), self.first, table, None, None, False
                )
                records = (record,)
                step.persist(record)
            self.leased.restore(records, step.now)
        else:
            replica = self.first.replicas[0]
            pong = Pong(self.group, CLUSTER, 0, self.first, replica, 1)
            self.leased.receive(step, replica, pong)
        self.leased.liveness._answers = {}
        wants = options.wants.get(name, ())[self.me.incarnation :]
        if wants or name in options.later:
            self.leased.seek(step, True, 0, ())
        if wants:
            self._hear_of_a_ticket(step, wants[0])
        for timer, after in (
            *((TICK, options.ticks.get(name)), (PASS, options.waits.get(name))),
            (BACK, 0 if name in options.gives_back else None),
        ):
            if after is not None:
                step.set_timer(timer, after)

    def _hear_of_a_ticket(self, step: Step, ticket: int) -> None:
        hint = self.leased.hint
        assert hint is not None
        listed = Listed(self.group, CLUSTER, hint.number, [(ticket, 0)])
        self._tell(step, self.leased.receive(step, hint.replicas[0], listed))

    def accepts(self, group: str, now: int) -> bool:
        return False

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        assert isinstance(packet, About)
        self._tell(step, self.leased.receive(step, self.owner_of(sender), packet))

    def expire(self, step: Step, timer: Timer) -> None:
        if timer == TICK:
            self._tell(step, self.leased.tick(step, 0))
            step.set_timer(TICK, self.options.ticks[self.me.name])
        elif timer == BACK:
            self._tell(step, self.leased.seek(step, False, 0, ()))
        else:
            step.set_timer(PASS, self.options.waits[self.me.name])

    def _tell(self, step: Step, news: TicketNews) -> None:
        step.outputs.clear()  # notifications for people only make more states, and no other ones
        if news.acquired:
            ticket, epoch = self.leased.ticket, self.leased.epoch
            step.note("ticket", group=self.group, index=ticket, cause=f"epoch {epoch}")

    def stable_up_to(self, group: str) -> int:
        return 0

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        raise AssertionError("nobody submits")

    def on(self, step: Step, given: Input) -> None:
        raise AssertionError("it takes no other input")

    def counters(self, group: str) -> dict[str, int]:
        return {}


def contest(members: int, *, rates: Mapping[str, float] | None = None, **options: Any) -> Setting:
    """So many members with these options, as a setting for the explorer."""

    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
    ) -> list[Machine]:
        return [Contender(me, plan, records) for plan in plans]

    family = Family("contenders", Options, (*PACKETS, *RECORDS), build, largest_group=9)
    return setting(
        family,
        members,
        Options(**options),
        prelude=False,
        clocks=True,
        together=True,
        rates=rates or {},
    )


def never_two(present: Sequence[Present]) -> str | None:
    """One valid owner, and one successor."""
    owners: dict[int, NodeId] = {}
    sets: dict[int, Configuration] = {}
    for life, machines, now, _ in present:
        for machine in machines:
            assert isinstance(machine, Contender)
            leased = machine.leased
            if leased.ticket is not None and leased.may_create(now):
                other = owners.setdefault(leased.ticket, life)
                if other != life:
                    return f"{other} and {life} both may use ticket {leased.ticket}"
            for number, guards in leased.sets.items():
                if sets.setdefault(number, guards) != guards:
                    return f"{sets[number]} and {guards}"
    return None


def one_owner_an_epoch(trace: Trace) -> list[Verdict]:
    """Over all lives."""
    law = "one owner an epoch"
    seen: dict[tuple[int | None, str | None], Row] = {}
    for row in trace.rows:
        if row.kind == "ticket" and (row.cause or "").startswith("epoch"):
            other = seen.setdefault((row.index, row.cause), row)
            if other is not row:
                why = f"ticket {row.index} is acquired twice in {row.cause}"
                return [broken(law, (other, row), why)]
    return [holds(law)]

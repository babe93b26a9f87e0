"""A world: one scenario, one seed, one run in virtual time.

    outcome = World(scenario, seed=1).run()

The run has a phase with load and faults, and a quiet phase: the load stops, every fault is
healed, and what is alive must come to rest within the time that the scenario gives. The laws
then judge the trace. The same scenario and seed give the same trace, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from ordercast import __version__
from ordercast.errors import UsageError, failure_line
from ordercast.kernel.family import Family, Plan, by_machine
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.protocol.families import FAMILIES
from ordercast.scenario import chance
from ordercast.scenario.file import options_for
from ordercast.scenario.schema import GroupSettings, Scenario
from ordercast.sim.agenda import Agenda
from ordercast.sim.faults import Faults, draw_chaos
from ordercast.sim.network import Network
from ordercast.sim.process import Application, Process
from ordercast.sim.workload import BATCH_SIZE, Sender, Wish
from ordercast.trace.schema import Ending, Header, Level, Row
from ordercast.trace.sinks import Sink
from ordercast.types import NodeId
from ordercast.wire.codec import Codec

MOST_EVENTS = 100_000_000
"""A run that is not over by then is cut: its laws of completeness are unknown, not broken."""


class Outcome(NamedTuple):
    """What a run came to. The rows are in the sink."""

    header: Header
    submitted: int  # events
    delivered: int
    packets: int
    happenings: int  # entries of the agenda: packets, timers, faults, submissions
    error: str | None  # what broke, where a machine raised instead of answering


class World:
    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        sink: Sink | None = None,
        level: Level = Level.APP,
        round_trip: bool = False,
        application: Application | None = None,
        families: dict[str, Family] | None = None,
        most_events: int = MOST_EVENTS,
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self.level = Level.OFF if sink is None else level
        self.agenda = Agenda()
        self._families = families or FAMILIES
        self._most_events = most_events
        self._groups = [(group, self._plan(group)) for group in scenario.groups()]
        in_order = list(self._families)
        self._plans: dict[str, list[tuple[Family, Plan]]] = {name: [] for name in scenario.names}
        for group, plan in sorted(
            self._groups, key=lambda each: in_order.index(scenario.family_of(each[0]))
        ):
            for name in plan.members:
                self._plans[name].append((self._families[scenario.family_of(group)], plan))
        self.network = Network(
            self.agenda,
            scenario.network,
            seed,
            Codec(self._families.values()),
            weigh=self.level is Level.WIRE,
            round_trip=round_trip,
        )
        write = sink.write if sink else _nowhere
        self.processes = {
            name: Process(
                name, self.agenda, self.network, self._machines, write, self.level, application
            )
            for name in scenario.names
        }
        self.network.processes = self.processes
        self.faults = Faults(self.agenda, self.network, self.processes)

    def run(self) -> Outcome:
        scenario = self.scenario
        ending, error = Ending.FINISHED, None
        try:
            self._set_up()
            over = self.agenda.run(scenario.duration, self._most_events)
            if over:
                self.faults.heal()
                left = self._most_events - self.agenda.done
                over = self.agenda.run(scenario.duration + scenario.quiet, left)
            if not over:
                ending = Ending.CUT
        except UsageError:  # a scenario that cannot be run at all
            raise
        except Exception as failure:  # a machine broke; the run reports it with its seed
            ending, error = Ending.FAILED, failure_line(failure)
        for process in self.processes.values():
            process.stop()
        return self._outcome(ending, error)

    def _set_up(self) -> None:
        scenario, seed = self.scenario, self.seed
        listed = list(scenario.fault)
        if scenario.chaos is not None:
            listed += draw_chaos(scenario.chaos, scenario, chance.stream(seed, "faults"))
        self.faults.schedule(listed, scenario.duration)
        load, until = scenario.workload, scenario.duration
        for group, plan in self._groups:
            licensed = self._families[scenario.family_of(group)].licensed(plan)
            for name in scenario.senders():
                if licensed and name in plan.members:
                    draw = chance.stream(seed, "wishes", group.name, name)
                    Wish(self.agenda, self.processes[name], group.name, load, draw, until)
        for process in self.processes.values():
            process.start()
        for group, plan in self._groups:
            members, rate = frozenset(group.members), load.rate_in(plan.options)
            family = self._families[scenario.family_of(group)]
            for name in scenario.senders():
                if name in members and family.may_send(plan, name):
                    draw = chance.stream(seed, "workload", group.name, name)
                    process = self.processes[name]
                    room = getattr(plan.options, "window_size", BATCH_SIZE)
                    Sender(self.agenda, process, group.name, load, rate, draw, until, room)

    def _plan(self, group: GroupSettings) -> Plan:
        family = self.scenario.family_of(group)
        options = options_for(self._families[family], self.scenario.options_of(group))
        return Plan(
            group.name, tuple(sorted(group.members)), options, self.scenario.begins_formed(group)
        )

    def _machines(self, me: NodeId, kept: Sequence[Packet]) -> list[Machine]:
        """The machines of one life: what is built together is built at once."""
        machines: list[Machine] = []
        for family, plans in by_machine(self._plans[me.name]):
            draw: Random = chance.stream(self.seed, "member", family.name, me)
            machines += family.build(me, plans, draw, kept)
        return machines

    def _outcome(self, ending: Ending, error: str | None) -> Outcome:
        processes = self.processes.values()
        header = Header(
            run=run_name(self.scenario, self.seed),
            family=self.scenario.family,
            parameters=_plain(self.scenario),
            seed=self.seed,
            version=__version__,
            level=self.level,
            start=0,
            end=self.agenda.now,
            ending=ending,
        )
        return Outcome(
            header,
            sum(process.submitted for process in processes),
            sum(process.delivered for process in processes),
            self.network.posted,
            self.agenda.done,
            error,
        )


def advice_on(scenario: Scenario) -> list[str]:
    """What is doubtful about the options of a scenario's groups, though they can be run."""
    found = []
    for group in scenario.groups():
        family = FAMILIES[scenario.family_of(group)]
        options = options_for(family, scenario.options_of(group))
        plan = Plan(group.name, tuple(sorted(group.members)), options)
        senders = [
            name
            for name in scenario.senders()
            if name in group.members and family.may_send(plan, name)
        ]
        load = scenario.workload
        found += family.advice(plan, load.rate_in(options) / load.batch * len(senders))
    return found


def run_name(scenario: Scenario, seed: int) -> str:
    """The run's name in a lake: the scenario's in small letters, then the seed."""
    words = re.findall(r"[a-z0-9]+", scenario.name.lower())
    return f"{'-'.join(words) or 'run'}-{seed}"


def _plain(scenario: Scenario) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(scenario, enc_hook=str)
    return plain


def _nowhere(row: Row) -> None:
    """No sink: the run is watched by its outcome alone."""

"""A world: one scenario, one seed, one run in virtual time.

    outcome = Simulation(scenario, seed=1).run()

The run has a phase with load and faults, and a quiet phase: the load stops, every fault is
healed, and what is alive must come to rest within the time that the scenario gives. The laws
then judge the trace. The same scenario and seed give the same trace, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from ordercast import __version__
from ordercast.errors import UsageError, failure_line
from ordercast.kernel.family import Family, Plan, services_in
from ordercast.protocol.families import FAMILIES
from ordercast.scenario import chance
from ordercast.scenario.chaos import faults_of
from ordercast.scenario.faults.active import ActiveFaults
from ordercast.scenario.faults.processes import ProcessDown
from ordercast.scenario.file import choices_in, family_in, parameters_of, plans_in
from ordercast.scenario.schema import Scenario
from ordercast.sim.event_queue import EventQueue
from ordercast.sim.faults import SimulatedControls, schedule
from ordercast.sim.identities import Identities
from ordercast.sim.memberships import Memberships
from ordercast.sim.network import Network
from ordercast.sim.open_groups import OpenGroups
from ordercast.sim.process import Application, Process
from ordercast.sim.workload import PermitSeeker, Sender
from ordercast.trace.schema import Ending, Header, Row, TraceLevel
from ordercast.trace.sinks import Sink
from ordercast.wire.codec import Codec

MOST_EVENTS = 100_000_000
"""A run that is not over by then is cut: its laws of completeness are unknown, not broken."""


class Outcome(NamedTuple):
    """What a run came to. The rows are in the sink."""

    header: Header
    submitted: int  # events
    delivered: int
    packets: int
    queue_events: int  # entries of the event queue: packets, timers, faults, submissions
    error: str | None  # what broke, where a machine raised instead of answering


class Simulation:
    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        sink: Sink | None = None,
        level: TraceLevel = TraceLevel.APP,
        round_trip: bool = False,
        application: Application | None = None,
        families: Mapping[str, Family] = FAMILIES,
        most_events: int = MOST_EVENTS,
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self.level = TraceLevel.OFF if sink is None else level
        self.queue = EventQueue()
        self._most_events = most_events
        self._families = families
        self._choices = choices_in(scenario, families)
        self._groups = plans_in(scenario, families)
        self.families = [family for family, _ in self._groups]
        in_order = [family.name for family in families.values()]
        in_order += [family.name for family in self.families]  # those that live elsewhere
        self._plans: dict[str, list[tuple[Family, Plan]]] = {name: [] for name in scenario.names}
        for family, plan in sorted(self._groups, key=lambda each: in_order.index(each[0].name)):
            for name in plan.members:
                self._plans[name].append((family, plan))
        self.network = Network(
            self.queue,
            scenario.network,
            seed,
            Codec([*families.values(), *self.families]),
            weigh=self.level is TraceLevel.WIRE,
            round_trip=round_trip,
        )
        write = sink.write if sink else _nowhere
        self.processes = {
            name: Process(name, self.queue, self.network, write, self.level, application)
            for name in scenario.names
        }
        self.network.connect(self.processes)
        self._open_groups = OpenGroups(scenario.groups(), self.processes)
        draw = partial(chance.stream, seed)
        memberships = {
            name: Memberships(process, self.queue, self._plans[name], draw, self._open_groups)
            for name, process in self.processes.items()
        }
        for name, process in self.processes.items():
            process.build = memberships[name].build
        self._identities = Identities(self.queue, self.network, self.processes, seed)
        self.faults = ActiveFaults(
            SimulatedControls(
                self.queue, self.network, self.processes, memberships, self._identities
            )
        )

    def run(self) -> Outcome:
        scenario = self.scenario
        ending, error = Ending.FINISHED, None
        try:
            self._set_up()
            over = self.queue.run(scenario.duration, self._most_events)
            if over:
                self.faults.heal()
                left = self._most_events - self.queue.done
                over = self.queue.run(scenario.duration + scenario.quiet, left)
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
        faults = faults_of(scenario, seed, self._families)
        self.faults.prepare(faults)
        lost = any(isinstance(fault, ProcessDown) and fault.disk == "lost" for fault in faults)
        if lost or self._open_groups.by_name:
            self._identities.watch()
        schedule(faults, self.faults, self.queue, scenario.duration)
        load, until = scenario.workload, scenario.duration
        for family, plan in self._groups:
            licensed = family.needs_permit(plan)
            for name in scenario.senders():
                if licensed and name in plan.members:
                    draw = chance.stream(seed, "wishes", plan.group, name)
                    PermitSeeker(self.queue, self.processes[name], plan.group, load, draw, until)
        for process in self.processes.values():
            process.start()
        for family, plan in self._groups:
            members, rate = frozenset(plan.members), load.rate_in(family.round_of(plan.options))
            for name in scenario.senders():
                if name in members and family.may_send(plan, name):
                    draw = chance.stream(seed, "workload", plan.group, name)
                    process = self.processes[name]
                    room = family.largest_batch(plan.options)
                    Sender(self.queue, process, plan.group, load, rate, draw, until, room)

    def _outcome(self, ending: Ending, error: str | None) -> Outcome:
        processes = self.processes.values()
        header = Header(
            run=self.scenario.run_name(self.seed),
            family=family_in(self.scenario, self._choices),
            parameters=parameters_of(self.scenario, self._choices),
            seed=self.seed,
            version=__version__,
            level=self.level,
            start=0,
            end=self.queue.now,
            ending=ending,
            services=services_in(family for family, _ in self._groups),
        )
        return Outcome(
            header,
            sum(process.events()[0] for process in processes),
            sum(process.events()[1] for process in processes),
            self.network.posted,
            self.queue.done,
            error,
        )


def advice_on(scenario: Scenario, families: Mapping[str, Family] = FAMILIES) -> list[str]:
    """What is doubtful about the options of a scenario's groups, though they can be run."""
    found = []
    for family, plan in plans_in(scenario, families):
        senders = [
            name
            for name in scenario.senders()
            if name in plan.members and family.may_send(plan, name)
        ]
        load = scenario.workload
        rate = load.rate_in(family.round_of(plan.options))
        found += family.advice(plan, rate / load.batch * len(senders))
    return found


def _nowhere(row: Row) -> None:
    """No sink: the run is watched by its outcome alone."""

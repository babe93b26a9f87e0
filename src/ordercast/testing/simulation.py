"""One run of a scenario in the simulator, judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from ordercast.check.laws import Checked, judge_run
from ordercast.check.promise import NotAsked, promises_with
from ordercast.check.verdict import Answer, Verdict
from ordercast.kernel.family import Family
from ordercast.kernel.step import Heard
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import load_scenario
from ordercast.scenario.rules import LONGEST
from ordercast.scenario.schema import Scenario
from ordercast.sim.world import Outcome, Simulation
from ordercast.trace.schema import Trace, TraceLevel
from ordercast.trace.sinks import MemorySink
from ordercast.types import Event, NodeId
from ordercast.units import SECOND, Duration


class Simulated(NamedTuple):
    """What happened in one run, and what the laws of its family say of it."""

    outcome: Outcome
    trace: Trace
    verdicts: list[Verdict]
    heard: dict[str, list[Heard]]  # by process: all that its application was handed
    not_asked: list[NotAsked]  # laws that the family keeps only while nothing fails

    @property
    def broken(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.answer is Answer.BROKEN]

    def delivered_by(self, name: str) -> list[Event]:
        """The events that a process delivered, over all its incarnations, in its order."""
        return [item for item in self.heard.get(name, []) if isinstance(item, Event)]


def simulate(
    scenario: Scenario | str | Path,
    seed: int,
    *,
    level: TraceLevel = TraceLevel.APP,
    round_trip: bool = False,
    families: Mapping[str, Family] = FAMILIES,
) -> Simulated:
    """Runs a scenario with one seed and checks the laws that its family promises.

    `round_trip` sends every packet through the codec. `families` replaces the protocols, for
    instance by broken ones that the laws must catch.
    """
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(Path(scenario), families)
    heard: dict[str, list[Heard]] = {}

    def application(node: NodeId, item: Heard) -> None:
        heard.setdefault(node.name, []).append(item)

    sink = MemorySink()
    world = Simulation(
        scenario,
        seed,
        sink=sink,
        level=level,
        round_trip=round_trip,
        application=application,
        families=families,
    )
    outcome = world.run()
    trace = Trace(outcome.header, sink.rows)
    judged = Checked([], [])
    if level is not TraceLevel.OFF:
        judged = judge_run(trace, promises=promises_with(world.families))
    return Simulated(outcome, trace, judged.verdicts, heard, judged.not_asked)


def quiet_enough(
    scenario: Scenario,
    seed: int,
    laws: Iterable[str],
    families: Mapping[str, Family] = FAMILIES,
) -> Duration | None:
    """A longer quiet phase with which a run that broke these laws keeps them all, if there is one.

    The same seed gives the same run up to the end of the shorter one: what is broken there by what
    happened is broken here too, and what was only missing may come.
    """
    longer = Duration(min(max(10 * SECOND, 4 * scenario.quiet), LONGEST - scenario.duration))
    patient = simulate(msgspec.structs.replace(scenario, quiet=longer), seed, families=families)
    kept = {one.law for one in patient.verdicts if one.answer is Answer.HOLDS}
    return longer if kept.issuperset(laws) else None

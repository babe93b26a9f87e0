"""Runs of the feed's scenarios: what the laws say of them, and what happened in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ordercast.check.laws import judge_run
from ordercast.check.verdict import Answer
from ordercast.kernel.machine import Machine
from ordercast.protocol.hpp.member import FeedMember
from ordercast.scenario.file import load_scenario
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Trace
from ordercast.trace.sinks import MemorySink
from ordercast.types import COUNTER_BITS

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"


class Storm:
    """One run, with the counters of all incarnations together."""

    def __init__(self, name: str, seed: int) -> None:
        self.counters: Counter[str] = Counter()
        self.deepest = 0
        sink = MemorySink()
        world = Simulation(load_scenario(SCENARIOS / f"{name}.toml"), seed, sink=sink)
        for process in world.processes.values():
            process.counted = self._count
        outcome = world.run()
        assert outcome.error is None, f"{name} {seed}: {outcome.error}"
        self.trace = Trace(outcome.header, sink.rows)
        self.world = world
        self.broken = [
            verdict for verdict in judge_run(self.trace).verdicts if verdict.answer is Answer.BROKEN
        ]
        # Own events that only the next incarnation could tell of: the crash came in their commit.
        self.counters["told later"] = sum(
            row.kind == "submit" and (row.number or 0) >> COUNTER_BITS < row.incarnation
            for row in sink.rows
        )
        self._compare_logs()

    def _count(self, machine: Machine) -> None:
        assert isinstance(machine, FeedMember)
        self.counters.update(machine.counters("g"))
        self.deepest = max(self.deepest, machine.hierarchy.depth)

    def _compare_logs(self) -> None:
        """At the end all that are alive have received the same, and nobody waits for anything."""
        processes = self.world.processes.values()
        machines = [one.host.seats["g"].machine for one in processes if one.alive]
        vectors = []
        for machine in machines:
            assert isinstance(machine, FeedMember)
            vectors.append(dict(machine.log.vector.items()))
            assert not any(edge.queue or edge.is_reading for edge in machine.edges.all())
            disk = self.world.processes[machine.me.name].disk.logs["g"]
            assert (disk.tail, disk.floor) == (machine.log.tail, machine.log.floor)
        assert all(vector == vectors[0] for vector in vectors), "logs differ at the end"


def weathered(name: str, seeds: Iterable[int]) -> Counter[str]:
    """What happened in these runs, all of which kept every law."""
    total: Counter[str] = Counter()
    for seed in seeds:
        storm = Storm(name, seed)
        assert not storm.broken, f"{name} {seed}: {storm.broken}"
        total.update(storm.counters)
    return total

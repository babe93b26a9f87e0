"""Runs of the published feed: its scenarios with other options, and what is counted in them."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from ordercast.check.laws import judge_run
from ordercast.check.promise import promises_with
from ordercast.check.verdict import Answer
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.studies.published_feed.member import PublishedNode
from ordercast.studies.published_feed.vectors import StateVectors
from ordercast.trace.schema import Row, Trace
from ordercast.trace.sinks import MemorySink

ROOT = Path(__file__).resolve().parents[3]
FAMILY = "ordercast.studies.published_feed:FAMILY"


class Ran(NamedTuple):
    rows: list[Row]
    broken: dict[str, str]  # by law: the explanation
    counters: Counter[str]  # of all nodes together
    vectors: dict[str, StateVectors]  # at the end, by node

    @property
    def laws(self) -> list[str]:
        return sorted(self.broken)

    def delivered(self, process: str) -> list[str]:
        """Events by origin and counter, over all incarnations."""
        return [event(row) for row in self.rows if (row.process, row.kind) == (process, "deliver")]


def event(row: Row) -> str:
    assert row.number is not None
    return f"{row.origin}:{row.number & (1 << 40) - 1}"


def document(name: str) -> dict[str, Any]:
    path = ROOT / "scenarios" / f"feed-published-{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def ran(name: str, seed: int = 1, **changes: Any) -> Ran:
    """The scenario, with other options, or other faults (fault=[...])."""
    found = document(name)
    found["fault"] = changes.pop("fault", found["fault"])
    found["options"] |= changes
    return run(found, seed)


def run(found: dict[str, Any], seed: int) -> Ran:
    sink = MemorySink()
    world = Simulation(parse_scenario(found), seed, sink=sink)
    outcome = world.run()
    assert outcome.error is None, (seed, outcome.error)
    judged = judge_run(Trace(outcome.header, sink.rows), promises=promises_with(world.families))
    broken = {one.law: one.why for one in judged.verdicts if one.answer is Answer.BROKEN}
    counters: Counter[str] = Counter()
    vectors: dict[str, StateVectors] = {}
    for process in world.processes.values():
        for seat in process.host.seated:
            assert isinstance(seat.machine, PublishedNode)
            counters.update(seat.machine.counters("g"))
            vectors[process.name] = seat.machine.state.vectors
    return Ran(sink.rows, broken, counters, vectors)

"""While a parent is down and stays down its children get everything, within a stated time.

The time: a limit of silence until they notice, and a few beats to find another parent. If it was
the root, one of its children becomes the root first, after two limits of silence more.
"""

from __future__ import annotations

import msgspec
import pytest
from tests.protocol.feed.storms import SCENARIOS

from ordercast.protocol.hpp.member import FeedMember
from ordercast.scenario.faults.processes import Crash
from ordercast.scenario.file import load_scenario
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Row
from ordercast.trace.sinks import MemorySink
from ordercast.units import SECOND, Duration

SILENCE = SECOND // 2  # as the scenario has it
BEATS = SECOND // 2  # five of them, for what else there is to do
DIES = 4 * SECOND


def run(seed: int, *victims: str) -> tuple[Simulation, list[Row]]:
    scenario = load_scenario(SCENARIOS / "feed-calm.toml")
    crashes = [Crash(at=Duration(DIES), nodes=[name]) for name in victims]
    sink = MemorySink()
    world = Simulation(msgspec.structs.replace(scenario, fault=crashes), seed, sink=sink)
    assert world.run().error is None
    return world, sink.rows


def parents(world: Simulation) -> dict[str, str | None]:
    found = {}
    for name, process in world.processes.items():
        machine = process.host.seats["g"].machine
        assert isinstance(machine, FeedMember)
        found[name] = None if machine.edges.parent is None else machine.edges.parent.peer.name
    return found


def slowest(rows: list[Row], live: set[str]) -> int:
    """How long the last of the living waited for an event, of those after the crash."""
    made = {
        (row.origin, row.number): row.at
        for row in rows
        if row.kind == "submit" and row.at > DIES and row.process in live
    }
    waited = [
        row.at - made[row.origin, row.number]
        for row in rows
        if row.kind == "deliver" and row.process in live and (row.origin, row.number) in made
    ]
    assert len(waited) == len(made) * len(live)
    return max(waited)


@pytest.mark.parametrize("seed", [1, 2])
def test_children_of_a_parent_that_stays_down_get_everything_soon(seed: int) -> None:
    tree = parents(run(seed)[0])
    inner = next(name for name in tree if name in tree.values() and tree[name] is not None)
    rows = run(seed, inner)[1]
    assert slowest(rows, {*tree} - {inner}) <= SILENCE + BEATS


def test_children_of_a_root_that_stays_down_get_everything_soon() -> None:
    tree = parents(run(1)[0])
    (root,) = [name for name, parent in tree.items() if parent is None]
    rows = run(1, root)[1]
    assert slowest(rows, {*tree} - {root}) <= 3 * SILENCE + BEATS

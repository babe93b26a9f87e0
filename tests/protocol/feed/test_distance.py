"""Moves by measured delay: nodes come nearer to the root, and no deeper than they may."""

from __future__ import annotations

import msgspec
import pytest
from tests.protocol.feed.storms import SCENARIOS

from ordercast.protocol.hpp.member import FeedMember
from ordercast.scenario.file import load_scenario
from ordercast.sim.world import Simulation


def machines(seed: int, moves: str) -> list[FeedMember]:
    scenario = load_scenario(SCENARIOS / "feed-nearer.toml")
    given = msgspec.structs.replace(
        scenario, options={**scenario.options, "moves": moves, "deepest": 4}
    )
    world = Simulation(given, seed)
    assert world.run().error is None
    found = [process.host.seats["g"].machine for process in world.processes.values()]
    return [machine for machine in found if isinstance(machine, FeedMember)]


def average_delay(found: list[FeedMember]) -> float:
    return sum(machine.hierarchy.delay for machine in found) / len(found)


@pytest.mark.long
def test_moves_by_delay_bring_nodes_nearer_to_the_root() -> None:
    before, after = machines(3, "none"), machines(3, "delay")
    moves = sum(machine.counters("g")["moves_by_delay"] for machine in after)
    assert 1 <= moves <= 30  # a node rests after a move
    assert average_delay(after) < 0.7 * average_delay(before)
    assert max(machine.hierarchy.depth for machine in after) <= max(
        4, *(machine.hierarchy.depth for machine in before)
    )
    assert all(len(machine.edges.children) <= 6 for machine in after)

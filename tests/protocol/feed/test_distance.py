"""Moves by measured delay: nodes come nearer to the root, and no deeper than they may."""

from __future__ import annotations

import msgspec
import pytest
from tests.protocol.feed.storms import SCENARIOS

from ordercast.kernel.step import Step
from ordercast.protocol.hpp.distance import MOST_REFERRED
from ordercast.protocol.hpp.member import FeedMember
from ordercast.protocol.hpp.packets import Beat, Offer
from ordercast.scenario.file import load_scenario
from ordercast.sim.world import Simulation
from ordercast.testing.stage import Stage
from ordercast.units import MILLISECOND, SECOND


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


LATER = 1000 * SECOND
"""By the clock of the node, when all that a stage did is over."""


def heard(found: FeedMember, name: str, room: bool, ms: int, children: list[str]) -> None:
    """An answer of a node so far below the root, which was asked for just now."""
    beat = Beat(1, "n9", 0, 1)
    offer = Offer("g", beat, 7, room, children, LATER - 1, ms * MILLISECOND, 2)
    found.distance.measured(Step(LATER), name, offer)


def slow_node() -> FeedMember:
    """n1, which has been far below n4 for long, and knows of nobody else."""
    stage = Stage.of("feed", "n1 n4", beat="100ms", slow_delay="1ms", slow_for="1s")
    stage.settle(ticks=14)
    found = stage.machine("n1")
    assert isinstance(found, FeedMember)
    assert found.edges.parent is not None
    found.hierarchy.delay = 300 * MILLISECOND
    assert asked_by(found, LATER // 2) == set()
    return found


def asked_by(found: FeedMember, since: int = LATER) -> set[str]:
    """Whom it asks how far they are, beside its parent."""
    asked: set[str] = set()
    for beat in range(1000):
        step = Step(since + beat * 100 * MILLISECOND)
        found.distance.beat(step)
        asked.update(str(address) for to, *_ in step.sent for address in to)
    return asked - {"n4"}


def test_a_nearer_node_without_room_refers_to_its_children() -> None:
    found = slow_node()
    heard(found, "n7", False, 10, ["n8", "n1"])
    assert asked_by(found) == {"n8"}


def test_a_node_that_is_no_nearer_refers_to_nobody_and_is_asked_no_more() -> None:
    found = slow_node()
    heard(found, "n7", False, 290, ["n8"])
    assert asked_by(found) == set()
    heard(found, "n7", False, 10, ["n8"])
    heard(found, "n8", True, 290, [])
    assert asked_by(found) == set()


def test_a_node_moves_to_a_child_of_one_that_is_full() -> None:
    found = slow_node()
    heard(found, "n7", False, 10, ["n8"])
    for _ in range(3):
        heard(found, "n8", True, 20, [])
    assert found.distance.moves == 1
    assert found.relocation.target == "n8"


def test_names_that_others_refer_to_have_a_limit() -> None:
    found = slow_node()
    for number in range(40):
        heard(found, "n7", False, 10, [f"x{number}a", f"x{number}b"])
    last = range(40 - MOST_REFERRED // 2, 40)
    assert asked_by(found) == {f"x{number}{which}" for number in last for which in "ab"}

"""Large states: in parts, each of which shows that its initiator is there."""

from __future__ import annotations

import tomllib

import pytest
from tests.protocol.newtop.forming_table import partitioned, run, view_of
from tests.protocol.newtop.table import node

from ordercast.errors import PeerError
from ordercast.kernel.inputs import LARGEST_STATE
from ordercast.kernel.step import Heard, Step
from ordercast.protocol.newtop.packets import PART_BYTES, Copy, StatePart
from ordercast.protocol.newtop.state_parts import ReceivedParts, send_in_parts
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.types import NodeId, StateGiven, StateWanted, View

N1 = NodeId("n1")


def parts_of(state: bytes) -> list[StatePart | Copy]:
    step = Step(0)
    send_in_parts(step, (N1,), Copy("g", "n1.0.1", state))
    return [packet for _, packet, _, _ in step.sent if isinstance(packet, StatePart | Copy)]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
def test_a_state_is_put_together_again(size: int) -> None:
    state = bytes(i % 251 for i in range(size))
    *parts, last = parts_of(state)
    received = ReceivedParts()
    for part in parts:
        assert isinstance(part, StatePart)
        received.add(N1, part.part)
    assert isinstance(last, Copy)
    assert received.complete(N1, last) == Copy("g", "n1.0.1", state)
    assert len(parts) == (0 if size <= PART_BYTES else -(-size // PART_BYTES))


def test_too_few_parts_are_refused_and_those_that_came_stay() -> None:
    *parts, last = parts_of(bytes(3 * PART_BYTES))
    received = ReceivedParts()
    for part in parts[:2]:
        assert isinstance(part, StatePart)
        received.add(N1, part.part)
    assert isinstance(last, Copy)
    with pytest.raises(PeerError, match="in 3 parts, of which 2 have come"):
        received.complete(N1, last)
    received.add(N1, bytes(PART_BYTES))
    assert received.complete(N1, last).state == bytes(3 * PART_BYTES)


def test_more_than_a_state_may_have_is_refused() -> None:
    received = ReceivedParts()
    for _ in range(LARGEST_STATE // PART_BYTES):
        received.add(N1, bytes(PART_BYTES))
    with pytest.raises(PeerError, match="more than"):
        received.add(N1, b"x")


def test_parts_of_a_formation_that_is_over_are_ignored() -> None:
    stage = partitioned()
    stage.form("n1")
    run(stage, 20)
    before = view_of(stage, "n3")
    stage.inject(node("n1"), "n3", StatePart("g", before[0], b"late"))
    run(stage, 3)
    assert view_of(stage, "n3") == before


SLOW_LINE = """
name = "slow line"
family = "total"
processes = 2
duration = "12s"
quiet = "3s"
[[fault]]
at = "2s"
kind = "join"
nodes = ["n2"]
[[group]]
name = "orders"
members = ["n1", "n2"]
open = true
anchors = ["n1"]
[workload]
rate = 5
[network]
bandwidth = "1MB/s"
"""


def test_a_state_that_takes_four_suspicion_limits_arrives() -> None:
    heard: dict[str, list[Heard]] = {}

    def application(me: NodeId, item: Heard) -> bytes | None:
        heard.setdefault(me.name, []).append(item)
        return bytes(4 << 20) if isinstance(item, StateWanted) else None

    scenario = parse_scenario(tomllib.loads(SLOW_LINE), SLOW_LINE)
    outcome = Simulation(scenario, 1, application=application).run()
    assert outcome.error is None
    given = [item for item in heard["n2"] if isinstance(item, StateGiven)]
    assert [len(item.state or b"") for item in given] == [4 << 20]
    views = [[one.name for one in item.members] for item in heard["n2"] if isinstance(item, View)]
    assert views == [["n1", "n2"]]

"""Large states: in parts, each of which shows that its initiator is there."""

from __future__ import annotations

import tomllib

import msgspec
import pytest
from tests.protocol.newtop.forming_table import partitioned, run, view_of
from tests.protocol.newtop.table import node

from ordercast.errors import PeerError
from ordercast.kernel.buffers import Limit
from ordercast.kernel.inputs import LARGEST_STATE
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Address, Heard, Step
from ordercast.protocol.newtop.packets import PART_BYTES, Copy, Null, PartTaken, State, StatePart
from ordercast.protocol.newtop.stability import Streams
from ordercast.protocol.newtop.state_parts import ReceivedParts, SentStates
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.types import NodeId, StateGiven, StateWanted, View

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")


def giver() -> SentStates:
    return SentStates(Streams(N1, (N2, N3), Limit(100, 1 << 20)))


def sent(step: Step) -> list[tuple[tuple[Address, ...], Packet]]:
    return [(to, packet) for to, packet, _, _ in step.sent]


def parts_of(state: bytes) -> list[StatePart | Copy]:
    """All that one receiver gets, which takes each part at once."""
    step, giving = Step(0), giver()
    giving.send(step, (N2,), Copy("g", "n1.0.1", state))
    while isinstance(sent(step)[-1][1], StatePart):
        giving.take(step, N2, PartTaken("g", "n1.0.1", len(step.sent)))
    return [packet for _, packet in sent(step) if isinstance(packet, StatePart | Copy)]


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


def test_one_part_is_underway_to_each_receiver() -> None:
    step, giving = Step(0), giver()
    giving.send(step, (N2, N3), Copy("g", "n1.0.1", bytes(PART_BYTES + 1)))
    half = StatePart("g", "n1.0.1", bytes(PART_BYTES // 2))
    assert sent(step) == [((N2,), half), ((N3,), half)]
    giving.take(step, N3, PartTaken("g", "n1.0.1", 1))
    assert sent(step)[2:] == [((N3,), half)]
    for wrong in (0, 2):
        with pytest.raises(PeerError, match=f"n2 has taken {wrong} parts of a state, of which 1"):
            giving.take(step, N2, PartTaken("g", "n1.0.1", wrong))
    giving.forget((N2,))
    giving.take(step, N2, PartTaken("g", "n1.0.1", 1))
    assert len(step.sent) == 3
    giving.hurry(step)
    last = StatePart("g", "n1.0.1", b"\0")
    assert sent(step)[3:] == [((N3,), last), ((N3,), Copy("g", "n1.0.1", None, parts=3))]


def test_what_is_cast_after_a_state_waits_until_the_receiver_has_it() -> None:
    step, giving = Step(0), giver()
    state = State("g", "n1.0.1", 5, 0, 0, 0, bytes(2 * PART_BYTES))
    later = Null("g", "n1.0.1", 6, 5, 0, 0)
    streams = Streams(N1, (N2, N3), Limit(100, 1 << 20))
    giving = SentStates(streams)
    streams.append_own(state)
    giving.send(step, (N2,), state)
    assert list(giving.behind) == [N2]
    streams.append_own(later)
    for count in (1, 2):
        giving.take(step, N2, PartTaken("g", "n1.0.1", count))
    assert not giving.behind
    whole = msgspec.structs.replace(state, state=None, parts=2)
    assert [packet for _, packet in sent(step)][2:] == [whole, later]


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


def heard_with_state(scenario_text: str) -> dict[str, list[Heard]]:
    """What the applications were given in a run in which each has a state of 4 MiB."""
    heard: dict[str, list[Heard]] = {}

    def application(me: NodeId, item: Heard) -> bytes | None:
        heard.setdefault(me.name, []).append(item)
        return bytes(4 << 20) if isinstance(item, StateWanted) else None

    scenario = parse_scenario(tomllib.loads(scenario_text), scenario_text)
    outcome = Simulation(scenario, 1, application=application).run()
    assert outcome.error is None
    return heard


def views_in(heard: list[Heard]) -> list[str]:
    views = [item for item in heard if isinstance(item, View)]
    return [" ".join(one.name for one in view.members) for view in views]


def test_a_state_that_takes_four_suspicion_limits_arrives() -> None:
    heard = heard_with_state(SLOW_LINE)
    given = [item for item in heard["n2"] if isinstance(item, StateGiven)]
    assert [len(item.state or b"") for item in given] == [4 << 20]
    assert views_in(heard["n2"]) == ["n1 n2"]


def test_who_gives_a_large_state_on_a_slow_line_is_not_suspected() -> None:
    """All that n1 sends goes by one line, which is busy with two states for eight suspicion limits.
    The others hear from it meanwhile."""
    text = SLOW_LINE.replace("processes = 2", "processes = 5").replace(
        'nodes = ["n2"]', 'nodes = ["n4", "n5"]'
    )
    names = '["n1", "n2", "n3", "n4", "n5"]'
    text = text.replace('"12s"', '"25s"').replace('members = ["n1", "n2"]', f"members = {names}")
    heard = heard_with_state(text)
    for name in ("n1", "n2", "n3", "n4", "n5"):
        views = views_in(heard[name])
        assert views == sorted(views, key=len), f"{name} has seen nobody leave"
        assert views[-1] == "n1 n2 n3 n4 n5"
        given = [item for item in heard[name] if isinstance(item, StateGiven)]
        assert [len(item.state or b"") for item in given] == [4 << 20] * (name != "n1")

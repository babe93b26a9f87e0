"""Newcomers of an open group get the application's state: one cut, and each event once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.protocol.fifo.test_open import (
    LIMIT,
    N1,
    N2,
    N3,
    joined,
    member,
    numbers,
    open_stage,
    views,
    waits,
)

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Heard, Step
from ordercast.protocol.fifo import FAMILY
from ordercast.protocol.fifo.options import FifoOptions
from ordercast.protocol.fifo.packets import Coming, Need, State
from ordercast.scenario.file import load_scenario
from ordercast.scenario.schema import Scenario
from ordercast.sim.world import Simulation
from ordercast.testing.stage import Stage
from ordercast.types import Event, NodeId, StateGiven, StateWanted

SCENARIOS = Path(__file__).parents[3] / "scenarios"
STATE = {"state": True}


def given(stage: Stage, name: str) -> list[bytes | None]:
    node = stage.node(name)
    return [what.state for who, what in stage.log if who == node and isinstance(what, StateGiven)]


def asked(stage: Stage, name: str) -> int:
    node = stage.node(name)
    return sum(who == node and isinstance(what, StateWanted) for who, what in stage.log)


def test_a_newcomer_has_the_state_before_its_first_view_and_then_what_follows() -> None:
    stage = joined(**STATE)
    stage.submit("n1", [b"a"])
    stage.enter("n2", "n1")
    stage.settle(ticks=6)
    assert asked(stage, "n1") == 1
    assert not views(stage, "n2")
    stage.submit("n1", [b"b"])
    stage.settle(ticks=2)
    stage.provide("n1", b"a")
    stage.submit("n1", [b"c"])
    stage.settle(ticks=3)
    mine = [what for who, what in stage.log if who == N2]
    heard = [what for what in mine if isinstance(what, StateGiven | Event)]
    assert [type(what).__name__ for what in heard] == ["StateGiven", "Event", "Event"]
    assert given(stage, "n2") == [b"a"]
    assert numbers(stage, "n2", N1) == [2, 3]
    assert views(stage, "n2") == [(N1, N2)]


def test_an_event_that_the_state_contains_is_not_delivered_again() -> None:
    """It arrives after n2 has met its sender, and before the sender's state is taken."""
    stage = joined("n3", **STATE)
    stage.provide("n1", b"")
    stage.settle(ticks=3)
    stage.enter("n2", "n1")
    for _ in range(40):
        if asked(stage, "n1") == 2:
            break
        stage.submit("n3", [b"x"])
        stage.settle(ticks=1)
    cut = member(stage, "n1").streams.by_origin[N3].received_up_to
    assert cut > 0
    stage.provide("n1", b"state")
    stage.settle(ticks=3)
    stage.submit("n3", [b"y"])
    stage.settle(ticks=3)
    got = numbers(stage, "n2", N3)
    assert got == list(range(got[0], got[-1] + 1))
    assert got[0] > cut - 1
    assert given(stage, "n2") == [b"state"]


def test_founders_take_no_state() -> None:
    stage = joined(**STATE)
    assert views(stage, "n1") == [(N1,)]
    assert not given(stage, "n1")


def test_the_next_member_is_asked_when_the_first_is_gone() -> None:
    stage = joined("n3", **STATE)
    stage.provide("n1", b"one")
    stage.settle(ticks=3)
    stage.enter("n2", "n1")
    stage.settle(ticks=6)
    assert asked(stage, "n1") == 2
    assert waits(stage, "n2")[-1].why == "n1 was asked for the state of 'g'"
    stage.crash("n1")
    stage.settle(ticks=4 * LIMIT)
    assert asked(stage, "n3") == 1
    stage.provide("n3", b"three")
    stage.settle(ticks=3)
    assert given(stage, "n2") == [b"three"]
    assert views(stage, "n2")[-1] == (N2, N3)


def test_a_newcomer_that_dies_costs_nothing() -> None:
    stage = joined(**STATE)
    stage.enter("n2", "n1")
    stage.settle(ticks=6)
    stage.crash("n2")
    stage.settle(ticks=3 * LIMIT)
    stage.provide("n1", b"too late")
    stage.submit("n1", [b"x"])
    assert stage.accepts("n1")
    assert not member(stage, "n1").membership.handover.giving.asked


def test_two_newcomers_at_once_both_get_the_state() -> None:
    stage = joined(**STATE)
    stage.enter("n2", "n1")
    stage.enter("n3", "n1")
    stage.settle(ticks=6)
    for _ in range(asked(stage, "n1")):
        stage.provide("n1", b"one")
    stage.settle(ticks=6)
    for name in ("n2", "n3"):
        assert given(stage, name) == [b"one"]
        assert views(stage, name)[-1] == (N1, N2, N3)


def test_a_member_that_lacks_what_the_newcomer_missed_answers_when_it_has_it() -> None:
    stage = joined("n2", **STATE)
    stage.provide("n1", b"")
    machine, step = member(stage, "n1"), Step(0)
    machine.receive(step, N2, Need("g", [(N3, 4)]))
    assert not step.outputs
    machine.streams.follow(N3, 4)
    machine.membership.handover.serve(machine, step)
    assert [type(what) for what in step.outputs] == [StateWanted]


def test_what_a_giver_knows_only_by_its_own_state_is_in_its_cut() -> None:
    """It was given a state that goes further than what has reached it since."""
    stage = joined("n2", **STATE)
    stage.provide("n1", b"")
    machine, step = member(stage, "n1"), Step(0)
    machine.streams.follow(N3, 4).covered_up_to = 7
    machine.streams.remember(NodeId("gone"), 9)
    machine.receive(step, N2, Need("g", []))
    (wanted,) = step.outputs
    assert isinstance(wanted, StateWanted)
    _, cut = cast(tuple[NodeId, tuple[tuple[NodeId, int], ...]], wanted.token)
    assert dict(cut)[N3] == 7
    assert dict(cut)[NodeId("gone")] == 9


def test_a_newcomer_remembers_how_far_the_state_knows_an_origin_that_is_gone() -> None:
    stage = joined(**STATE)
    stage.enter("n2", "n1")
    stage.settle(ticks=6)
    machine = member(stage, "n2")
    machine.receive(Step(0), N1, State("g", [(N1, 0), (NodeId("gone"), 9)], b"state"))
    assert machine.streams.places == {NodeId("gone"): 9}
    assert machine.streams.follow(NodeId("gone"), 0).received_up_to == 9


@pytest.mark.parametrize(
    "packet", [State("g", [(N1, 5)], b"false"), Need("g", [(N1, 5)])], ids=["state", "need"]
)
def test_a_lie_about_what_we_sent_is_refused(packet: Packet) -> None:
    stage = joined("n2", **STATE)
    with pytest.raises(PeerError, match="never sent"):
        member(stage, "n1").receive(Step(0), N2, packet)


def test_a_state_that_nobody_asked_for_changes_nothing() -> None:
    stage = joined("n2", **STATE)
    step = Step(0)
    member(stage, "n1").receive(step, N2, State("g", [(N3, 900)], b"mine"))
    assert not step.outputs
    assert N3 not in member(stage, "n1").streams.by_origin


@pytest.mark.parametrize("packet", [Need("g", []), Coming("g"), State("g", [], b"")])
def test_a_group_without_state_knows_no_such_packets(packet: Packet) -> None:
    stage = joined("n2")
    with pytest.raises(PeerError, match="which fifo does not know"):
        member(stage, "n1").receive(Step(0), N2, packet)


def test_listed_members_need_no_state() -> None:
    found = FAMILY.objection("g", FifoOptions(state=True), ["n1", "n2"])
    assert found is not None
    assert "is for members that join an open group" in found.why
    assert FAMILY.objection("g", FifoOptions(state=True), None) is None
    assert FAMILY.objection("g", FifoOptions(), ["n1"]) is None


def test_nobody_waits_for_a_newcomer_that_nobody_can_help() -> None:
    """What has come until then is acknowledged, and the next state must contain it."""
    stage = open_stage(window=2, **STATE)
    stage.enter("n1")
    machine = member(stage, "n1")
    machine.membership.handover.serve = lambda member, step: None
    stage.enter("n2", "n1")
    stage.settle(ticks=6)
    sent = 0
    for _ in range(8 * LIMIT):
        if stage.accepts("n1"):
            stage.submit("n1", [b"x"])
            sent += 1
        stage.settle(ticks=1)
    assert sent > 4, "more than a window"
    assert not numbers(stage, "n2", N1)
    del machine.membership.handover.serve
    stage.settle(ticks=2 * LIMIT)
    stage.provide("n1", b"all of it")
    stage.settle(ticks=3)
    stage.submit("n1", [b"y"])
    stage.settle(ticks=3)
    assert given(stage, "n2") == [b"all of it"]
    assert numbers(stage, "n2", N1) == [sent + 1]


def test_an_application_that_does_not_read_keeps_neither_newcomers_nor_senders_waiting() -> None:
    """Its member has said that the state comes. The next is asked, and what came is dropped."""
    stage = joined("n3", window=2, **STATE)
    stage.provide("n1", b"one")
    stage.settle(ticks=3)
    stage.enter("n2", "n1")
    stage.settle(ticks=6)
    assert asked(stage, "n1") == 2
    sent = 0
    for _ in range(6 * LIMIT):
        if stage.accepts("n3"):
            stage.submit("n3", [b"x"])
            sent += 1
        stage.settle(ticks=1)
    assert asked(stage, "n1") == 2
    assert asked(stage, "n3") == 1
    stage.provide("n3", b"three")
    stage.settle(ticks=3)
    assert given(stage, "n2") == [b"three"]
    assert sent > 2, "more than a window"


def test_the_only_application_that_has_the_state_is_asked_once_until_it_answers() -> None:
    """What it gives then is too old, and it is asked again: the newcomer has dropped a part."""
    stage = joined(window=2, **STATE)
    stage.enter("n2", "n1")
    stage.settle(ticks=6)
    sent = 0
    for _ in range(40 * LIMIT):
        if stage.accepts("n1"):
            stage.submit("n1", [b"x"])
            sent += 1
        stage.settle(ticks=1)
    assert asked(stage, "n1") == 1
    assert 6 <= sent <= 12, "a window for each time that it was given up"
    stage.provide("n1", b"old")
    stage.settle(ticks=3)
    assert asked(stage, "n1") == 2
    stage.provide("n1", b"all of it")
    stage.settle(ticks=3)
    assert given(stage, "n2") == [b"all of it"]


# --- in the simulator: applications whose state is what they have ---------------------------------


class Applications:
    """Each has a list of the events that it knows, by its state or by delivery."""

    def __init__(self) -> None:
        self.known: dict[NodeId, list[tuple[str, int]]] = {}
        self.from_state: Counter[NodeId] = Counter()

    def __call__(self, node: NodeId, item: Heard) -> Any:
        known = self.known.setdefault(node, [])
        match item:
            case Event():
                known.append((str(item.origin), item.number))
            case StateWanted():
                return msgspec.json.encode(known)
            case StateGiven(state=state):
                assert not known, "the state comes first"
                assert state is not None
                known += msgspec.json.decode(state, type=list[tuple[str, int]])
                self.from_state[node] = len(known)
        return None


def run(scenario: Scenario, seed: int) -> Applications:
    applications = Applications()
    Simulation(scenario, seed, application=applications).run()
    return applications


@pytest.mark.parametrize("seed", [*range(1, 9), 121, 136])
def test_under_chaos_no_application_knows_an_event_twice_or_out_of_order(seed: int) -> None:
    applications = run(load_scenario(SCENARIOS / "open-fifo-state.toml"), seed)
    assert applications.from_state
    for known in applications.known.values():
        assert len(known) == len({*known})
        for origin in {origin for origin, _ in known}:
            theirs = [number for one, number in known if one == origin]
            assert theirs == sorted(theirs)


@pytest.mark.parametrize("seed", range(1, 9))
def test_while_nothing_fails_all_applications_end_with_the_same(seed: int) -> None:
    scenario = load_scenario(SCENARIOS / "open-fifo-state.toml")
    calm = msgspec.structs.replace(scenario, chaos=None)
    applications = run(calm, seed)
    assert {node.name for node in applications.from_state} >= {"n4", "n5"}
    ends = [sorted(known) for known in applications.known.values()]
    assert len(ends) == 5
    assert all(end == ends[0] for end in ends)
    assert len(ends[0]) > 500

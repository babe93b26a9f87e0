"""Cases that broke causal clusters and gossip once. Each was written before it was mended."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from typing import Any

import pytest

from ordercast.check.laws import check
from ordercast.errors import PeerError
from ordercast.kernel.step import Note
from ordercast.kernel.wording import GROUP
from ordercast.protocol.cluster.causal_member import CausalMember
from ordercast.protocol.cluster.causality import CausalOrder
from ordercast.protocol.cluster.packets import (
    Ask,
    Gossip,
    Recover,
    Recovered,
    Rumour,
    Thin,
    ThinUpdates,
    Update,
    Updates,
    Welcome,
)
from ordercast.protocol.cluster.recovery import RecoveryBuffer
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import options_for, parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.sim.explore import Bounds, explore, setting
from ordercast.testing.actor import Posted
from ordercast.testing.simulation import simulate
from ordercast.testing.stage import Stage
from ordercast.types import Event, NodeId, StateGiven
from ordercast.wire.codec import Codec

TICKETS = 25
N2 = NodeId("n2")


def causal(names: str, **options: Any) -> Stage:
    """A cluster whose members know that they are the first."""
    stage = Stage.of("causal", names, ownership="fixed", **options)
    stage.settle(ticks=25)
    return stage


def member(stage: Stage, name: str) -> CausalMember:
    machine = stage.machine(name)
    assert isinstance(machine, CausalMember)
    return machine


def delivered(stage: Stage, name: str) -> list[bytes]:
    events = [what for who, what in stage.log if who.name == name and isinstance(what, Event)]
    return [payload for event in events for payload in event.payloads]


def lost(stage: Stage, name: str) -> int:
    notes = [what for who, what in stage.log if who.name == name and isinstance(what, Note)]
    return sum(note.kind == "lose" for note in notes)


def drop_all(stage: Stage) -> None:
    for parcel in stage.underway():
        stage.drop(parcel)


def rounds_alone(stage: Stage, names: str, count: int) -> None:
    """So many rounds in which nobody hears anybody."""
    for _ in range(count):
        for name in names.split():
            stage.fire(name)
        drop_all(stage)


def make(stage: Stage, name: str, count: int) -> None:
    """So many events that reach nobody."""
    made = 0
    while made < count:
        if stage.submit(name, [b"%d" % made]) is not None:
            made += 1
        else:
            rounds_alone(stage, name, 1)
    rounds_alone(stage, name, 12)


def small_cluster(text: str) -> Scenario:
    """The rest of a file about three processes that update for two seconds."""
    common = {"family": "causal", "processes": 3, "duration": "2s"}
    return parse_scenario(common | tomllib.loads(text))


def update(index: int, entries: dict[int, int], number: int) -> Update:
    stamp = tuple(entries.get(place, 0) for place in range(TICKETS))
    return Update(index, stamp, NodeId(f"n{index + 1}"), number, [b"x"], 1)


# --- nothing fails --------------------------------------------------------------------------


def test_a_member_that_starts_with_the_others_misses_no_large_event() -> None:
    """The first to settle made more than a welcome holds; the last was told to begin behind it."""
    text = """
        name = "large first events"
        quiet = "5s"
        options = { ownership = "fixed" }
        workload = { rate = 40, payload = 1500000 }
    """
    result = simulate(small_cluster(text), 1)
    assert [verdict.law for verdict in result.broken] == []


def test_mixed_families_are_judged_each_by_its_own_laws() -> None:
    text = """
        name = "mixed"
        quiet = "2s"
        options = { ownership = "fixed" }
        network = { delay = "30ms", jitter = 0.9, loss = 0.1 }
        [[group]]
        name = "a"
        members = ["n1", "n2", "n3"]
        [[group]]
        name = "b"
        members = ["n1", "n2", "n3"]
        family = "gossip"
    """
    result = simulate(small_cluster(text), 1)
    assert [verdict.law for verdict in result.broken] == []  # gossip promises no order


# --- what is told, and what is not ----------------------------------------------------------


def test_an_event_is_not_held_for_ever_behind_one_that_no_member_has() -> None:
    """Cut off for more than the others keep, and nothing new is made afterwards."""
    stage = causal("n1 n2", recovery_buffer=2)
    stage.cut("n1", "n2")
    make(stage, "n1", 5)
    stage.mend("n1", "n2")
    stage.settle(ticks=200)
    assert delivered(stage, "n2") == [b"3", b"4"]
    assert lost(stage, "n2") == 3


def test_a_slow_reader_welcomes_nobody_beyond_its_own_clock() -> None:
    stage = causal("n1 n2 n3", recovery_buffer=2)
    stage.throttle("n2", full=True)
    for number in range(4):
        stage.submit("n1", [b"%d" % number])
        stage.settle(ticks=1)
    stage.inject(NodeId("n3", 1), "n2", Ask(GROUP))
    welcomes = [p.packet for p in stage.underway("n2", "n3") if isinstance(p.packet, Welcome)]
    assert welcomes
    for welcome in welcomes:
        assert all(map(int.__le__, welcome.clock, welcome.target))


def test_a_slow_reader_does_not_ask_for_the_same_again_and_again() -> None:
    stage = causal("n1 n2")
    stage.throttle("n2", full=True)
    for number in range(20):
        stage.submit("n1", [b"%d" % number])
    stage.settle(ticks=30)
    before = len(stage.log)
    stage.settle(ticks=200)
    posted = [what.packet for _, what in stage.log[before:] if isinstance(what, Posted)]
    answers = [packet for packet in posted if isinstance(packet, Recovered)]
    assert len(answers) <= 1  # it has them all


def test_nothing_is_forced_upon_an_application_that_is_full() -> None:
    stage = causal("n1 n2")
    make(stage, "n1", 1)
    stage.submit("n1", [b"behind it"])
    stage.settle()
    stage.throttle("n2", full=True)
    rounds_alone(stage, "n2", 40)
    assert delivered(stage, "n2") == []


# --- coming again ---------------------------------------------------------------------------


def test_a_member_that_left_while_it_was_full_delivers_again_after_it_rejoins() -> None:
    stage = causal("n1 n2")
    stage.throttle("n2", full=True)
    stage.rejoin("n2")
    stage.settle(ticks=25)
    stage.submit("n1", [b"a"])
    stage.settle(ticks=10)
    assert delivered(stage, "n2") == [b"a"]


def test_a_state_that_lacks_what_the_newcomer_delivered_is_not_the_end_of_it() -> None:
    """It comes again, and is given the state of a member that is behind it."""
    stage = causal("n1 n2", state=True)
    stage.submit("n1", [b"mine"])
    drop_all(stage)
    stage.rejoin("n1")
    stage.fire("n1")
    for parcel in stage.underway("n1", "n2"):
        if isinstance(parcel.packet, Updates):
            stage.drop(parcel)
    stage.settle()
    stage.provide("n2", b"nothing")  # n2 has not got it
    stage.settle(ticks=40)
    given = [what.state for who, what in stage.log if isinstance(what, StateGiven)]
    assert b"nothing" not in given  # it would never hear of its own event again


# --- what no honest member sends ------------------------------------------------------------


@pytest.mark.parametrize("entry", [5, 7 << 32 | 5])
def test_an_own_event_that_never_was_does_not_end_us(entry: int) -> None:
    stage = causal("n1 n2 n3")
    with suppress(PeerError):
        stage.inject(N2, "n1", Updates(GROUP, [(update(1, {0: entry, 1: 1}, 1), 1)]))
    rounds_alone(stage, "n1", 30)
    assert stage.submit("n1", [b"a"]) is not None


def test_a_welcome_beyond_what_we_made_does_not_end_us() -> None:
    stage = Stage.of("causal", "n1 n2", ownership="fixed")
    clock = (1 << 53, *[0] * (TICKETS - 1))
    with suppress(PeerError):
        stage.inject(N2, "n1", Welcome(GROUP, clock, clock))
    drop_all(stage)
    rounds_alone(stage, "n1", 25)
    assert stage.submit("n1", [b"a"]) is not None


def test_differences_do_not_add_up_to_an_entry_that_cannot_be() -> None:
    codec = Codec(FAMILIES.values())
    thin = Thin(1, [2, (1 << 54) - 1] * 3, N2, 1, [b"x"], 1, 0, 1)
    body = codec.encode(ThinUpdates(GROUP, (0, 1, *[0] * (TICKETS - 2)), [thin]))
    with pytest.raises(PeerError):
        codec.decode(body)


def test_a_rumour_without_a_number_is_refused() -> None:
    stage = Stage.of("gossip", "n1 n2")
    with pytest.raises(PeerError):
        stage.inject(N2, "n1", Gossip(GROUP, [(Rumour(N2, 0, [b"x"], 1), 1)]))


def test_a_number_far_ahead_costs_no_memory() -> None:
    """1 << 2**39 is 64 GB."""
    stage = Stage.of("gossip", "n1 n2")
    for number in (1 << 39, 1):
        with suppress(PeerError):
            stage.inject(N2, "n1", Gossip(GROUP, [(Rumour(N2, number, [b"x"], 1), 1)]))


def test_events_that_never_were_are_not_reported_for_days() -> None:
    stage = causal("n1 n2 n3")
    with suppress(PeerError):
        stage.inject(N2, "n1", Updates(GROUP, [(update(1, {1: 1, 2: (1 << 32) - 1}, 1), 1)]))
    rounds_alone(stage, "n1", 100)
    before = lost(stage, "n1")
    rounds_alone(stage, "n1", 10)
    assert lost(stage, "n1") == before


# --- what it costs --------------------------------------------------------------------------


def counted(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> list[None]:
    """One entry for each call of a method from now on."""
    calls: list[None] = []
    method = getattr(kind, name)

    def counting(*arguments: Any) -> Any:
        calls.append(None)
        return method(*arguments)

    monkeypatch.setattr(kind, name, counting)
    return calls


def test_doing_without_one_event_is_no_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    """One event is missing, and nearly all that `waiting` allows waits for it."""
    stage = causal("n1 n2 n3")
    updates = [(update(1, {1: number}, number), 1) for number in range(2, 4002)]
    for at in range(0, len(updates), 50):
        stage.inject(N2, "n1", Updates(GROUP, updates[at : at + 50]))
    looks = counted(monkeypatch, CausalOrder, "__contains__")
    rounds_alone(stage, "n1", 20)
    assert len(delivered(stage, "n1")) == len(updates)
    assert len(looks) < 5 * len(updates)


def test_asking_for_everything_many_times_costs_no_more_than_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = causal("n1 n2", recovery_buffer=10_000)
    buffer = member(stage, "n1").recovery.buffer
    for number in range(1, 10_001):
        buffer.add(update(1, {1: number}, number), 0)
    looks = counted(monkeypatch, RecoveryBuffer, "all")
    stage.inject(N2, "n1", Recover(GROUP, [(1, 0, (1 << 54) - 1)] * 512))
    assert len(looks) <= 1


def test_a_cluster_with_a_reader_can_be_explored() -> None:
    family = FAMILIES["causal"]
    given = {"hops": 0, "tickets": 1, "join_wait": "1ms", "ownership": "fixed"}
    options = options_for(family, given)
    report = explore(setting(family, 2, options), Bounds(submissions={"n1": 1}, timers=1), check)
    assert report.broken is None

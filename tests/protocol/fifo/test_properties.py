"""What holds for a fifo group under any schedule that the three channels allow.

A schedule is a list of small integers, each of which chooses something to do on a stage: submit,
deliver, drop, double, tick, crash, restart, cut, mend. Then everything is mended and the group
comes to rest, and what was delivered must be right. The schedules are the same in every run of
the tests, so that a failure is there for everybody.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from random import Random
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import Phase, given, settings

from ordercast.errors import PeerError
from ordercast.kernel.family import Family, Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, LINK, Step, Timer
from ordercast.protocol.fifo import FAMILY
from ordercast.protocol.fifo.packets import Alive, Data, Start
from ordercast.testing.stage import Stage
from ordercast.types import Event, NodeId, Payloads

NAMES = ("n1", "n2", "n3")
QUIET_TICKS = 30  # seven times the suspicion limit, thrice the patience of a relay
ROOMY: dict[str, Any] = {"window": 3}
TIGHT: dict[str, Any] = {"window": 2, "window_size": 20, "retain": 3, "retain_size": 40}

VERBS = (
    *("submit",) * 4,
    *("deliver",) * 6,
    *("path",) * 3,
    *("tick",) * 5,
    *("drop", "double", "settle", "cut", "one-way", "mend"),
)
LIVES = ("crash", "restart")

Move = tuple[str, int, int]


def schedules(verbs: Sequence[str]) -> st.SearchStrategy[list[Move]]:
    number = st.integers(0, 11)
    moves = st.tuples(st.sampled_from(verbs), number, number)
    return st.one_of(st.lists(moves, max_size=40), st.lists(moves, min_size=60, max_size=150))


steady = schedules(VERBS)  # nobody dies
deadly = schedules((*VERBS, "crash"))
stormy = schedules((*VERBS, *LIVES))


def on_stage(options: dict[str, Any], family: Family = FAMILY) -> Stage:
    stage = Stage.of(family, " ".join(NAMES), suspicion_limit="200ms", **options)
    stage.settle(ticks=1)
    return stage


def move(stage: Stage, verb: str, a: int, b: int) -> None:
    """One move. What makes no sense now is left out, so that every list is a schedule."""
    name, other = NAMES[a % 3], NAMES[(a % 3 + 1 + b % 2) % 3]
    alive = stage.actors[name].alive
    ready = [p for p in stage.underway() if p.path not in stage.cuts]
    if verb == "submit" and alive:
        stage.submit(name, [b"x" * (b + 1)])
    elif verb == "deliver" and ready:
        chosen = ready[(12 * a + b) % len(ready)]
        link = [p for p in ready if p.channel is LINK and p[1:3] == chosen[1:3]]
        stage.deliver(link[0] if chosen.channel is LINK else chosen)
    elif verb == "path":
        for parcel in stage.underway(name, other):
            if parcel in ready:
                stage.deliver(parcel)
    elif verb in ("drop", "double"):
        loose = [p for p in stage.underway() if p.channel is DATAGRAM]
        if verb == "drop":
            loose += [p for p in stage.underway() if stage.node(p.sender.name) != p.sender]
        if loose:
            getattr(stage, verb)(loose[(12 * a + b) % len(loose)])
    elif verb == "tick" and alive:
        stage.fire(name)
    elif verb == "settle":
        stage.settle(ticks=b % 3)
    elif verb == "cut" or verb == "one-way":
        stage.cut(name, other, one_way=verb == "one-way")
    elif verb == "mend":
        stage.mend(name, other)
    elif verb == "crash" and alive and sum(each.alive for each in stage.actors.values()) > 1:
        stage.crash(name)
    elif verb == "restart" and not alive:
        stage.start(name)


def play(stage: Stage, schedule: list[Move]) -> Stage:
    for verb, a, b in schedule:
        move(stage, verb, a, b)
    return stage


def come_to_rest(stage: Stage) -> Stage:
    stage.cuts.clear()
    stage.settle(ticks=QUIET_TICKS)
    return stage


def delivered(stage: Stage, node: NodeId) -> list[tuple[NodeId, int]]:
    return [(event.origin, event.number) for event in stage.deliveries(node)]


def lost(stage: Stage, node: NodeId) -> set[tuple[object, object]]:
    return {(note.columns["origin"], note.columns["number"]) for note in stage.notes(node, "lose")}


def stayers(stage: Stage) -> list[NodeId]:
    """Those who were there from the beginning to the end."""
    actors = stage.actors.values()
    return [actor.node for actor in actors if actor.alive and not actor.node.incarnation]


def everybody(stage: Stage) -> list[NodeId]:
    """Every incarnation that anything happened to."""
    return list(dict.fromkeys(who for who, _ in stage.log))


# --- order, once, agreement -------------------------------------------------------------------


@settings(deadline=None, derandomize=True, max_examples=150)
@given(stormy, st.sampled_from([ROOMY, TIGHT]))
def test_each_senders_events_are_delivered_in_order_and_once(
    schedule: list[Move], options: dict[str, Any]
) -> None:
    stage = come_to_rest(play(on_stage(options), schedule))
    for node in everybody(stage):
        for name in NAMES:
            numbers = [number for origin, number in delivered(stage, node) if origin.name == name]
            assert numbers == sorted(set(numbers))


@settings(deadline=None, derandomize=True, max_examples=150)
@given(steady)
def test_without_overflow_every_accepted_event_reaches_every_member(schedule: list[Move]) -> None:
    stage = come_to_rest(play(on_stage(ROOMY), schedule))
    made = {pair for node in stayers(stage) for pair in delivered(stage, node) if pair[0] == node}
    for node in stayers(stage):
        assert set(delivered(stage, node)) == made
        assert not lost(stage, node)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(deadly)
def test_survivors_deliver_the_same(schedule: list[Move]) -> None:
    stage = come_to_rest(play(on_stage(ROOMY), schedule))
    sets = [set(delivered(stage, node)) for node in stayers(stage)]
    assert all(each == sets[0] for each in sets)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(stormy)
def test_events_that_a_survivor_lacks_were_reported_as_lost(schedule: list[Move]) -> None:
    stage = come_to_rest(play(on_stage(TIGHT), schedule))
    heard = {pair for node in stayers(stage) for pair in delivered(stage, node)}
    for node in stayers(stage):
        missing = heard - set(delivered(stage, node))
        assert {(origin.name, number) for origin, number in missing} <= lost(stage, node)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(stormy)
def test_after_the_faults_every_member_accepts_and_sees_all_members(schedule: list[Move]) -> None:
    stage = come_to_rest(play(on_stage(TIGHT), schedule))
    for name, actor in stage.actors.items():
        if actor.alive:
            assert stage.accepts(name)
            member: Any = stage.machine(name)
            others = {other.node for other in stage.actors.values() if other.alive}
            assert set(member.peers.present) == others - {actor.node}


# --- limits -----------------------------------------------------------------------------------


class Watched:
    """A member whose limits are looked at after every call of a door."""

    def __init__(self, machine: Any) -> None:
        self.inner = machine
        self.groups, self.takes = machine.groups, machine.takes
        self.present: tuple[NodeId, ...] = ()

    def accepts(self, group: str, now: int) -> bool:
        return bool(self.inner.accepts(group, now))

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        event: Event = self.inner.submit(step, group, payloads, size)
        options, unstable = self.inner.options, self.inner.unstable
        assert unstable.count <= options.window
        assert unstable.size < 2 * options.window_size
        self.look()
        return event

    def start(self, step: Step) -> None:
        self.inner.start(step)
        self.look()

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        self.inner.receive(step, sender, packet)
        self.look()

    def expire(self, step: Step, timer: Timer) -> None:
        self.inner.expire(step, timer)
        self.look()

    def on(self, step: Step, given: Input) -> None:
        self.inner.on(step, given)

    def look(self) -> None:
        options = self.inner.options
        for stream in self.inner.streams.by_origin.values():
            assert stream.held.count <= options.retain
            assert stream.held.size <= options.retain_size
        self.peers = self.inner.peers


class Shadowed(Watched):
    """Before every call the member is copied; the copy gets the same call and must agree."""

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        shadow, twin = self.shadow(step)
        event: Event = self.inner.submit(step, group, payloads, size)
        assert shadow.submit(twin, group, payloads, size) == event
        self.agree(step, twin)
        return event

    def start(self, step: Step) -> None:
        shadow, twin = self.shadow(step)
        self.inner.start(step)
        shadow.start(twin)
        self.agree(step, twin)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        shadow, twin = self.shadow(step)
        self.inner.receive(step, sender, packet)
        shadow.receive(twin, sender, packet)
        self.agree(step, twin)

    def expire(self, step: Step, timer: Timer) -> None:
        shadow, twin = self.shadow(step)
        self.inner.expire(step, timer)
        shadow.expire(twin, timer)
        self.agree(step, twin)
        self.inner = shadow  # the copy goes on in the member's place

    def shadow(self, step: Step) -> tuple[Any, Step]:
        return copy.deepcopy(self.inner), Step(step.now)

    def agree(self, step: Step, twin: Step) -> None:
        for part in Step.__slots__:
            assert getattr(step, part) == getattr(twin, part)
        self.look()


def wrapped(wrapper: type[Watched]) -> Family:
    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
    ) -> list[Machine]:
        return [wrapper(machine) for machine in FAMILY.build(me, plans, chance, records)]

    return FAMILY._replace(build=build)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(stormy)
def test_no_window_and_no_buffer_goes_over_its_limit(schedule: list[Move]) -> None:
    come_to_rest(play(on_stage(TIGHT, wrapped(Watched)), schedule))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(stormy)
def test_a_deep_copy_of_a_member_continues_in_the_same_way(schedule: list[Move]) -> None:
    shadowed = play(on_stage(TIGHT, wrapped(Shadowed)), schedule)
    assert shadowed.log == play(on_stage(TIGHT), schedule).log


@settings(deadline=None, derandomize=True, max_examples=40)
@given(stormy)
def test_the_same_schedule_gives_the_same_run(schedule: list[Move]) -> None:
    first, second = (come_to_rest(play(on_stage(TIGHT), schedule)) for _ in range(2))
    assert first.log == second.log


@settings(deadline=None, derandomize=True, max_examples=40)
@given(stormy)
def test_a_group_at_rest_sends_nothing_but_heartbeats(schedule: list[Move]) -> None:
    stage = come_to_rest(play(on_stage(TIGHT), schedule))
    before = len(stage.log)
    stage.settle(ticks=20)
    said = [what for _, what in stage.log[before:]]
    assert all(isinstance(getattr(what, "packet", None), Alive | None) for what in said)


# --- what a peer may not do -------------------------------------------------------------------


def state(machine: Machine) -> str:
    """All that a member knows, as text."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return [(plain(k), plain(v)) for k, v in value.items()]
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        if isinstance(value, msgspec.Struct):
            return repr(value)
        if isinstance(value, frozenset):
            return sorted(map(repr, value))
        slots = [s for kind in type(value).__mro__ for s in getattr(kind, "__slots__", ())]
        names = [*getattr(value, "__dict__", ()), *slots]
        if names and type(value).__module__.startswith("ordercast"):
            return [(n, plain(getattr(value, n))) for n in names if hasattr(value, n)]
        return repr(value)

    return repr(plain(machine))


class Foreign(Packet, tag="elsewhere.foreign"):
    pass


nodes = st.builds(NodeId, st.sampled_from([*NAMES, "stranger"]), st.sampled_from([0, 1, 2]))
counts = st.sampled_from([0, 1, 2, 3, 50, (1 << 40) - 1])
packets = st.one_of(
    st.just(Foreign("g")),
    st.builds(Data, st.just("g"), nodes, counts.filter(bool), st.just([b"x"]), st.just(1)),
    st.builds(Start, st.just("g"), nodes, counts),
    st.builds(
        Alive,
        st.just("g"),
        st.lists(st.tuples(nodes, counts), max_size=4),
        st.lists(nodes, max_size=4),
        st.booleans(),
    ),
)


@settings(deadline=None, derandomize=True, max_examples=60, phases=[Phase.generate])
@given(steady, st.lists(st.tuples(nodes, packets), min_size=1, max_size=6))
def test_a_rejected_packet_changes_nothing(
    schedule: list[Move], said: list[tuple[NodeId, Packet]]
) -> None:
    stage = play(on_stage(ROOMY), schedule[:20])
    for sender, packet in said:
        before = state(stage.machine("n1"))
        try:
            stage.inject(sender, "n1", packet)
        except PeerError:
            assert state(stage.machine("n1")) == before
        else:
            assert sender.name in ("n2", "n3")


def test_a_packet_of_another_family_is_rejected_and_changes_nothing() -> None:
    stage = on_stage(ROOMY)
    before = state(stage.machine("n1"))
    with pytest.raises(PeerError, match="which fifo does not know"):
        stage.inject(NodeId("n2"), "n1", Foreign("g"))
    assert state(stage.machine("n1")) == before


@pytest.mark.parametrize("sender", [NodeId("stranger"), NodeId("n1")])
def test_a_sender_that_is_no_peer_is_refused(sender: NodeId) -> None:
    stage = on_stage(ROOMY)
    before = state(stage.machine("n1"))
    with pytest.raises(PeerError, match="is not a member"):
        stage.inject(sender, "n1", Alive("g", [], []))
    assert state(stage.machine("n1")) == before

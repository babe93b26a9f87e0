"""What applications do beside sending, at every moment: full, leave, retire, join, give a state.

Each family here has small options and two or three members, and some thousand states. Each kind of
input has a mutant that only a schedule with that input shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal

import pytest

from ordercast.check.laws import check
from ordercast.errors import UsageError
from ordercast.kernel.family import Family, FoundingRule, Plan, machine_per_group
from ordercast.kernel.inputs import Acquainted, Backpressure, Input, Leave, Retire
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Heard, Step
from ordercast.protocol.cluster.causal_member import CausalMember
from ordercast.protocol.cluster.gossip import SeenRumours, Spreading
from ordercast.protocol.cluster.member import GossipMember
from ordercast.protocol.cluster.moving import Moving
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.fifo.building import machines
from ordercast.protocol.fifo.handover import StateHandover
from ordercast.protocol.fifo.member import FifoMember
from ordercast.protocol.fifo.open_members import OpenMembers
from ordercast.protocol.fifo.packets import Data, State
from ordercast.protocol.fifo.peers import Peer, Standing
from ordercast.protocol.fifo.stream import OriginStream
from ordercast.scenario.file import options_for
from ordercast.sim.explore import Bounds, Present, Report, Setting, explore, replay
from ordercast.sim.explore.search import anything
from ordercast.types import Event, NodeId, StateGiven

OPTIONS: dict[str, dict[str, Any]] = {
    "fifo": {"heartbeat": "50ms", "suspicion_limit": "100ms", "window": 1},
    "gossip": {"hops": 0},
    "causal": {"hops": 0, "tickets": 1, "updaters": ["n1"], "join_wait": "1ms"},
    "total": {
        "window": 1,
        "prompt_after": "20ms",
        "silence_limit": "20ms",
        "suspicion_limit": "40ms",
    },
}
ON_AND_OFF = Backpressure("g", True), Backpressure("g", False)
LEAVES = (Leave("g"),)
MEETS_N1 = (Acquainted("g", ("n1",)),)
N1_SENDS, N1_SENDS_TWICE = {"n1": 1}, {"n1": 2}


def group_of(family: Family, members: int, more: dict[str, Any] | None = None, **rules: Any) -> Any:
    names = tuple(f"n{number}" for number in range(1, members + 1))
    options = options_for(family, OPTIONS[family.name] | (more or {}))
    parts = ((family, (Plan("g", names, options),)),)
    return Setting(names, parts, **{"clocks": True, "latest_only": True, "rounds": 40, **rules})


def open_group_of(family: Family, more: dict[str, Any] | None = None, **rules: Any) -> Setting:
    """n1 founds it. n2 is there, joins at any time, and hears of n1 at any time after that."""
    options = options_for(family, OPTIONS[family.name] | (more or {}))
    plans = tuple(
        Plan("g", (name,), options, False, FoundingRule(founds=name == "n1"))
        for name in ("n1", "n2")
    )
    return Setting(
        ("n1", "n2"),
        ((family, plans),),
        clocks=True,
        latest_only=True,
        rounds=40,
        inputs={"n2": MEETS_N1},
        joins={"n2": ("g",)},
        **rules,
    )


def assert_sound(report: Report, states: int) -> None:
    assert report.broken is None, str(report)
    assert report.complete, str(report)
    assert report.states > states, str(report)


# --- full, and leaving -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "timers", "rounds", "states"),
    [("fifo", 2, 40, 2000), ("causal", 2, 40, 300), ("total", 1, 8, 700)],
)
def test_a_reader_is_slow_at_every_moment(
    family: str, timers: int, rounds: int, states: int
) -> None:
    where = group_of(FAMILIES[family], 2, inputs={"n2": ON_AND_OFF}, rounds=rounds)
    bounds = Bounds(submissions=N1_SENDS_TWICE, inputs=2, timers=timers, max_states=5000)
    report = explore(where, bounds, check, settle=True)
    assert_sound(report, states)


@pytest.mark.parametrize(
    ("family", "members", "states"), [("fifo", 3, 500), ("causal", 3, 100), ("total", 2, 150)]
)
def test_any_member_leaves_at_every_moment(family: str, members: int, states: int) -> None:
    where = group_of(FAMILIES[family], members, inputs=LEAVES)
    timers = 0 if family == "fifo" else 1
    bounds = Bounds(submissions=N1_SENDS, inputs=1, timers=timers, max_states=5000)
    report = explore(where, bounds, check, settle=True)
    assert_sound(report, states)


# --- joining, and a state that is given --------------------------------------------------------


def remember(state: bytes, heard: Heard) -> bytes:
    """An application whose state is the list of what it has delivered."""
    if isinstance(heard, Event):
        return state + f"{heard.origin}:{heard.number} ".encode()
    if isinstance(heard, StateGiven) and heard.state is not None:
        return heard.state
    return state


def none_is_missing_or_twice(present: Sequence[Present]) -> str | None:
    """What an application has of n1, in its state or delivered after it, begins with the first."""
    for member in present:
        has = member.states.get("g", b"").decode().split()
        if has != [f"n1:{number}" for number in range(1, len(has) + 1)]:
            return f"{member.node} has {' '.join(has)}"
    return None


JOINING = {
    "fifo": ({"state": True}, Bounds(submissions=N1_SENDS, inputs=1, joins=1, timers=2), 500),
    "causal": (
        {"state": True},
        Bounds(submissions=N1_SENDS_TWICE, inputs=1, joins=1, timers=1),
        500,
    ),
    "total": ({}, Bounds(submissions=N1_SENDS_TWICE, inputs=1, joins=1, timers=1), 150),
}


@pytest.mark.parametrize("family", JOINING)
def test_a_member_joins_at_every_moment_and_is_given_the_state(family: str) -> None:
    more, bounds, states = JOINING[family]
    where = open_group_of(FAMILIES[family], more, application=remember)
    had: set[bytes] = set()

    def look(present: Sequence[Present]) -> str | None:
        had.update(member.states.get("g", b"") for member in present if member.node.name == "n2")
        return none_is_missing_or_twice(present)

    report = explore(where, bounds, check, settle=True, invariant=look)
    assert_sound(report, states)
    assert b"n1:1 " in had


def test_a_member_leaves_and_joins_again_at_every_moment() -> None:
    rules: dict[str, Any] = {"inputs": {"n2": LEAVES}, "joins": {"n2": ("g",)}}
    bounds = Bounds(submissions=N1_SENDS, inputs=1, joins=2, timers=1, max_states=6000)
    report = explore(group_of(FAMILIES["causal"], 2, **rules), bounds, check, settle=True)
    assert_sound(report, 200)


def test_what_only_a_new_incarnation_can_join_is_not_joined_again() -> None:
    where = group_of(FAMILIES["fifo"], 2, inputs={"n2": LEAVES}, joins={"n2": ("g",)})
    leave = f"n2: {Leave('g')}"
    again = replay(where, ["n2 joins g", leave, "n2 joins g"], check)
    kinds = [row.kind for row in again.trace.rows if row.process == "n2"]
    assert kinds.count("join") == 1


# --- retiring ----------------------------------------------------------------------------------

LEASED = {"updaters": [], "ownership": "leased", "guards": 1, "lease": "200ms", "founder": "n1"}


def leased(family: Family) -> Setting:
    """n1 owns the only ticket, which n2 wants too."""
    family = family._replace(may_send=lambda plan, name: name == "n1")  # the prelude waits for it
    rules: dict[str, Any] = {"together": True, "timed": True, "rounds": 10}
    return group_of(family, 2, LEASED, inputs={"n1": (Retire("g"), *LEAVES)}, **rules)


def test_an_owner_retires_and_leaves_at_every_moment() -> None:
    bounds = Bounds(submissions=0, inputs=2, timers=1, max_states=6000)
    report = explore(leased(FAMILIES["causal"]), bounds, check, settle=True)
    assert_sound(report, 0)


# --- what only such a schedule shows -----------------------------------------------------------


class DropsWhenFull(FifoMember):
    """Does not deliver what comes while its application is full."""

    def _deliver(self, step: Step, stream: OriginStream, data: Data) -> None:
        if not self.is_full:
            super()._deliver(step, stream, data)


class LeavesItsEvents(FifoMember):
    """Says goodbye by datagrams, which overtake its events; the others wait for nothing more."""

    def on(self, step: Step, given: Input) -> None:
        super().on(step, given)
        if isinstance(given, Leave):
            step.sent = [(to, packet, DATAGRAM, tokens) for to, packet, _, tokens in step.sent]

    def _receive_data(self, step: Step, peer: Peer, data: Data) -> None:
        if peer.standing is not Standing.LEFT:
            super()._receive_data(step, peer, data)

    def _relay(self, step: Step) -> None:
        pass


class ForgetsWhenItJoinsAgain(GossipMember):
    """Takes what it has seen for new when it starts a second time."""

    def start(self, step: Step) -> None:
        super().start(step)
        self.seen = SeenRumours()
        hops, most, history = self.settings.hops, self.settings.events_per_message, 1000
        self.spreading = Spreading(hops, most, history, Random(0))


class IgnoresTheCut(StateHandover):
    """Delivers what comes early, though the state that it is given may contain that."""

    def take(self, member: FifoMember, step: Step, peer: Peer, packet: State) -> bool:
        is_taken = super().take(member, step, peer, packet)
        for stream in member.streams.by_origin.values():
            stream.covered_up_to = 0
        return is_taken


class WithoutTheCut(OpenMembers):
    def __init__(self, me: NodeId, plan: Plan) -> None:
        super().__init__(me, plan)
        self.handover = IgnoresTheCut(self.handover.taking is not None)


class RetiresInSilence(Moving):
    """Gives its ticket back when it retires, and tells its application nothing of that."""

    has_retired = False

    def on(self, step: Step, given: Input) -> bool:
        self.has_retired = self.has_retired or isinstance(given, Retire)
        return super().on(step, given)

    def _end(self, step: Step, cause: Literal["released", "disconnected"]) -> None:
        if self.has_retired:
            self._lease = self.index = None
        else:
            super()._end(step, cause)


def retiring_in_silence(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    machines = FAMILIES["causal"].build(me, plans, chance, records)
    for machine in machines:
        assert isinstance(machine, CausalMember)
        machine.ownership.__class__ = RetiresInSilence
    return machines


def mutant(family: str, build: Any) -> Family:
    build = machine_per_group(build) if isinstance(build, type) else build
    return FAMILIES[family]._replace(build=build)


LEAVES_AND_RETURNS: dict[str, Any] = {"inputs": {"n2": LEAVES}, "joins": {"n2": ("g",)}}
CAUGHT: dict[str, tuple[Callable[[Family], Setting], str, Any, dict[str, Any], str]] = {
    "full": (
        lambda family: group_of(family, 2, inputs={"n2": ON_AND_OFF}),
        *("fifo", DropsWhenFull, {"inputs": 1}, "agreement"),
    ),
    "leave": (
        lambda family: group_of(family, 3, inputs={"n1": LEAVES}),
        *("fifo", LeavesItsEvents, {"inputs": 1}, "agreement"),
    ),
    "join": (
        lambda family: group_of(family, 2, **LEAVES_AND_RETURNS),
        *("gossip", ForgetsWhenItJoinsAgain),
        *({"inputs": 1, "joins": 2, "duplicates": 1}, "no-duplication"),
    ),
    "state": (
        lambda family: open_group_of(family, {"state": True}, application=remember),
        *(
            "fifo",
            machines(open_as=WithoutTheCut),
            {"inputs": 1, "joins": 1, "timers": 2},
            "the invariant",
        ),
    ),
    "retire": (
        leased,
        *("causal", retiring_in_silence, {"inputs": 1, "timers": 1}, "ticket-uniqueness"),
    ),
}


@pytest.mark.parametrize("kind", CAUGHT)
def test_a_bug_that_only_this_input_shows_is_found(kind: str) -> None:
    where, family, build, given, law = CAUGHT[kind]
    broken_family = mutant(family, build)

    def search(family: Family, **bounds: int) -> Report:
        return explore(
            where(family),
            Bounds(submissions=N1_SENDS, **bounds),
            check,
            settle=True,
            invariant=none_is_missing_or_twice if kind == "state" else anything,
        )

    report = search(broken_family, **given)
    assert report.broken is not None, report
    assert report.broken.verdict is not None, report
    assert report.broken.verdict.law == law, report
    without = {name: number for name, number in given.items() if name not in ("inputs", "joins")}
    assert search(broken_family, **without).broken is None  # nothing but that input shows it
    if law != "the invariant":
        again = replay(where(broken_family), report.broken.schedule, check, settle=True)
        assert law in again.broken


# --- what a setting may say --------------------------------------------------------------------


def test_a_setting_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="n9 takes no part: the members are n1, n2"):
        group_of(FAMILIES["fifo"], 2, inputs={"n9": LEAVES})
    with pytest.raises(UsageError, match="nobody can join 'h'"):
        group_of(FAMILIES["fifo"], 2, joins={"n2": ("h",)})
    with pytest.raises(UsageError, match="clocks that are together"):
        group_of(FAMILIES["fifo"], 2, timed=True)

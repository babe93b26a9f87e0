"""Gossip groups and causal clusters that anybody may join: nobody lists their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ordercast.kernel.family import FoundingRule, Plan
from ordercast.kernel.inputs import Acquainted
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.protocol.cluster.packets import Ask
from ordercast.protocol.cluster.partial_view import MOST_CONTACTS
from ordercast.protocol.cluster.running import Running
from ordercast.protocol.cluster.sampler import MOST_NAMED, Roster, RosterKind
from ordercast.protocol.cluster.updaters import founder_of, objection
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.tickets.leased import Leased
from ordercast.scenario import chance
from ordercast.scenario.file import options_for
from ordercast.testing import simulate
from ordercast.testing.stage import Stage
from ordercast.types import Joined, NodeId, StateGiven, StateWanted, Waiting

ROOT = Path(__file__).resolve().parents[3]
FOUNDS, WAITS = FoundingRule(founds=True), FoundingRule()
QUICK = {"join_wait": "50ms", "hops": 1, "round": "50ms"}
PATIENT = 8


class OpenStage(Stage):
    """Every member has a plan of its own, with nobody in it but itself."""

    def __init__(self, family: str, entries: Mapping[str, FoundingRule], **options: Any) -> None:
        self.entries = dict(entries)
        self.own = options_for(FAMILIES[family], {**options})
        super().__init__(FAMILIES[family], [Plan("g", tuple(entries), self.own, formed=False)])

    def build(self, node: NodeId, records: Sequence[Packet]) -> list[Machine]:
        plan = Plan("g", (node.name,), self.own, formed=False, entry=self.entries[node.name])
        draw = chance.stream(self.seed, "member", self.family.name, node)
        return self.family.build(node, (plan,), draw, records)

    def enter(self, name: str, *knows: str) -> NodeId:
        self.start(name)
        self.give(name, Acquainted("g", knows))
        return self.node(name)

    def heard(self, node: NodeId, kind: type) -> list[Any]:
        return [what for who, what in self.log if who == node and isinstance(what, kind)]

    def joined(self, node: NodeId) -> list[str]:
        return [str(one.member) for one in self.heard(node, Joined)]


def causal(entries: Mapping[str, FoundingRule], **options: Any) -> OpenStage:
    return OpenStage("causal", entries, **{**QUICK, "tickets": 2, **options})


def is_running(stage: Stage, name: str) -> bool:
    machine: Any = stage.machine(name)
    return isinstance(machine.phase, Running)


def tickets(stage: Stage, name: str) -> Leased:
    machine: Any = stage.machine(name)
    part = machine.ownership.part
    assert isinstance(part, Leased)
    return part


def test_one_that_was_alone_asks_first_whether_others_are_in_the_group() -> None:
    was_alone = FoundingRule(founds=True, last=("n1",), asks=True)
    stage = causal({"n1": was_alone, "n2": FOUNDS})
    stage.enter("n2")
    stage.settle(ticks=2)
    assert is_running(stage, "n2")
    stage.enter("n1", "n2")
    assert not is_running(stage, "n1")
    stage.settle(ticks=40)
    assert is_running(stage, "n1")
    assert tickets(stage, "n1").cluster == tickets(stage, "n2").cluster != 0


def test_one_that_was_alone_founds_the_group_if_nobody_answers() -> None:
    was_alone = FoundingRule(founds=True, last=("n1",), asks=True)
    stage = causal({"n1": was_alone, "n2": FOUNDS})
    stage.cut("n1", "n2")
    stage.enter("n1", "n2")
    assert not is_running(stage, "n1")
    stage.settle(ticks=PATIENT)
    assert is_running(stage, "n1")


# --- gossip -------------------------------------------------------------------------------------


def test_a_newcomer_that_nobody_has_heard_of_gets_and_sends_rumours() -> None:
    stage = OpenStage("gossip", {"n1": FOUNDS, "n2": WAITS, "n3": WAITS}, round="50ms")
    n1 = stage.enter("n1")
    assert stage.joined(n1) == ["n1"]
    n2 = stage.enter("n2", "n1")
    assert stage.joined(n2) == []
    stage.settle(ticks=2)
    assert stage.joined(n2) == ["n2", "n1"]
    n3 = stage.enter("n3", "n1")
    stage.settle(ticks=4)
    assert sorted(stage.joined(n1)) == ["n1", "n2", "n3"]
    stage.submit("n3", [b"hello"])
    stage.settle(ticks=4)
    assert [len(stage.deliveries(node)) for node in (n1, n2, n3)] == [1, 1, 1]


@pytest.mark.parametrize("family", ["gossip", "causal"])
def test_rosters_and_acquaintances_of_ghosts_are_bounded(family: str) -> None:
    stage = OpenStage(family, {"n1": FOUNDS}, **({} if family == "gossip" else {"tickets": 2}))
    stage.enter("n1")
    machine: Any = stage.machine("n1")
    for part in range(50):
        ghosts = [NodeId(f"ghost{part}-{number}") for number in range(MOST_NAMED)]
        stage.give("n1", Acquainted("g", tuple(f"told-{one.name}" for one in ghosts)))
        roster = Roster(RosterKind.WELCOME, [(ghost, 0) for ghost in ghosts], [])
        stage.inject(ghosts[0], "n1", machine.about_members(roster))
        for parcel in stage.underway():
            stage.drop(parcel)
    assert len(machine.sampler.known()) == 20
    assert len(machine.sampler._contacts.names) == MOST_CONTACTS
    for _ in range(2000):
        stage.fire("n1", "round")
        for parcel in stage.underway():
            stage.drop(parcel)
    assert machine.presence.members() == []


def test_where_members_are_listed_acquaintances_change_nothing() -> None:
    stage = Stage.of("gossip", "n1 n2", members="partial")
    machine: Any = stage.machine("n1")
    stage.give("n1", Acquainted("g", ("stranger",)))
    assert machine.sampler._contacts.names == ("n2",)


# --- causal: who begins -------------------------------------------------------------------------


def test_a_founder_begins_at_once_and_others_are_welcomed() -> None:
    stage = causal({"n1": FOUNDS, "n2": WAITS})
    n1 = stage.enter("n1")
    assert stage.joined(n1) == ["n1"]
    stage.seek("n1", True)
    stage.settle(ticks=3)
    for word in (b"a", b"b"):
        assert stage.submit("n1", [word]) is not None
        stage.settle(ticks=3)
    n2 = stage.enter("n2", "n1")
    stage.settle(ticks=PATIENT)
    assert stage.joined(n2) == ["n2", "n1"]
    assert [event.payloads for event in stage.deliveries(n2)] == [[b"a"], [b"b"]]
    stage.settle(ticks=40)
    assert tickets(stage, "n2").cluster == tickets(stage, "n1").cluster != 0


def test_who_may_not_found_waits_and_says_for_whom() -> None:
    stage = causal({"n1": WAITS, "n2": WAITS})
    n1, _ = stage.enter("n1", "n2"), stage.enter("n2", "n1")
    stage.settle(ticks=100)
    assert not is_running(stage, "n1")
    assert tickets(stage, "n1").cluster == 0
    (waiting,) = stage.heard(n1, Waiting)
    assert waiting.on == ("n2",)
    assert "nobody known here is in the group" in waiting.why


def test_a_newcomer_is_given_the_state() -> None:
    stage = causal({"n1": FOUNDS, "n2": WAITS}, state=True)
    n1 = stage.enter("n1")
    n2 = stage.enter("n2", "n1")
    for _ in range(PATIENT):
        if stage.heard(n1, StateWanted):
            break
        stage.fire("n2")
        stage.settle()
    stage.provide("n1", b"the state")
    stage.settle()
    assert [given.state for given in stage.heard(n2, StateGiven)] == [b"the state"]
    assert stage.joined(n2)[0] == "n2"


def test_a_newcomer_waits_for_an_application_that_is_slow_to_give_its_state() -> None:
    """It is asked once, however often the newcomer asks. The newcomer says for whom it waits."""
    stage = causal({"n1": FOUNDS, "n2": WAITS}, state=True)
    n1 = stage.enter("n1")
    n2 = stage.enter("n2", "n1")
    stage.settle(ticks=30 * PATIENT)
    assert not is_running(stage, "n2")
    assert not stage.heard(n2, StateGiven)
    assert [waiting.on for waiting in stage.heard(n2, Waiting)] == [("n1",)]
    assert len(stage.heard(n1, StateWanted)) == 1
    stage.provide("n1", b"the state")
    stage.settle()
    assert [given.state for given in stage.heard(n2, StateGiven)] == [b"the state"]


def test_so_many_begin_together_and_only_one_founds() -> None:
    expects = dict.fromkeys(("n1", "n2", "n3", "n4"), FoundingRule(expect=3))
    stage = causal(expects)
    stage.enter("n3", "n2")
    stage.enter("n2", "n3")
    stage.settle(ticks=50)
    assert not is_running(stage, "n2")
    stage.enter("n4", "n2")
    stage.enter("n1", "n2")
    stage.settle(ticks=100)
    assert all(is_running(stage, name) for name in expects)
    assert len({tickets(stage, name).cluster for name in expects} - {0}) == 1


def test_a_question_of_one_that_is_gone_costs_nothing() -> None:
    stage = causal({"n1": FOUNDS})
    stage.enter("n1")
    for number in range(200):
        stage.inject(NodeId(f"ghost{number}"), "n1", Ask("g"))
    machine: Any = stage.machine("n1")
    assert len(machine.newcomers._until) <= 64


def test_a_sole_member_that_restarts_goes_on_in_the_cluster_of_its_records() -> None:
    stage = causal({"n1": FOUNDS})
    stage.enter("n1")
    cluster = tickets(stage, "n1").cluster
    stage.crash("n1")
    stage.enter("n1")
    assert is_running(stage, "n1")
    assert tickets(stage, "n1").cluster == cluster != 0


def test_two_clusters_of_one_name_are_told_apart_and_the_smaller_one_is_told() -> None:
    stage = causal({"n1": FOUNDS, "n2": WAITS, "n3": WAITS, "n4": FOUNDS})
    stage.enter("n1")
    stage.enter("n2", "n1")
    stage.enter("n3", "n1")
    n4 = stage.enter("n4")
    stage.settle(ticks=60)
    ids = [tickets(stage, name).cluster for name in ("n1", "n2", "n3", "n4")]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    stage.inject(n4, "n1", tickets(stage, "n4")._our_ping(0))
    stage.settle(ticks=60)
    told = [(str(who), what.why) for who, what in stage.log if isinstance(what, Waiting)]
    assert len(told) == 1
    assert told[0][0] == "n4"
    assert f"{ids[0]:x}" in told[0][1]
    assert f"{ids[3]:x}" in told[0][1]


# --- what is asked of who joins -----------------------------------------------------------------


def test_fixed_owners_must_be_named_where_members_are_not() -> None:
    options = options_for(FAMILIES["causal"], {"ownership": "fixed"})
    found = objection("g", options, None)
    assert found is not None
    assert "name its updaters" in found.why
    assert objection("g", options_for(FAMILIES["causal"], {}), None) is None
    assert objection("g", options_for(FAMILIES["causal"], {"updaters": ["n9"]}), None) is None


def test_only_a_founder_remembers_its_leases_for_ever() -> None:
    options = options_for(FAMILIES["causal"], {})
    plan = Plan("g", ("n2",), options, formed=False)
    assert founder_of(plan._replace(entry=FOUNDS)) == "n2"
    assert founder_of(plan._replace(entry=FoundingRule(founder="n1"))) == "n1"
    assert founder_of(plan._replace(entry=WAITS)) == ""


# --- in simulations -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_members_that_join_and_leave_lose_nothing_while_the_network_does_not(seed: int) -> None:
    done = simulate(ROOT / "scenarios" / "open-causal.toml", seed)
    assert not done.broken
    assert not [row for row in done.trace.rows if row.kind == "lose"]
    made = sum(row.kind == "submit" for row in done.trace.rows)
    assert {len(done.delivered_by(name)) for name in ("n1", "n2", "n3", "n4")} == {made}
    assert len(done.delivered_by("n7")) > made // 2


@pytest.mark.parametrize("seed", range(1, 6))
def test_under_chaos_one_cluster_is_founded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    founded: list[int] = []
    bootstrap = Leased.bootstrap

    def counted(self: Leased, step: Any, cluster: int) -> None:
        founded.append(cluster)
        bootstrap(self, step, cluster)

    monkeypatch.setattr(Leased, "bootstrap", counted)
    done = simulate(ROOT / "scenarios" / "open-causal-chaos.toml", seed)
    assert done.outcome.error is None
    assert not done.broken
    assert len(founded) == 1
    assert sum(row.kind == "deliver" for row in done.trace.rows) > 500

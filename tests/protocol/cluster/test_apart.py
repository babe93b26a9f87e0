"""Two causal clusters of one name that were founded separately meet, and stay apart."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.cluster.test_open import FOUNDS, WAITS, OpenStage, causal, is_running, tickets

from ordercast.kernel.inputs import Acquainted
from ordercast.protocol.cluster.packets import (
    Ask,
    ClusterMembership,
    Digest,
    OfCluster,
    Recover,
    Recovered,
    Update,
    Updates,
    Welcome,
)
from ordercast.protocol.cluster.sampler import Roster, RosterKind
from ordercast.protocol.tickets.entries import entry_of
from ordercast.protocol.tickets.packets import Ping
from ordercast.sim.explore.fingerprint import encode
from ordercast.types import NodeId, Waiting

SMALL, LARGE = ("a1", "a2"), ("b1", "b2", "b3")
LATER = "c1"
B1 = NodeId("b1")
ENTRY = entry_of(1, 2)
LANDED = Update(0, (ENTRY, 0), B1, 1, [b"B"], 1)


def two_clusters(**options: Any) -> OpenStage:
    """Of two and of three members, which have not met. The first of each updates its own."""
    entries = {name: FOUNDS if name in ("a1", "b1") else WAITS for name in (*SMALL, *LARGE, LATER)}
    stage = causal(entries, lease="400ms", guards=1, **options)
    for first, *others in (SMALL, LARGE):
        stage.enter(first)
        for name in others:
            stage.enter(name, first)
    stage.settle(ticks=20)
    for name in ("a1", "b1"):
        stage.seek(name, True)
    stage.settle(ticks=20)
    return stage


def meet(stage: OpenStage) -> None:
    for name in (*SMALL, *LARGE):
        stage.give(name, Acquainted("g", (*SMALL, *LARGE)))


def said(stage: OpenStage, name: str) -> list[bytes]:
    events = stage.deliveries(stage.node(name))
    return [data for event in events for data in event.payloads]


def members(stage: OpenStage, name: str) -> list[str]:
    machine: Any = stage.machine(name)
    return sorted(str(one) for one in machine.presence.members())


def test_clusters_that_meet_mix_neither_events_nor_members_and_the_smaller_is_told() -> None:
    stage = two_clusters()
    meet(stage)
    for number in range(10):  # the clocks of one are beyond all that the other has made
        stage.submit("b1", [b"B%d" % number])
        stage.settle(ticks=3)
        if number < 2:
            stage.submit("a1", [b"A%d" % number])
    stage.settle(ticks=100)  # PeerError: one refused what another sent
    for name in SMALL:
        assert said(stage, name) == [b"A0", b"A1"]
        assert members(stage, name) == [one for one in SMALL if one != name]
    for name in LARGE:
        assert said(stage, name) == [b"B%d" % number for number in range(10)]
        assert members(stage, name) == [one for one in LARGE if one != name]
    told = [str(who) for who, what in stage.log if isinstance(what, Waiting) and "two" in what.why]
    assert sorted(told) == list(SMALL)  # each once
    assert stage.machine("b1").counters("g")["of_other_clusters"] > 0


def test_a_newcomer_that_hears_both_is_in_one_of_them() -> None:
    stage = two_clusters()
    meet(stage)
    stage.submit("a1", [b"A"])
    stage.submit("b1", [b"B"])
    stage.enter(LATER, *SMALL, *LARGE)
    stage.settle(ticks=200)
    assert is_running(stage, LATER)
    ours = SMALL if tickets(stage, LATER).cluster == tickets(stage, "a1").cluster else LARGE
    assert members(stage, LATER) == list(ours)
    assert [LATER in members(stage, name) for name in (*SMALL, *LARGE)] == [
        name in ours for name in (*SMALL, *LARGE)
    ]
    assert said(stage, LATER) == ([b"A"] if ours is SMALL else [b"B"])


@pytest.mark.parametrize(
    "kind",
    [
        lambda other: Updates("g", [(LANDED, 1)], None, cluster=other),
        lambda other: Recovered("g", [(LANDED, 0)], cluster=other),
        lambda other: Recover("g", [(0, ENTRY, ENTRY)], cluster=other),
        lambda other: Digest("g", (ENTRY, 0), cluster=other),
        lambda other: Welcome("g", (ENTRY, 0), (ENTRY, 0), cluster=other),
        lambda other: Ask("g", True, cluster=other),
        lambda other: ClusterMembership(
            "g", Roster(RosterKind.SUBSCRIBE, [(B1, 0)], []), cluster=other
        ),
    ],
    ids=["updates", "recovered", "recover", "digest", "welcome", "ask", "membership"],
)
def test_a_packet_of_another_cluster_changes_nothing_but_a_count(kind: Any) -> None:
    stage = causal({"a1": FOUNDS, "b1": WAITS})
    stage.enter("a1")
    stage.enter("b1")
    stage.seek("a1", True)
    stage.settle(ticks=20)
    part, machine = tickets(stage, "a1"), stage.machine("a1")
    assert part.ticket == 0  # so all of these speak of what a1 never made
    before = encode(machine)
    packet = kind(part.cluster + 1)
    assert isinstance(packet, OfCluster)
    stage.inject(B1, "a1", packet)
    (answer,) = (message.packet for message in stage.underway())
    assert answer == Ping("g", part.cluster, stage.now)
    stage.inject(B1, "a1", packet)
    assert (part.strange, len(stage.underway())) == (2, 1)  # only one is answered in a while
    part.strange = 0
    part._encounters.tick()
    assert encode(machine) == before

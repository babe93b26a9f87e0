"""Open groups: from which event on a member is owed the stream of another, and what it is told."""

from __future__ import annotations

import pytest
from tests.protocol.fifo.test_open import (
    FOUNDS,
    JOINS,
    LIMIT,
    N1,
    N2,
    N3,
    numbers,
    open_stage,
    views,
)
from tests.protocol.fifo.test_properties import lost

from ordercast.kernel.family import Build
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.protocol.fifo import FAMILY
from ordercast.protocol.fifo.building import machines
from ordercast.protocol.fifo.member import FifoMember
from ordercast.protocol.fifo.mutants import ForgetsTheDead
from ordercast.protocol.fifo.open_members import OpenMembers
from ordercast.protocol.fifo.packets import Roster
from ordercast.protocol.fifo.peers import LIMITS_REMEMBERED
from ordercast.testing.stage import Stage
from ordercast.types import NodeId


class IgnoresStrangers(OpenMembers):
    """Takes no events of members that it has not met."""

    def may_follow(self, member: FifoMember, name: str) -> bool:
        return name in member.peers.by_name


def last_words(open_as: type[OpenMembers]) -> Stage:
    """n4 joins, cannot reach n3, sends one event and crashes."""
    stage = open_stage(FAMILY._replace(build=machines(open_as=open_as)))
    stage.enter("n1")
    for name in ("n2", "n3"):
        stage.enter(name, "n1")
        stage.settle(ticks=6)
    stage.cut("n3", "n4")
    stage.enter("n4", "n1")
    stage.settle(ticks=3 * LIMIT)
    stage.submit("n4", [b"last words"])
    for parcel in stage.underway("n4", "n1"):
        stage.deliver(parcel)
    stage.crash("n4")
    stage.settle(ticks=3 * LIMIT)
    return stage


def test_the_last_event_of_a_crashed_newcomer_reaches_a_member_that_never_met_it() -> None:
    n4, stage = NodeId("n4"), last_words(OpenMembers)
    assert numbers(stage, "n1", n4) == numbers(stage, "n2", n4) == numbers(stage, "n3", n4) == [1]
    assert numbers(last_words(IgnoresStrangers), "n3", n4) == []


class OwesNobody(OpenMembers):
    """Keeps nothing for members that it was told of and has not met."""

    def expect(self, member: FifoMember, step: Step, node: NodeId) -> None:
        pass


@pytest.mark.parametrize(("kind", "received"), [(OpenMembers, [1]), (OwesNobody, [])])
def test_a_member_that_a_newcomer_was_told_of_is_owed_its_first_event(
    kind: type[OpenMembers], received: list[int]
) -> None:
    """n4 joins by n1, which names n3; it cannot reach n3, and n1 crashes before it can relay."""
    stage = open_stage(FAMILY._replace(build=machines(open_as=kind)))
    stage.enter("n1")
    stage.enter("n3", "n1")
    stage.settle(ticks=6)
    stage.cut("n3", "n4")
    stage.enter("n4", "n1")
    stage.settle(ticks=3 * LIMIT)
    stage.submit("n4", [b"a"])
    stage.crash("n1")
    stage.mend("n3", "n4")
    stage.settle(ticks=3 * LIMIT)
    assert numbers(stage, "n3", NodeId("n4")) == received


def while_n3_is_away(stage: Stage, *names: str) -> None:
    """n1, n2 and n3 are a group. These join while n3 is cut off, and each sends three events."""
    stage.enter("n1")
    for name in ("n2", "n3"):
        stage.enter(name, "n1")
        stage.settle(ticks=6)
    for other in ("n1", "n2", *names):
        stage.cut("n3", other)
    stage.settle(ticks=2 * LIMIT)
    for name in names:
        stage.enter(name, "n1")
        stage.settle(ticks=6)
        for _ in range(3):
            stage.submit(name, [b"x"])
    stage.settle(ticks=2)


class KeepsNothingForTheAbsent(OpenMembers):
    """Its rosters name nobody who is away."""

    def send_roster(self, member: FifoMember, step: Step, to: tuple[NodeId | str, ...]) -> None:
        if to:
            members = [member.me, *member.peers.present]
            step.send(to, Roster(member.group, members, not member.forming), DATAGRAM)


@pytest.mark.parametrize(
    ("build", "received"),
    [(FAMILY.build, [1, 2, 3]), (machines(ForgetsTheDead, KeepsNothingForTheAbsent), [])],
)
def test_a_member_that_was_away_when_another_joined_misses_nothing_silently(
    build: Build, received: list[int]
) -> None:
    """In the second case nobody keeps or relays anything for it."""
    stage, n4 = open_stage(FAMILY._replace(build=build)), NodeId("n4")
    while_n3_is_away(stage, "n4")
    assert views(stage, "n4") == [(N1, N2, n4)]
    stage.cuts.clear()
    stage.settle(ticks=3 * LIMIT)
    assert numbers(stage, "n3", n4) == received
    assert lost(stage, N3) == ({("n4", n) for n in (1, 2, 3)} if not received else set())


def test_a_newcomer_that_crashed_is_relayed_to_a_member_that_was_away_when_it_joined() -> None:
    stage, n4 = open_stage(), NodeId("n4")
    while_n3_is_away(stage, "n4")
    stage.crash("n4")
    stage.cuts.clear()
    stage.settle(ticks=3 * LIMIT)
    assert numbers(stage, "n3", n4) == [1, 2, 3]


def test_one_that_joined_later_gives_others_the_time_to_relay_what_it_never_had() -> None:
    """n5 has only the end of n4's stream, and meets n3 first."""
    entries = {"n1": FOUNDS, **dict.fromkeys(("n2", "n3", "n4", "n5"), JOINS)}
    stage, n4 = Stage.open(FAMILY, entries, suspicion_limit="200ms"), NodeId("n4")
    while_n3_is_away(stage, "n4", "n5")
    stage.submit("n4", [b"x"])
    stage.settle(ticks=2)
    stage.mend("n3", "n5")
    stage.settle(ticks=LIMIT - 1)
    assert numbers(stage, "n3", n4) == []
    stage.cuts.clear()
    stage.settle(ticks=3 * LIMIT)
    assert numbers(stage, "n3", n4) == [1, 2, 3, 4]
    assert not lost(stage, N3)


def test_what_nobody_has_any_more_of_a_later_members_stream_is_reported_as_lost() -> None:
    """Only n5 is left, which has the end of n4's stream."""
    entries = {"n1": FOUNDS, **dict.fromkeys(("n2", "n3", "n4", "n5"), JOINS)}
    stage, n4 = Stage.open(FAMILY, entries, suspicion_limit="200ms"), NodeId("n4")
    while_n3_is_away(stage, "n4", "n5")
    stage.submit("n4", [b"x"])
    stage.settle(ticks=2)
    for name in ("n1", "n2", "n4"):
        stage.crash(name)
    stage.cuts.clear()
    stage.settle(ticks=4 * LIMIT)
    assert numbers(stage, "n3", n4) == [4]
    assert lost(stage, N3) == {("n4", n) for n in (1, 2, 3)}


def test_a_member_that_was_dropped_reports_all_that_it_missed_of_later_members() -> None:
    """Also what is more than can be held."""
    stage, n4 = open_stage(window=4, retain=4), NodeId("n4")
    while_n3_is_away(stage, "n4")
    stage.settle(ticks=2 * LIMITS_REMEMBERED * LIMIT)
    for _ in range(3):
        stage.submit("n4", [b"x"])
        stage.settle(ticks=1)
    stage.cuts.clear()
    stage.settle(ticks=3 * LIMIT)
    stage.submit("n4", [b"met"])
    stage.settle(ticks=2)
    assert numbers(stage, "n3", n4) == [7]
    assert lost(stage, N3) == {("n4", n) for n in range(1, 7)}


def test_a_newcomer_reports_nothing_that_a_member_that_was_away_sent_before() -> None:
    """But for what others may still be relayed."""
    stage = open_stage(window=2, retain=2)
    stage.enter("n1")
    stage.enter("n2", "n1")
    stage.settle(ticks=6)
    for _ in range(6):
        stage.submit("n2", [b"x"])
        stage.settle(ticks=1)
    for other in ("n1", "n3"):
        stage.cut("n2", other)
    stage.settle(ticks=2 * LIMIT)
    stage.enter("n3", "n1")
    stage.settle(ticks=6)
    assert stage.accepts("n3")
    stage.cuts.clear()
    stage.settle(ticks=3 * LIMIT)
    stage.submit("n2", [b"met"])
    stage.settle(ticks=2)
    assert numbers(stage, "n3", N2) == [7]
    assert lost(stage, N3) == {("n2", 5), ("n2", 6)}


def test_another_incarnation_than_the_one_that_was_named_is_a_newcomer() -> None:
    stage, n4 = open_stage(), NodeId("n4")
    while_n3_is_away(stage, "n4")
    stage.crash("n3")
    stage.cuts.clear()
    stage.enter("n3", "n1")
    stage.settle(ticks=4 * LIMIT)
    stage.submit("n4", [b"now"])
    stage.settle(ticks=2)
    assert numbers(stage, "n3", n4) == [4]
    assert not lost(stage, stage.node("n3"))


def test_a_member_that_returns_is_not_sent_what_was_before_its_time() -> None:
    """n1 holds events of n3, which has crashed, for n2. Then n4 joins, and is away for a while."""
    stage = open_stage()
    stage.enter("n1")
    for name in ("n2", "n3"):
        stage.enter(name, "n1")
        stage.settle(ticks=6)
    for other in ("n1", "n3"):
        stage.cut("n2", other)
    stage.settle(ticks=2 * LIMIT)
    for _ in range(3):
        stage.submit("n3", [b"x"])
    stage.settle(ticks=2)
    stage.crash("n3")
    stage.cut("n2", "n4")
    stage.settle(ticks=2 * LIMIT)
    stage.enter("n4", "n1")
    stage.settle(ticks=6)
    assert stage.accepts("n4")
    stage.cut("n1", "n4")
    stage.settle(ticks=2 * LIMIT)
    stage.mend("n1", "n4")
    stage.settle(ticks=2 * LIMIT)
    assert views(stage, "n4")[-1] == (N1, NodeId("n4"))
    assert numbers(stage, "n4", N3) == []
    assert not lost(stage, NodeId("n4"))

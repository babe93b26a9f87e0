"""Open groups: who is let in and when, what a newcomer receives, and what others can make it do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.fifo.test_properties import (
    lost,
)

from ordercast.errors import PeerError
from ordercast.kernel.family import Family, FoundingRule
from ordercast.kernel.inputs import Acquainted
from ordercast.kernel.packet import Packet
from ordercast.protocol.fifo import FAMILY
from ordercast.protocol.fifo.candidates import (
    MOST_TOLD,
    TRIES_TOLD,
)
from ordercast.protocol.fifo.options import LARGEST_GROUP
from ordercast.protocol.fifo.packets import Alive, Begin, Data, Roster, Start
from ordercast.protocol.fifo.peers import LIMITS_REMEMBERED
from ordercast.protocol.fifo.streams import INCARNATIONS_REMEMBERED
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage
from ordercast.types import NodeId, View, Waiting

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
LIMIT = 4  # heartbeats in a suspicion limit, in these tests
FOUNDS = FoundingRule(founds=True)
JOINS = FoundingRule()


def open_stage(family: Family = FAMILY, **options: Any) -> Stage:
    """n1 founds the group, n2 and n3 join it; all of them know n1 only."""
    entries = {"n1": FOUNDS, "n2": JOINS, "n3": JOINS, "n4": JOINS}
    return Stage.open(family, entries, suspicion_limit="200ms", **options)


def joined(*names: str, **options: Any) -> Stage:
    stage = open_stage(**options)
    stage.enter("n1")
    for name in names:
        stage.enter(name, "n1")
        stage.settle(ticks=6)
    return stage


def member(stage: Stage, name: str) -> Any:
    return stage.machine(name)


def numbers(stage: Stage, name: str, origin: NodeId) -> list[int]:
    events = stage.deliveries(stage.node(name))
    return [event.number for event in events if event.origin == origin]


def views(stage: Stage, name: str) -> list[tuple[NodeId, ...]]:
    node = stage.node(name)
    return [what.members for who, what in stage.log if who == node and isinstance(what, View)]


def waits(stage: Stage, name: str) -> list[Waiting]:
    node = stage.node(name)
    return [what for who, what in stage.log if who == node and isinstance(what, Waiting)]


def sent_to(stage: Stage, name: str, since: int = 0) -> int:
    """How many packets went to a name, whoever sent them."""
    posted = [what for _, what in stage.log[since:] if isinstance(what, Posted)]
    return sum(name in what.to for what in posted)


# --- who is in ----------------------------------------------------------------------------------


def test_a_member_that_founds_has_a_view_at_once() -> None:
    stage = joined()
    assert views(stage, "n1") == [(N1,)]
    assert stage.accepts("n1")


def test_one_that_was_alone_asks_first_whether_others_are_in_the_group() -> None:
    was_alone = FoundingRule(founds=True, last=("n1",), asks=True)
    entries = {"n1": was_alone, "n2": FOUNDS, "n3": JOINS}
    stage = Stage.open(FAMILY, entries, suspicion_limit="200ms")
    stage.enter("n2")
    stage.enter("n3", "n2")
    stage.settle(ticks=2 * LIMIT)
    stage.enter("n1", "n3")
    stage.settle(ticks=2 * LIMIT)
    assert views(stage, "n1") == [(N1, N2, N3)]


def test_one_that_was_alone_founds_the_group_after_a_suspicion_limit_without_an_answer() -> None:
    was_alone = FoundingRule(founds=True, last=("n1",), asks=True)
    stage = Stage.open(FAMILY, {"n1": was_alone, "n2": JOINS}, suspicion_limit="200ms")
    stage.enter("n1", "n2")
    stage.settle(ticks=LIMIT - 1)
    assert views(stage, "n1") == []
    why = "it was the only member of 'g', and asks whether others are in it"
    assert [(one.on, one.why) for one in waits(stage, "n1")] == [(("n2",), why)]
    stage.settle(ticks=1)
    assert views(stage, "n1") == [(N1,)]


def test_no_member_is_said_not_to_be_in_before_it_has_said_so() -> None:
    stage = open_stage()
    stage.enter("n1")
    stage.enter("n2", "n1")
    for _ in range(20 * LIMIT):
        for message in stage.underway():
            if message.target != "n2" or not isinstance(message.packet, Roster):
                stage.deliver(message)
        stage.fire("n1")
        stage.fire("n2")
    assert [(one.on, one.why) for one in waits(stage, "n2")] == [
        (("n1",), "no answer yet from anybody who may be in 'g'")
    ]
    stage.settle(ticks=LIMIT)
    assert views(stage, "n2") == [(N1, N2)]


def test_a_member_that_meets_nobody_who_is_in_waits_and_says_for_whom() -> None:
    stage = open_stage()
    stage.enter("n2", "n3")
    stage.enter("n3", "n2")
    stage.settle(ticks=20 * LIMIT)
    assert not stage.accepts("n2")
    assert not views(stage, "n2")
    last = waits(stage, "n2")[-1]
    assert (last.on, last.since) == (("n3",), 0)
    assert "none of them is in 'g' either" in last.why
    assert "`expect`" in last.why


def test_a_waiting_member_does_not_repeat_why_it_waits() -> None:
    stage = open_stage()
    stage.enter("n2", "n3")
    stage.settle(ticks=20 * LIMIT)
    assert [(each.on, each.why) for each in waits(stage, "n2")] == [
        (("n3",), "no answer yet from anybody who may be in 'g'")
    ]


def test_a_member_without_a_seed_hears_of_one_later() -> None:
    stage = joined()
    stage.enter("n2")
    stage.settle(ticks=2)
    assert waits(stage, "n2")[0].why == "nobody is known who may be in 'g'"
    stage.give("n2", Acquainted("g", ("n1",)))
    stage.settle(ticks=3)
    assert views(stage, "n2") == [(N1, N2)]


def test_members_that_know_one_member_learn_of_all_others() -> None:
    stage = joined("n2", "n3")
    assert views(stage, "n1")[-1] == views(stage, "n2")[-1] == views(stage, "n3")[-1]
    assert views(stage, "n3") == [(N1, N2, N3)]  # its first view has everybody


def test_a_roster_brings_the_places_of_those_whom_it_names() -> None:
    stage = joined("n2", "n3")
    rosters = [
        what.packet
        for _, what in stage.log
        if isinstance(what, Posted) and isinstance(what.packet, Roster)
    ]
    assert sorted(rosters[-1].introduces()) == ["n1", "n2", "n3"]


def test_an_expected_number_founds_and_fewer_do_not() -> None:
    entries = dict.fromkeys(("n1", "n2", "n3"), FoundingRule(expect=3))
    stage = Stage.open("fifo", entries, suspicion_limit="200ms")
    for name, known in (("n1", "n2"), ("n2", "n1")):
        stage.enter(name, known)
    stage.settle(ticks=20)
    assert not views(stage, "n1")
    assert not views(stage, "n2")
    assert waits(stage, "n1")[-1].why == (
        "2 of 3 expected nodes are here (n1 n2): start 1 more, or give all of them a lower expect "
        "if there are no more"
    )
    stage.enter("n3", "n1")
    stage.settle(ticks=3)
    assert {views(stage, name)[0] for name in entries} == {(N1, N2, N3)}


def test_a_majority_of_the_last_members_founds_again() -> None:
    last = ("n1", "n2", "n3")
    stage = Stage.open(
        "fifo", dict.fromkeys(last, FoundingRule(last=last)), suspicion_limit="200ms"
    )
    stage.enter("n1", "n2")
    stage.settle(ticks=10)
    assert waits(stage, "n1")[-1].on == ("n2", "n3")
    stage.enter("n2", "n1")
    stage.settle(ticks=3)
    assert views(stage, "n1") == views(stage, "n2") == [(N1, N2)]


def test_two_groups_that_were_founded_apart_merge() -> None:
    entries = {"n1": FOUNDS, "n2": FOUNDS}
    stage = Stage.open("fifo", entries, suspicion_limit="200ms")
    stage.enter("n1")
    stage.enter("n2")
    stage.submit("n1", [b"before"])
    stage.give("n2", Acquainted("g", ("n1",)))
    stage.settle(ticks=3)
    stage.submit("n1", [b"after"])
    stage.submit("n2", [b"mine"])
    stage.settle(ticks=1)
    assert views(stage, "n1")[-1] == views(stage, "n2")[-1] == (N1, N2)
    assert (numbers(stage, "n2", N1), numbers(stage, "n1", N2)) == ([2], [1])
    assert (lost(stage, N2), lost(stage, N1)) == ({("n1", 1)}, set())


# --- what a newcomer receives -------------------------------------------------------------------


def test_a_newcomer_receives_from_its_join_on_and_misses_nothing() -> None:
    stage = joined("n2")
    for _ in range(5):
        stage.submit("n1", [b"past"])
    stage.settle(ticks=2)
    stage.enter("n3", "n2")
    while not stage.accepts("n3"):
        stage.settle(ticks=1)
    for name in ("n1", "n2", "n3"):
        stage.settle(ticks=2)
        stage.submit(name, [b"now"])
    stage.settle(ticks=2)
    assert numbers(stage, "n3", N1) == [6]
    assert numbers(stage, "n1", N3) == numbers(stage, "n2", N3) == [1]
    assert not lost(stage, N3)


def test_a_newcomer_gets_no_flood_of_what_is_held_for_a_member_that_is_away() -> None:
    stage = joined("n2", "n3")
    for other in ("n1", "n3"):
        stage.cut("n2", other)
    stage.settle(ticks=3 * LIMIT)
    for _ in range(50):
        stage.submit("n1", [b"held"])
        stage.settle(ticks=1)
        if member(stage, "n1").peers.by_name["n2"].absent > 3 * LIMIT:
            break
    assert member(stage, "n1").own.held.count
    before = len(stage.log)
    stage.enter("n4", "n1")
    stage.settle(ticks=6)
    packets = [
        what.packet
        for _, what in stage.log[before:]
        if isinstance(what, Posted) and NodeId("n4") in what.to
    ]
    assert stage.accepts("n4")
    assert not [packet for packet in packets if isinstance(packet, Data)]


def test_a_restarted_member_receives_from_then_on_and_its_events_are_taken() -> None:
    stage = joined("n2", "n3")
    stage.submit("n2", [b"old"])
    stage.settle(ticks=2)
    stage.crash("n2")
    stage.enter("n2", "n3")
    stage.settle(ticks=3 * LIMIT)
    stage.submit("n2", [b"new"])
    stage.submit("n1", [b"hello"])
    stage.settle(ticks=2)
    again = stage.node("n2")
    assert len(numbers(stage, "n1", again)) == len(numbers(stage, "n3", again)) == 1
    assert len(numbers(stage, "n2", N1)) == 1


# --- members that are gone ----------------------------------------------------------------------


def test_a_member_that_is_gone_is_dropped_with_all_that_was_kept_for_it() -> None:
    stage = joined("n2", "n3")
    stage.submit("n2", [b"a"])
    stage.settle(ticks=2)
    stage.crash("n2")
    stage.settle(ticks=2 * LIMIT)
    stage.submit("n1", [b"b"])
    stage.settle(ticks=2)
    assert member(stage, "n1").own.held.count
    stage.settle(ticks=LIMITS_REMEMBERED * LIMIT)
    for name in ("n1", "n3"):
        known = member(stage, name)
        assert "n2" not in known.peers.by_name
        assert N2 not in known.streams.by_origin
        assert not any(stream.held.count for stream in known.streams.by_origin.values())


@pytest.mark.parametrize("given", [(), ("n2",)])
def test_a_member_that_left_is_not_called_back(given: tuple[str, ...]) -> None:
    """Though our own host has named it."""
    stage = joined("n2")
    stage.give("n1", Acquainted("g", given))
    stage.leave("n2")
    stage.settle(ticks=2)
    before = len(stage.log)
    stage.settle(ticks=15 * LIMIT)
    assert sent_to(stage, "n2", before) == 0
    assert not member(stage, "n1").peers.by_name


def test_a_member_that_is_gone_is_called_a_number_of_times() -> None:
    """Though our own host has named it. It was called every suspicion limit, for ever."""
    stage = joined("n2")
    stage.give("n1", Acquainted("g", ("n2",)))
    stage.crash("n2")
    stage.settle(ticks=2 * LIMITS_REMEMBERED * LIMIT)
    assert not member(stage, "n1").peers.by_name
    before = len(stage.log)
    stage.settle(ticks=1000 * LIMIT)
    assert 10 < sent_to(stage, "n2", before) < 100


def without_n3(limits: int) -> Stage:
    """n3 is cut off for so many suspicion limits."""
    stage = joined("n2", "n3")
    for other in ("n1", "n2"):
        stage.cut("n3", other)
    stage.settle(ticks=limits * LIMIT)
    assert not member(stage, "n3").peers.by_name
    stage.cuts.clear()
    return stage


@pytest.mark.parametrize("limits", [3 * LIMITS_REMEMBERED, 500])
def test_parts_that_were_apart_for_long_find_each_other_again(limits: int) -> None:
    """Within a sixteenth of the time for which they were apart."""
    stage = without_n3(limits)
    stage.settle(ticks=(3 + limits // 16) * LIMIT)
    assert {views(stage, name)[-1] for name in ("n1", "n2", "n3")} == {(N1, N2, N3)}


@pytest.mark.parametrize("given", [True, False])
def test_members_whose_hosts_have_met_again_find_each_other_at_once(given: bool) -> None:
    stage = without_n3(500)
    if given:
        stage.give("n1", Acquainted("g", ("n3",)))
    stage.settle(ticks=3 * LIMIT)
    assert (views(stage, "n2")[-1] == views(stage, "n3")[-1] == (N1, N2, N3)) is given


def apart(family: Family) -> Stage:
    """n2 drops n1, which has not dropped n2; then they meet again."""
    stage = open_stage(family)
    stage.enter("n1")
    stage.enter("n2", "n1")
    stage.settle(ticks=6)
    stage.submit("n1", [b"a"])
    for parcel in stage.underway("n1", "n2"):
        stage.deliver(parcel)  # n1 does not hear that n2 has it
    stage.cut("n1", "n2")
    for _ in range(3 * LIMIT):
        stage.fire("n1")
    while "n1" in member(stage, "n2").peers.by_name:
        stage.fire("n2")
    stage.mend("n1", "n2")
    stage.settle(ticks=6)
    return stage


def test_nothing_is_delivered_twice_after_a_member_was_dropped() -> None:
    assert numbers(apart(FAMILY), "n2", N1) == [1]
    forgetful = FAMILY._replace(build=FAMILY.mutants["forgets-places"].build)
    assert numbers(apart(forgetful), "n2", N1) == [1, 1]


# --- lies ---------------------------------------------------------------------------------------

GHOSTS = [NodeId(f"ghost{number}") for number in range(LARGEST_GROUP - 2)]


def test_a_roster_of_ghosts_delays_a_newcomer_by_one_suspicion_limit() -> None:
    stage = joined("n2")
    stage.enter("n3", "n2")
    stage.settle(ticks=1)
    for _ in range(LIMIT + 3):
        if stage.machine("n3").groups and N2 in member(stage, "n3").peers.present:
            stage.inject(N2, "n3", Roster("g", [N2, N3, *GHOSTS], True))
        stage.settle(ticks=1)
    assert stage.accepts("n3")
    assert set(views(stage, "n3")[-1]) == {N1, N2, N3}


def test_rosters_of_many_members_do_not_fill_a_newcomer() -> None:
    stage = joined("n2")
    stage.enter("n3", "n2")
    for teller in (N1, N2):
        ghosts = tuple(NodeId(f"{teller.name}-ghost{number}") for number in range(60))
        stage.inject(teller, "n3", Alive("g", [], [N3]))
        stage.inject(teller, "n3", Roster("g", [N1, N2, N3], True, ghosts))
    for teller in (N1, N2):
        stage.inject(teller, "n3", Begin("g", teller, 0))
    assert views(stage, "n3") == [(N1, N2, N3)]
    assert len(member(stage, "n3").peers.by_name) == LARGEST_GROUP - 1


def test_ghosts_take_no_place_of_members_and_cost_a_heartbeat_a_limit() -> None:
    stage = joined("n2")
    before = len(stage.log)
    for _ in range(5 * LIMIT):
        stage.inject(N2, "n1", Roster("g", [N1, N2, *GHOSTS], True))
        stage.settle(ticks=1)
    known = member(stage, "n1")
    assert len(known.membership.candidates.names) == MOST_TOLD
    assert set(known.peers.by_name) == {"n2"}
    ghost = known.membership.candidates.names[0]
    assert sent_to(stage, ghost, before) <= 6
    assert not known.own.held.count
    assert known.accepts("g", 0)
    stage.enter("n3", "n1")
    stage.settle(ticks=6)
    assert views(stage, "n1")[-1] == views(stage, "n3")[-1] == (N1, N2, N3)
    stage.settle(ticks=(TRIES_TOLD + 2) * LIMIT)
    assert not member(stage, "n1").membership.candidates.names


def test_relayed_events_of_ghosts_have_a_limit() -> None:
    stage = joined("n2")
    for ghost in GHOSTS:
        stage.inject(N2, "n1", Alive("g", [(ghost, 5)], [N1]))
        for incarnation in range(INCARNATIONS_REMEMBERED + 5):
            stage.inject(N2, "n1", Start("g", NodeId(ghost.name, incarnation), 0))
    streams = member(stage, "n1").streams.by_origin
    assert len(streams) <= 2 + MOST_TOLD * (INCARNATIONS_REMEMBERED + 1)
    stage.settle(ticks=(TRIES_TOLD + 2) * LIMIT)
    assert set(member(stage, "n1").streams.by_origin) == {N1, N2}
    assert set(member(stage, "n1").peers.by_name["n2"].received) <= {N1, N2}


def test_reports_about_ghosts_are_not_remembered() -> None:
    stage = joined("n2")
    stage.inject(N2, "n1", Alive("g", [(ghost, 5) for ghost in GHOSTS], [N1]))
    assert set(member(stage, "n1").peers.by_name["n2"].received) <= {N1, N2}


def test_a_full_group_refuses_one_more_until_a_place_is_free() -> None:
    stage = joined()
    for number in range(LARGEST_GROUP - 1):
        stage.inject(NodeId(f"m{number}"), "n1", Alive("g", [], [N1]))
    before = set(member(stage, "n1").peers.by_name)
    with pytest.raises(PeerError, match=f"one too many: g has {LARGEST_GROUP} members"):
        stage.inject(N2, "n1", Alive("g", [], [N1]))
    assert set(member(stage, "n1").peers.by_name) == before
    for _ in range(2 * LIMIT):
        stage.fire("n1")  # all of them fall silent
    stage.inject(N2, "n1", Alive("g", [], [N1]))
    assert N2 in member(stage, "n1").peers.present


REFUSED: list[tuple[Packet, str]] = [
    (Roster("g", [NodeId(f"m{number}") for number in range(101)], True), "names 101 members of g"),
    (
        Roster("g", [N2], True, tuple(NodeId(f"m{number}") for number in range(100))),
        "names 101 members of g",
    ),
    (Begin("g", N3, 7), "says where the events of n3 begin"),
    (Data("g", N1, 7, [b"x"], 1), "relays what n1 never sent"),
]


@pytest.mark.parametrize(("packet", "why"), REFUSED)
@pytest.mark.parametrize("sender", [N2, NodeId("stranger")])
def test_a_lie_is_refused_and_changes_nothing(packet: Packet, why: str, sender: NodeId) -> None:
    stage, twin = joined("n2"), joined("n2")
    with pytest.raises(PeerError, match=why):
        stage.inject(sender, "n1", packet)
    for each in (stage, twin):
        each.log.clear()
        each.settle(ticks=3)
    assert stage.log == twin.log


@pytest.mark.parametrize("packet", [Roster("g", [N1, N2], True), Begin("g", N2, 7)])
def test_a_closed_group_knows_no_rosters_and_no_newcomers(packet: Packet) -> None:
    stage = Stage.of("fifo", "n1 n2", suspicion_limit="200ms")
    stage.settle(ticks=1)
    with pytest.raises(PeerError, match="which fifo does not know"):
        stage.inject(N2, "n1", packet)


def test_another_incarnation_of_our_own_name_is_refused() -> None:
    with pytest.raises(PeerError, match="n1#3 is not a member of g"):
        joined().inject(NodeId("n1", 3), "n1", Alive("g", [], []))

"""The rules of a causal cluster (causal_member.py), one section each, on a stage.

One hop, so an event spreads for two rounds: what still waits after three is asked for, and three
later it is done without.
"""

from __future__ import annotations

from typing import Any

from tests.protocol.fifo.test_properties import state as told_state

from ordercast.kernel.packet import Packet
from ordercast.protocol.cluster.packets import (
    Ask,
    Digest,
    Recover,
    Recovered,
    Update,
    Updates,
    Welcome,
)
from ordercast.protocol.cluster.running import Running
from ordercast.protocol.tickets.entries import SEQUENCE_BITS
from ordercast.testing.stage import InFlight, Stage
from ordercast.types import NodeId

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
TERMINATED = 3
RECOVERED = 3
ENDLESS = (1 << 54) - 1


def cluster(names: str = "n1 n2 n3", *, joined: bool = True, **options: Any) -> Stage:
    """n1 and n2 own a ticket each; the others read. Clocks are compared only where it is said."""
    given = {"tickets": 2, "hops": 1, "fan_out": 2, "recovery": "any-2", "join_wait": "50ms"}
    given |= {"ownership": "fixed", "digests": False}
    stage = Stage.of("causal", names, **{**given, **options})
    if joined:
        stage.settle(ticks=TERMINATED)
    return stage


def update(index: int, *stamp: int, base: int = 0) -> Update:
    node = NodeId(f"n{index + 1}", stamp[index] >> SEQUENCE_BITS)
    return Update(index, stamp, node, stamp[index] & 0xFFFFFFFF, [b"x"], 1, base)


def gossip(stage: Stage, to: str, *updates: Update, sender: NodeId = N2, age: int = 1) -> None:
    stage.inject(sender, to, Updates("g", [(one, age) for one in updates]))


def heard(stage: Stage, node: NodeId) -> list[tuple[int | None, int]]:
    """What an application was handed: ticket and entry."""
    events = stage.deliveries(node)
    return [
        (one.index, one.stamp[one.index]) for one in events if one.stamp and one.index in (0, 1)
    ]


def said(stage: Stage, kind: type[Packet], source: str | None = None) -> list[Any]:
    """The packets of a kind that are underway, one for each receiver."""
    return [parcel.packet for parcel in stage.underway(source) if isinstance(parcel.packet, kind)]


def first(stage: Stage, source: str, target: str, kind: type[Packet]) -> InFlight:
    return next(one for one in stage.underway(source, target) if isinstance(one.packet, kind))


def hush(stage: Stage) -> Stage:
    """All that is underway gets lost."""
    for parcel in stage.underway():
        stage.drop(parcel)
    return stage


def rounds(stage: Stage, name: str, count: int) -> None:
    for _ in range(count):
        stage.fire(name)


def recoveries(stage: Stage, node: NodeId) -> list[tuple[object, object]]:
    return [
        (note.columns["origin"], note.columns["cause"]) for note in stage.notes(node, "recover")
    ]


def lost(stage: Stage, node: NodeId) -> list[tuple[object, object]]:
    return [(one.columns["origin"], one.columns["number"]) for one in stage.notes(node, "lose")]


def member(stage: Stage, name: str) -> Any:
    return stage.machine(name)


def state(stage: Stage, name: str) -> tuple[str, object]:
    """All that a member knows, its chance included."""
    machine = member(stage, name)
    return told_state(machine), machine.spreading._chance.getstate()


# --- 1: only who owns a ticket makes events ---------------------------------------------------


def test_a_member_without_a_ticket_makes_no_events() -> None:
    stage = cluster()
    assert [stage.accepts(name) for name in ("n1", "n2", "n3")] == [True, True, False]
    assert stage.submit("n3", [b"x"]) is None


def test_a_stamp_is_its_makers_clock_with_the_next_entry_of_its_ticket() -> None:
    stage = cluster()
    stage.submit("n1", [b"a"])
    stage.settle()
    event = stage.submit("n2", [b"b"])
    assert event is not None
    assert (event.index, event.stamp) == (1, (1, 1))


def test_the_maker_of_an_event_delivers_it_at_once_buffers_it_and_spreads_it() -> None:
    stage = cluster()
    event = stage.submit("n1", [b"a"])
    assert stage.deliveries(N1) == [event]
    assert [one.entry for one in member(stage, "n1").recovery.buffer.all()] == [1]
    assert sorted(parcel.target for parcel in stage.underway("n1")) == ["n2", "n3"]


def test_a_new_incarnation_has_an_epoch_of_its_own_and_says_what_it_follows() -> None:
    stage = cluster()
    stage.submit("n1", [b"a"])
    stage.settle(ticks=4)
    stage.crash("n1")
    stage.start("n1")
    stage.settle(ticks=TERMINATED)
    assert stage.submit("n1", [b"b"]) is not None
    [packet, _] = said(stage, Updates, "n1")
    [(made, _)] = packet.updates
    assert (made.entry, made.base, made.predecessor) == (1 << SEQUENCE_BITS | 1, 1, 1)
    stage.settle()
    assert heard(stage, N3) == [(0, 1), (0, 1 << SEQUENCE_BITS | 1)]


# --- 2: what comes by gossip is kept for others, and put into order ---------------------------


def test_an_event_whose_predecessors_were_delivered_is_delivered() -> None:
    stage = cluster()
    gossip(stage, "n3", update(0, 1, 0))
    assert heard(stage, N3) == [(0, 1)]


def test_an_event_that_waits_is_available_to_others() -> None:
    stage = cluster()
    gossip(stage, "n3", update(0, 2, 0))
    assert heard(stage, N3) == []
    stage.inject(N2, "n3", Recover("g", [(0, 1, 2)]))
    [answer] = said(stage, Recovered, "n3")
    assert [one.entry for one, _ in answer.updates] == [2]
    gossip(stage, "n3", update(0, 1, 0))
    assert heard(stage, N3) == [(0, 1), (0, 2)]


def test_an_event_that_comes_again_in_any_way_is_delivered_once() -> None:
    stage = cluster(history=1)  # so that gossip does not know it any more
    for _ in range(3):
        gossip(stage, "n3", update(0, 1, 0), age=2)
        gossip(stage, "n3", update(1, 0, 1), age=2)
        stage.inject(N1, "n3", Recovered("g", [(update(0, 1, 0), 0)]))
    assert heard(stage, N3) == [(0, 1), (1, 1)]


def test_a_request_for_what_is_not_buffered_is_not_answered() -> None:
    stage = cluster()
    stage.inject(N2, "n3", Recover("g", [(0, 1, 9), (1, 0, ENDLESS)]))
    assert stage.underway() == []


# --- 3: what is missing is asked for once, and then done without ------------------------------


def waiting(**options: Any) -> Stage:
    """n3 has n2's event, which saw n1's, and not n1's."""
    stage = cluster(**options)
    gossip(stage, "n3", update(1, 1, 1))
    rounds(stage, "n3", TERMINATED - 1)
    assert said(stage, Recover) == []
    return hush(stage)


def test_missing_predecessors_are_requested_when_gossip_must_be_over() -> None:
    stage = waiting()
    stage.fire("n3")
    assert said(stage, Recover) == [Recover("g", [(0, 1, 1)])] * 2
    assert recoveries(stage, N3) == [("n1", "asked")]
    assert heard(stage, N3) == []


def test_a_missing_event_is_requested_once_however_many_wait_for_it() -> None:
    stage = cluster()
    gossip(stage, "n3", update(1, 1, 1), update(1, 1, 2), update(0, 2, 0))
    rounds(stage, "n3", TERMINATED + RECOVERED - 1)
    assert said(stage, Recover) == [Recover("g", [(0, 1, 1)])] * 2


def test_a_recovered_event_is_delivered_before_those_that_waited_for_it() -> None:
    stage = waiting()
    stage.fire("n3")
    stage.inject(N1, "n3", Recovered("g", [(update(0, 1, 0), 0)]))
    assert heard(stage, N3) == [(0, 1), (1, 1)]
    assert recoveries(stage, N3) == [("n1", "asked"), ("n1", "answered")]
    rounds(stage, "n3", 9)
    assert lost(stage, N3) == []


def test_an_event_that_is_not_recovered_in_time_is_skipped_and_reported_as_lost() -> None:
    stage = waiting()
    rounds(stage, "n3", RECOVERED)
    assert heard(stage, N3) == []
    stage.fire("n3")
    assert heard(stage, N3) == [(1, 1)]
    assert lost(stage, N3) == [("n1", 1)]
    rounds(stage, "n3", 2)
    assert recoveries(stage, N3) == [("n1", "asked"), ("n1", "failed")]


def test_an_event_that_arrives_after_it_was_skipped_is_not_delivered() -> None:
    stage = waiting()
    rounds(stage, "n3", RECOVERED + 1)
    gossip(stage, "n3", update(0, 1, 0))
    stage.inject(N1, "n3", Recovered("g", [(update(0, 1, 0), 0)]))
    assert heard(stage, N3) == [(1, 1)]


def test_recovery_from_the_originator_asks_the_originator() -> None:
    stage = waiting(recovery="originator")
    stage.fire("n3")
    assert [one.path for one in stage.underway() if isinstance(one.packet, Recover)] == [
        ("n3", "n1")
    ]


def test_no_member_is_asked_if_recovery_is_off() -> None:
    stage = waiting(recovery="off")
    rounds(stage, "n3", RECOVERED + 1)
    assert said(stage, Recover) == []
    assert lost(stage, N3) == [("n1", 1)]


def test_beyond_the_limit_of_waiting_events_the_oldest_are_delivered_with_gaps() -> None:
    stage = cluster(waiting=2)
    gossip(stage, "n3", update(0, 2, 0), update(0, 3, 0))
    assert heard(stage, N3) == []
    gossip(stage, "n3", update(0, 4, 0))
    assert heard(stage, N3) == [(0, 2), (0, 3), (0, 4)]
    assert lost(stage, N3) == [("n1", 1)]


def test_a_member_that_was_stalled_gives_up_nothing_for_that_time() -> None:
    stage = cluster()
    gossip(stage, "n3", update(1, 1, 1))
    stage.now += 10**12
    stage.fire("n3")
    assert (said(stage, Recover), heard(stage, N3)) == ([], [])


# --- 4: members tell each other their clocks --------------------------------------------------


def behind(**options: Any) -> Stage:
    """n1 has made an event that nothing follows, and nobody else has it."""
    stage = cluster(digests=True, **options)
    stage.submit("n1", [b"a"])
    rounds(stage, "n1", 2)
    return hush(stage)


def test_a_clock_that_is_ahead_of_ours_makes_us_ask_its_bearer_when_gossip_must_be_over() -> None:
    stage = behind()
    stage.inject(N1, "n3", Digest("g", (1, 0)))
    rounds(stage, "n3", TERMINATED - 1)
    assert said(stage, Recover) == []
    stage.fire("n3")
    [parcel] = [one for one in stage.underway("n3") if isinstance(one.packet, Recover)]
    assert (parcel.target, parcel.packet) == ("n1", Recover("g", [(0, 1, 1)]))
    stage.deliver(parcel)
    stage.deliver(first(stage, "n1", "n3", Recovered))
    assert heard(stage, N3) == [(0, 1)]


def test_events_that_a_clock_names_are_requested_repeatedly_and_never_skipped() -> None:
    stage = behind()
    asked = 0
    for _ in range(4):
        stage.inject(N1, "n3", Digest("g", (1, 0)))
        rounds(stage, "n3", TERMINATED + RECOVERED + 1)
        asked += len(said(stage, Recover))
        hush(stage)
    assert asked >= 3
    assert (heard(stage, N3), lost(stage, N3)) == ([], [])


def test_a_member_that_is_behind_gets_our_clock_and_an_answer_is_not_answered() -> None:
    stage = behind()
    stage.inject(N3, "n1", Digest("g", (0, 0)))
    assert said(stage, Digest) == [Digest("g", (1, 0), is_answer=True)]
    hush(stage).inject(N3, "n1", Digest("g", (0, 0), is_answer=True))
    assert stage.underway() == []


def test_the_last_event_of_a_ticket_is_not_missed() -> None:
    stage = behind()
    stage.settle(ticks=20)
    assert [heard(stage, node) for node in (N1, N2, N3)] == [[(0, 1)]] * 3


def test_an_event_that_waits_for_what_no_member_buffers_does_not_wait_for_ever() -> None:
    stage = cluster(digests=True, recovery_buffer=1)
    for word in (b"a", b"b"):  # neither gets to anybody, and n1 keeps only the second
        stage.submit("n1", [word])
        rounds(stage, "n1", 2)
        hush(stage)
    stage.settle(ticks=30)
    for node in (N2, N3):
        assert (heard(stage, node), lost(stage, node)) == ([(0, 2)], [("n1", 1)])


# --- 5: who comes asks where the cluster is ---------------------------------------------------


def test_a_member_that_is_joining_neither_delivers_nor_makes_anything() -> None:
    stage = cluster(joined=False)
    gossip(stage, "n1", update(1, 0, 1))
    assert not stage.accepts("n1")
    assert stage.deliveries(N1) == []


def test_a_newcomer_asks_a_member_in_every_round() -> None:
    stage = cluster(joined=False)
    stage.fire("n3")
    assert said(stage, Ask) == [Ask("g")]


def test_a_joining_member_answers_nobody_and_so_the_first_find_each_other() -> None:
    stage = cluster(joined=False)
    stage.settle(ticks=TERMINATED - 1)
    assert not stage.accepts("n1")
    stage.settle(ticks=1)
    assert stage.accepts("n1")


def test_a_member_that_is_alone_knows_at_once_where_it_is() -> None:
    stage = cluster("n1", joined=False)
    assert stage.submit("n1", [b"a"]) is not None


def newcomer(stage: Stage) -> NodeId:
    stage.crash("n3")
    stage.start("n3")
    return stage.node("n3")


def test_a_newcomer_begins_at_the_welcome_and_what_was_before_is_not_lost() -> None:
    stage = cluster()
    node = newcomer(stage)
    gossip(stage, "n3", update(0, 6, 2), update(0, 7, 2))
    stage.inject(N1, "n3", Welcome("g", (6, 2), (7, 2)))
    assert heard(stage, node) == [(0, 7)]
    assert lost(stage, node) == []


def test_a_second_welcome_changes_nothing() -> None:
    stage = cluster()
    newcomer(stage)
    stage.inject(N1, "n3", Welcome("g", (6, 2), (7, 2)))
    before = state(stage, "n3")
    stage.inject(N1, "n3", Welcome("g", (9, 9), (9, 9)))
    assert state(stage, "n3") == before


def test_a_welcome_gives_all_events_beyond_it_that_were_delivered() -> None:
    stage = cluster(recovery_buffer=2)
    for word in (b"a", b"b", b"c"):
        stage.submit("n1", [word])
    stage.settle(ticks=2)
    node = newcomer(stage)
    stage.fire("n3")
    stage.settle()
    assert heard(stage, node) == [(0, 2), (0, 3)]


def test_a_member_with_much_that_waits_welcomes_newcomers_as_well() -> None:
    """Its buffer has let go of what it has not delivered: its floor is beyond its clock."""
    stage = cluster(recovery_buffer=1)
    gossip(stage, "n2", update(0, 2, 0), sender=N1)
    stage.submit("n2", [b"b"])
    hush(stage)
    newcomer(stage)
    stage.inject(N3, "n2", Ask("g"))
    stage.settle()  # PeerError: an honest member is told that it broke the rules
    assert isinstance(member(stage, "n3").phase, Running)


def test_a_member_whose_application_is_slow_welcomes_newcomers_as_well() -> None:
    stage = cluster(recovery_buffer=1)
    stage.throttle("n2", True)
    gossip(stage, "n2", update(0, 1, 0), update(0, 2, 0), sender=N1)
    hush(stage)
    newcomer(stage)
    stage.inject(N3, "n2", Ask("g"))
    stage.settle()
    assert isinstance(member(stage, "n3").phase, Running)


def test_a_newcomer_whose_application_is_slow_delivers_nothing_before_it_knows_where() -> None:
    stage = cluster(joined=False)
    stage.throttle("n3", True)
    gossip(stage, "n3", update(0, 1, 0))
    stage.throttle("n3", False)
    assert stage.deliveries(N3) == []


def test_a_member_that_rejoins_in_one_incarnation_asks_again_for_what_it_forgot() -> None:
    """It had recovered n1's second event, which waited for the first when it left."""
    stage = cluster(hops=3)
    stage.settle(ticks=3)
    gossip(stage, "n3", update(1, 2, 1))
    rounds(stage, "n3", 5)
    stage.inject(N1, "n3", Recovered("g", [(update(0, 2, 0), 0)]))
    stage.rejoin("n3")
    stage.inject(N2, "n3", Welcome("g", (0, 0), (0, 0)))
    hush(stage)
    gossip(stage, "n3", update(1, 2, 2))
    rounds(stage, "n3", 5)
    asked = [entries for packet in said(stage, Recover) for entries in packet.ranges]
    assert (0, 2) in {(index, last) for index, _, last in asked}


# --- 6: while the application cannot take more ------------------------------------------------


def test_a_slow_application_is_handed_nothing_and_then_all_that_came() -> None:
    stage = cluster()
    stage.throttle("n3", True)
    gossip(stage, "n3", update(0, 2, 0), update(0, 1, 0))
    assert heard(stage, N3) == []
    stage.throttle("n3", False)
    assert heard(stage, N3) == [(0, 1), (0, 2)]


def test_events_that_a_slow_member_received_are_available_to_others() -> None:
    stage = cluster()
    stage.throttle("n3", True)
    gossip(stage, "n3", update(0, 1, 0))
    stage.inject(N2, "n3", Recover("g", [(0, 1, 1)]))
    assert len(said(stage, Recovered)) == 1


def test_nothing_is_forced_on_a_slow_application() -> None:
    stage = waiting()
    stage.throttle("n3", True)
    rounds(stage, "n3", TERMINATED + RECOVERED)
    assert heard(stage, N3) == []


def test_events_that_arrived_while_the_application_was_slow_are_delivered() -> None:
    stage = waiting()
    stage.throttle("n3", True)
    gossip(stage, "n3", update(0, 1, 0))
    rounds(stage, "n3", TERMINATED + RECOVERED)
    stage.throttle("n3", False)
    assert (heard(stage, N3), lost(stage, N3)) == ([(0, 1), (1, 1)], [])


def test_events_that_no_member_buffers_are_reported_as_lost_after_catching_up() -> None:
    stage = cluster(recovery_buffer=2)
    stage.throttle("n3", True)
    gossip(stage, "n3", *(update(0, entry, 0) for entry in range(1, 5)))
    stage.throttle("n3", False)
    rounds(stage, "n3", TERMINATED + RECOVERED)
    assert heard(stage, N3) == [(0, 3), (0, 4)]
    assert lost(stage, N3) == [("n1", 1), ("n1", 2)]

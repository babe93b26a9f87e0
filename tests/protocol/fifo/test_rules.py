"""The rules of a fifo member, one section each, as they stand at the top of member.py."""

from __future__ import annotations

import pytest

from ordercast.errors import UsageError
from ordercast.protocol.fifo.packets import Alive, Data, Start
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage
from ordercast.types import Event, NodeId, View

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
LIMIT = 4  # heartbeats of silence after which a member is set aside, in these tests


def formed(names: str = "n1 n2 n3", **options: object) -> Stage:
    stage = Stage.of("fifo", names, suspicion_limit="200ms", **options)
    stage.settle(ticks=1)
    return stage


def texts(stage: Stage, name: str) -> list[bytes]:
    """What the present incarnation of a process delivered, message by message."""
    events = stage.deliveries(stage.node(name))
    return [payload for event in events for payload in event.payloads]


def view(stage: Stage, name: str) -> tuple[NodeId, ...]:
    """The last view that a process installed."""
    node = stage.node(name)
    return [what.members for who, what in stage.log if who == node and isinstance(what, View)][-1]


def isolate(stage: Stage, name: str) -> None:
    for other in stage.actors:
        if other != name:
            stage.cut(name, other)


def rejoin(stage: Stage, name: str) -> None:
    for other in stage.actors:
        if other != name:
            stage.mend(name, other)


def sent(stage: Stage, kind: type, since: int = 0) -> list[tuple[NodeId, Posted]]:
    return [
        (who, what)
        for who, what in stage.log[since:]
        if isinstance(what, Posted) and isinstance(what.packet, kind)
    ]


# --- 1. own events are delivered at once, and go to every present peer ------------------------


def test_an_own_event_is_delivered_before_any_packet_moves() -> None:
    stage = formed()
    stage.submit("n1", [b"a", b"b"])
    assert texts(stage, "n1") == [b"a", b"b"]
    assert texts(stage, "n2") == []


def test_an_own_event_is_sent_once_to_all_present_members() -> None:
    stage = formed()
    stage.submit("n1", [b"a"])
    [(who, posted)] = sent(stage, Data)
    assert (who, posted.to) == (N1, (N2, N3))


def test_a_lone_member_is_a_group() -> None:
    stage = Stage.of("fifo", "n1")
    stage.submit("n1", [b"a"])
    assert texts(stage, "n1") == [b"a"]
    assert view(stage, "n1") == (N1,)
    assert sent(stage, Alive) == []


# --- 2. an event is delivered when it is the next of its stream -------------------------------


def test_an_event_beyond_a_gap_or_a_second_time_is_not_delivered() -> None:
    stage = formed()
    for number in (2, 1, 1, 3, 1):
        stage.inject(N1, "n2", Data("g", N1, number, [b"%d" % number], 1))
    assert texts(stage, "n2") == [b"1"]


def test_events_of_two_senders_have_no_order() -> None:
    stage = formed()
    stage.submit("n1", [b"a"])
    stage.submit("n2", [b"b"])
    stage.settle()
    assert texts(stage, "n1") == [b"a", b"b"]
    assert texts(stage, "n2") == [b"b", b"a"]


def test_no_event_is_delivered_before_the_first_view() -> None:
    stage = Stage.of("fifo", "n1 n2 n3", suspicion_limit="200ms")
    stage.cut("n2", "n3")  # n2 goes on forming while n1 is done
    stage.settle(ticks=1)
    stage.submit("n1", [b"a"])
    stage.settle(ticks=LIMIT)
    heard = [what for who, what in stage.log if who == N2 and isinstance(what, View | Event)]
    assert [type(what) for what in heard[:2]] == [View, Event]


# --- 3. submissions wait for the group and for the window -------------------------------------


def test_nothing_is_accepted_while_the_group_forms() -> None:
    stage = Stage.of("fifo", "n1 n2", suspicion_limit="200ms")
    assert stage.submit("n1", [b"a"]) is None
    stage.settle(ticks=1)
    assert stage.accepts("n1")


def test_forming_ends_at_the_suspicion_limit_whoever_is_missing() -> None:
    stage = Stage.of("fifo", "n1 n2", suspicion_limit="200ms")
    stage.crash("n2")
    stage.settle(ticks=LIMIT - 1)
    assert not stage.accepts("n1")
    stage.settle(ticks=1)
    assert stage.accepts("n1")
    assert view(stage, "n1") == (N1,)


def test_the_window_opens_when_the_slowest_has_acknowledged() -> None:
    stage = formed(window=1)
    stage.submit("n1", [b"a"])
    assert not stage.accepts("n1")
    for path in (("n1", "n2"), ("n2", "n1")):
        for parcel in stage.underway(*path):
            stage.deliver(parcel)
    assert not stage.accepts("n1")  # n2 has it; n3 does not
    stage.settle()
    assert stage.accepts("n1")


def test_a_suspected_member_is_not_waited_for() -> None:
    stage = formed(window=1)
    isolate(stage, "n3")
    stage.submit("n1", [b"a"])
    stage.settle(ticks=LIMIT)
    assert stage.accepts("n1")


def test_a_batch_that_can_never_fit_is_refused_before_anything_changes() -> None:
    stage = formed(window_size=10, retain_size=20)
    log = len(stage.log)
    with pytest.raises(UsageError, match="11 bytes does not fit"):
        stage.submit("n1", [b"x" * 11])
    assert len(stage.log) == log
    event = stage.submit("n1", [b"x" * 10])
    assert event is not None
    assert event.number == 1


# --- 4. who is silent or deaf is set aside ----------------------------------------------------


def test_a_member_is_suspected_after_silence_for_the_limit_and_not_earlier() -> None:
    stage = formed()
    stage.crash("n3")
    stage.settle(ticks=LIMIT - 1)
    assert view(stage, "n1") == (N1, N2, N3)
    stage.settle(ticks=1)
    assert view(stage, "n1") == (N1, N2)
    assert [note.columns["peer"] for note in stage.notes(N1, "suspect")] == ["n3"]


def test_members_that_hear_one_way_suspect_each_other() -> None:
    stage = formed()
    stage.cut("n1", "n2", one_way=True)
    stage.settle(ticks=3 * LIMIT)
    assert view(stage, "n1") == (N1, N3)
    assert view(stage, "n2") == (N2, N3)
    assert view(stage, "n3") == (N1, N2, N3)


def test_a_member_that_was_stalled_suspects_nobody() -> None:
    stage = formed()
    for _ in range(LIMIT - 1):  # n1's timers do not run, nor do its packets move
        stage.fire("n2")
        stage.fire("n3")
    stage.settle(ticks=2)
    assert stage.notes(N1, "suspect") == []


def test_nothing_is_queued_for_an_absent_member() -> None:
    stage = formed()
    isolate(stage, "n3")
    stage.settle(ticks=LIMIT)
    log = len(stage.log)
    for _ in range(9):
        stage.submit("n1", [b"a"])
        stage.settle(ticks=1)
    assert all(N3 not in posted.to for _, posted in sent(stage, Data, since=log))
    assert [parcel for parcel in stage.underway(target="n3") if parcel.sender == N1] == []


# --- 5. who returns gets what is held, and says what it lost ----------------------------------


def test_a_returned_member_gets_exactly_what_it_missed() -> None:
    stage = formed()
    isolate(stage, "n3")
    stage.settle(ticks=LIMIT)
    for word in (b"a", b"b", b"c"):
        stage.submit("n1", [word])
    stage.settle(ticks=1)
    rejoin(stage, "n3")
    stage.settle(ticks=2)
    assert texts(stage, "n3") == [b"a", b"b", b"c"]
    assert stage.notes(N3, "lose") == []
    assert [note.columns["peer"] for note in stage.notes(N1, "refute")] == ["n3"]


def test_events_that_are_no_longer_retained_are_reported_as_lost() -> None:
    stage = formed(window=1, retain=2)
    isolate(stage, "n3")
    stage.settle(ticks=LIMIT)
    for word in (b"a", b"b", b"c", b"d"):
        stage.submit("n1", [word])
        stage.settle(ticks=1)
    rejoin(stage, "n3")
    stage.settle(ticks=2)
    assert texts(stage, "n3") == [b"c", b"d"]
    lost = [(note.columns["number"], note.columns["cause"]) for note in stage.notes(N3, "lose")]
    assert lost == [(1, "overflow"), (2, "overflow")]


# --- 6. who holds relays ----------------------------------------------------------------------


def test_one_survivor_relays_the_last_event_of_a_crashed_sender_to_all() -> None:
    stage = formed("n1 n2 n3 n4")
    stage.submit("n1", [b"last"])
    stage.deliver(stage.underway("n1", "n3")[0])
    stage.crash("n1")
    for parcel in stage.underway("n1"):
        stage.drop(parcel)
    stage.settle(ticks=LIMIT + 1)
    assert [texts(stage, name) for name in ("n2", "n3", "n4")] == [[b"last"]] * 3


def test_an_origin_that_one_member_cannot_hear_is_relayed_to_it() -> None:
    stage = formed()
    stage.cut("n1", "n3")
    stage.settle(ticks=2 * LIMIT)
    stage.submit("n1", [b"a"])
    stage.settle(ticks=2)
    assert texts(stage, "n3") == [b"a"]


def test_a_relayed_start_may_not_jump_while_the_origin_is_present() -> None:
    stage = formed()
    stage.inject(N2, "n3", Start("g", N1, 5))
    assert stage.notes(N3, "lose") == []
    stage.submit("n1", [b"a"])
    stage.settle()
    assert texts(stage, "n3") == [b"a"]


# --- 7. a restarted member is a new incarnation -----------------------------------------------


def restarted(name: str, data: bytes) -> Stage:
    """n1 has sent this. Then one member restarted, and the others noticed."""
    stage = formed()
    stage.submit("n1", [data])
    stage.settle(ticks=2)
    stage.crash(name)
    stage.start(name)
    stage.settle(ticks=2 * LIMIT)
    return stage


def test_a_new_incarnation_ends_the_old_one_and_receives_from_then_on() -> None:
    stage = restarted("n3", b"before")
    stage.submit("n1", [b"after"])
    stage.settle()
    assert [note.columns["peer"] for note in stage.notes(N1, "confirm")] == ["n3"]
    assert view(stage, "n1") == (N1, N2, NodeId("n3", 1))
    assert texts(stage, "n3") == [b"after"]


def test_an_old_incarnation_is_ignored_once_the_new_one_was_heard() -> None:
    stage = formed()
    stage.crash("n1")
    stage.start("n1")
    stage.settle()
    stage.inject(N1, "n2", Data("g", N1, 1, [b"ghost"], 5))
    assert texts(stage, "n2") == []


def test_a_new_incarnation_is_never_mistaken_for_the_old_one() -> None:
    stage = restarted("n1", b"old")
    event = stage.submit("n1", [b"new"])
    stage.settle()
    assert event is not None
    assert event.origin == NodeId("n1", 1)
    assert texts(stage, "n2") == [b"old", b"new"]
    numbers = [event.number for event in stage.deliveries(N2)]
    assert numbers == sorted(set(numbers))

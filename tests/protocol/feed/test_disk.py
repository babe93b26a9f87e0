"""What a node does when its disk is nearly full, and what is held for whom, also over restarts."""

from __future__ import annotations

from ordercast.kernel.log import Strained
from ordercast.protocol.hpp.member import FeedMember
from ordercast.testing.stage import Stage


def member(stage: Stage, name: str) -> FeedMember:
    machine = stage.machine(name)
    assert isinstance(machine, FeedMember)
    return machine


def a_pair(**options: object) -> Stage:
    """n1 below n2, which is the root."""
    stage = Stage.of("feed", "n1 n2", beat="100ms", moves="none", **options)
    stage.settle(ticks=14)
    return stage


def payloads(stage: Stage, name: str) -> list[bytes]:
    """Of all incarnations."""
    found = []
    for who, what in stage.log:
        if who.name == name and hasattr(what, "payloads"):
            found += what.payloads
    return found


def test_a_strained_node_takes_nothing_and_stays_in_the_tree() -> None:
    stage = a_pair(window=2)
    stage.give("n2", Strained("g", True))
    assert not stage.accepts("n2")
    for text in (b"a", b"b", b"c"):
        stage.submit("n1", [text])
    stage.settle(ticks=12)
    assert payloads(stage, "n2") == []
    child = member(stage, "n1")
    assert child.edges.parent is not None
    assert child.edges.parent.cursor - child.edges.parent.acked <= 2
    stage.give("n2", Strained("g", False))
    stage.settle(ticks=2)
    assert payloads(stage, "n2") == [b"a", b"b", b"c"]
    assert stage.accepts("n2")


def test_a_strained_node_takes_no_children() -> None:
    stage = Stage.of("feed", "n1 n2 n3", beat="100ms", moves="none")
    stage.settle(ticks=14)
    stage.give("n3", Strained("g", True))
    stage.crash("n2")
    stage.start("n2")
    stage.settle(ticks=3)
    assert "n2" not in member(stage, "n3").edges.by_name


def test_entries_are_held_for_a_child_that_is_away() -> None:
    stage = a_pair(keep_for="100ms", hold_for="1h")
    stage.crash("n1")
    for text in (b"a", b"b"):
        stage.submit("n2", [text])
    stage.settle(ticks=40)
    assert member(stage, "n2").log.floor == 0
    stage.start("n1")
    stage.settle(ticks=8)
    assert payloads(stage, "n1") == [b"a", b"b"]
    stage.settle(ticks=8)
    assert member(stage, "n2").log.floor == 2  # all have it, and for long enough


def test_a_hold_survives_a_restart_of_the_one_who_holds() -> None:
    stage = a_pair(keep_for="100ms", hold_for="1h")
    stage.crash("n1")
    stage.submit("n2", [b"a"])
    stage.settle(ticks=12)
    stage.crash("n2")
    stage.start("n2")
    stage.submit("n2", [b"b"])
    stage.settle(ticks=40)
    assert member(stage, "n2").log.floor == 0
    stage.start("n1")
    stage.settle(ticks=30)
    assert payloads(stage, "n1") == [b"a", b"b"]


def test_a_hold_ends_with_its_time_and_the_child_is_told_of_a_gap() -> None:
    stage = a_pair(keep_for="100ms", hold_for="1s", patience="200ms")
    stage.submit("n2", [b"a"])
    stage.settle(ticks=2)
    stage.crash("n1")
    stage.submit("n2", [b"b"])
    stage.settle(ticks=4)
    # Nobody else has it: an own event that no other log acknowledged stays.
    stage.settle(ticks=40)
    machine = member(stage, "n2")
    assert machine.log.floor == 1
    assert machine.retention.stable == 1


def test_a_lone_node_trims_nothing_by_age() -> None:
    stage = Stage.of("feed", "n1", beat="100ms", keep_for="100ms")
    stage.submit("n1", [b"a"])
    stage.settle(ticks=40)
    assert member(stage, "n1").log.floor == 0


def test_a_node_that_leaves_is_not_held_for() -> None:
    stage = a_pair(keep_for="100ms", hold_for="1h")
    stage.leave("n1")
    stage.settle(ticks=2)
    assert member(stage, "n2").edges.children == []
    assert all(place.held_until is None for place in member(stage, "n2").edges.places)


def test_a_log_that_was_lost_begins_another_stream() -> None:
    stage = a_pair()
    stage.submit("n1", [b"a"])
    stage.settle(ticks=1)
    stage.crash("n1")
    stage.lose_disk("n1")
    stage.actors["n1"].disk.incarnation = 0
    stage.start("n1")
    stage.settle(ticks=8)
    stage.submit("n1", [b"b"])
    stage.settle(ticks=1)
    assert payloads(stage, "n2") == [b"a", b"b"]
    assert len(member(stage, "n2").log.vector) == 2

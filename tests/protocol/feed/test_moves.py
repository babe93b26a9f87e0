"""A move, and crashes of one or two of its parties at every step of it."""

from __future__ import annotations

from itertools import combinations

import pytest

from ordercast.kernel.inputs import Relocate
from ordercast.protocol.hpp.member import FeedMember
from ordercast.testing.stage import Stage, StageError

NODES = "n1 n2 n3 n4"
STEPS = 12
"""Packets after which somebody crashes: a move takes fewer."""


def tree() -> Stage:
    """n4 above n3 above n2 above n1, which is to move to n4 or n3; all of it by link."""
    stage = Stage.of("feed", NODES, beat="100ms", moves="none", cached=1, window=4)
    stage.settle(ticks=14)
    return stage


def parent_of(stage: Stage, name: str) -> str | None:
    machine = stage.machine(name)
    assert isinstance(machine, FeedMember)
    return None if machine.edges.parent is None else machine.edges.parent.peer.name


def delivered(stage: Stage, name: str) -> list[tuple[str, int]]:
    """By all incarnations that have this log."""
    node, found = stage.node(name), []
    for who, event in stage.log:
        if who.name == node.name and hasattr(event, "payloads"):
            found.append((event.origin.name, event.number))
    return found


def run(steps: int, victims: tuple[str, ...], former: str, target: str) -> Stage:
    """The move goes on for so many packets; then these crash, and come back after a while."""
    stage = tree()
    stage.submit("n1", [b"a"])
    stage.submit("n4", [b"b"])
    stage.give("n1", Relocate("g", target))
    for step in range(steps):
        if step % 4 == 1:
            stage.submit(former, [b"x"])
            stage.fire(target)  # its beat passes that of the node that moves
        if step % 4 == 3:
            stage.submit("n1", [b"y"])
            stage.fire("n1")
        for message in stage.underway()[:2]:
            try:
                stage.deliver(message)
            except StageError:  # not the head of its link
                continue
    for name in victims:
        stage.crash(name)
    stage.settle(ticks=4)
    for name in victims:
        stage.start(name)
    for name in NODES.split():
        stage.submit(name, [b"z"])
    stage.settle(ticks=40)
    return stage


def test_a_move_gives_another_parent_and_ends_the_former_session() -> None:
    stage = tree()
    former = parent_of(stage, "n1")
    target = next(name for name in ("n4", "n3") if name != former)
    stage.give("n1", Relocate("g", target))
    stage.settle(ticks=3)
    assert parent_of(stage, "n1") == target
    machine = stage.machine(str(former))
    assert isinstance(machine, FeedMember)
    assert "n1" not in machine.edges.by_name


def test_a_move_below_oneself_comes_to_nothing() -> None:
    stage = tree()
    above = parent_of(stage, "n1")
    assert above is not None
    over = parent_of(stage, above)
    stage.give(above, Relocate("g", "n1"))
    stage.settle(ticks=8)
    assert parent_of(stage, above) == over
    assert parent_of(stage, "n1") == above


def parties() -> tuple[str, str]:
    former = parent_of(tree(), "n1")
    assert former is not None
    return former, next(name for name in ("n4", "n3") if name != former)


FORMER, TARGET = parties()
VICTIMS = [(name,) for name in ("n1", FORMER, TARGET)]
VICTIMS += list(combinations(("n1", FORMER, TARGET), 2))


@pytest.mark.parametrize("victims", VICTIMS, ids=" ".join)
def test_nothing_is_lost_whenever_its_parties_crash(victims: tuple[str, ...]) -> None:
    for steps in range(STEPS):
        stage = run(steps, victims, FORMER, TARGET)
        heard = {name: delivered(stage, name) for name in NODES.split()}
        everything = set().union(*heard.values())
        for name, events in heard.items():
            assert len(events) == len(set(events)), f"{steps}: {name} delivered twice"
            assert set(events) == everything, f"{steps}: {name} lacks {everything - {*events}}"
            for origin in NODES.split():
                numbers = [number for of, number in events if of == origin]
                assert numbers == sorted(numbers), f"{steps}: {name} has {origin} out of order"
        roots = [name for name in NODES.split() if parent_of(stage, name) is None]
        assert len(roots) == 1, f"{steps}: {roots}"

"""Members of an open cluster that come back when nobody is in it: when they begin it again."""

from __future__ import annotations

import pytest

from ordercast.protocol.cluster.packets import Ask
from ordercast.protocol.cluster.returning import ASKED_IN_TURN, KEPT, Returning
from ordercast.types import NodeId

PATIENCE = 4
THREE = ("n1", "n2", "n3")
FIVE = (*THREE, "n4", "n5")


def back(name: str, last: tuple[str, ...] = THREE) -> Returning:
    return Returning(name, last, PATIENCE)


def tell(source: Returning, target: Returning) -> None:
    target.heard(NodeId(source._me, 1), source.question("g", False))


def meet(*all_of_them: Returning, rounds: int = PATIENCE) -> None:
    for _ in range(rounds):
        for one in all_of_them:
            one.round()
            for other in all_of_them:
                if other is not one:
                    tell(one, other)


def founders(*all_of_them: Returning) -> list[str]:
    return [one._me for one in all_of_them if one.may_begin()]


def test_the_first_by_name_begins_again_with_most_of_them() -> None:
    n1, n2, n3 = map(back, THREE)
    meet(n3, rounds=50)
    assert founders(n3) == []
    meet(n2, n3)
    assert founders(n2, n3) == ["n2"]
    meet(n1, n2, n3)
    assert founders(n1, n2, n3) == ["n1"]


def test_if_the_first_is_not_heard_of_the_next_ones_begin_too() -> None:
    n1, n2, n3 = map(back, THREE)
    meet(n1, n2, n3, rounds=KEPT * PATIENCE)
    assert founders(n2, n3) == []
    assert n2.waits_for() == (("n1",), "n1 begins the group again, and has not answered yet")
    meet(n2, n3, rounds=2)
    assert founders(n2, n3) == ["n2", "n3"]


def test_one_alone_waits_and_says_for_whom() -> None:
    n1 = back("n1")
    n1.heard(NodeId("n0"), Ask("g", last=("n0", "n1")))
    n1.round()
    assert founders(n1) == []
    on, why = n1.waits_for()
    assert on == ("n2", "n3")
    assert "of 3 members 1 are back, and 2 are needed" in why


@pytest.mark.parametrize("ask", [Ask("g"), Ask("g", favours=NodeId("n1"), expect=2)])
def test_one_that_remembers_nothing_counts_but_does_not_begin(ask: Ask) -> None:
    """It was heard of when it wanted to join, or it lost its folder: now it waits for us."""
    n2 = back("n2")
    n2.heard(NodeId("n1"), ask)
    n2.round()
    assert founders(n2) == ["n2"]


def test_one_that_knows_of_more_members_does_not_count_for_another() -> None:
    """n3, n4 and n5 may have the group. n1 was not there when they joined."""
    n1, n2, n3 = back("n1"), back("n2", FIVE), back("n3", FIVE)
    meet(n1, n2, rounds=50)
    assert founders(n1, n2) == []
    on, why = n1.waits_for()
    assert on == ("n3", "n4", "n5")
    assert "n2 had other members" in why
    meet(n1, n2, n3)
    assert founders(n1, n2, n3) == ["n1"]


def test_one_that_may_not_begin_keeps_nobody_from_it() -> None:
    n1 = back("n1", (*THREE, "n6", "n7", "n8", "n9"))
    n2, n3 = back("n2"), back("n3")
    meet(n1, n2, n3, rounds=50)
    assert founders(n1, n2, n3) == ["n2", "n3"]


def test_what_was_heard_long_ago_or_before_a_stall_does_not_count() -> None:
    n1, n2 = back("n1"), back("n2")
    meet(n1, n2)
    assert founders(n1) == ["n1"]
    n1.stalled()
    assert founders(n1) == []
    meet(n1, n2)
    for _ in range(KEPT * PATIENCE):
        n1.round()
    assert founders(n1) == []


def test_all_with_whom_it_was_in_the_group_are_asked_in_turn() -> None:
    many = tuple(f"n{number:03}" for number in range(64))
    one = back("n000", many)
    asked = set()
    for _ in range(len(many) // ASKED_IN_TURN):
        asked.update(one.favourite())
        one.round()
    assert asked == {*many} - {"n000"}

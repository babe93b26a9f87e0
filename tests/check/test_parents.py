"""Who has whom as its parent, from rows that a person can follow."""

from __future__ import annotations

from ordercast.check.parents import (
    ParentChange,
    Parents,
    adoptions_in,
    children_in,
    moves_in,
    parents_at,
    path_of,
)
from ordercast.trace.text import parse_history
from ordercast.units import SECOND

TREE = """run r
n1 start at=0s
n2 start at=0s
n3 start at=0s
n1 parent at=0s
n2 parent at=0s
n3 parent at=0s
n2 parent peer=n1#0 at=1s
n3 parent peer=n2#0 at=1s
n3 parent peer=n1#0 at=2s
n2 parent at=3s
n2 parent peer=n3#0 at=4s
n2 crash at=5s
n2#1 start at=6s
n2#1 parent at=6s
n2#1 parent peer=n1 at=7s
n1 stop at=9s
"""
N1, N2, N3 = ("n1", 0), ("n2", 0), ("n3", 0)
BACK = ("n2", 1)


def parents(text: str = TREE) -> Parents:
    return Parents.of(parse_history(text, "here").rows)


def test_a_parent_stays_until_the_next_row_or_the_end() -> None:
    links = parents().links["g"]
    assert parents_at(links, SECOND // 2) == {N1: None, N2: None, N3: None}
    assert parents_at(links, SECOND) == {N1: None, N2: N1, N3: N2}
    assert parents_at(links, 4 * SECOND) == {N1: None, N2: N3, N3: N1}
    assert parents_at(links, 5 * SECOND) == {N1: None, N3: N1}
    assert parents_at(links, 9 * SECOND) == {BACK: N1, N3: N1}


def test_a_name_alone_means_the_incarnation_that_runs_then() -> None:
    found = [link for link in parents().links["g"] if link.life == BACK]
    assert [(link.parent, link.is_guess) for link in found] == [(None, False), (N1, False)]
    text = TREE + "n3 parent peer=n2 at=8s\n"
    (last,) = [link for link in parents(text).links["g"] if link.row.peer == "n2"]
    assert (last.parent, last.is_guess) == (BACK, True)


def test_a_move_is_from_one_parent_to_another_and_all_else_is_none() -> None:
    """n2 lost its parent before it found n3, and who starts has none to move from."""
    links = parents().links["g"]
    assert moves_in(links) == [ParentChange(2 * SECOND, N3, N2, N1)]
    assert [(link.life, link.parent) for link in adoptions_in(links)] == [(N2, N3)]


def test_a_member_that_left_and_joined_again_has_not_moved() -> None:
    text = TREE + "n3 leave at=8s\nn3 join at=9s\nn3 parent peer=n2#1 at=10s\n"
    assert len(moves_in(parents(text).links["g"])) == 1


def test_every_group_has_its_own_tree() -> None:
    text = TREE + "n1 parent group=h at=1s\nn3 parent group=h peer=n1#0 at=2s\n"
    assert parents_at(parents(text).links["h"], 3 * SECOND) == {N1: None, N3: N1}


def test_paths_and_children_end_where_parents_form_a_circle() -> None:
    circle = {N1: N2, N2: N3, N3: N1, BACK: N1}
    assert path_of(BACK, circle) == [N1, N2, N3]
    assert path_of(N1, circle) == [N2, N3]
    assert children_in(circle) == {N2: [N1], N3: [N2], N1: [BACK, N3]}

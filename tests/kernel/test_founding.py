"""Who may found an open group: a line of the table a test (`kernel/founding.py`)."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ordercast.kernel.family import FoundingRule
from ordercast.kernel.founding import entry_of, founders_of, lacking, remembered, suffices
from ordercast.types import Joined, Left, NodeId, View

NAMES = tuple(f"n{number}" for number in range(1, 8))


def test_a_node_that_was_alone_in_the_group_founds_it_again() -> None:
    entry = entry_of("n1", seeds=True, last=("n1",))
    assert entry.founds
    assert entry.asks
    assert not entry_of("n1", seeds=False).asks  # it has never been in it


def test_a_node_that_was_there_with_others_founds_only_with_a_majority_of_them() -> None:
    entry = entry_of("n1", seeds=False, founder="n1", expect=1, last=("n1", "n2", "n3"))
    assert not entry.founds
    assert not suffices(entry, ("n1",))
    assert not suffices(entry, ("n1", "n4", "n5", "n6"))
    assert suffices(entry, ("n1", "n3"))


def test_a_node_whose_name_was_known_never_founds_alone() -> None:
    for rule in ({"founder": "n1"}, {"expect": 1}, {}):
        entry = entry_of("n1", seeds=False, reborn=True, **rule)  # type: ignore[arg-type]
        assert entry.lost
        assert not suffices(entry, NAMES)
        assert "delete their data folders" in lacking(entry, NAMES)
    assert not entry_of("n1", seeds=True, reborn=True).lost, "it would not found anyway"
    assert not entry_of("n1", seeds=True, founder="n2", reborn=True).lost


def test_nodes_that_lost_their_folders_count_if_nobody_can_have_founded_the_group() -> None:
    three = entry_of("n1", seeds=True, expect=3, of=3, reborn=True)
    assert suffices(three, ("n1", "n2", "n3"), ("n1", "n2")), "n3 would have been in it"
    assert suffices(three, ("n1", "n2", "n3"), ("n1", "n2", "n3")), "there are no others"
    assert not suffices(three, ("n1", "n2"), ("n1",))
    five = entry_of("n1", seeds=True, expect=3, reborn=True)
    assert not suffices(five, ("n1", "n2", "n3"), ("n1",)), "n1, n4 and n5 may be in it"
    assert suffices(five, ("n1", "n2", "n3", "n4"), ("n1",))
    why = lacking(five, ("n1", "n2", "n3"), ("n1",))
    assert "n1 lost the data folder" in why
    assert "takes 3 nodes that did not lose theirs, or all 5" in why
    assert "of=..." in why
    assert "of=..." not in lacking(three, ("n1", "n2", "n3"), ("n1",))


@given(st.data())
def test_no_second_group_whoever_lost_its_folder(data: st.DataObject) -> None:
    """Some founded the group, and some lost their folders since: a second one is founded only by
    all that expect the number, none of which is in the first."""
    count = data.draw(st.integers(1, len(NAMES)))
    nodes = NAMES[:count]
    expect = data.draw(st.integers(count // 2 + 1, count))
    founders = data.draw(st.sets(st.sampled_from(nodes), min_size=expect))
    lost = data.draw(st.sets(st.sampled_from(nodes)))
    waiting = sorted(lost | (set(nodes) - founders))  # who has its folder is in the group
    some = [name for name in waiting if data.draw(st.booleans())]
    of = data.draw(st.sampled_from((0, count)))
    entries = [
        entry_of(name, seeds=True, expect=expect, of=of, reborn=name in lost) for name in some
    ]
    may = bool(some) and all(suffices(entry, some, lost & set(some)) for entry in entries)
    assert not may or expect == 1 or set(some) == set(nodes)


def test_a_named_founder_founds_and_nobody_else_does() -> None:
    assert entry_of("n1", seeds=True, founder="n1", expect=3).founds
    entry = entry_of("n2", seeds=False, founder="n1")
    assert not suffices(entry, NAMES)


def test_an_expected_number_founds_and_no_fewer() -> None:
    entry = entry_of("n1", seeds=False, expect=3)
    assert not suffices(entry, ("n1", "n2"))
    assert suffices(entry, ("n1", "n2", "n3"))
    assert suffices(entry, NAMES)


def test_a_node_without_seeds_founds_and_one_with_seeds_waits() -> None:
    assert entry_of("n1", seeds=False).founds
    assert not suffices(entry_of("n1", seeds=True), NAMES)


def test_nobody_founds_without_a_reason() -> None:
    assert not suffices(FoundingRule(), NAMES)


@given(st.integers(1, len(NAMES)), st.integers(1, len(NAMES)))
def test_more_than_half_cannot_found_twice(count: int, expect: int) -> None:
    """Two sets that share nobody are never both enough, if `expect` is more than half of all."""
    nodes = NAMES[:count]
    enough = [
        set(some)
        for size in range(1, count + 1)
        for some in combinations(nodes, size)
        if all(suffices(entry_of(name, seeds=True, expect=expect), some) for name in some)
    ]
    twice = any(not one & other for one in enough for other in enough)
    assert twice == (2 * expect <= count)


@st.composite
def histories(draw: st.DrawFn) -> dict[str, FoundingRule]:
    """Nodes that wait for a group: each was in it with some, or expects a number."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    entries = {}
    for name in names:
        others = draw(st.sets(st.sampled_from(NAMES)))
        last = tuple(sorted({name, *others})) if draw(st.booleans()) else ()
        entries[name] = entry_of(name, seeds=True, expect=draw(st.integers(0, 4)), last=last)
    return entries


@given(histories())
def test_founders_are_the_most_that_may_found_together(entries: dict[str, FoundingRule]) -> None:
    found = founders_of(entries, lambda name, present: suffices(entries[name], present))
    together = [
        set(some)
        for size in range(len(entries) + 1)
        for some in combinations(sorted(entries), size)
        if all(suffices(entries[name], some) for name in some)
    ]
    assert found in together
    assert all(some <= found for some in together)


def test_a_view_says_who_is_in_the_group() -> None:
    view = View("g", 3, (NodeId("n3", 7), NodeId("n1")))
    assert remembered(("n1", "n2"), view) == ("n1", "n3")


def test_without_views_all_are_remembered_that_joined_and_did_not_leave() -> None:
    last: tuple[str, ...] = ("n1", "n3")  # as of an earlier incarnation
    for news, expected in (
        (Joined("g", NodeId("n1", 2)), ("n1", "n3")),
        (Joined("g", NodeId("n2")), ("n1", "n2", "n3")),
        (Left("g", NodeId("n3"), "silent"), ("n1", "n2", "n3")),
        (Left("g", NodeId("n2"), "replaced"), ("n1", "n2", "n3")),
        (Left("g", NodeId("n2"), "left"), ("n1", "n3")),
        ("anything else", ("n1", "n3")),
    ):
        last = remembered(last, news)
        assert last == expected

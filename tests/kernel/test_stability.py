"""Stability against a plain dictionary whose minimum is taken anew each time."""

from __future__ import annotations

import copy

import hypothesis.strategies as st
from hypothesis import given, settings

from ordercast.kernel.stability import Stability
from ordercast.types import NodeId

NODES = [NodeId("a"), NodeId("b"), NodeId("a", 1)]

operations = st.lists(
    st.tuples(
        st.sampled_from(["follow", "unfollow", "acknowledge", "ask"]),
        st.sampled_from(NODES),
        st.integers(-1, 3),
    ),
    max_size=60,
)


def play(stability: Stability, plain: dict[NodeId, int], history: list) -> None:
    """Does the same to both, and compares all that can be seen."""
    for verb, node, number in history:
        if verb == "follow":
            stability.follow(node, number)
            plain[node] = number
        elif verb == "unfollow":
            stability.unfollow(node)
            plain.pop(node, None)
        elif verb == "acknowledge":
            news = node in plain and number > plain[node]
            assert stability.acknowledge(node, number) is news
            if news:
                plain[node] = number
        else:  # the minimum is cached when asked for, so asking is an operation too
            assert stability.stable_up_to(99) == min(plain.values(), default=99)
        behind = sorted((up_to, one) for one, up_to in plain.items() if up_to < number)
        assert stability.behind(number) == tuple(one for _, one in behind)
        assert [stability.acknowledged(one) for one in NODES] == [plain.get(one) for one in NODES]


@given(operations)
@settings(deadline=None, max_examples=300)
def test_agrees_with_a_plain_dictionary(history: list) -> None:
    stability, plain = Stability(), {}
    play(stability, plain, history)
    assert stability.stable_up_to(99) == min(plain.values(), default=99)


@given(operations, operations, operations)
@settings(deadline=None)
def test_a_deep_copy_of_stability_is_independent(before: list, here: list, there: list) -> None:
    stability, plain = Stability(), {}
    play(stability, plain, before)
    snapshot, plain_snapshot = copy.deepcopy(stability), dict(plain)
    play(stability, plain, here)
    play(snapshot, plain_snapshot, there)
    assert stability.stable_up_to(99) == min(plain.values(), default=99)
    assert snapshot.stable_up_to(99) == min(plain_snapshot.values(), default=99)


def test_the_minimum_moves_when_the_last_that_stood_there_does() -> None:
    stability = Stability()
    for node in NODES:
        stability.follow(node, 1)
    assert stability.stable_up_to(0) == 1
    assert stability.acknowledge(NODES[0], 5)
    assert stability.acknowledge(NODES[1], 4)
    assert stability.stable_up_to(0) == 1
    assert stability.acknowledge(NODES[2], 7)
    assert stability.stable_up_to(0) == 4
    stability.unfollow(NODES[1])
    assert stability.stable_up_to(0) == 5


def test_a_newcomer_behind_all_others_is_waited_for_alone() -> None:
    stability = Stability()
    for node, number in zip(NODES, (5, 5, 3), strict=True):
        stability.follow(node, number)
        assert stability.stable_up_to(0) == number
    assert stability.acknowledge(NODES[2], 4)
    assert stability.stable_up_to(0) == 4


def test_without_followers_everything_is_stable_and_unknown_members_are_ignored() -> None:
    stability = Stability()
    assert stability.stable_up_to(17) == 17
    assert not stability.acknowledge(NODES[0], 3)
    assert stability.acknowledged(NODES[0]) is None

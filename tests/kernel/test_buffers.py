"""Retained and Bounded against plain lists that are scanned."""

from __future__ import annotations

import copy

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ordercast.kernel.buffers import Bounded, Limit, Retained

LIMIT = Limit(count=4, size=30)

operations = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "discard", "drop", "after"]),
        st.integers(0, 60),
        st.integers(0, 12),
    ),
    max_size=60,
)


def play(retained: Retained[str], plain: list[tuple[int, str, int]], history: list) -> None:
    for verb, number, size in history:
        if verb == "append":
            number = (plain[-1][0] if plain else -5) + 1 + number % 4  # gaps are allowed
            retained.append(number, f"item {number}", size)
            plain.append((number, f"item {number}", size))
        elif verb == "discard":
            keep = [entry for entry in plain if entry[0] > number]
            assert retained.discard_up_to(number) == len(plain) - len(keep)
            plain[:] = keep
        elif verb == "drop" and plain:
            assert retained.drop_oldest() == plain.pop(0)[:2]
        else:
            assert retained.after(number) == [item for n, item, _ in plain if n > number]
        assert retained.count == len(plain)
        assert retained.size == sum(size for _, _, size in plain)
        assert retained.oldest == (plain[0][0] if plain else None)
        assert retained.newest == (plain[-1][0] if plain else None)
        assert retained.full is (retained.count >= 4 or retained.size >= 30)
        assert retained.over_limit is (retained.count > 4 or retained.size > 30)


@given(operations)
@settings(deadline=None)
def test_retained_agrees_with_a_plain_list(history: list) -> None:
    play(Retained(LIMIT), [], history)


@given(operations, operations, operations)
@settings(deadline=None)
def test_a_deep_copy_of_retained_is_independent(before: list, here: list, there: list) -> None:
    retained: Retained[str] = Retained(LIMIT)
    plain: list[tuple[int, str, int]] = []
    play(retained, plain, before)
    snapshot, plain_snapshot = copy.deepcopy(retained), list(plain)
    play(retained, plain, here)
    play(snapshot, plain_snapshot, there)


def test_numbers_must_increase() -> None:
    retained: Retained[str] = Retained(LIMIT)
    retained.append(3, "three", 1)
    with pytest.raises(AssertionError, match="increase"):
        retained.append(3, "again", 1)


def test_a_list_that_after_returned_belongs_to_the_caller() -> None:
    retained: Retained[str] = Retained(LIMIT)
    retained.append(1, "one", 1)
    retained.after(0).clear()
    assert retained.after(0) == ["one"]


@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=60))
@settings(deadline=None)
def test_bounded_agrees_with_a_plain_list(capacity: int, keys: list[int]) -> None:
    history: Bounded[int] = Bounded(capacity)
    plain: list[int] = []
    evicted = 0
    for key in keys:
        assert (key in history) is (key in plain)
        assert history.add(key) is (key not in plain)
        if key not in plain:
            plain.append(key)
            evicted += len(plain) > capacity
            plain = plain[-capacity:]
        assert len(history) == len(plain)
        assert history.evicted == evicted
        assert [k for k in range(10) if k in history] == sorted(plain)


def test_a_deep_copy_of_bounded_is_independent() -> None:
    history: Bounded[str] = Bounded(2)
    history.add("a")
    snapshot = copy.deepcopy(history)
    history.add("b")
    history.add("c")
    assert "a" not in history
    assert history.evicted == 1
    assert "a" in snapshot
    assert "b" not in snapshot
    assert snapshot.evicted == 0

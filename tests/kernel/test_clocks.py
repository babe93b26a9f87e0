"""Vector clocks merge entry by entry; a logical clock numbers above all that it knows."""

from __future__ import annotations

import copy

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ordercast.kernel.clocks import LogicalClock, merge

# Few values, so that equal and comparable clocks are common.
vectors = st.tuples(*[st.integers(0, 2)] * 3)


def covers(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(mine >= other for mine, other in zip(a, b, strict=True))


@given(vectors, vectors, vectors)
@settings(deadline=None)
def test_merge_is_the_least_that_covers_both(
    a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]
) -> None:
    both = merge(a, b)
    assert covers(both, a)
    assert covers(both, b)
    assert covers(c, both) is (covers(c, a) and covers(c, b))
    assert merge(b, a) == both


def test_clocks_of_different_groups_do_not_merge() -> None:
    with pytest.raises(AssertionError):
        merge((1, 2), (1, 2, 3))


@given(st.lists(st.none() | st.integers(0, 40), max_size=40))
@settings(deadline=None)
def test_a_logical_clock_numbers_above_all_it_knows(inputs: list[int | None]) -> None:
    clock = LogicalClock()
    known = [0]
    for witnessed in inputs:
        if witnessed is None:
            number = clock.tick()
            assert number == max(known) + 1
            known.append(number)
        else:
            clock.witness(witnessed)
            known.append(witnessed)
        assert clock.value == max(known)


def test_a_deep_copy_of_a_clock_is_independent() -> None:
    clock = LogicalClock(7)
    snapshot = copy.deepcopy(clock)
    assert clock.tick() == 8
    assert snapshot.value == 7

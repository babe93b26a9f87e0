"""HoldBack against a slow version that looks at everything each time."""

from __future__ import annotations

import copy

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ordercast.kernel.buffers import Limit
from ordercast.kernel.holdback import HoldBack

AMPLE = Limit(count=1000, size=10**6)


class SlowHoldBack:
    """Keeps what each item still waits for as a set, and looks through all of them."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[set[int], int]] = {}

    def enqueue(self, key: int, waits_for: tuple[int, ...], size: int) -> list[int]:
        if key in self.waiting:
            return []
        if not waits_for:
            return [key, *self.satisfy(key)]
        self.waiting[key] = (set(waits_for), size)
        return []

    def satisfy(self, key: int) -> list[int]:
        self.waiting.pop(key, None)
        released: list[int] = []
        there = [key]
        while there:
            done = there.pop(0)
            for other in [k for k, (missing, _) in self.waiting.items() if done in missing]:
                self.waiting[other][0].discard(done)
                if not self.waiting[other][0]:
                    del self.waiting[other]
                    released.append(other)
                    there.append(other)
        return released

    def missing(self) -> list[int]:
        wanted = {key for missing, _ in self.waiting.values() for key in missing}
        return sorted(wanted - set(self.waiting))


keys = st.integers(0, 7)
operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("enqueue"), keys, st.lists(keys, max_size=3).map(tuple), st.integers(0, 9)
        ),
        st.tuples(st.sampled_from(["satisfy", "abandon", "drop"]), keys),
    ),
    max_size=60,
)


def play(queue: HoldBack[int, str], slow: SlowHoldBack, history: list) -> None:
    for verb, key, *rest in history:
        if verb == "enqueue":
            released = queue.enqueue(key, f"item {key}", *rest)
            assert released == [f"item {k}" for k in slow.enqueue(key, *rest)]
        elif verb == "satisfy":
            assert queue.satisfy(key) == [f"item {k}" for k in slow.satisfy(key)]
        elif verb == "abandon":
            assert (queue.abandon(key) is not None) is (slow.waiting.pop(key, None) is not None)
        elif slow.waiting:
            oldest = next(iter(slow.waiting))
            assert queue.drop_oldest() == (oldest, f"item {oldest}")
            del slow.waiting[oldest]
        assert queue.held == tuple(slow.waiting)
        assert len(queue) == len(slow.waiting)
        assert queue.size == sum(size for _, size in slow.waiting.values())
        assert sorted(queue.missing()) == slow.missing()
        assert all((k in queue) is (k in slow.waiting) for k in range(8))


@given(operations)
@settings(deadline=None)
def test_holdback_agrees_with_the_slow_version(history: list) -> None:
    play(HoldBack(AMPLE), SlowHoldBack(), history)


@given(operations, operations, operations)
@settings(deadline=None)
def test_a_deep_copy_of_holdback_is_independent(before: list, here: list, there: list) -> None:
    queue: HoldBack[int, str] = HoldBack(AMPLE)
    slow = SlowHoldBack()
    play(queue, slow, before)
    snapshot, slow_snapshot = copy.deepcopy(queue), copy.deepcopy(slow)
    play(queue, slow, here)
    play(snapshot, slow_snapshot, there)


@given(st.data())
@settings(deadline=None)
def test_any_arrival_order_is_released_in_causal_order(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 10))
    past = [
        tuple(data.draw(st.sets(st.integers(0, key - 1), max_size=3))) if key else ()
        for key in range(count)
    ]
    queue: HoldBack[int, int] = HoldBack(AMPLE)
    released: list[int] = []
    for key in data.draw(st.permutations(range(count))):
        missing = tuple(other for other in past[key] if other not in released)
        released += queue.enqueue(key, key, missing)
    assert sorted(released) == list(range(count))
    assert all(
        released.index(other) < released.index(key) for key in range(count) for other in past[key]
    )
    assert len(queue) == 0
    assert queue.missing() == ()


def test_overflow_is_reported_and_must_be_resolved() -> None:
    queue: HoldBack[str, str] = HoldBack(Limit(count=2, size=100))
    for key in "abc":
        queue.enqueue(key, key.upper(), ("missing",), size=10)
    assert queue.over_limit
    with pytest.raises(AssertionError, match="drop_oldest"):
        queue.enqueue("d", "D", ())
    assert queue.drop_oldest() == ("a", "A")
    assert not queue.over_limit
    assert queue.satisfy("missing") == ["B", "C"]
    queue.enqueue("big", "BIG", ("other",), size=101)
    assert queue.over_limit


def test_an_item_is_forced_through_and_its_followers_come_after_it() -> None:
    queue: HoldBack[str, str] = HoldBack(AMPLE)
    queue.enqueue("second", "2", ("first",))
    queue.enqueue("third", "3", ("second",))
    assert queue.abandon("second") == "2"
    assert queue.satisfy("second") == ["3"]
    assert queue.missing() == ()

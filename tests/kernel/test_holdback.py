"""HoldBack and InOrder against slow versions that look at everything each time."""

from __future__ import annotations

import copy

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ordercast.kernel.buffers import Limit
from ordercast.kernel.holdback import HoldBack, InOrder

AMPLE = Limit(count=1000, size=10**6)


class SlowHoldBack:
    """Keeps what each item still waits for as a set, and looks through all of them."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[set[int], int]] = {}

    def admit(self, key: int, waits_for: tuple[int, ...], size: int) -> list[int]:
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
        st.tuples(st.just("admit"), keys, st.lists(keys, max_size=3).map(tuple), st.integers(0, 9)),
        st.tuples(st.sampled_from(["satisfy", "abandon", "drop"]), keys),
    ),
    max_size=60,
)


def play(queue: HoldBack[int, str], slow: SlowHoldBack, history: list) -> None:
    for verb, key, *rest in history:
        if verb == "admit":
            released = queue.admit(key, f"item {key}", *rest)
            assert released == [f"item {k}" for k in slow.admit(key, *rest)]
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
        released += queue.admit(key, key, missing)
    assert sorted(released) == list(range(count))
    assert all(
        released.index(other) < released.index(key) for key in range(count) for other in past[key]
    )
    assert len(queue) == 0
    assert queue.missing() == ()


def test_overflow_is_reported_and_must_be_resolved() -> None:
    queue: HoldBack[str, str] = HoldBack(Limit(count=2, size=100))
    for key in "abc":
        queue.admit(key, key.upper(), ("missing",), size=10)
    assert queue.over_limit
    with pytest.raises(AssertionError, match="drop_oldest"):
        queue.admit("d", "D", ())
    assert queue.drop_oldest() == ("a", "A")
    assert not queue.over_limit
    assert queue.satisfy("missing") == ["B", "C"]
    queue.admit("big", "BIG", ("other",), size=101)
    assert queue.over_limit


def test_an_item_is_forced_through_and_its_followers_come_after_it() -> None:
    queue: HoldBack[str, str] = HoldBack(AMPLE)
    queue.admit("second", "2", ("first",))
    queue.admit("third", "3", ("second",))
    assert queue.abandon("second") == "2"
    assert queue.satisfy("second") == ["3"]
    assert queue.missing() == ()


class SlowInOrder:
    def __init__(self, next_number: int) -> None:
        self.next_number = next_number
        self.waiting: dict[int, int] = {}  # size by number

    def admit(self, number: int, size: int) -> list[int]:
        held = sum(self.waiting.values())
        ahead = number - self.next_number
        if ahead == 0 or (0 < ahead < 5 and number not in self.waiting and held + size <= 20):
            self.waiting[number] = size
        return self.consecutive()

    def skip_to(self, number: int) -> list[int]:
        below = sorted(n for n in self.waiting if n < number)
        for n in below:
            del self.waiting[n]
        self.next_number = max(self.next_number, number)
        return below + self.consecutive()

    def consecutive(self) -> list[int]:
        released = []
        while self.waiting.pop(self.next_number, None) is not None:
            released.append(self.next_number)
            self.next_number += 1
        return released


arrivals = st.lists(
    st.tuples(st.sampled_from(["admit"] * 5 + ["skip"]), st.integers(-2, 7), st.integers(0, 9)),
    max_size=60,
)


def play_in_order(order: InOrder[int], slow: SlowInOrder, history: list) -> None:
    for verb, ahead, size in history:
        number = slow.next_number + ahead
        if verb == "admit":
            assert order.admit(number, number, size) == slow.admit(number, size)
        else:
            assert order.skip_to(number) == slow.skip_to(number)
        assert order.next_number == slow.next_number
        assert order.size == sum(slow.waiting.values()) <= 20
        assert len(order) == len(slow.waiting) < 5
        gap = range(slow.next_number, min(slow.waiting, default=slow.next_number))
        assert order.missing() == gap


@given(arrivals, arrivals, arrivals)
@settings(deadline=None)
def test_in_order_agrees_with_the_slow_version(before: list, here: list, there: list) -> None:
    order: InOrder[int] = InOrder(1, Limit(count=5, size=20))
    slow = SlowInOrder(1)
    play_in_order(order, slow, before)
    snapshot, slow_snapshot = copy.deepcopy(order), copy.deepcopy(slow)
    play_in_order(order, slow, here)
    play_in_order(snapshot, slow_snapshot, there)


def test_in_order_counts_what_it_does_not_take() -> None:
    order: InOrder[str] = InOrder(1, Limit(count=3, size=10))
    assert order.admit(3, "three") == []
    assert order.admit(3, "three") == []
    assert order.admit(4, "four") == []
    assert order.admit(2, "two", size=11) == []
    assert (order.repeated, order.refused) == (1, 2)
    assert order.admit(1, "one", size=11) == ["one"]
    assert order.admit(2, "two", size=11) == ["two", "three"]
    assert order.admit(2, "two") == []
    assert (order.repeated, order.refused) == (2, 2)


def test_skipping_keeps_what_arrived() -> None:
    order: InOrder[str] = InOrder(1, AMPLE)
    for number, item in ((2, "two"), (5, "five"), (6, "six"), (9, "nine")):
        order.admit(number, item)
    assert order.skip_to(5) == ["two", "five", "six"]
    assert order.next_number == 7
    assert order.skip_to(3) == []
    assert order.missing() == range(7, 9)

"""The event queue against the obvious one: a list that is searched for its smallest entry."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ordercast.sim.event_queue import SLOT_BITS, EventQueue

SLOT = 1 << SLOT_BITS
# About as long as a slot, so that entries fall into the one that is on, the next, and far ones.
spans = st.one_of(
    st.just(0),
    st.integers(0, 10),
    st.integers(SLOT - 2, SLOT + 2),
    st.integers(0, 3 * SLOT),
    st.integers(0, 1000 * SLOT),
)


class Plain:
    """What an event queue is meant to do, without any cleverness."""

    def __init__(self) -> None:
        self.now = 0
        self.entries: list[tuple[int, int, object, object]] = []
        self.tickets = 0

    def add(self, at: int, act: object, argument: object) -> None:
        self.tickets += 1
        self.entries.append((at, self.tickets, act, argument))

    def run(self, until: int, at_most: int) -> bool:
        while self.entries and min(self.entries)[0] <= until:
            if at_most == 0:
                return False
            at_most -= 1
            entry = min(self.entries)
            self.entries.remove(entry)
            self.now, _, act, argument = entry
            act(argument)  # type: ignore[operator]
        self.now = until
        return True


def play(queue: EventQueue | Plain, script: list[tuple[int, list[int]]], runs: list[int]) -> list:
    """Entries that, when they happen, add further ones. Returns when each of them happened."""
    happened = []
    follow = {index: spans for index, (_, spans) in enumerate(script)}

    def act(index: int) -> None:
        happened.append((queue.now, index))
        for span in follow.pop(index, []):
            queue.add(queue.now + span, act, len(script) + len(happened))

    for index, (at, _) in enumerate(script):
        queue.add(at, act, index)
    until = 0
    for span in runs:
        until += span
        assert queue.run(until, 1000)
        happened.append((queue.now, None))
        queue.add(queue.now, act, -1)  # what is added between two runs
    return happened


@given(
    st.lists(st.tuples(spans, st.lists(spans, max_size=3)), max_size=12),
    st.lists(spans, min_size=1, max_size=5),
)
@settings(deadline=None)
def test_the_event_queue_agrees_with_an_obvious_one(
    script: list[tuple[int, list[int]]], runs: list[int]
) -> None:
    assert play(EventQueue(), script, runs) == play(Plain(), script, runs)


def test_events_at_the_same_time_happen_in_the_order_in_which_they_were_added() -> None:
    happened: list[str] = []
    queue = EventQueue()
    for name in ("b", "a", "c"):
        queue.add(5, happened.append, name)
    queue.add(4, lambda _: queue.add(5, happened.append, "d"), None)
    queue.run(5, 10)
    assert happened == ["b", "a", "c", "d"]


def test_events_at_the_end_happen_and_later_ones_wait() -> None:
    happened: list[int] = []
    queue = EventQueue()
    for at in (9, 10, 11):
        queue.add(at, happened.append, at)
    assert queue.run(10, 10)
    assert (happened, queue.now) == ([9, 10], 10)
    assert queue.run(11, 10)
    assert (happened, queue.now) == ([9, 10, 11], 11)


@pytest.mark.parametrize(("at_most", "enough"), [(2, False), (3, True), (4, True)])
def test_the_queue_stops_after_too_many_events(at_most: int, enough: bool) -> None:
    happened: list[int] = []
    queue = EventQueue()
    for at in (1, SLOT, 2 * SLOT):
        queue.add(at, happened.append, at)
    assert queue.run(3 * SLOT, at_most) is enough
    assert queue.done == len(happened) == min(at_most, 3)


def test_an_event_that_raises_ends_the_run_and_is_counted() -> None:
    queue = EventQueue()
    for at in (1, 2):
        queue.add(at, lambda _: None, None)
    queue.add(3, lambda number: 1 // number, 0)
    with pytest.raises(ZeroDivisionError):
        queue.run(10, 10)
    assert (queue.now, queue.done) == (3, 2)


def test_nothing_happens_in_the_past() -> None:
    queue = EventQueue()
    queue.add(5 * SLOT, lambda _: None, None)
    queue.run(5 * SLOT, 10)
    with pytest.raises(AssertionError, match="in the past"):
        queue.add(SLOT, lambda _: None, None)

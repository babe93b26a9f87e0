"""Clocks that go together, at rates of their own, and what must be true in every state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.sim.test_explore_world import Toy, no_judge, toy_stage

from ordercast.kernel.step import Step, Timer
from ordercast.sim.explore import Bounds, Present, Setting, explore

TIMERS = Bounds(submissions=0, timers=2)


class Watch(Toy):
    """Two timers, each of which runs out once."""

    def start(self, step: Step) -> None:
        step.set_timer("soon", 10)
        step.set_timer("late", 100)

    def expire(self, step: Step, timer: Timer) -> None: ...


def times(where: Setting, bounds: Bounds = TIMERS) -> set[tuple[int, ...]]:
    """What the members' clocks show, in every state."""
    found = set()

    def look(present: Sequence[Present]) -> None:
        found.add(tuple(one.now for one in present))

    report = explore(where, bounds, no_judge, invariant=look)
    assert report.complete
    return found


def test_each_clock_advances_by_its_own_timers_unless_clocks_advance_together() -> None:
    alone = times(toy_stage(Watch, clocks=True, prelude=False))
    assert (10, 0) in alone
    assert (100, 10) in alone
    together = times(toy_stage(Watch, clocks=True, together=True, prelude=False))
    assert together == {(0, 0), (10, 10), (100, 100)}


def test_a_timer_that_expires_late_does_not_turn_time_back() -> None:
    where = toy_stage(Watch, 1, clocks=True, together=True, prelude=False)
    moments = []

    class Writes(Watch):
        def expire(self, step: Step, timer: Timer) -> None:
            moments.append((timer, step.now))

    where = toy_stage(Writes, 1, clocks=True, together=True, prelude=False)
    explore(where, TIMERS, no_judge)
    assert set(moments) == {("soon", 10), ("late", 100), ("soon", 100)}


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        # A fast clock's timer runs out early, by a true one; a slow clock's late.
        ({"n1": 0.25}, {(0, 0), (10, 8), (12, 10), (100, 80), (125, 100)}),
        ({"n1": -0.5}, {(0, 0), (5, 10), (10, 20), (50, 100), (100, 200)}),
    ],
)
def test_clocks_together_may_have_rates(rates: dict[str, float], expected: Any) -> None:
    where = toy_stage(Watch, clocks=True, together=True, rates=rates, prelude=False)
    assert times(where) == expected


class Counter(Toy):
    def expire(self, step: Step, timer: Timer) -> None:
        self.made += 1

    def start(self, step: Step) -> None:
        step.set_timer("count", 1)


def test_an_invariant_is_checked_in_every_state_and_its_break_has_the_shortest_schedule() -> None:
    def one_at_most(present: Sequence[Present]) -> str | None:
        machines = [(one.node.name, one.machines[0]) for one in present]
        counted = [name for name, it in machines if isinstance(it, Counter) and it.made]
        return f"{' and '.join(counted)} have counted" if len(counted) > 1 else None

    report = explore(toy_stage(Counter, prelude=False), TIMERS, no_judge, invariant=one_at_most)
    assert report.broken is not None
    assert report.broken.verdict is not None
    assert report.broken.verdict.why == "n1 and n2 have counted"
    assert report.broken.schedule == ("n1 timer count", "n2 timer count")
    assert str(report).splitlines()[1:] == [
        "the invariant is broken: n1 and n2 have counted",
        "  1  n1 timer count",
        "  2  n2 timer count",
    ]
    assert not report.complete


def test_an_invariant_may_break_in_the_first_state_and_sees_only_live_members() -> None:
    seen = []

    def look(present: Sequence[Present]) -> str | None:
        seen.append(tuple(str(one.node) for one in present))
        return None

    bounds = Bounds(submissions=0, crashes=1, restarts=1)
    explore(toy_stage(Counter, prelude=False), bounds, no_judge, invariant=look)
    assert {("n1", "n2"), ("n1",), ("n2",), ("n1#1", "n2")} <= set(seen)
    report = explore(toy_stage(Counter, prelude=False), TIMERS, no_judge, invariant=lambda _: "no")
    assert report.broken is not None
    assert report.broken.schedule == ()

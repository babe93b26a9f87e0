"""The clocks of members: off true time, fast or slow; and the faults that make them so."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.sim.probes import (
    MILLISECOND,
    SECOND,
    Stage,
    fault,
    ring,
    say,
)

from ordercast.kernel.step import DATAGRAM
from ordercast.sim.clock import TRUE

times = st.integers(0, 100 * SECOND)
drifts = st.floats(-0.49, 1)


def test_a_clock_that_nothing_is_wrong_with_shows_true_time() -> None:
    assert TRUE.read(12345) == TRUE.true_time(12345) == TRUE.span(12345) == 12345


@given(times, times, st.integers(-SECOND, SECOND))
def test_a_jump_moves_the_hands_and_not_the_pace(at: int, later: int, by: int) -> None:
    clock = TRUE.jumped(at, by)
    assert clock.read(at + later) == at + later + by
    assert clock.span(later) == later


@given(times, drifts, st.integers(-SECOND, SECOND))
def test_a_clock_that_drifts_goes_on_drifting_when_it_jumps(at: int, drift: float, by: int) -> None:
    drifting = TRUE.drifting(0, drift)
    assert drifting.jumped(at, by).span(SECOND) == drifting.span(SECOND)


@given(times, times, drifts)
def test_a_drift_changes_the_pace_and_not_the_hands(at: int, later: int, drift: float) -> None:
    clock = TRUE.drifting(at, drift)
    assert clock.read(at) == at
    assert clock.read(at + later) - at == pytest.approx(later * (1 + drift), abs=later * 1e-8 + 2)


@given(times, drifts, st.integers(-SECOND, SECOND), times)
def test_a_span_is_how_long_the_clock_takes_to_show_so_much_more(
    at: int, drift: float, by: int, local: int
) -> None:
    clock = TRUE.drifting(at, drift).jumped(at, by)
    due = at + clock.span(local)
    assert clock.read(due) - clock.read(at) >= local, "never early"
    assert clock.read(due - 1) - clock.read(at) < local or local == 0, "and not a moment late"
    assert clock.true_time(clock.read(at) + local) == due


@given(st.lists(st.tuples(times, drifts, st.integers(0, SECOND)), max_size=5))
def test_changes_join_without_a_gap(changes: list[tuple[int, float, int]]) -> None:
    clock, at = TRUE, 0
    for later, drift, by in changes:
        at += later
        shown = clock.read(at)
        clock = clock.drifting(at, drift)
        assert clock.read(at) == shown
        clock = clock.jumped(at, by)
        assert clock.read(at) == shown + by


def clock_at(stage: Stage, at: int) -> int:
    """How far the clock of n2 is off true time when it hears something."""
    stage.at(at - 2 * MILLISECOND, "n1", say("n2", "what time is it?", DATAGRAM)).run()
    (heard,) = stage.heard
    assert heard.at == at
    return heard.clock - heard.at


@pytest.mark.parametrize(
    ("at", "off"), [(1, 0), (3, 1100), (4, 1200), (6, 1300), (9, 1300)], ids=str
)
def test_the_end_of_a_skew_ends_the_drift_and_leaves_the_rest(at: int, off: int) -> None:
    skew = fault("skew", 2 * SECOND, "n2", 3 * SECOND, by=SECOND, drift=0.1)
    found = clock_at(Stage(2, faults=[skew]), at * SECOND)
    assert found == pytest.approx(off * MILLISECOND, abs=2)


def test_of_skews_that_overlap_the_newest_counts_until_it_ends() -> None:
    faults = [
        fault("skew", 1 * SECOND, "n2", 6 * SECOND, drift=0.1),
        fault("skew", 3 * SECOND, "n2", 2 * SECOND, drift=-0.2),
    ]
    # 2 s that gain a tenth, 2 s that lose a fifth, 2 s that gain a tenth.
    for at, off in ((3, 200), (5, -200), (7, 0), (9, 0)):
        found = clock_at(Stage(2, faults=faults), at * SECOND)
        assert found == pytest.approx(off * MILLISECOND, abs=5)


def test_a_jump_moves_no_timer_that_is_running() -> None:
    stage = Stage(1, faults=[fault("skew", 2 * SECOND, "n1", by=5 * SECOND)])
    stage.at(SECOND, "n1", ring("tea", 3 * SECOND)).run()
    assert [(rang.at, rang.clock) for rang in stage.rang] == [(4 * SECOND, 9 * SECOND)]


def test_a_new_life_has_the_clock_of_the_old_one() -> None:
    faults = [fault("skew", SECOND, "n2", by=SECOND), fault("restart", 2 * SECOND, "n2")]
    assert clock_at(Stage(2, faults=faults), 5 * SECOND) == SECOND

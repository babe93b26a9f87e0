"""The clocks of members: off true time, fast or slow; and the faults that make them so."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.sim.probes import (
    DATAGRAM,
    MILLISECOND,
    SECOND,
    Probe,
    Stage,
    deliver,
    fault,
    first,
    ring,
    say,
)

from ordercast.kernel.step import Step, Timer
from ordercast.sim.clock import TRUE

times = st.integers(0, 100 * SECOND)
drifts = st.floats(-0.49, 1)


# --- a clock ---------------------------------------------------------------------------------


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


# --- what a member reads ---------------------------------------------------------------------


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


OVERLAPPING = [
    fault("skew", 1 * SECOND, "n2", 6 * SECOND, drift=0.25),
    fault("skew", 3 * SECOND, "n2", 2 * SECOND, drift=-0.2),
]


def test_of_skews_that_overlap_the_newest_counts_until_it_ends() -> None:
    # 2 s that gain a quarter, 2 s that lose a fifth, 2 s that gain a quarter.
    for at, off in ((1, 0), (3, 500), (5, 100), (7, 600), (9, 600)):
        found = clock_at(Stage(2, faults=OVERLAPPING), at * SECOND)
        assert found == pytest.approx(off * MILLISECOND, abs=5)


def test_a_new_incarnation_has_the_clock_of_the_machine_that_it_runs_on() -> None:
    faults = [fault("skew", SECOND, "n2", by=SECOND), fault("restart", 2 * SECOND, "n2")]
    assert clock_at(Stage(2, faults=faults), 5 * SECOND) == SECOND


def test_a_packet_is_dated_by_the_clock_of_its_receiver() -> None:
    faults = [fault("skew", 0, "n1", by=5 * SECOND), fault("skew", 0, "n2", by=SECOND)]
    stage = Stage(2, faults=faults).at(SECOND, "n1", say("n2", "late?", DATAGRAM))
    stage.run()
    assert [(heard.sender, heard.clock - heard.at) for heard in stage.heard] == [
        (first("n1"), SECOND)
    ]


# --- timers ----------------------------------------------------------------------------------


class Metronome(Probe):
    """Rings every 100 ms by its own clock."""

    def start(self, step: Step) -> None:
        step.set_timer("tick", 100 * MILLISECOND)

    def expire(self, step: Step, timer: Timer) -> None:
        super().expire(step, timer)
        step.set_timer("tick", 100 * MILLISECOND)


@pytest.mark.parametrize("by", [5 * SECOND, -5 * SECOND], ids=["forward", "back"])
def test_a_jump_moves_no_timer(by: int) -> None:
    """Neither one that is running nor one that is set afterwards."""
    stage = Stage(1, faults=[fault("skew", 2 * SECOND, "n1", by=by)])
    stage.at(SECOND, "n1", ring("running", 2 * SECOND))
    stage.at(3 * SECOND, "n1", ring("afterwards", SECOND)).run()
    assert [(rang.timer, rang.at, rang.clock) for rang in stage.rang] == [
        ("running", 3 * SECOND, 3 * SECOND + by),
        ("afterwards", 4 * SECOND, 4 * SECOND + by),
    ]


@pytest.mark.parametrize(("drift", "takes"), [(0.25, 800), (-0.2, 1250)])
def test_a_drift_makes_a_timer_early_or_late_by_as_much(drift: float, takes: int) -> None:
    stage = Stage(2, faults=[fault("skew", SECOND, "n1", 3 * SECOND, drift=drift)])
    for name in ("n1", "n2"):
        stage.at(2 * SECOND, name, ring("during", SECOND))
        stage.at(5 * SECOND, name, ring("after", SECOND))
    stage.run()
    took = {(rang.by.name, rang.timer): rang.at for rang in stage.rang}
    assert took == {
        ("n1", "during"): 2 * SECOND + takes * MILLISECOND,
        ("n1", "after"): 6 * SECOND,
        ("n2", "during"): 3 * SECOND,
        ("n2", "after"): 6 * SECOND,
    }


def test_of_overlapping_drifts_the_newest_moves_a_timer() -> None:
    stage = Stage(2, faults=OVERLAPPING)
    for at in (0, 1, 3, 5, 7):
        stage.at(at * SECOND + MILLISECOND, "n2", ring(f"set at {at}", 100 * MILLISECOND))
    stage.run()
    took = [(rang.at - MILLISECOND) % SECOND // MILLISECOND for rang in stage.rang]
    assert took == [100, 80, 125, 80, 100]


def test_by_its_own_clock_a_timer_takes_the_time_that_it_was_set_for() -> None:
    skew = fault("skew", 50 * MILLISECOND, "n1", drift=0.3)
    stage = Stage(1, probe=Metronome, faults=[skew])
    stage.run()
    shown = [rang.clock for rang in stage.rang[1:] if rang.at < 10 * SECOND]
    assert len(shown) > 100
    late = [later - earlier - 100 * MILLISECOND for earlier, later in pairwise(shown)]
    assert 0 <= min(late) <= max(late) <= 1


# --- the trace -------------------------------------------------------------------------------


def test_a_clock_that_is_wrong_changes_no_time_in_the_trace() -> None:
    stage = Stage(1, faults=[fault("skew", 2 * SECOND, "n1", 2 * SECOND, by=SECOND, drift=0.1)])
    for second in range(1, 6):
        stage.at(second * SECOND, "n1", deliver(second))
    stage.run()
    assert [row.at // SECOND for row in stage.rows_of("deliver")] == [1, 2, 3, 4, 5]


def test_a_note_says_until_when_in_true_time() -> None:
    """A machine knows its own clock only; the trace knows no other than the true one."""
    stage = Stage(1, faults=[fault("skew", SECOND, "n1", by=SECOND, drift=0.25)])

    def hold(step: Step) -> None:
        step.note("ticket", cause="acquired", until=step.now + SECOND)

    stage.at(2 * SECOND, "n1", hold).run()
    assert [row.until for row in stage.rows_of("ticket")] == [2 * SECOND + 800 * MILLISECOND]

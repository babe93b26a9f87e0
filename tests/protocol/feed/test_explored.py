"""Every schedule of three members with a move, a crash and reads of logs, up to bounds.

Clocks are together and part of the states, so each timer multiplies them. What was searched:

| what may happen | states | searched |
|---|---|---|
| n1 sends and wants to move, n3 counts or anybody's timer runs out once | 13,118 | all |
| n1 sends, any member crashes | 249 | all |
| the same, and it comes back and is brought up to date from disk | 60,000 at most | a part |
| n1 sends and moves, any member crashes, two timers | 400,000 at most | a part (`long`) |
"""

from __future__ import annotations

import pytest

from ordercast.check.laws import check
from ordercast.check.verdict import Verdict
from ordercast.kernel.inputs import Relocate
from ordercast.protocol.hpp import FAMILY
from ordercast.protocol.hpp.options import FeedOptions
from ordercast.sim.explore import Bounds, Report, explore, setting
from ordercast.trace.schema import Trace

OPTIONS = FeedOptions(beat="100ms", silent_beats=2, moves="none", cached=1, window=2, chunk=1)
LAWS = "no-creation no-duplication fifo causal reply-order no-silent-gap one-tree".split()


def judged(trace: Trace) -> list[Verdict]:
    return check(trace, LAWS)


def explored(**bounds: object) -> Report:
    where = setting(
        FAMILY,
        3,
        OPTIONS,
        clocks=True,
        together=True,
        latest_only=True,
        rounds=30,
        inputs={"n1": (Relocate("g", "n3"),)},
    )
    report = explore(where, Bounds(submissions={"n1": 1}, **bounds), judged)
    assert report.broken is None, report.broken
    return report


def test_a_member_that_sends_while_another_crashes() -> None:
    assert explored(crashes=1).complete


def test_a_member_that_comes_back_reads_what_others_lack() -> None:
    explored(crashes=1, restarts=1, max_states=8_000)


@pytest.mark.long
def test_a_member_that_sends_and_moves() -> None:
    assert explored(inputs=1, timers=1).complete


@pytest.mark.long
def test_a_move_and_a_crash() -> None:
    explored(inputs=1, timers=2, crashes=1, max_states=400_000)


@pytest.mark.long
def test_a_crash_and_a_return_with_everything_between() -> None:
    explored(crashes=1, restarts=1, max_states=60_000)

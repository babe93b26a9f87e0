"""`simulate` as a user's test would use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.errors import UsageError
from ordercast.scenario.schema import Scenario
from ordercast.testing import simulate
from ordercast.trace.schema import TraceLevel
from ordercast.types import View
from ordercast.units import SECOND, Duration

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
SHORT = Scenario(name="short", processes=3, duration=Duration(SECOND), quiet=Duration(SECOND))


def test_the_outputs_of_an_application_begin_with_a_view() -> None:
    run = simulate(SCENARIOS / "one_crash.toml", 1)
    for name in ("n1", "n2", "n3"):
        assert isinstance(run.heard[name][0], View)


def test_events_of_every_member_reach_every_member() -> None:
    run = simulate(SHORT, 3)
    everything = {(event.origin, event.number) for event in run.delivered_by("n1")}
    assert everything
    for name in ("n2", "n3"):
        assert {(event.origin, event.number) for event in run.delivered_by(name)} == everything
    assert not run.broken


def test_without_a_trace_nothing_is_judged() -> None:
    run = simulate(SHORT, 1, level=TraceLevel.OFF)
    assert run.verdicts == []
    assert run.outcome.delivered > 0


def test_a_missing_file_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no-such"):
        simulate("no-such.toml", 1)

"""`gather_above`: who hears an acknowledgement, everybody or the sender of the message alone."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec
import pytest

from ordercast.check.metric import MeasuredRun
from ordercast.check.metrics.events import deliveries, event_of, submitted_at
from ordercast.protocol.transis.options import LARGEST_GROUP, Synchrony
from ordercast.scenario.file import load_scenario, parse_scenario
from ordercast.testing import simulate
from ordercast.testing.simulation import Simulated

SCENARIOS = Path(__file__).parents[3] / "scenarios"
EIGHT = {
    "name": "eight",
    "family": "synchrony",
    "processes": 8,
    "duration": "3s",
    "quiet": "1s",
    "workload": {"rate": 5},
    "network": {"delay": "100us", "jitter": 0.2},
}


def of_eight(gather_above: int) -> Simulated:
    return simulate(parse_scenario({**EIGHT, "options": {"gather_above": gather_above}}), 1)


def waits(run: Simulated) -> float:
    """Half of all deliveries at other members took longer, in nanoseconds."""
    measured = MeasuredRun(run.trace.rows)
    made = submitted_at(measured)
    rows = deliveries(measured)
    return median(row.at - made[event_of(row)] for row in rows if row.origin != row.process)


def test_a_view_that_acknowledges_to_everybody_is_quicker_by_a_trip_and_sends_more() -> None:
    gathering, everybody = of_eight(4), of_eight(8)
    assert not gathering.broken + everybody.broken
    assert waits(gathering) - waits(everybody) > 80_000  # a trip: 100 us in the median
    assert everybody.outcome.packets > 1.5 * gathering.outcome.packets


def test_a_view_is_large_if_it_has_more_members() -> None:
    assert not Synchrony(gather_above=4).gathers(4)
    assert Synchrony(gather_above=4).gathers(5)
    assert not Synchrony(gather_above=LARGEST_GROUP).gathers(LARGEST_GROUP)


@pytest.mark.slow(4)
@pytest.mark.parametrize(
    ("name", "gather_above"), [("synchrony-chaos", 1), ("synchrony-ten-chaos", LARGEST_GROUP)]
)
def test_every_law_holds_under_chaos_wherever_the_border_is(name: str, gather_above: int) -> None:
    scenario = load_scenario(SCENARIOS / f"{name}.toml")
    options = {**scenario.options, "gather_above": gather_above}
    for seed in range(1, 7):
        run = simulate(msgspec.structs.replace(scenario, options=options), seed)
        assert run.outcome.error is None
        assert not run.broken, (seed, run.broken)

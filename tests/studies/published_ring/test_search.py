"""How often seeds break the published ring, and in which shapes: docs/tickets-published.md."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.studies.published_ring.shapes import overlaps

from ordercast.scenario.file import load_scenario
from ordercast.testing import simulate
from ordercast.trace.schema import TraceLevel

ROOT = Path(__file__).resolve().parents[3]


def search(first: int, last: int) -> Counter[str]:
    """Of these seeds: runs that are broken, of each shape, and that end without an owner."""
    scenario = load_scenario(ROOT / "scenarios" / "tickets-published-chaos.toml")
    found: Counter[str] = Counter()
    for seed in range(first, last + 1):
        run = simulate(scenario, seed, level=TraceLevel.WIRE)
        assert run.outcome.error is None, (seed, run.outcome.error)
        met = overlaps(run.trace.rows)
        broken = any(verdict.law == "ticket-uniqueness" for verdict in run.broken)
        assert broken == bool(met), seed
        found["broken"] += broken
        found.update({overlap.shape for overlap in met})
        owners: dict[str, bool] = {}
        for row in run.trace.rows:
            if row.kind == "crash" or (row.kind == "ticket" and row.cause != "wanted"):
                owners[row.process] = row.cause == "acquired"
        found["nobody is left"] += not any(owners.values())
    return found


def test_seeds_find_two_owners() -> None:
    """Four of the first thirty; and that these are found again means that a seed is a run."""
    found = search(1, 30)
    assert found["broken"] == 4
    assert found["stays"] == 4


@pytest.mark.parametrize(
    ("seed", "shape"), [(99, "lost status"), (198, "lost status"), (198, "stays on")]
)
def test_these_seeds_find_other_kinds_of_double_ownership(seed: int, shape: str) -> None:
    assert search(seed, seed)[shape]


@pytest.mark.long
def test_five_hundred_seeds_break_it_as_often_as_the_page_says() -> None:
    expected = {"broken": 65, "stays": 55, "stays on": 7, "lost status": 12, "nobody is left": 248}
    assert search(1, 500) == Counter(expected)

"""Each law that fifo promises catches a protocol with a bug planted in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.consistency import FAMILIES
from ordercast.testing import simulate
from ordercast.testing.mutants import BREAKS, mutant_families

CHAOS = Path(__file__).resolve().parents[2] / "scenarios" / "chaos.toml"
SEEDS = range(1, 41)


@pytest.mark.parametrize("mutant", BREAKS)
def test_the_law_catches_its_mutant(mutant: str) -> None:
    families = mutant_families(mutant)
    for seed in SEEDS:
        run = simulate(CHAOS, seed, families=families)
        assert run.outcome.error is None
        caught = [verdict for verdict in run.broken if verdict.law == BREAKS[mutant]]
        if caught:
            assert caught[0].witness
            return
    pytest.fail(f"{mutant} was not caught in {len(SEEDS)} seeds")


def test_every_law_of_fifo_has_a_mutant() -> None:
    assert set(BREAKS.values()) == set(FAMILIES["fifo"].laws)

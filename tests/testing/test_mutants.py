"""Each law that a family promises catches a protocol with a bug planted in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.protocol.transis import late_casts

from ordercast.check.history import PROMISES
from ordercast.check.laws import check
from ordercast.protocol.families import FAMILIES
from ordercast.testing import simulate
from ordercast.testing.mutants import BREAKS, FAMILY_OF, mutant_families

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
WHERE = {
    "fifo": "chaos",
    "gossip": "many",
    "causal": "causal-chaos",
    "synchrony": "synchrony-chaos",
    "total": "total-overlapping-chaos",
    "sequenced": "sequenced-chaos",
    "atomic": "atomic-chaos",
}
ELSEWHERE = {
    "lets-go": "causal-calm",  # what it breaks is promised only while nothing fails
    "forgets-places": "open-fifo-chaos",
    "skips-beginnings": "open-fifo-chaos",
    "founds-twice": "open-causal-cut",
    "asks-for-nothing": "synchrony-multicast-chaos",
    "acknowledges-what-is-lost": "synchrony-multicast-chaos",
}
NOTICED = {
    "founds-twice",  # members of two clusters refuse each other when they meet
    # Members that are not in the same view refuse what the others send, if no law is broken before.
    "installs-early",
    "counts-no-proposals",
    "takes-from-the-gone",
    "acknowledges-what-is-lost",  # its own summary contradicts what others have said
    "looks-at-one-group",  # its clock does not fit what it sends later
}
SEEDS = range(1, 41)
FIRST_SEED = {
    "takes-from-the-gone": 20,  # it takes a member that is cut off in the middle of a change
}
PLAYED = {"casts-late": late_casts.played}
"""Mutants that few seeds find: each has a stage of its own, where it always shows."""


@pytest.mark.parametrize("mutant", PLAYED)
def test_the_law_catches_its_mutant_on_a_stage(mutant: str) -> None:
    family, law = FAMILY_OF[mutant], BREAKS[mutant]
    [sound] = check(PLAYED[mutant](FAMILIES[family]), [law])
    assert sound.answer == "holds", sound.why
    [caught] = check(PLAYED[mutant](mutant_families(mutant)[family]), [law])
    assert caught.answer == "broken"
    assert caught.witness


@pytest.mark.parametrize("mutant", [name for name in BREAKS if name not in PLAYED])
def test_the_law_catches_its_mutant(mutant: str) -> None:
    families = mutant_families(mutant)
    scenario = SCENARIOS / f"{ELSEWHERE.get(mutant, WHERE[FAMILY_OF[mutant]])}.toml"
    for seed in range(first := FIRST_SEED.get(mutant, SEEDS[0]), first + len(SEEDS)):
        run = simulate(scenario, seed, families=families)
        assert run.outcome.error is None or mutant in NOTICED
        caught = [verdict for verdict in run.broken if verdict.law == BREAKS[mutant]]
        if caught:
            assert caught[0].witness
            return
    pytest.fail(f"{mutant} was not caught in {len(SEEDS)} seeds")


def test_every_law_of_fifo_has_a_mutant() -> None:
    bugs = [name for name, family in FAMILY_OF.items() if family == "fifo"]
    assert {BREAKS[name] for name in bugs} == set(PROMISES["fifo"].laws)


def test_every_law_that_only_clusters_promise_has_a_mutant() -> None:
    bugs = [name for name, family in FAMILY_OF.items() if family == "causal"]
    assert {BREAKS[name] for name in bugs} == {
        "optimistic-causal",
        "ticket-uniqueness",
        "completeness",
    }


def test_every_rule_of_a_change_of_view_has_a_mutant() -> None:
    bugs = [name for name, family in FAMILY_OF.items() if family == "synchrony"]
    assert {BREAKS[name] for name in bugs} == {
        "causal-in-view",
        "rest",
        "safe",
        "self-delivery",
        "total-in-view",
        "view-agreement",
        "virtual-synchrony",
    }

"""Groups that form, are partitioned and re-form over many seeds: the laws hold on every formation,
all begin with the same state, and nothing of the winning side is lost."""

from __future__ import annotations

import pytest
from tests.protocol.newtop.formation_mutants import MUTANTS, mutant
from tests.protocol.newtop.formation_storms import Storm, storm

CHUNK = 5
KINDS = ("total", "sequenced", "atomic")


def assert_lawful(run: Storm, seed: int) -> None:
    assert not run.broken, f"seed {seed} of {run.groups}: {run.broken}"


@pytest.mark.parametrize("first", range(1, 21, CHUNK))
def test_without_faults_all_groups_form_and_no_member_is_lost(first: int) -> None:
    formations = 0
    for seed in range(first, first + CHUNK):
        run = storm(seed, faults=(0, 0), reform="ask")
        assert_lawful(run, seed)
        assert not any(row.kind == "suspect" and row.cause != "left" for row in run.rows)
        formations += run.formations(2)
    assert formations > 5


@pytest.mark.parametrize("first", range(1001, 1041, CHUNK))
def test_whatever_goes_wrong_all_laws_hold(first: int) -> None:
    formations = 0
    for seed in range(first, first + CHUNK):
        run = storm(seed)
        assert_lawful(run, seed)
        formations += run.formations(2)
    assert formations > 0


@pytest.mark.parametrize("first", range(2001, 2021, CHUNK))
def test_partitions_re_form_automatically(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run = storm(seed, reform="auto", requests=(0, 1), faults=(1, 4))
        assert_lawful(run, seed)


@pytest.mark.parametrize("first", range(3001, 3016, CHUNK))
def test_vetoes_keep_all_laws(first: int) -> None:
    vetoed = formations = 0
    for seed in range(first, first + CHUNK):
        run = storm(seed, vetoes=0.3, requests=(2, 5), reform="ask")
        assert_lawful(run, seed)
        vetoed += run.ledgers.vetoed
        formations += run.formations(2)
    assert vetoed > 0
    assert formations > 0


@pytest.mark.parametrize("first", range(6001, 6031, CHUNK))
def test_faults_during_a_formation_keep_all_laws(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert_lawful(storm(seed, aimed=True, requests=(1, 4), faults=(1, 5)), seed)


@pytest.mark.parametrize("first", range(5001, 5021, CHUNK))
def test_all_kinds_of_groups_form_beside_each_other(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert_lawful(storm(seed, of=KINDS, requests=(1, 5)), seed)


@pytest.mark.long
@pytest.mark.parametrize("of", [("total",), ("sequenced",), ("atomic",), KINDS])
@pytest.mark.parametrize("first", range(10_001, 10_501, 20))
def test_two_thousand_storms_keep_all_laws(first: int, of: tuple[str, ...]) -> None:
    for seed in range(first, first + 20):
        assert_lawful(storm(seed, of=of), seed)


def test_a_storm_goes_through_the_codec_unchanged() -> None:
    for seed in (1001, 1002, 1003):
        assert storm(seed, round_trip=True).rows == storm(seed).rows


def test_one_seed_is_one_run() -> None:
    assert storm(1004).rows == storm(1004).rows


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    says = MUTANTS[name].says  # type: ignore[attr-defined]
    for seed in range(4001, 4041):
        families = {"total": mutant(name)}
        run = storm(seed, aimed=True, families=families, requests=(2, 5), faults=(1, 5))
        if any(says in words for words in run.broken):
            return
    pytest.fail(f"{name} was not caught")

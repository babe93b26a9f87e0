"""The laws of the family over many seeds, and mutants that they catch."""

from __future__ import annotations

import pytest
from tests.protocol.newtop.storms import ALL, Storm, storm

from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.mutants import OF_TOTAL

CHUNK = 10


def assert_lawful(run: Storm, seed: int) -> None:
    assert not run.broken, f"seed {seed} of {run.groups}: {run.broken}"


@pytest.mark.parametrize("first", range(1, 41, CHUNK))
def test_without_faults_all_laws_hold_and_no_member_is_suspected(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run = storm(seed, kinds=())
        assert_lawful(run, seed)
        assert run.count("deliver") > 0
        assert run.count("suspect") == 0


@pytest.mark.parametrize("first", range(1001, 1101, CHUNK))
def test_whatever_goes_wrong_all_laws_hold(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert_lawful(storm(seed), seed)


@pytest.mark.parametrize("first", range(2001, 2041, CHUNK))
def test_crashes_network_cuts_and_pauses_keep_all_laws(first: int) -> None:
    confirmed = 0
    for seed in range(first, first + CHUNK):
        run = storm(seed, kinds=("crash", "partition", "pause"), faults=(2, 6))
        assert_lawful(run, seed)
        assert run.causal_across_groups().answer == "holds", f"seed {seed}"
        confirmed += run.count("confirm")
    assert confirmed > 0, "something went wrong in them"


@pytest.mark.parametrize("first", range(7001, 7031, CHUNK))
def test_members_that_leave_keep_all_laws(first: int) -> None:
    left = 0
    for seed in range(first, first + CHUNK):
        run = storm(seed, kinds=("crash", "pause", "partition", "one-way"), departures=4)
        assert_lawful(run, seed)
        left += run.count("leave")
    assert left > 0


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_001, 12_001, 50))
def test_thousands_of_storms_keep_all_laws(first: int) -> None:
    for seed in range(first, first + 50):
        assert_lawful(storm(seed), seed)


def test_a_storm_goes_through_the_codec_unchanged() -> None:
    for seed in range(1001, 1011):
        assert storm(seed, round_trip=True).rows == storm(seed).rows


def test_one_seed_is_one_run() -> None:
    assert storm(1003).rows == storm(1003).rows


@pytest.mark.parametrize("name", OF_TOTAL)
def test_the_laws_catch_a_planted_bug(name: str) -> None:
    law, build = OF_TOTAL[name]
    for seed in range(3001, 3041):
        run = storm(seed, kinds=ALL, faults=(2, 6), family=FAMILY._replace(build=build))
        if any(verdict.law == law and verdict.witness for verdict in run.verdicts):
            return
    pytest.fail(f"{name} was not caught")

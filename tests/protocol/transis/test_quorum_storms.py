"""Virtual synchrony with a quorum in storms: one chain of primary views, nothing secured lost."""

from __future__ import annotations

import pytest
from tests.protocol.primary.voter_mutants import (
    ForgetsRestarts,
    IgnoresStates,
    InheritsAnyHistory,
    KeepsNoLastView,
    TakesAnyHalf,
)
from tests.protocol.transis.quorum_storms import storm

from ordercast.kernel.step import Step
from ordercast.protocol.primary import rules
from ordercast.protocol.primary.packets import Coverage
from ordercast.protocol.primary.voter import Voter
from ordercast.protocol.transis import FAMILY
from ordercast.protocol.transis.franchise import Franchise
from ordercast.protocol.transis.inheritance import Inheritance
from ordercast.protocol.transis.member import SynchronyMember, built_of
from ordercast.protocol.transis.states import Slot, StateExchange
from ordercast.types import NodeId


def play(seeds: range, catches_up: float = 0.8, merge: str = "none") -> dict[str, int]:
    """How much came about in all of these runs."""
    seen: dict[str, int] = {}
    for seed in seeds:
        run = storm(seed, catches_up=catches_up, merge=merge)
        assert not run.broken, f"seed {seed}: {run.broken}"
        for word, count in run.states.seen.items():
            seen[word] = seen.get(word, 0) + count
    return seen


def test_nothing_secured_is_lost() -> None:
    seen = play(range(15))
    assert min(seen.values()) > 10, seen


def test_nothing_secured_is_lost_if_nobody_is_given_a_state() -> None:
    seen = play(range(100, 110), catches_up=0)
    assert seen.pop("caught up") == 0
    assert min(seen.values()) > 10, seen


@pytest.mark.parametrize("merge", ["largest", "all"])
def test_nothing_secured_is_lost_if_the_group_hands_over_states(merge: str) -> None:
    seen = play(range(200, 212), catches_up=0, merge=merge)
    seen.pop("behind")  # whoever comes with another history is given the one that goes on
    assert min(seen.values()) > 10, seen


class _AsWithoutQuorum(Inheritance):
    """The state of the largest side counts, whatever it covers."""

    def worth(self, node: NodeId) -> int:
        return 0

    def may_take(self, node: NodeId, taken: Coverage, now: Coverage | None = None) -> bool:
        return True


class _TakesTheLargest(StateExchange):
    inheritance_type = _AsWithoutQuorum


class _KeepsItsCoverage(StateExchange):
    """Has the state of another side, and counts as having its own."""

    inheritance_type = _AsWithoutQuorum

    def _take(self, step: Step, slot: Slot) -> None:
        franchise = self.franchise
        assert franchise is not None
        own = franchise.voter.coverage
        super()._take(step, slot)
        coverages = (own, franchise.voter.coverage)
        franchise.voter.coverage = rules.joined(coverages, franchise.voter.coverage.branch)


@pytest.mark.parametrize(
    ("broken", "found"),
    [(_TakesTheLargest, "gives up"), (_KeepsItsCoverage, "is in primary view")],
)
def test_the_storms_find_states_that_lack_what_was_secured(
    broken: type[StateExchange], found: str
) -> None:
    class Careless(SynchronyMember):
        states_type = broken

    family = FAMILY._replace(build=built_of(Careless))
    for seed in range(60):
        run = storm(seed, family, catches_up=0, merge="largest")
        if any(found in one for one in run.broken):
            return
    pytest.fail("no storm found it")


def first_broken(voter: type[Voter], law: str, seeds: range) -> int | None:
    class CarelessFranchise(Franchise):
        voter_type = voter

    class Careless(SynchronyMember):
        franchise_type = CarelessFranchise

    family = FAMILY._replace(build=built_of(Careless))
    for seed in seeds:
        run = storm(seed, family)
        if any(law in one for one in run.broken):
            return seed
    return None


@pytest.mark.parametrize(
    ("voter", "law", "first"),
    [
        (ForgetsRestarts, "one-primary: ", 40),  # votes are not durable
        (TakesAnyHalf, "one-primary: ", 0),
        (KeepsNoLastView, "one-primary: ", 0),
        (IgnoresStates, "is in primary view", 0),
        (InheritsAnyHistory, "is in primary view", 0),
    ],
)
def test_the_storms_find_voters_with_a_bug(voter: type[Voter], law: str, first: int) -> None:
    assert first_broken(voter, law, range(first, first + 60)) is not None


@pytest.mark.long
def test_nothing_secured_is_lost_in_many_runs() -> None:
    play(range(1000, 1300))

"""No schedule makes two primary views, or one without what was secured: random and exhaustive."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from tests.protocol.primary.components import Broken, check_chain, search
from tests.protocol.primary.voter_mutants import (
    MUTANTS,
    ForgetsAttempts,
    IgnoresStates,
    without_attempts,
)

from ordercast.protocol.primary import rules
from ordercast.protocol.primary.packets import Coverage, PrimaryView, VoterReport, VoterStanding

NAMES = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_random_views_make_one_chain(count: int) -> None:
    found = search(range(60), NAMES[:count], 600)
    assert min(found.values()) > 50, found


@pytest.mark.long
@pytest.mark.parametrize("count", [3, 4, 5])
def test_many_random_views_make_one_chain(count: int) -> None:
    search(range(1000, 5000), NAMES[:count], 1000)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_search_finds(mutant: type) -> None:
    with pytest.raises(Broken):
        search(range(400), NAMES[:4], 600, mutant)


# --- every outcome of every view ---------------------------------------------------------------

State = tuple[tuple[VoterStanding, ...], frozenset[PrimaryView]]
"""What each member knows, and all views that one of them formed."""


def outcomes(state: State, names: tuple[str, ...], forgets: bool) -> Iterator[State]:
    """A view of any members: some have attempted when it ends, or all have and some have formed."""
    standings, formed = state
    for size in range(1, len(names) + 1):
        for view in combinations(range(len(names)), size):
            # What applications have is not looked at: their states cover all that is known.
            known = tuple(one for place in view for one in standings[place].attempts)
            last = max((standings[place].last for place in view), key=lambda one: one.number)
            state = Coverage(last, tuple(dict.fromkeys(known)))
            reports = {names[place]: VoterReport(standings[place], state) for place in view}
            if forgets:
                reports = {name: without_attempts(one) for name, one in reports.items()}
            found = rules.decide(reports)
            if found.why:
                continue
            members = tuple(names[place] for place in view)
            for attempting in subsets(view):
                after = list(standings)
                for place in attempting:
                    after[place] = rules.attempted(standings[place], found, members)[0]
                if attempting:
                    yield tuple(after), formed
                if len(attempting) < size:
                    continue
                for forming in subsets(view):
                    ended = list(after)
                    for place in forming:
                        ended[place] = rules.formed(after[place])[0]
                    if forming:
                        yield tuple(ended), formed | {PrimaryView(found.number, members)}


def subsets(places: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for size in range(len(places) + 1):
        yield from combinations(places, size)


def explore(count: int, depth: int, forgets: bool = False) -> int:
    """All states after so many views. Raises Broken. A state is seen once."""
    names = NAMES[:count]
    first = PrimaryView(0, names)
    begin: State = (VoterStanding(0, first),) * count, frozenset({first})
    seen, edge = {begin}, [begin]
    for _ in range(depth):
        following: list[State] = []
        for state in edge:
            for after in outcomes(state, names, forgets):
                if after not in seen:
                    seen.add(after)
                    following.append(after)
                    chain = sorted(after[1], key=lambda view: (view.number, view.members))
                    numbers = [view.number for view in chain]
                    if len(set(numbers)) < len(numbers):
                        raise Broken(f"two primary views of one number: {chain}")
                    check_chain(chain)
        edge = following
    return len(seen)


def test_every_outcome_of_three_views_makes_one_chain() -> None:
    assert explore(3, 3) > 1000


@pytest.mark.long
def test_every_outcome_of_more_views_makes_one_chain() -> None:
    assert explore(3, 5) > 10_000
    assert explore(4, 3) > 10_000


def test_the_exhaustive_search_finds_forgotten_attempts() -> None:
    with pytest.raises(Broken):
        explore(3, 3, forgets=True)


def test_mutants_are_broken_for_their_own_reasons() -> None:
    with pytest.raises(Broken, match=r"no majority of|number"):
        search(range(400), NAMES[:4], 600, ForgetsAttempts)
    with pytest.raises(Broken, match="without"):
        search(range(400), NAMES[:4], 600, IgnoresStates)

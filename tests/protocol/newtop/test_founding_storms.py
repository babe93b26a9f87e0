"""However an open group is founded, it is founded once; and members that found twice are caught."""

from __future__ import annotations

import pytest
from tests.protocol.newtop.founding_storms import (
    MUTANTS,
    cut_before_the_last_vote,
    cut_before_the_state,
    founding,
    foundings,
    mutant,
)

CHUNK = 5


@pytest.mark.parametrize("first", range(1, 21, CHUNK))
def test_an_open_group_is_founded_once_and_all_come_together(first: int) -> None:
    founded = 0
    for seed in range(first, first + CHUNK):
        found = founding(seed)
        assert len(found.begun) <= 1, f"seed {seed}: {found}"
        founded += len(found.begun)
    assert founded > 0


@pytest.mark.parametrize("first", range(1001, 1021, CHUNK))
def test_nor_is_it_founded_twice_if_members_die(first: int) -> None:
    for seed in range(first, first + CHUNK):
        found = founding(seed, deaths=True)
        assert len(found.begun) <= 1, f"seed {seed}: {found}"


@pytest.mark.parametrize("first", range(2001, 2021, CHUNK))
def test_nor_if_members_restart_with_their_folders(first: int) -> None:
    for seed in range(first, first + CHUNK):
        found = founding(seed, restarts=True)
        assert len(found.begun) <= 1, f"seed {seed}: {found}"


@pytest.mark.parametrize("first", range(3001, 3021, CHUNK))
def test_members_that_lost_their_folders_found_a_second_group_only_if_all_are_there(
    first: int,
) -> None:
    """All five that expect three: nobody is left that could be in the first one."""
    for seed in range(first, first + CHUNK):
        found = founding(seed, losses=True)
        sizes = [found.invited[formation] for formation in found.begun]
        assert sizes[1:] == [5] * len(sizes[1:]), f"seed {seed}: {found}"


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_001, 12_001, 50))
def test_two_thousand_foundings(first: int) -> None:
    for seed in range(first, first + 50):
        assert len(founding(seed, deaths=bool(seed % 2)).begun) <= 1, seed


@pytest.mark.parametrize("name", MUTANTS)
def test_a_member_that_founds_twice_is_caught(name: str) -> None:
    family = mutant(name)
    found = [foundings(play(family)) for play in (cut_before_the_last_vote, cut_before_the_state)]
    if max(map(len, found)) < 2:
        assert any(len(founding(seed, family).begun) > 1 for seed in range(1, 20))

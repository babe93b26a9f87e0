"""Groups with a quorum under chaos: one chain of primary views, and nothing secured is lost."""

from __future__ import annotations

import itertools

import pytest
from tests.protocol.newtop.formation_storms import ALL, storm
from tests.protocol.newtop.quorum_storms import QUORUM, QuorumLedgers
from tests.protocol.primary.voter_mutants import ForgetsRestarts, TakesAnyHalf

from ordercast.kernel.family import Plan
from ordercast.kernel.machine import Machine
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.primary.voter import Voter

FAMILIES_OF = [("total",), ("sequenced",), ("atomic",)]


def play(seeds: range, of: tuple[str, ...], **more: object) -> dict[str, int]:
    """How much came about in all of these runs."""
    seen = {"primary": 0, "outside": 0, "secured": 0, "grown": 0}
    for seed in seeds:
        run = storm(seed, options=QUORUM, keep=QuorumLedgers, of=of, **more)
        ledgers = run.ledgers
        assert isinstance(ledgers, QuorumLedgers)
        assert not run.broken + ledgers.missed, f"seed {seed}: {run.broken + ledgers.missed}"
        for formed in ledgers.formed.values():
            seen["primary"] += len(formed)
            sizes = [len(formed[number]) for number in sorted(formed)]
            seen["grown"] += any(one < two for one, two in itertools.pairwise(sizes))
        seen["outside"] += ledgers.outside
        seen["secured"] += sum(map(len, ledgers.secured.values()))
    return seen


@pytest.mark.parametrize("of", FAMILIES_OF)
def test_nothing_secured_is_lost(of: tuple[str, ...]) -> None:
    seen = play(range(25), of)
    assert min(seen.values()) > 3, seen


def test_crashes_and_restarts_alone_make_no_second_primary() -> None:
    seen = play(range(100, 115), ("total",), kinds=("crash",), faults=(3, 6), reform="auto")
    assert min(seen.values()) > 3, seen


@pytest.mark.parametrize("voter", [TakesAnyHalf, ForgetsRestarts])
def test_the_law_finds_voters_that_make_two_primaries(voter: type[Voter]) -> None:
    class Careless(NewtopMember):
        def _voter(self, plan: Plan) -> Voter:
            first = plan.members if plan.entry is None else ()
            record = self._records.get(plan.group)
            return self._voters.setdefault(plan.group, voter(self.me, plan.group, first, record))

    def build(me, plans, chance, records) -> list[Machine]:
        return [Careless(me, plans, records)]

    families = {**FAMILIES, "total": FAMILIES["total"]._replace(build=build)}
    more = {"families": families, "faults": (3, 6), "reform": "auto"}
    for seed in range(60):
        run = storm(seed, options=QUORUM, keep=QuorumLedgers, **more)
        if any(one.startswith("one-primary: ") for one in run.broken):
            return
    pytest.fail("no run showed it")


@pytest.mark.long
@pytest.mark.parametrize("of", FAMILIES_OF)
def test_nothing_secured_is_lost_in_many_runs(of: tuple[str, ...]) -> None:
    play(range(1000, 1400), of, kinds=ALL, faults=(1, 6), requests=(0, 6))

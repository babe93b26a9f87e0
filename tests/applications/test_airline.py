"""examples/airline.py: no more tickets than shares and margin allow, and over-sales are told."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.applications.driven import Driven, crashes, example, stormy

from ordercast import Difference, NodeId
from ordercast.units import MILLISECOND

airline = example("airline")
AGENCIES = 4
SEATS = 120
PAPER = airline.MARGIN_PERCENT
SEEDS = range(1, 31)


def sales(agency: type[Any], margin_percent: int, seed: int, history: str = "1MiB") -> Driven:
    faults = crashes(seed, AGENCIES, back=2)
    scenario = stormy(AGENCIES, *faults, options={"history": history})

    def make(me: NodeId, voters: tuple[NodeId, ...], journal: bytes) -> Any:
        return agency(me, scenario.names, SEATS, margin_percent, journal)

    def sell(agency: Any, draw: Random) -> list[bytes]:
        return agency.sell(f"{agency.me}-{agency.asked + 1}")

    run = Driven(make, scenario, seed)
    run.act(250 * MILLISECOND, sell)
    run.go()
    return run


def sold_apart(run: Driven) -> dict[int, int]:
    """By period: how many tickets were sold while agencies were missing."""
    found: dict[int, int] = {}
    for _, period in run.alive()[0].tickets().values():
        if period is not None:
            found[period] = found.get(period, 0) + 1
    return found


def most_sold(agency: type[Any], margin_percent: int) -> tuple[int, int]:
    """In any run, and apart in any period. Every run is judged."""
    most = apart = 0
    bound = SEATS * (100 - margin_percent) // 100  # of the shares, if all seats are free
    for seed in SEEDS:
        run = sales(agency, margin_percent, seed)
        sold = sorted(one for each in run.cores.values() for one in each.sold)
        agencies = run.alive()
        assert len(agencies) == AGENCIES
        for each in agencies:
            known = sorted(passenger for passenger, _ in each.tickets().values())
            assert known == sold, f"seed {seed}, {each.me}: not the tickets that were sold"
            assert each.over_sold() == agencies[0].over_sold()
            assert len(each.over_sold()) == max(0, len(sold) - SEATS), f"seed {seed}"
            assert {*each.over_sold()} <= {*each.told}, f"seed {seed}: somebody is not told"
        most = max(most, len(sold))
        apart = max(apart, *sold_apart(run).values())
        assert len(sold) <= max(SEATS, bound), f"seed {seed}: {len(sold)} are too many"
    assert apart <= bound
    return most, apart


def test_with_the_margin_of_the_paper_no_seat_is_sold_twice() -> None:
    most, apart = most_sold(airline.Agency, PAPER)
    assert most > SEATS * 9 // 10
    assert apart > SEATS // 4


def test_over_sales_of_an_airline_that_overbooks_are_bounded_found_and_told() -> None:
    most, _ = most_sold(airline.Agency, -50)
    assert most > SEATS


def accounts(history: str, agency: type[Any] = airline.Agency) -> dict[str, int]:
    """How many tickets agencies learned of in merges, by what. Every account is judged."""
    counted = dict.fromkeys(("by history", "by journal", "complete", "incomplete"), 0)
    for seed in SEEDS:
        for each in sales(agency, PAPER, seed, history).cores.values():
            for account in each.accounts:
                counted["by history"] += len(account.by_history)
                counted["by journal"] += len(account.by_journal)
                counted["complete" if account.is_complete else "incomplete"] += 1
                there = {str(member) for member in account.sides}
                sellers = {key.rpartition(".")[0] for key in account.by_journal}
                if account.is_complete:
                    assert not sellers & there, f"seed {seed}, {each.me}: the history lacks a sale"
    return counted


def test_the_history_of_the_other_side_has_all_that_its_agencies_sold_apart() -> None:
    counted = accounts("1MiB")
    assert not counted["incomplete"] or counted["complete"] > 10 * counted["incomplete"]
    assert counted["by history"] > 200
    assert counted["by journal"] > 0, "agencies that crashed sold something, too"


def test_what_the_history_has_forgotten_is_in_the_journals() -> None:
    counted = accounts("4KiB")
    assert counted["incomplete"] > 10
    assert counted["by journal"] > 20


class SkipsAnEvent(airline.Agency):
    """Does not read the last event of a difference."""

    def take(self, item: object) -> list[bytes]:
        if isinstance(item, Difference):
            item = replace(item, events=item.events[:-1])
        return super().take(item)


def test_a_sale_that_an_agency_does_not_read_is_missed() -> None:
    with pytest.raises(AssertionError, match="the history lacks a sale"):
        accounts("1MiB", SkipsAnEvent)


class TakesAll(airline.Agency):
    """Its share is that of everybody."""

    def settled(self) -> None:
        names, self.names = self.names, self.names[:1]
        is_whole = self.view is not None and len(self.view.members) == len(names)
        if not is_whole:
            self._take_shares([member.name for member in self.view.members])
        self.names = names
        super().settled()


class ForgetsItsJournal(airline.Agency):
    def journal(self) -> bytes:
        return b"{}"


class TellsNobody(airline.Agency):
    def over_sold(self) -> list[str]:
        return super().over_sold()[1:]


@pytest.mark.parametrize(
    ("broken", "margin_percent", "why"),
    [
        (TakesAll, PAPER, "too many"),
        (ForgetsItsJournal, PAPER, "not the tickets that were sold"),
        (TellsNobody, -50, "seed"),
    ],
)
def test_an_agency_that_breaks_a_rule_is_found(
    broken: type[Any], margin_percent: int, why: str
) -> None:
    with pytest.raises(AssertionError, match=why):
        most_sold(broken, margin_percent)

"""examples/atm.py: no money is made or lost, and no account is overdrawn beyond the bound."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from tests.applications.driven import Driven, crashes, example, stormy

from ordercast import NodeId
from ordercast.units import MILLISECOND

atm = example("atm")
ACCOUNTS = {"ann": 300, "ben": 1500}
MACHINES = 4
SEEDS = range(1, 11)
MORE_SEEDS = range(11, 31)


class Bank:
    """One run, and the cash that really went in and out of the machines."""

    def __init__(self, machine: type[Any], seed: int) -> None:
        scenario = stormy(MACHINES, *crashes(seed, MACHINES, back=2))

        def make(me: NodeId, voters: tuple[NodeId, ...], journal: bytes) -> Any:
            return machine(me, scenario.names, ACCOUNTS, journal)

        self.run = Driven(make, scenario, seed)
        self.lowest = 0
        self.moved: dict[NodeId, int] = {}  # payments and deposits that were counted
        self.run.watch = self._count
        self.run.act(80 * MILLISECOND, self._serve)
        self.run.go()

    @staticmethod
    def _serve(machine: Any, draw: Random) -> list[bytes]:
        account = draw.choice(sorted(ACCOUNTS))
        if draw.random() < 0.3:
            return machine.deposit(account, draw.randint(1, 30))
        return machine.withdraw(account, draw.randint(1, 60))

    def cash(self) -> dict[str, int]:
        """What each account has, by what customers and machines have seen."""
        found = Counter(ACCOUNTS)
        for machine in self.run.cores.values():
            for account, amount in machine.received:
                found[account] += amount
            for account, amount in machine.paid:
                found[account] -= amount
        return dict(found)

    def _count(self, machine: Any) -> None:
        moved = len(machine.paid) + len(machine.received)
        if self.moved.get(machine.me) != moved:
            self.moved[machine.me] = moved
            self.lowest = min(self.lowest, *self.cash().values())


def lowest_in(machine: type[Any], seeds: range = SEEDS) -> int:
    """The lowest balance in any run. Every run is judged."""
    lowest = 0
    for seed in seeds:
        bank = Bank(machine, seed)
        machines = bank.run.alive()
        assert len(machines) == MACHINES
        for one in machines:
            books = {account: one.balance(account) for account in ACCOUNTS}
            assert books == bank.cash(), f"seed {seed}, {one.me}: money was made or lost"
            assert one.overdrawn == machines[0].overdrawn, f"seed {seed}: one was told otherwise"
            assert not one.open, f"seed {seed}: a customer waits"
        assert bank.lowest >= -machines[0].most_overdrawn, f"seed {seed}: {bank.lowest}"
        lowest = min(lowest, bank.lowest)
    return lowest


@pytest.mark.parametrize(
    "seeds", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.long)], ids=str
)
def test_money_is_neither_made_nor_lost_nor_overdrawn_beyond_the_bound(seeds: range) -> None:
    assert lowest_in(atm.Machine, seeds) < -atm.ALLOWANCE // 2  # sides did pay from one account


class PaysAnything(atm.Machine):
    def _allowance(self, name: str, account: str) -> int:
        return 1_000_000


class DecidesTooEarly(atm.Machine):
    def may_decide(self, sender: NodeId) -> bool:
        return True


class ForgetsItsJournal(atm.Machine):
    def journal(self) -> bytes:
        return b"{}"


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (PaysAnything, "-[0-9]{3}"),
        (DecidesTooEarly, "made or lost"),
        (ForgetsItsJournal, "made or lost"),
    ],
)
def test_a_machine_that_breaks_a_rule_is_found(broken: type[Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        lowest_in(broken)

"""Cash machines that go on when the network splits, and settle their books when it heals.

    python examples/atm.py

While all machines are in one view, a customer may withdraw what the account has. While some are
missing, each machine pays small amounts only: together at most ALLOWANCE from an account, and not
more than the balance that its side knows. Deposits are always accepted.

So an account can be overdrawn by at most ALLOWANCE for each machine (`most_overdrawn`). No money is
made or lost: when all machines are in one view again, each account has what was there, and what was
deposited, less what was paid. An overdrawn account is told then.

A machine writes a payment into its journal before it pays. merging.py says how the books of the
sides are put together. The program runs four nodes in one process. The network splits in two, and
both halves pay from the same account. A machine crashes and comes back, and the network heals.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from loopback import Loopback
from merging import Replica

from ordercast import NodeId

ALLOWANCE = 100


class Machine(Replica):
    """On its page: by request, the account, the amount, and the period if it was paid apart.

    A period begins when all machines have settled their books, and is named by the view. Its name
    is on the page as well: a machine that was never in such a view has no allowance.
    """

    def __init__(
        self,
        me: NodeId,
        names: Iterable[str],
        accounts: Mapping[str, int],
        journal: bytes = b"{}",
    ) -> None:
        super().__init__(me, names, journal)
        self.accounts = dict(accounts)  # what they had in the beginning
        self.paid: list[tuple[str, int]] = []  # in cash, by this incarnation: account, amount
        self.received: list[tuple[str, int]] = []
        self.refused: list[tuple[str, int]] = []
        self.overdrawn: dict[str, int] = {}  # as it was told when the books were settled

    @property
    def most_overdrawn(self) -> int:
        return ALLOWANCE * len(self.names)

    def withdraw(self, account: str, amount: int) -> list[bytes]:
        return self.ask([account, -amount])

    def deposit(self, account: str, amount: int) -> list[bytes]:
        return self.ask([account, amount])

    def balance(self, account: str) -> int:
        """As far as this side knows."""
        entries = [entry for name in self.names for entry in self._entries(name)]
        return self.accounts[account] + sum(one[1] for one in entries if one[0] == account)

    def _entries(self, name: str) -> list[list[Any]]:
        return [entry for key, entry in self.pages[name].items() if key != "period"]

    def _allowance(self, name: str, account: str) -> int:
        """What this machine may still pay from the account before all have settled again."""
        period = self.pages[name].get("period")
        if period is None:
            return 0
        apart = [one for one in self._entries(name) if one[0] == account and one[2] == period]
        return ALLOWANCE + sum(amount for _, amount, _ in apart if amount < 0)

    def decide(self, name: str, key: str, what: list[Any]) -> None:
        account, amount = what
        if amount < 0 and -amount > self.balance(account):
            return
        if amount < 0 and not self.is_whole and -amount > self._allowance(name, account):
            return
        period = None if self.is_whole else self.pages[name].get("period")
        self.pages[name][key] = [account, amount, period]

    def done(self, key: str, what: list[Any]) -> None:
        account, amount = what
        where = self.refused if key not in self.page else self.paid if amount < 0 else self.received
        where.append((account, abs(amount)))
        word = "refuses" if where is self.refused else "pays" if amount < 0 else "receives"
        self.news.append(f"{word} {abs(amount)}, {account}")

    def settled(self) -> None:
        if not self.is_whole or not self.is_regular:
            return
        assert self.view is not None
        for name in self.names:
            self.pages[name]["period"] = self.view.id
        balances = {account: self.balance(account) for account in self.accounts}
        self.overdrawn = {account: -one for account, one in balances.items() if one < 0}
        for account, amount in self.overdrawn.items():
            self.news.append(f"{account} is overdrawn by {amount}")


NAMES = ("n1", "n2", "n3", "n4")
ACCOUNTS = {"ann": 150, "ben": 1000}


def make(me: NodeId, voters: Collection[NodeId], journal: bytes) -> Machine:
    return Machine(me, NAMES, ACCOUNTS, journal)


async def main() -> None:
    async with Loopback(make, NAMES, first_port=7181) as group:
        await group.start()
        await group.until(lambda: all(core.is_whole and core.is_settled for core in group.cores))
        await group.send("n1", group.core("n1").withdraw("ben", 600))
        await group.until(lambda: all(core.balance("ben") == 400 for core in group.cores))
        await group.cut("n1 n2", "n3 n4")
        await group.until(lambda: all(len(core.view.members) == 2 for core in group.cores))
        for name, amount in (("n1", 100), ("n3", 90), ("n4", 60), ("n4", 200)):
            machine = group.core(name)
            await group.send(name, machine.withdraw("ann", amount))
            await group.until(lambda machine=machine: not machine.open)
        await group.send("n2", group.core("n2").deposit("ben", 50))
        await group.until(lambda: not group.core("n2").open)
        await group.crash("n3")
        await group.restart("n3")
        await group.heal()
        await group.until(lambda: all(core.is_whole and core.is_settled for core in group.cores))
        books = [{one: core.balance(one) for one in ACCOUNTS} for core in group.cores]
        assert books == [{"ann": -100, "ben": 450}] * 4
        assert group.core("n1").most_overdrawn == 400
        print("all four have the same books: ann is overdrawn by 100, ben has 450")


if __name__ == "__main__":
    asyncio.run(main())

"""Agencies sell the seats of one flight, and go on selling when the network splits.

    python examples/airline.py

While all agencies are in one view, they sell as long as there is a seat. When the network splits,
each agency may sell a share that was agreed on before: of the seats that are free then, a margin
stays free (the paper on Transis suggests 10%), and the rest is divided equally. A side of the
partition has the shares of its agencies. So the sides together sell no more than the shares, and
the margin is for what a side did not know yet.

An airline that overbooks has a negative margin: the shares are more than the seats. When all
agencies are in one view again, they find which tickets are one too many, and tell the passengers.
All find the same ones, the last of those that were sold apart.

An agency writes a ticket into its journal before it gives it to the passenger. merging.py says how
what the sides sold is put together. An agency also asks what the other side delivered since they
parted (`merged.difference`): so it can say who bought there, in that order. What is not in the
histories any more, or was sold by an agency that has crashed since, the journals have.

The program runs four nodes in one process. It overbooks by a
half. The network splits in two halves, both of which sell all that they may. An agency crashes and
comes back, and the network heals.
"""

import asyncio
import json
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from loopback import Loopback
from merging import Replica

from ordercast import Difference, Merged, NodeId

MARGIN_PERCENT = 10
OWN = ("period", "share")  # what is on a page besides tickets


class Account(NamedTuple):
    """The tickets that an agency learned of when sides merged."""

    by_history: list[str]  # as the other sides sold them, in that order
    by_journal: list[str]  # all others
    sides: tuple[NodeId, ...]  # the members of the other sides
    is_complete: bool  # the histories had everything since we parted, in this merge and others


class Agency(Replica):
    """On its page: by ticket, the passenger, and the period if it was sold apart; and its share.

    A period begins when all agencies know the same, and is named by the view. The share is what an
    agency may sell apart in this period. An agency that was never in such a view has none.
    """

    def __init__(
        self,
        me: NodeId,
        names: Iterable[str],
        seats: int,
        margin_percent: int = MARGIN_PERCENT,
        journal: bytes = b"{}",
    ) -> None:
        super().__init__(me, names, journal)
        self.seats = seats
        self.margin_percent = margin_percent
        self.sold: list[str] = []  # tickets that were given to passengers, by this incarnation
        self.refused: list[str] = []
        self.told: list[str] = []  # passengers who have no seat, in the order in which it was found
        self.accounts: list[Account] = []
        self._before: set[str] | None = None  # tickets that we knew when sides merged
        self._learned: list[str] = []  # since then
        # Requests that other sides delivered: we may have parted again before we knew their pages.
        self._heard: dict[str, None] = {}
        self._is_complete = True  # and there were no others
        # By view and side, until it is there.
        self._differences: dict[tuple[int, tuple[NodeId, ...]], Difference | None] = {}

    wants_differences = True

    def take(self, item: object) -> list[bytes]:
        if isinstance(item, Merged):
            if self._before is None:
                self._before = set(self.tickets())
            self._differences |= {(item.view.id, side): None for side in item.sides[1:]}
        elif isinstance(item, Difference):
            self._differences[item.view, item.side] = item
            self._account()
        return super().take(item)

    def _account(self) -> None:
        """When the pages are merged, and all that was asked is answered."""
        found = list(self._differences.values())
        if self._before is not None or not found or None in found:
            return
        for difference in found:
            self._is_complete &= difference is not None and difference.complete
            for event in difference.events if difference is not None else ():
                requests = [json.loads(data) for data in event.payloads]
                self._heard |= {one["key"]: None for one in requests if one["kind"] == "request"}
        by_history = [key for key in self._heard if key in self._learned]
        by_journal = [key for key in self._learned if key not in by_history]
        sides = tuple(member for _, side in self._differences for member in side)
        self.accounts.append(Account(by_history, by_journal, sides, self._is_complete))
        self._learned, self._differences = [], {}
        if self.is_whole:
            self._heard, self._is_complete = {}, True
        if by_history or by_journal:
            left = f", and {len(by_journal)} are only in journals" if by_journal else ""
            self.news.append(f"{len(by_history)} seats were sold elsewhere meanwhile{left}")

    def sell(self, passenger: str) -> list[bytes]:
        return self.ask([passenger])

    def tickets(self) -> dict[str, list[Any]]:
        return {
            key: entry
            for page in self.pages.values()
            for key, entry in page.items()
            if key not in OWN
        }

    def free(self) -> int:
        """As far as this side knows. Below zero: seats were sold twice."""
        return self.seats - len(self.tickets())

    def over_sold(self) -> list[str]:
        """The passengers who have no seat: the last ones of those who bought apart."""
        tickets = self.tickets()
        order = sorted(tickets, key=lambda key: (tickets[key][1] is not None, key))
        return [tickets[key][0] for key in order[self.seats :]]

    def decide(self, name: str, key: str, what: list[Any]) -> None:
        page = self.pages[name]
        if self.is_whole:
            if self.free() > 0:
                page[key] = [*what, None]
            return
        period = page.get("period")
        apart = [one for one in page.values() if isinstance(one, list) and one[1] == period]
        if len(apart) < page.get("share", 0):
            page[key] = [*what, period]

    def done(self, key: str, what: list[Any]) -> None:
        (self.sold if key in self.page else self.refused).append(what[0])

    def settled(self) -> None:
        assert self.view is not None
        if self._before is not None:
            self._learned += [key for key in self.tickets() if key not in self._before]
            self._before = None
            self._account()
        if not self.is_whole:
            self._take_shares([member.name for member in self.view.members])
        elif self.is_regular:
            for page in self.pages.values():
                page["period"] = self.view.id
                page.pop("share", None)
            found = [passenger for passenger in self.over_sold() if passenger not in self.told]
            if found:
                self.told += found
                self.news.append(f"no seat for {', '.join(found)}")

    def _take_shares(self, here: list[str]) -> None:
        share = max(0, self.free() * (100 - self.margin_percent) // 100 // len(self.names))
        for name in here:
            page = self.pages[name]
            if "period" in page and "share" not in page:
                page["share"] = share
                if name == self.me.name:
                    self.news.append(f"may sell {share} of {self.free()} seats")


NAMES = ("n1", "n2", "n3", "n4")
SEATS = 20


def make(me: NodeId, voters: Collection[NodeId], journal: bytes) -> Agency:
    return Agency(me, NAMES, SEATS, -50, journal)


async def sell(group: Loopback, name: str, count: int) -> None:
    agency = group.core(name)
    for number in range(1, count + 1):
        await group.send(name, agency.sell(f"{name}-{number}"))
        await group.until(lambda: not agency.open)


async def main() -> None:
    async with Loopback(make, NAMES, first_port=7191) as group:
        await group.start()
        await group.until(lambda: all(core.is_whole and core.is_settled for core in group.cores))
        await sell(group, "n1", 4)
        await group.cut("n1 n2", "n3 n4")
        await group.until(lambda: all(len(core.view.members) == 2 for core in group.cores))
        for name in NAMES:  # 16 seats are free: 24 are shares, 6 each, and all ask for more
            await sell(group, name, 7)
        sold = sum(len(core.sold) for core in group.cores)
        await group.crash("n4")
        await group.restart("n4")
        await group.heal()
        await group.until(lambda: all(core.is_whole and core.is_settled for core in group.cores))
        over = [core.over_sold() for core in group.cores]
        assert over == [over[0]] * 4
        assert len(over[0]) == sold - SEATS == 8
        print(f"{sold} tickets for {SEATS} seats: all four tell", *over[0])


if __name__ == "__main__":
    asyncio.run(main())

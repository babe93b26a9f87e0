"""One lease replica's entries: who owns which ticket, until when that may be, and what is granted.

Rules.
 1. An entry is live for `wait` after it was last touched: for so long its owner may rely on a
    lease, whatever its clock does within the stated bound.
 2. A claim is granted if it renews what the entry says, or if its epoch is higher and no other
    member can hold the ticket: it is free, or the claimant's own, or no longer live.
 3. Epochs only grow. So (ticket, epoch) has one owner, without any clock.
 4. A ticket that is blocked when the replica set changes has no owner until the wait is over.

Times are on this replica's own clock. `changed` says what must be persisted before the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.protocol.tickets.packets import Mode, TicketState
from ordercast.types import NodeId


class TicketEntry:
    __slots__ = ("epoch", "last", "mode", "owner", "touched")

    def __init__(self, held: TicketState, now: int) -> None:
        self.epoch = held.epoch
        self.owner = held.owner
        self.mode: Mode = held.mode
        self.last = held.last
        self.touched = now

    @property
    def held(self) -> TicketState:
        return TicketState(self.epoch, self.owner, self.mode, self.last)


class Register:
    def __init__(self, table: Sequence[TicketState], wait: int, now: int) -> None:
        self.wait = wait  # W: longer than a lease on any clock within the bound
        self.entries = [TicketEntry(held, now) for held in table]

    def is_live(self, ticket: int, now: int) -> bool:
        entry = self.entries[ticket]
        return entry.mode != "free" and entry.touched + self.wait > now

    def claimable(self, now: int) -> list[tuple[int, int]]:
        """Tickets that are available, each with its epoch."""
        return [
            (ticket, entry.epoch)
            for ticket, entry in enumerate(self.entries)
            if not self.is_live(ticket, now)
        ]

    def may_have(self, ticket: int, epoch: int, owner: NodeId, now: int) -> bool:
        entry = self.entries[ticket]
        if epoch == entry.epoch:
            return owner == entry.owner and entry.mode == "held"
        return epoch > entry.epoch and (
            entry.mode == "free"
            or (entry.mode == "held" and owner == entry.owner)
            or not self.is_live(ticket, now)
        )

    def lapsed(self, ticket: int, owner: NodeId) -> NodeId | None:
        """The owner that loses the ticket to this claimant, without having released it."""
        entry = self.entries[ticket]
        return entry.owner if entry.mode == "held" and entry.owner != owner else None

    def grant(
        self, ticket: int, epoch: int, owner: NodeId, last: int, now: int
    ) -> tuple[int, bool]:
        """Grants a claim. Returns its base, and whether the entry must be persisted."""
        entry = self.entries[ticket]
        base = entry.last
        changed = (epoch, owner, "held") != (entry.epoch, entry.owner, entry.mode)
        entry.epoch, entry.owner, entry.mode, entry.touched = epoch, owner, "held", now
        entry.last = max(entry.last, last)
        return base, changed

    def release(self, ticket: int, epoch: int, owner: NodeId, last: int) -> tuple[bool, bool]:
        """Whether this owner's epoch is over, and whether the entry must be persisted."""
        entry = self.entries[ticket]
        # An owner never comes back to an epoch that it gave up, nor to a lower one.
        if entry.epoch <= epoch and owner == entry.owner and entry.mode == "held":
            entry.epoch, entry.mode = epoch, "free"
            entry.last = max(entry.last, last)
            return True, True
        return entry.epoch > epoch or entry.owner != owner or entry.mode == "free", False

    def table(self) -> tuple[TicketState, ...]:
        return tuple(entry.held for entry in self.entries)

    def live(self, now: int) -> list[int]:
        return [ticket for ticket in range(len(self.entries)) if self.is_live(ticket, now)]


def merge(
    reports: Sequence[tuple[Sequence[TicketState], Sequence[int]]],
) -> tuple[TicketState, ...]:
    """The table that a new replica set begins with, from what a majority of the old one reports.

    Each report is a table, and which of its entries are live.
    """
    found = [(table, frozenset(live)) for table, live in reports]
    return tuple(
        _merged([(table[ticket], ticket in live) for table, live in found])
        for ticket in range(len(reports[0][0]))
    )


def left_out(
    reports: Sequence[tuple[Sequence[TicketState], Sequence[int]]], merged: Sequence[TicketState]
) -> list[tuple[int, NodeId]]:
    """Tickets whose owners lose them by merging, though no report says that they released them."""
    found = []
    for ticket, after in enumerate(merged):
        newest = max(table[ticket].epoch for table, _ in reports)
        last = [table[ticket] for table, _ in reports if table[ticket].epoch == newest]
        owners = [held.owner for held in last if held.mode == "held" and held.owner is not None]
        if after.mode != "held" and owners and all(held.mode != "free" for held in last):
            found.append((ticket, owners[0]))
    return found


def _merged(found: list[tuple[TicketState, bool]]) -> TicketState:
    epoch = max(held.epoch for held, _ in found)
    last = max(held.last for held, _ in found)
    # The owners that may still rely on a lease; None: not known which member.
    owners = {held.owner if held.mode == "held" else None for held, live in found if live}
    if not owners:
        return TicketState(epoch, None, "free", last)
    if len(owners) > 1 or None in owners:
        return TicketState(epoch, None, "block", last)
    (owner,) = owners
    tied = any(held.epoch == epoch and held.owner != owner for held, _ in found)
    return TicketState(epoch + tied, owner, "held", last)

"""Who owns which ticket, and so may make events.

`ownership = "fixed"`: a list of names says who owns tickets 0, 1 and so on, for ever. The epoch of
a ticket is the incarnation of its owner's life, so a restarted owner never repeats an entry.

Otherwise tickets change hands (moving.py): by leases, unless a family brings another way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Any, Protocol

from ordercast.errors import PeerError
from ordercast.kernel.family import Objection, Plan
from ordercast.kernel.packet import Packet
from ordercast.protocol.cluster.options import CausalOptions
from ordercast.protocol.cluster.packets import SEQUENCE_BITS, Update
from ordercast.protocol.cluster.partial_view import Sampler
from ordercast.protocol.tickets.leased import Leased, Rules
from ordercast.protocol.tickets.tenure import Tickets
from ordercast.types import NodeId, event_number

_SEQUENCE = (1 << SEQUENCE_BITS) - 1


def updaters_of(plan: Plan) -> tuple[str, ...]:
    """Who owns tickets 0, 1 and so on."""
    options = plan.options
    assert isinstance(options, CausalOptions)
    return tuple(options.updaters) or _first(plan.members, options.tickets)


@lru_cache(maxsize=64)
def _first(members: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Asked by every member of a simulated group of thousands."""
    return tuple(sorted(members, key=_natural)[:count])


def may_send(plan: Plan, name: str) -> bool:
    """Whether a member may ever make events."""
    options = plan.options
    assert isinstance(options, CausalOptions)
    return options.ownership != "fixed" or name in updaters_of(plan)


def tickets_move(plan: Plan) -> bool:
    options = plan.options
    assert isinstance(options, CausalOptions)
    return options.ownership != "fixed"


def objection(group: str, options: Any, members: Sequence[str] | None) -> Objection | None:
    """A cluster is begun by its founder and updated by the owners of its tickets: members."""
    assert isinstance(options, CausalOptions)
    if not options.updaters and members is None and not options.founder:
        return Objection(
            "founder",
            f"who updates {group!r}, and who begins it? Give join its members, or name its founder "
            "or its updaters, the same at every node",
        )
    if members is None:
        return None
    if options.founder and options.founder not in members:
        why = f"the founder of {group!r} is {options.founder}, which is no member"
        return Objection("founder", why)
    for name in options.updaters:
        if name not in members:
            why = f"options.updaters: {name!r} is not a member of group {group!r}"
            return Objection("updaters", why)
    return None


def founder_of(plan: Plan) -> str:
    """Who begins a cluster in which tickets change hands."""
    options = plan.options
    assert isinstance(options, CausalOptions)
    return options.founder or min(plan.members, key=_natural)


class TicketsFor(Protocol):
    """Makes a member's part in deciding about tickets that change hands."""

    def __call__(
        self,
        me: NodeId,
        plan: Plan,
        sampler: Sampler,
        clock: Callable[[], tuple[int, ...]],
        chance: Random,
        kept: Sequence[Packet],
    ) -> Tickets: ...


def leased_tickets(
    me: NodeId,
    plan: Plan,
    sampler: Sampler,
    clock: Callable[[], tuple[int, ...]],
    chance: Random,
    kept: Sequence[Packet],
) -> Tickets:
    options = plan.options
    assert isinstance(options, CausalOptions)
    rules = Rules(options.tickets, int(options.lease), options.drift, options.guards)
    return Leased(
        me,
        plan.group,
        rules,
        sampler.known,
        chance,
        clock=clock,
        kept=kept,
        members=plan.members if founder_of(plan) == me.name else (),
    )


class Fixed:
    def __init__(self, me: NodeId, plan: Plan) -> None:
        assert isinstance(plan.options, CausalOptions)
        self._me = me
        self._entries = plan.options.tickets
        self._updaters = updaters_of(plan)
        # The ticket that we own, if any.
        self.index = self._updaters.index(me.name) if me.name in self._updaters else None

    def entry(self, sequence: int) -> int:
        """The stamp's entry of our event with this place in our epoch."""
        return self._me.incarnation << SEQUENCE_BITS | sequence

    def owner(self, index: int, entry: int) -> str | None:
        """Who made an event, and is asked for it if it is missing."""
        return self._updaters[index]

    def event_of(self, index: int, entry: int) -> tuple[str, int] | None:
        """The origin and the number of an event, from its id."""
        return self._updaters[index], event_number(entry >> SEQUENCE_BITS, entry & _SEQUENCE)

    # --- what no member that follows the rules would send --------------------------------------

    def refuse_clock(self, sender: NodeId, clock: tuple[int, ...]) -> None:
        if len(clock) != self._entries:
            raise PeerError(
                f"{sender} sent a stamp of {len(clock)} entries; this cluster has {self._entries}"
            )
        if any(clock[len(self._updaters) :]):
            raise PeerError(f"{sender} sent a stamp with an entry of a ticket that nobody owns")

    def refuse_own(self, sender: NodeId, clock: tuple[int, ...], sequence: int) -> None:
        if self.index is not None and self.never_made(self.index, clock[self.index], sequence):
            raise PeerError(f"{sender} knows of what {self._me} never made")

    def never_made(self, index: int, entry: int, sequence: int) -> bool:
        """Whether this would be an event of ours that does not exist."""
        return index == self.index and entry > self.entry(sequence)

    def refuse_nonsense(self, sender: NodeId, update: Update, sequence: int) -> None:
        self.refuse_clock(sender, update.stamp)
        index, origin = update.index, update.origin
        if index >= len(self._updaters) or origin.name != self._updaters[index]:
            raise PeerError(
                f"{sender} sent an event of {origin}, which does not own ticket {index}"
            )
        entry = update.entry
        place = entry & _SEQUENCE
        if entry >> SEQUENCE_BITS != origin.incarnation or place != update.number:
            raise PeerError(f"{sender} sent event {update.number} of {origin} as entry {entry}")
        if not place or (update.base >= entry if place == 1 else update.base):
            raise PeerError(f"{sender} sent an event of {origin} whose numbers go backwards")
        self.refuse_own(sender, update.stamp, sequence)
        if origin == self._me and update.number > sequence:
            raise PeerError(f"{sender} spreads what {origin} never made")


def _natural(name: str) -> list[tuple[int, str]]:
    """So that n10 comes after n9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]

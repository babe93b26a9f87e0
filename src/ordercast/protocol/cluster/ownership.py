"""Who owns which ticket, and so may make events: `ownership = "fixed"`.

A list of names says who owns tickets 0, 1 and so on, for ever. The epoch of a ticket is the
incarnation of its owner's life, so a restarted owner never repeats an entry.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ordercast.errors import PeerError
from ordercast.kernel.machine import Plan
from ordercast.protocol.cluster.options import CausalOptions
from ordercast.protocol.cluster.packets import SEQUENCE_BITS, Update
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
    return name in updaters_of(plan)


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

    def owner(self, index: int) -> str:
        """Who is asked for an event of a ticket that is missing."""
        return self._updaters[index]

    def event_of(self, index: int, entry: int) -> tuple[str, int]:
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

    def refuse_own(self, sender: NodeId, clock: tuple[int, ...], made: int) -> None:
        if self.index is not None and clock[self.index] > self.entry(made):
            raise PeerError(f"{sender} knows of what {self._me} never made")

    def refuse_nonsense(self, sender: NodeId, update: Update, made: int) -> None:
        self.refuse_clock(sender, update.stamp)
        index, origin = update.index, update.origin
        if index >= len(self._updaters) or origin.name != self._updaters[index]:
            raise PeerError(
                f"{sender} sent an event of {origin}, which does not own ticket {index}"
            )
        entry = update.entry
        sequence = entry & _SEQUENCE
        if entry >> SEQUENCE_BITS != origin.incarnation or sequence != update.number:
            raise PeerError(f"{sender} sent event {update.number} of {origin} as entry {entry}")
        if not sequence or (update.base >= entry if sequence == 1 else update.base):
            raise PeerError(f"{sender} sent an event of {origin} whose numbers go backwards")
        self.refuse_own(sender, update.stamp, made)
        if origin == self._me and update.number > made:
            raise PeerError(f"{sender} spreads what {origin} never made")


def _natural(name: str) -> list[tuple[int, str]]:
    """So that n10 comes after n9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]

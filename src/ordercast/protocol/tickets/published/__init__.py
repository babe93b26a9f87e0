"""The ring of tickets as it was published: to be studied, and never to be relied on.

Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency (2011), section 4. It can give one ticket to two processes:
docs/tickets-published.md shows how. It runs in the simulator only.

packets.py         what is said
ring.py            ranges of tickets, distances, a process's view of who owns what
seeking.py         how a process finds a coordinator
failure_free.py    Algorithm 1
fault_tolerant.py  Algorithms 2 and 3
exclusion.py       Algorithm 4
rules.py           what all members must have alike
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ordercast.protocol.tickets.published.failure_free import FailureFree
from ordercast.protocol.tickets.published.fault_tolerant import TICKS_A_ROUND, FaultTolerant
from ordercast.protocol.tickets.published.options import PublishedOptions
from ordercast.protocol.tickets.published.rules import Rules
from ordercast.protocol.tickets.tenure import Tickets
from ordercast.types import NodeId


def ring_of(
    me: NodeId,
    group: str,
    options: PublishedOptions,
    *,
    tickets: int,
    round_: int,
    k: int,
    known: Callable[[], Sequence[str]],
    chance: Random,
    founder: bool,
) -> Tickets:
    """One process's part in the ring."""
    contact = options.contacts.get(me.name)
    contacts = known if contact is None else Contact(contact)
    wish, begins = options.wishes.get(me.name), int(options.seeks.get(me.name, 0))
    if options.algorithm == "failure-free":
        return FailureFree(
            me,
            group,
            tickets,
            max(1, round_ // TICKS_A_ROUND),
            contacts,
            chance,
            founder=founder,
            wish=wish,
            begins=begins,
        )
    rules = Rules(
        tickets,
        k,
        round_,
        options.delay_in(round_),
        options.p_exclude,
        options.grace,
        options.more_rounds,
    )
    return FaultTolerant(
        me, group, rules, contacts, chance, founder=founder, wish=wish, begins=begins
    )


class Contact:
    """The one process that is asked."""

    def __init__(self, name: str) -> None:
        self.names = (name,)

    def __call__(self) -> Sequence[str]:
        return self.names

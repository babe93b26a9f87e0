"""The ring of tickets as it was published: to be studied, and never to be relied on.

Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency (2011), section 4. It can give one ticket to two processes:
docs/tickets-published.md shows how. It runs in the simulator only, where a scenario says
`family = "ordercast.studies.published_ring:FAMILY"`.

packets.py         what processes send each other
ring.py            ranges of tickets, distances, a process's view of the owners
seeking.py         how a process finds a coordinator
failure_free.py    Algorithm 1
fault_tolerant.py  Algorithms 2 and 3
exclusion.py       Algorithm 4
rules.py           what all members must have alike
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ordercast.kernel.family import Plan
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.protocol.cluster import CAUSAL
from ordercast.protocol.cluster.causal_member import CausalMember
from ordercast.protocol.cluster.moving import Clock
from ordercast.protocol.cluster.sampler import Sampler
from ordercast.protocol.cluster.updaters import founder_of
from ordercast.protocol.tickets.interface import Tickets
from ordercast.studies.published_ring.failure_free import FailureFree
from ordercast.studies.published_ring.fault_tolerant import TICKS_A_ROUND, FaultTolerant
from ordercast.studies.published_ring.options import RingOptions
from ordercast.studies.published_ring.packets import PACKETS
from ordercast.studies.published_ring.rules import RingRules
from ordercast.types import NodeId


def ring_tickets(
    me: NodeId,
    plan: Plan,
    sampler: Sampler,
    clock: Clock,
    chance: Random,
    persisted: Sequence[Packet],
) -> Tickets:
    """One process's part in the ring."""
    options = plan.options
    assert isinstance(options, RingOptions)
    ring, round_, group = options.published, int(options.lease), plan.group
    contact = ring.contacts.get(me.name)
    contacts = sampler.known if contact is None else SingleContact(contact)
    preferred, begins = ring.preferred.get(me.name), int(ring.seeks.get(me.name, 0))
    founder = me == NodeId(founder_of(plan))
    if ring.algorithm == "failure-free":
        return FailureFree(
            me,
            group,
            options.tickets,
            max(1, round_ // TICKS_A_ROUND),
            contacts,
            chance,
            founder=founder,
            preferred=preferred,
            begins=begins,
        )
    rules = RingRules(
        options.tickets,
        options.guards // 2,
        round_,
        ring.delay_in(round_),
        ring.p_exclude,
        ring.grace,
        ring.more_rounds,
    )
    return FaultTolerant(
        me, group, rules, contacts, chance, founder=founder, preferred=preferred, begins=begins
    )


class SingleContact:
    """The one process that is asked."""

    def __init__(self, name: str) -> None:
        self.names = (name,)

    def __call__(self) -> Sequence[str]:
        return self.names


def build(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    return [CausalMember(me, plan, chance, ring_tickets, records) for plan in plans]


# Causal in all but who decides about tickets: traces call it so, and hold it to the same promises.
FAMILY = CAUSAL._replace(
    options=RingOptions,
    level=RingOptions,
    packets=(*CAUSAL.packets, *PACKETS),
    build=build,
    mutants={},
    not_live=(
        "the published ring runs in the simulator only, as it can give one ticket to two "
        "processes (docs/tickets-published.md): live, say family = 'causal'"
    ),
)

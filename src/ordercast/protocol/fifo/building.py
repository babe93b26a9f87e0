"""The machines of fifo groups: a member, and the strategy that says who may be in its group."""

from __future__ import annotations

from random import Random

from ordercast.kernel.family import Build, Plan, machine_per_group
from ordercast.protocol.fifo.member import FifoMember
from ordercast.protocol.fifo.open_members import OpenMembers
from ordercast.types import NodeId


def machines(
    kind: type[FifoMember] = FifoMember,
    open_as: type[OpenMembers] = OpenMembers,
) -> Build:
    """Builds members of this kind, and with this strategy where anybody may join."""

    def member(me: NodeId, plan: Plan, chance: Random) -> FifoMember:
        return kind(me, plan, chance, None if plan.entry is None else open_as(me, plan))

    return machine_per_group(member)

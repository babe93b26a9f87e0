"""The machines of one incarnation: one for each group, or one that many groups share.

The machine of a group may be needed after the process left the group: if the family allows a member
to rejoin in the same incarnation, the member continues with the machine that it had. A machine that
groups share (`Family.one_machine`) exists as long as the incarnation, because it must never use a
number twice. If it breaks, only a new incarnation can join such groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ordercast.errors import UsageError
from ordercast.kernel.family import Build, Family, Plan
from ordercast.kernel.host import Host
from ordercast.kernel.inputs import Join
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.seat import Seat
from ordercast.types import NodeId

MOST_LEFT = 100
"""Groups that were left and whose machines we hold, so that they can be joined again."""


def seat_of(host: Host, machine: Machine) -> Seat | None:
    """The seat of a machine that is not closed. A machine that was left has none."""
    return next((seat for seat in host.seated if seat.machine is machine), None)


class Machines:
    def __init__(
        self,
        me: NodeId,
        # The persisted records of a group, or of all.
        records: Callable[[str | None], Sequence[Packet]],
        chance: Callable[[Family, Plan | None], Random],  # None: for a machine that groups share
    ) -> None:
        self._me = me
        self._records = records
        self._chance = chance
        # Groups of this incarnation that are over, with the machine where it can go on.
        self._left: dict[str, tuple[Plan, Machine | None]] = {}
        self._shared: dict[Build, Machine | None] = {}  # None: it broke

    def share(self, family: Family, machine: Machine) -> None:
        """The groups of this family share a machine that was built before any was taken."""
        self._shared[family.build] = machine

    def take(self, family: Family, plan: Plan) -> Machine:
        """The machine that serves this group from now on. One that groups share may be new.

        UsageError: this incarnation cannot join it.
        """
        earlier = self._left.get(plan.group)
        if family.one_machine:
            shared = self._take_shared(family, plan)
            if earlier is not None and earlier[1] is not shared:
                raise self._has_left(plan, "as another kind of group")
            return shared
        if earlier is None:
            records = self._records(plan.group)
            (machine,) = family.build(self._me, (plan,), self._chance(family, plan), records)
            return machine
        if not family.rejoins or earlier[1] is None:
            raise self._has_left(plan, "again")
        if earlier[0].options != plan.options:
            raise self._has_left(plan, "with other options")
        del self._left[plan.group]
        return earlier[1]

    def _has_left(self, plan: Plan, how: str) -> UsageError:
        return UsageError(
            f"{self._me} has left {plan.group!r}: only a new incarnation can join it {how}; "
            "restart the node"
        )

    def _take_shared(self, family: Family, plan: Plan) -> Machine:
        if family.build not in self._shared:
            records = self._records(None)
            (machine,) = family.build(self._me, (), self._chance(family, None), records)
            assert Join in machine.takes
            self.share(family, machine)
        shared = self._shared[family.build]
        if shared is None:
            raise UsageError(
                f"the machine of {self._me} for groups of this kind broke: only a new incarnation "
                f"can join {plan.group!r}; restart the node"
            )
        return shared

    def over(self, plan: Plan, machine: Machine, sound: bool) -> None:
        """The group is left, in an orderly way or because the machine is of no use any more."""
        self._left[plan.group] = (plan, machine if sound else None)
        if Join in machine.takes:
            for build, shared in self._shared.items():
                if shared is machine and not sound:
                    self._shared[build] = None
            return
        usable = [
            name
            for name, (_, earlier) in self._left.items()
            if earlier is not None and Join not in earlier.takes
        ]
        for name in usable[:-MOST_LEFT]:  # each still buffers events for others
            self._left[name] = (self._left[name][0], None)

"""The machines of a node: one for each group, or one that many groups share.

A group's machine may be needed after the group is left: where a member may come back in the same
life it goes on with the machine that it had. One that groups share (`Family.one_machine`)
lives as long as the node, for what it has numbered must never be numbered again. If it breaks,
only a new life of the node can be in such groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ordercast.errors import UsageError
from ordercast.kernel.family import Build, Family, Plan
from ordercast.kernel.host import Seat
from ordercast.kernel.inputs import Join
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.types import NodeId

MOST_LEFT = 100
"""Groups that were left and can be joined again in the same life."""


class Machines:
    def __init__(
        self,
        me: NodeId,
        records: Callable[[str], Sequence[Packet]],  # what was kept of a group
        start: Callable[[Machine], Seat],  # of one that groups share, before the first of them
    ) -> None:
        self._me = me
        self._records = records
        self._start = start
        # Groups of this life that are over, with the machine where it can go on.
        self._left: dict[str, tuple[Plan, Machine | None]] = {}
        self._shared: dict[Build, Seat | None] = {}  # None: it broke

    def take(self, family: Family, plan: Plan) -> tuple[Machine, Seat | None]:
        """The machine that serves this group from now on, and its seat if it has one already.

        UsageError: this life cannot join it.
        """
        earlier = self._left.get(plan.group)
        if family.one_machine:
            shared = self._take_shared(family, plan)
            if earlier is not None and earlier[1] is not shared.machine:
                raise self._has_left(plan, "as another kind of group")
            return shared.machine, shared
        if earlier is None:
            (machine,) = family.build(self._me, (plan,), Random(), self._records(plan.group))
            return machine, None
        if not family.rejoins or earlier[1] is None:
            raise self._has_left(plan, "again")
        if earlier[0].options != plan.options:
            raise self._has_left(plan, "with other options")
        del self._left[plan.group]
        return earlier[1], None

    def _has_left(self, plan: Plan, how: str) -> UsageError:
        return UsageError(f"{self._me} has left {plan.group!r}: only a new life can join it {how}")

    def _take_shared(self, family: Family, plan: Plan) -> Seat:
        if family.build not in self._shared:
            (machine,) = family.build(self._me, (), Random(), ())
            assert Join in machine.takes
            self._shared[family.build] = self._start(machine)
        shared = self._shared[family.build]
        if shared is None:
            raise UsageError(
                f"{self._me} could not go on in a group of this kind: only a new life can join "
                f"{plan.group!r}"
            )
        return shared

    def over(self, plan: Plan, machine: Machine, sound: bool) -> None:
        """The group is left, in an orderly way or because the machine is of no use any more."""
        self._left[plan.group] = (plan, machine if sound else None)
        if Join in machine.takes:
            for build, shared in self._shared.items():
                if shared is not None and shared.machine is machine and not sound:
                    self._shared[build] = None
            return
        kept = [
            name
            for name, (_, earlier) in self._left.items()
            if earlier is not None and Join not in earlier.takes
        ]
        for name in kept[:-MOST_LEFT]:  # each keeps the events that it kept for others
            self._left[name] = (self._left[name][0], None)

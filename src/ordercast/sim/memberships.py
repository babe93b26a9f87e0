"""Who is in which group: applications that leave, join later or again, as they do live.

Rules, which are those of `net/group.py` and `net/machines.py`.
 1. A member that leaves submits nothing more. It waits until the others have what it submitted,
    then until it has handed over what others need it for (if its family has that), each within a
    limit.
 2. A member that rejoins in the same incarnation continues with the machine that it had. If its
    family cannot do that, only a new incarnation can join.
 3. A machine that serves all groups of a process exists as long as the process runs.
 4. While it is kept out of a group, no incarnation of a process is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random

from ordercast.kernel.family import Build, Family, Plan, by_machine
from ordercast.kernel.host import Seat
from ordercast.kernel.inputs import Retire
from ordercast.kernel.machine import LEASES_TO_RETIRE, Machine, Retiring
from ordercast.kernel.packet import Packet
from ordercast.sim.event_queue import EventQueue
from ordercast.sim.process import Process
from ordercast.types import NodeId
from ordercast.units import MILLISECOND, SECOND

LEAVING = 2 * SECOND
"""How long a member that leaves waits until the others have what it sent."""


class Memberships:
    """Of one process."""

    def __init__(
        self,
        process: Process,
        queue: EventQueue,
        plans: Iterable[tuple[Family, Plan]],
        chance: Callable[..., Random],  # the stream of a name
    ) -> None:
        self._process = process
        self._queue = queue
        self._plans = {plan.group: (family, plan) for family, plan in plans}
        self._chance = chance
        self.kept_out: set[str] = set()  # groups that it is not in, whatever its incarnation
        self._node: NodeId | None = None  # that all below is about
        self._machines: dict[str, Machine] = {}  # by group, also of those that were left
        self._shared: dict[Build, Machine] = {}

    def build(self, me: NodeId, kept: Sequence[Packet]) -> list[Machine]:
        """The machines of one incarnation: what is built together is built at once."""
        self._node, self._machines, self._shared = me, {}, {}
        machines: list[Machine] = []
        wanted = [one for group, one in self._plans.items() if group not in self.kept_out]
        for family, plans in by_machine(wanted):
            built = family.build(me, plans, self._chance("member", family.name, me), kept)
            machines += built
            if family.one_machine:
                (self._shared[family.build],) = built
            for machine in built:
                self._machines |= dict.fromkeys(machine.groups, machine)
        return machines

    # --- joining -----------------------------------------------------------------------------

    def join(self, group: str) -> None:
        self.kept_out.discard(group)
        self._process.when_awake(self._join, group)

    def _join(self, group: str) -> None:
        process, (family, plan) = self._process, self._plans[group]
        # Who is still about to leave joins when it has left.
        if group in self.kept_out or group in process.host.seats or group in process.leaving:
            return
        if family.one_machine:
            process.join(self._shared_seat(family), plan)
        elif group not in self._machines:
            draw = self._chance("member", family.name, process.node, group)
            kept = process.disk.records()
            (machine,) = family.build(process.node, (plan,), draw, kept)
            self._machines[group] = machine
            process.enter(machine)
        elif family.rejoins:
            process.enter(self._machines[group])

    def _shared_seat(self, family: Family) -> Seat:
        machine, host = self._shared.get(family.build), self._process.host
        if machine is None:
            draw = self._chance("member", family.name, self._process.node)
            (machine,) = family.build(self._process.node, (), draw, ())
            self._shared[family.build] = machine
            return self._process.enter(machine)
        return next(seat for seat in host.seated if seat.machine is machine)

    # --- leaving -----------------------------------------------------------------------------

    def leave(self, group: str) -> None:
        self.kept_out.add(group)
        self._process.when_awake(self._leave, group)

    def _leave(self, group: str) -> None:
        process = self._process
        if group in process.host.seats and group not in process.leaving:
            process.leaving.add(group)
            self._wait(group, self._is_underway, LEAVING, self._retire)

    def _is_underway(self, group: str) -> bool:
        """Whether something of ours may not be with all others yet."""
        process, (family, _) = self._process, self._plans[group]
        made = process.submitted_up_to.get(group, 0)
        unstable = family.tells_stability and process.host.stable_up_to(group) < made
        return group in process.on_room or unstable

    def _retire(self, group: str) -> None:
        family, plan = self._plans[group]
        if family.permit is None or not family.needs_permit(plan):
            self._depart(group)
            return
        lease = family.permit.lease(plan.options)
        self._process.give(group, Retire(group))
        if not self._process.alive:  # that step met a broken disk
            return
        since = self._queue.now

        def is_needed(group: str) -> bool:
            """Whether there is something to hand over, and somebody who takes it."""
            host = self._process.host
            machine = host.seats[group].machine
            assert isinstance(machine, Retiring)
            if machine.may_go(group):
                return False
            heirs = machine.has_heirs(group, self._process.now())
            return self._queue.now < since + lease or heirs

        self._wait(group, is_needed, LEASES_TO_RETIRE * lease, self._depart)

    def _depart(self, group: str) -> None:
        process, (family, plan) = self._process, self._plans[group]
        machine = process.host.seats[group].machine
        nobody_needs_us = isinstance(machine, Retiring) and machine.may_go(group)
        process.leave(group)
        if not process.alive:
            return
        # A bootstrap node that forgot its cluster could bootstrap it a second time.
        permit = family.permit
        if nobody_needs_us and permit and permit.bootstrap_node(plan) != process.name:
            process.disk.forget(group)
        self._departed(group)

    def _departed(self, group: str) -> None:
        """It is gone when the disk has all that came before, and may have been let in again."""
        process = self._process
        if group in process.host.leaving:
            later = self._queue.now + MILLISECOND
            self._queue.add(later, partial(process.when_awake, self._departed), group)
            return
        process.leaving.discard(group)
        process.submitted_up_to.pop(group, None)
        if group not in self.kept_out:
            self._join(group)

    def _wait(
        self,
        group: str,
        busy: Callable[[str], bool],
        at_most: int,
        then: Callable[[str], None],
    ) -> None:
        """Goes on as soon as a step has ended what is waited for, or when it has taken too long."""
        process, over = self._process, self._queue.now + at_most

        def look(_: None = None) -> None:
            if process.on_step.get(group) is look and (self._queue.now >= over or not busy(group)):
                del process.on_step[group]
                then(group)

        process.watch(group, look)
        self._queue.add(over, lambda _: process.when_awake(look, None), None)
        look()

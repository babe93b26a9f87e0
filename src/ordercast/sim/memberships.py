"""Who is in which group: applications that leave, join later or again, as they do live.

The rules of leaving are in `kernel/departure.py`, those of joining again in `kernel/machines.py`.
One more is of scenarios: while a process is kept out of a group, none of its incarnations is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random

from ordercast.errors import UsageError
from ordercast.kernel.departure import FLUSH_TIME, Departure
from ordercast.kernel.family import Family, Plan, by_machine
from ordercast.kernel.inputs import Acquainted, Retire
from ordercast.kernel.log import IDENTITY_BITS
from ordercast.kernel.machine import Machine
from ordercast.kernel.machines import Machines, seat_of
from ordercast.kernel.packet import Packet
from ordercast.sim.event_queue import EventQueue
from ordercast.sim.open_groups import OpenGroups
from ordercast.sim.process import Process
from ordercast.types import NodeId
from ordercast.units import MILLISECOND


class Memberships:
    """Of one process."""

    def __init__(
        self,
        process: Process,
        queue: EventQueue,
        plans: Iterable[tuple[Family, Plan]],
        chance: Callable[..., Random],  # the stream of a name
        open_groups: OpenGroups,
    ) -> None:
        self._process = process
        self._queue = queue
        self._groups = {plan.group: (family, plan) for family, plan in plans}
        self._chance = chance
        self._open_groups = open_groups
        for group in self._groups:
            if group in open_groups.by_name:
                process.on_enter[group] = [partial(self._acquaint, group)]
                process.on_news = partial(open_groups.remember, process)
        self.kept_out: set[str] = set()  # groups that it is not in, whatever its incarnation
        self._machines: Machines  # of the incarnation

    def build(self, me: NodeId, records: Sequence[Packet]) -> list[Machine]:
        """The machines of one incarnation: what is built together is built at once."""
        self._machines = Machines(me, lambda group: self._process.disk.records(), self._draw)
        machines: list[Machine] = []
        wanted = [self._entering(group) for group in self._groups if group not in self.kept_out]
        if self._open_logs(wanted):
            records = self._process.disk.records()
        for family, plans in by_machine(wanted):
            built = family.build(me, plans, self._draw(family, None), records)
            machines += built
            if family.one_machine:
                self._machines.share(family, *built)
        return machines

    def _open_logs(self, wanted: Sequence[tuple[Family, Plan]]) -> bool:
        """The logs of these groups are there, and begin where they are not."""
        logged = [plan.group for family, plan in wanted if family.logged]
        for group in logged:
            me = self._process.node
            draw = self._chance("log", group, me.name, me.incarnation)
            self._process.disk.open_log(group, partial(draw.getrandbits, IDENTITY_BITS))
        return bool(logged)

    def _entering(self, group: str) -> Departure:
        found = self._departure(group)
        if found.plan.entry is not None and found.plan.entry.founds:
            self._process.founds = True
        return found

    def _departure(self, group: str) -> Departure:
        """The group as it is now: of an open one the folder remembers who was in it."""
        family, plan = self._groups[group]
        return Departure(family, self._open_groups.plan_for(self._process, plan))

    def _acquaint(self, group: str) -> None:
        known = self._open_groups.known_to(self._process, group)
        self._process.give(group, Acquainted(group, known))

    def _draw(self, family: Family, plan: Plan | None) -> Random:
        """The chance of a machine: of one that joins later, or of those that begin together."""
        group = () if plan is None else (plan.group,)
        return self._chance("member", family.name, self._process.node, *group)

    # --- joining -----------------------------------------------------------------------------

    def join(self, group: str) -> None:
        self.kept_out.discard(group)
        self._process.when_awake(self._join, group)

    def _join(self, group: str) -> None:
        process, (family, plan) = self._process, self._entering(group)
        # A process that is about to leave joins when it has left.
        if group in self.kept_out or group in process.host.seats or group in process.leaving:
            return
        self._open_logs([(family, plan)])
        try:
            machine = self._machines.take(family, plan._replace(formed=False))  # it comes later
        except UsageError:  # only a new incarnation can
            return
        seat = seat_of(process.host, machine) or process.enter(machine)
        if family.one_machine:
            process.join(seat, plan)

    # --- leaving -----------------------------------------------------------------------------

    def leave(self, group: str) -> None:
        self.kept_out.add(group)
        self._process.when_awake(self._leave, group)

    def _leave(self, group: str) -> None:
        process = self._process
        if group in process.host.seats and group not in process.leaving:
            process.leaving.add(group)
            self._wait(group, self._is_underway, FLUSH_TIME, self._retire)

    def _is_underway(self, group: str) -> bool:
        process = self._process
        submitted = process.submitted_up_to.get(group, 0)
        stable = process.host.stable_up_to(group)
        return self._departure(group).is_underway(group in process.on_room, submitted, stable)

    def _retire(self, group: str) -> None:
        departure, process = self._departure(group), self._process
        if departure.lease is None:
            self._depart(group)
            return
        process.give(group, Retire(group))
        if not process.alive:  # that step met a broken disk
            return
        since = self._queue.now

        def is_needed(group: str) -> bool:
            machine = process.host.seats[group].machine
            return departure.is_needed(machine, self._queue.now - since, process.now())

        self._wait(group, is_needed, departure.longest, self._depart)

    def _depart(self, group: str) -> None:
        process, departure = self._process, self._departure(group)
        machine = process.host.seats[group].machine
        forgets = departure.forgets_records(machine, process.name)
        process.leave(group)
        if not process.alive:
            return
        if forgets:
            process.disk.forget(group)
        self._machines.over(departure.plan, machine, sound=True)
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

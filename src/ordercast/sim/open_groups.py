"""Open groups in a run: how each member may come in, and whom it knows when it does.

Live, a node knows its seeds, and is known to those that have it as a seed or have met it: they dial
it. Here the anchors of a group are everybody's seeds. Nobody is told of more than that: members
learn of each other by their packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ordercast.kernel.family import Plan
from ordercast.kernel.founding import entry_of, remembered
from ordercast.kernel.step import Heard
from ordercast.scenario.schema import GroupSettings
from ordercast.sim.process import Process


class OpenGroups:
    def __init__(self, groups: Iterable[GroupSettings], processes: Mapping[str, Process]) -> None:
        self.by_name = {group.name: group for group in groups if group.open}
        self._processes = processes

    def plan_for(self, process: Process, plan: Plan) -> Plan:
        """The plan of a group as this process is configured with it now."""
        group = self.by_name.get(plan.group)
        if group is None:
            return plan
        entry = entry_of(
            process.name,
            seeds=any(anchor != process.name for anchor in group.anchors),
            expect=group.expect,
            of=group.of,
            founder=group.founder,
            reborn=process.disk.reborn,
            last=process.disk.members.get(plan.group, ()),
        )
        return plan._replace(members=(process.name,), formed=False, entry=entry)

    def known_to(self, process: Process, group: str) -> tuple[str, ...]:
        """Whom it knows as it enters the group: its seeds, and those that dial it."""
        anchors = self.by_name[group].anchors
        dialling = [
            other.name
            for other in self._processes.values()
            if other.alive and group in other.host.seats
            if process.name in anchors or other.has_met(process.name)
        ]
        return tuple(sorted({*anchors, *dialling} - {process.name}))

    def remember(self, process: Process, news: Heard) -> None:
        """The folder remembers the members of an open group."""
        if news.group in self.by_name:
            members = process.disk.members
            members[news.group] = remembered(members.get(news.group, ()), news)

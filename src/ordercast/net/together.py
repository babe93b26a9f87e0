"""Several groups of a node, read as one stream.

Totally ordered groups have one order over all of them, and each group's stream alone does not show
it: what came in one group may follow from what came in another, and wait in a queue behind it. Here
all is handed out in the order in which the node has delivered it. Groups of other levels may be
among them: what these deliver has its place in the order in which it came.
"""

from __future__ import annotations

from ordercast.errors import UsageError
from ordercast.kernel.step import Heard
from ordercast.net.group import Group
from ordercast.net.logged_group import LoggedGroup
from ordercast.net.message import GroupClosed


class Together:
    """An async iterator. It ends when all its groups have; read them by nothing else meanwhile."""

    def __init__(self, first: Group, *others: Group) -> None:
        self._groups: list[Group] = []
        self._arrived = first.node.arrived  # shared by the groups of one node
        for group in (first, *others):
            self.add(group)

    def add(self, group: Group) -> None:
        """One more group: what it has delivered and nobody has read takes its place."""
        group.check_reads()
        if isinstance(group, LoggedGroup):
            raise UsageError(
                f"{group.name!r} is {group.family}: it is read from its log, by itself "
                "(group.since), and not together with others"
            )
        if group.node.arrived is not self._arrived:
            raise UsageError(
                f"{group.name!r} is a group of another node: the two have no common order"
            )
        if group not in self._groups:
            self._groups.append(group)

    def __aiter__(self) -> Together:
        return self

    async def __anext__(self) -> Heard:
        while True:
            waiting = [
                (arrival, place)
                for place, group in enumerate(self._groups)
                if (arrival := group.stream.next_arrival) is not None
            ]
            if not waiting:
                self._drop_ended()
                await self._arrived.wait()
            elif (handed := self._groups[min(waiting)[1]].stream.next_ready()) is not None:
                return handed

    def _drop_ended(self) -> None:
        """Drops the groups that have ended and are read to the end. One that failed raises why."""
        for group in [group for group in self._groups if group.ended is not None]:
            self._groups.remove(group)
            if not isinstance(group.ended, GroupClosed) and group.ended is not None:
                raise group.ended
        if not self._groups:
            raise StopAsyncIteration

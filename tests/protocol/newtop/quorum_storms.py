"""Applications of groups with a quorum: what was secured is in every later primary view.

A write counts as secured when the member that sent it is told so. Each member that hears that its
view is the primary one must know all writes that were secured in primary views before it, as long
as one member of the one before is the incarnation that it was then.
"""

from __future__ import annotations

from tests.protocol.newtop.formation_storms import Ledgers

from ordercast.sim.process import Heard
from ordercast.types import NodeId, Primary, Secured

QUORUM = {"quorum": "majority"}


class QuorumLedgers(Ledgers):
    def __init__(self, *given) -> None:
        super().__init__(*given)
        self.formed: dict[str, dict[int, tuple[NodeId, ...]]] = {}  # by group and number
        self.number: dict[tuple[NodeId, str], int] = {}  # of the last primary view of each
        self.secured: dict[str, dict[str, int]] = {}  # by group: writes, and in which view
        self.missed: list[str] = []
        self.outside = 0

    def hear(self, node: NodeId, what: Heard) -> bytes | bool | None:
        if isinstance(what, Secured):
            secured, number = self.secured.setdefault(what.group, {}), self.number[node, what.group]
            for one in range(what.first, what.up_to + 1):
                secured.setdefault(f"{node}:{one}", number)
        elif isinstance(what, Primary):
            if what.is_primary:
                self._check(node, what)
            else:
                self.outside += 1
        return super().hear(node, what)

    def _check(self, node: NodeId, what: Primary) -> None:
        group, number = what.group, what.number
        formed = self.formed.setdefault(group, {})
        secured = self.secured.setdefault(group, {})
        self.number[node, group] = number
        before = max((one for one in formed if one < number), default=None)
        formed[number] = what.view.members
        if before is None:
            return
        if not any(self._is_there(one) for one in formed[before]):
            for write, place in list(secured.items()):
                if place < number:
                    del secured[write]
            return
        known = set(self.known.get((node, group), ()))
        lost = [one for one, place in secured.items() if place < number and one not in known]
        if lost:
            self.missed.append(f"{node} is in primary view {number} of {group} without {lost[0]}")

    def _is_there(self, node: NodeId) -> bool:
        process = self.world.processes[node.name]
        return process.alive and process.node == node

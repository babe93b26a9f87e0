"""What a member has delivered in a formation, as a digest: equal where the same was delivered.

In the same order, too, if the group has one. Members that move to another formation tell from it
whether they need the state of its initiator.
"""

from __future__ import annotations

from ordercast.protocol.newtop.packets import History
from ordercast.types import COUNTER_BITS, NodeId

WORD = (1 << 62) - 1


class Delivered:
    def __init__(self, formation: str, members: tuple[NodeId, ...]) -> None:
        self._formation = formation
        self._places = {one: place for place, one in enumerate(sorted(members))}
        self._digest = 0

    def add(self, origin: NodeId, number: int, is_ordered: bool) -> None:
        """The event that an origin submitted as this one, counted in the formation."""
        event = self._places[origin] << COUNTER_BITS | number
        if is_ordered:
            self._digest = _mixed(self._digest + event)
        else:
            self._digest = (self._digest + _mixed(event)) & WORD

    @property
    def history(self) -> History:
        return History(self._formation, self._digest)


def _mixed(value: int) -> int:
    """62 bits that depend on all bits of a number."""
    value = (value ^ value >> 31) * 0x9E3779B97F4A7C15 & WORD
    return value ^ value >> 29

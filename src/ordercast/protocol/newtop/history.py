"""What a member has delivered in a formation, as a digest: equal where the same was delivered.

In the same order, too, if the group has one. Members that move to another formation tell from it
whether they need the state of its initiator.

The events of one origin are delivered in their order and without gaps, so whose events were
delivered says which they were. The digest is a polynomial modulo a prime: it costs little for each
event, and nobody is meant to be kept from making two that are equal.
"""

from __future__ import annotations

from ordercast.protocol.newtop.packets import DeliveryDigest
from ordercast.types import COUNTER_BITS, NodeId

PRIME = (1 << 61) - 1
FACTOR = 0x19E3779B97F4A7C1  # two large numbers that have nothing to do with each other
MEMBER = 0x0D1B54A32D192ED3
MOST_COUNTED = (1 << COUNTER_BITS) - 1


class Delivered:
    def __init__(self, formation: str, members: tuple[NodeId, ...]) -> None:
        self._formation = formation
        self._weights = {
            one: pow(MEMBER, 1 + place, PRIME) for place, one in enumerate(sorted(members))
        }
        self._digest = 0
        # Events since the group was founded: those of the state that we began with, and ours.
        self.count = 0

    def begin(self, given: DeliveryDigest | None) -> None:
        """With the state of one that had delivered this; None: the group is founded."""
        self.count = 0 if given is None else given.count

    def add(self, origin: NodeId, is_ordered: bool) -> None:
        """The next event of this origin was delivered."""
        before = self._digest * FACTOR if is_ordered else self._digest
        self._digest = (before + self._weights[origin]) % PRIME
        self.count = min(self.count + 1, MOST_COUNTED)

    @property
    def history(self) -> DeliveryDigest:
        return DeliveryDigest(self._formation, self._digest, self.count)

"""The streams of one group at one member: how far each came, and what is kept of it for whom.

Rules (Newtop, sections 4.1 and 5.1).
 1. A packet is admitted only as the next of its sender's stream: it names its predecessor. A copy
    of what was admitted changes nothing.
 2. Every packet says how far its sender has delivered. What all have delivered is stable.
 3. What is not stable is kept, one's own stream included, for whoever may turn out to lack it.

What it does not do: decide who is waited for. Who is agreed to be gone is forgotten.
"""

from __future__ import annotations

from ordercast.kernel.buffers import Limit, Retained
from ordercast.kernel.stability import Stability
from ordercast.protocol.newtop.packets import Data, Message
from ordercast.types import NodeId


class Streams:
    def __init__(self, me: NodeId, others: tuple[NodeId, ...], limit: Limit) -> None:
        self.me = me
        self.limit = limit  # of events; packets without any are not counted
        self.received = Stability()  # by sender: its last number that we admitted. paper: RV
        self.delivered = Stability()  # by member: how far it says it has delivered. paper: SV
        self.last_order = 0  # the last number that we put in this group
        self.newest_event = 0  # the largest number of an event of this group
        self.unstable_events = 0  # how many are kept, of all members
        self.kept: dict[NodeId, Retained[Message]] = {}
        self.events: dict[NodeId, Retained[None]] = {}  # the events among them
        for member in (me, *others):
            self.kept[member] = Retained(limit)
            self.events[member] = Retained(limit)
        for member in others:
            self.received.follow(member, 0)
            self.delivered.follow(member, 0)

    def up_to(self, member: NodeId) -> int:
        """The last number that was admitted of somebody else's stream."""
        number = self.received.acknowledged(member)
        assert number is not None, f"{member} is no longer followed"
        return number

    def append_own(self, message: Message) -> None:
        assert message.previous == self.last_order
        self.last_order = message.order
        self._keep(self.me, message)

    def admit(self, sender: NodeId, message: Message) -> None:
        """Takes the next of a stream."""
        assert message.previous <= self.up_to(sender) < message.order
        self.received.acknowledge(sender, message.order)
        self.delivered.acknowledge(sender, message.delivered_up_to)
        self._keep(sender, message)

    def _keep(self, sender: NodeId, message: Message) -> None:
        size = message.size if isinstance(message, Data) else 0
        self.kept[sender].append(message.order, message, size)
        if isinstance(message, Data):
            self.events[sender].append(message.order, None, size)
            self.newest_event = max(self.newest_event, message.order)
            self.unstable_events += 1

    def beyond(self, member: NodeId, number: int) -> list[Message]:
        """What is kept of a stream beyond a number."""
        return self.kept[member].after(number)

    def discard_up_to(self, stable: int) -> None:
        for member in self.kept:
            self.kept[member].discard_up_to(stable)
            self.unstable_events -= self.events[member].discard_up_to(stable)

    def forget(self, member: NodeId) -> None:
        """It is agreed to be gone, and all who remain have the same of it."""
        self.received.unfollow(member)
        self.delivered.unfollow(member)
        del self.kept[member]
        self.unstable_events -= self.events.pop(member).count

"""The streams of one group at one member: how far each was received, and what is retained of it.

Rules (Newtop, sections 4.1 and 5.1).
 1. A packet is appended only as the next of its sender's stream: it names its predecessor. A copy
    of an earlier packet changes nothing.
 2. Every packet reports how far its sender has delivered. What all have delivered is stable.
 3. What is not stable is retained, our own stream included, in case a member turns out to miss it.

What it does not do: decide which members to wait for. Members that are agreed to be gone are
forgotten.
"""

from __future__ import annotations

from ordercast.kernel.buffers import Limit, Retained
from ordercast.kernel.stability import Stability
from ordercast.protocol.newtop.packets import Data, Message, State
from ordercast.types import NodeId


class Streams:
    def __init__(self, me: NodeId, others: tuple[NodeId, ...], limit: Limit) -> None:
        self.me = me
        self.limit = limit  # of events; packets without any are not counted
        self.received = Stability()  # by sender: its last number that we received. paper: RV
        self.delivered = Stability()  # by member: how far it reports to have delivered. paper: SV
        self.last_order = 0  # the last number that we used in this group
        self.newest_event = 0  # the largest number of an event of this group
        self.newest_placed = 0  # the same, or of the state: members wait for numbers above it
        self.unstable_events = 0  # how many are retained, of all members
        self.retained: dict[NodeId, Retained[Message]] = {}
        self.events: dict[NodeId, Retained[None]] = {}  # the events among them
        for member in (me, *others):
            self.retained[member] = Retained(limit)
            self.events[member] = Retained(limit)
        for member in others:
            self.received.follow(member, 0)
            self.delivered.follow(member, 0)

    def up_to(self, member: NodeId) -> int:
        """The last number that was received of another member's stream."""
        number = self.received.acknowledged(member)
        assert number is not None, f"{member} is no longer followed"
        return number

    def append_own(self, message: Message) -> None:
        assert message.previous == self.last_order
        self.last_order = message.order
        self._retain(self.me, message)

    def append(self, sender: NodeId, message: Message) -> None:
        """Takes the next packet of a stream."""
        assert message.previous <= self.up_to(sender) < message.order
        self.received.acknowledge(sender, message.order)
        self.delivered.acknowledge(sender, message.delivered_up_to)
        self._retain(sender, message)

    def _retain(self, sender: NodeId, message: Message) -> None:
        size = message.size if isinstance(message, Data) else 0
        self.retained[sender].append(message.order, message, size)
        if isinstance(message, Data):
            self.events[sender].append(message.order, None, size)
            self.newest_event = max(self.newest_event, message.order)
            self.unstable_events += 1
        if isinstance(message, Data | State):
            self.newest_placed = max(self.newest_placed, message.order)

    def behind(self, number: int) -> tuple[NodeId, ...]:
        """Who keeps what has this number from being stable: members of which no later number has
        come, for which all others wait too; else those that have not delivered so far."""
        return self.received.behind(number) or self.delivered.behind(number)

    def beyond(self, member: NodeId, number: int) -> list[Message]:
        """What is retained of a stream beyond a number."""
        return self.retained[member].after(number)

    def discard_up_to(self, stable: int) -> None:
        for member in self.retained:
            self.retained[member].discard_up_to(stable)
            self.unstable_events -= self.events[member].discard_up_to(stable)

    def forget(self, member: NodeId) -> None:
        """It is agreed to be gone, and all remaining members have the same of its stream."""
        self.received.unfollow(member)
        self.delivered.unfollow(member)
        del self.retained[member]
        self.unstable_events -= self.events.pop(member).count

"""Large states travel in parts, so that members hear from the initiator meanwhile.

A link is FIFO, and all links of a node may share one slow line: whatever an initiator sends after a
large state arrives after it, at whomever. That may take longer than the suspicion limit, and all
would take the initiator for gone.

Rules.
 1. A state of more than `PART_BYTES` is sent as parts, in order, and then as a packet that says how
    many there were. The receiver puts the state back into that packet, and goes on as if it had
    come so: members store and relay whole states.
 2. One part is underway to a receiver: the next one follows when the receiver has taken it. Parts
    for several receivers are smaller, so that those underway are hardly more than one. So
    heartbeats for all members come between them.
 3. What the initiator casts after a `State` waits, for its receiver, until the `State` is sent. It
    is retained anyway: nothing after the state is stable before the receiver has it.
 4. Each part is a sign of life of its sender. So a line needs `PART_BYTES` in a suspicion limit.
 5. An initiator that leaves sends the rest at once.

What it does not do: ask for a part again. Links lose nothing.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ordercast.errors import PeerError
from ordercast.kernel.inputs import LARGEST_STATE
from ordercast.kernel.step import Step
from ordercast.protocol.newtop.packets import (
    LEAST_PART,
    PART_BYTES,
    Copy,
    PartTaken,
    State,
    StatePart,
)
from ordercast.protocol.newtop.stability import Streams
from ordercast.types import NodeId

S = TypeVar("S", State, Copy)


class SentParts:
    """A state on its way to one member: the packet, in pieces of a size."""

    __slots__ = ("count", "sent", "size", "whole")

    def __init__(self, whole: State | Copy, size: int) -> None:
        assert whole.state is not None
        self.whole = whole
        self.size = size
        self.count = -(-len(whole.state) // size)
        self.sent = 0

    def send_next(self, step: Step, to: NodeId) -> bool:
        """Sends the next part. False: all are sent, and the packet itself follows them."""
        whole, place = self.whole, self.sent * self.size
        if self.sent == self.count:
            step.send(to, msgspec.structs.replace(whole, state=None, parts=self.count))
            return False
        assert whole.state is not None
        part = whole.state[place : place + self.size]
        step.send(to, StatePart(whole.group, whole.formation, part))
        self.sent += 1
        return True


class SentStates:
    """The large states on their way from an initiator, by receiver."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams  # of the epoch
        self._underway: dict[NodeId, SentParts] = {}
        self.behind: dict[NodeId, int] = {}  # who waits for our stream from this number on

    def send(self, step: Step, to: tuple[NodeId, ...], whole: State | Copy) -> None:
        """Sends a packet with a state, after the parts of the state if that is large."""
        state = whole.state
        if state is None or len(state) <= PART_BYTES:
            if to:
                step.send(to, whole)
            return
        for one in to:
            sent = SentParts(whole, max(PART_BYTES // len(to), LEAST_PART))
            self._underway[one] = sent
            if isinstance(whole, State):
                self.behind[one] = whole.order
            sent.send_next(step, one)

    def take(self, step: Step, receiver: NodeId, packet: PartTaken) -> None:
        """The receiver has a part, and gets the next one, or what comes after the last."""
        sent = self._underway.get(receiver)
        if sent is None:
            return
        if packet.count != sent.sent:
            counts = f"{packet.count} parts of a state, of which {sent.sent} were sent"
            raise PeerError(f"{receiver} has taken {counts}")
        if not sent.send_next(step, receiver):
            self._end(step, receiver)

    def _end(self, step: Step, receiver: NodeId) -> None:
        """The receiver has all of the state. Our stream goes on for it."""
        del self._underway[receiver]
        order = self.behind.pop(receiver, None)
        if order is not None:
            for message in self._streams.beyond(self._streams.me, order):
                step.send(receiver, message)

    def hurry(self, step: Step) -> None:
        """Sends the rest at once."""
        for receiver, sent in list(self._underway.items()):
            while sent.send_next(step, receiver):
                pass
            self._end(step, receiver)

    def forget(self, gone: tuple[NodeId, ...]) -> None:
        """They are agreed to be gone."""
        for one in gone:
            self._underway.pop(one, None)
            self.behind.pop(one, None)


class ReceivedParts:
    """The parts of one state that have come so far."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, sender: NodeId, part: bytes) -> int:
        """Returns how many have come."""
        if self._size + len(part) > LARGEST_STATE:
            raise PeerError(f"{sender} sends a state of more than {LARGEST_STATE} bytes")
        self._parts.append(part)
        self._size += len(part)
        return len(self._parts)

    def complete(self, sender: NodeId, packet: S) -> S:
        """The packet with its state. Nothing is left of the parts."""
        if not packet.parts:
            return packet
        if packet.parts != len(self._parts):
            have = f"{len(self._parts)} have come"
            raise PeerError(f"{sender} sent a state in {packet.parts} parts, of which {have}")
        state = b"".join(self._parts)
        self._parts, self._size = [], 0
        return msgspec.structs.replace(packet, state=state, parts=0)

"""Large states travel in parts, so that a member that receives one hears from its initiator.

A link is FIFO: whatever an initiator sends after its state arrives after the state. On a slow line
that takes longer than the suspicion limit, and the newcomer would take the initiator for gone.

Rules.
 1. A state of more than `PART_BYTES` is sent as parts, in order, and then as a packet that says how
    many there were. The receiver puts the state back into that packet, and goes on as if it had
    come so: members store and relay whole states.
 2. Each part is a sign of life of its sender. So a line needs `PART_BYTES` in a suspicion limit.

What it does not do: ask for a part again. Links lose nothing.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ordercast.errors import PeerError
from ordercast.kernel.inputs import LARGEST_STATE
from ordercast.kernel.step import Step
from ordercast.protocol.newtop.packets import PART_BYTES, Copy, State, StatePart
from ordercast.types import NodeId

S = TypeVar("S", State, Copy)


def send_in_parts(step: Step, to: tuple[NodeId, ...], whole: State | Copy) -> None:
    """Sends a packet with a state, after the parts of the state if that is large."""
    if not to:
        return
    state = whole.state
    if state is None or len(state) <= PART_BYTES:
        step.send(to, whole)
        return
    places = range(0, len(state), PART_BYTES)
    for place in places:
        part = state[place : place + PART_BYTES]
        step.send(to, StatePart(whole.group, whole.formation, part))
    step.send(to, msgspec.structs.replace(whole, state=None, parts=len(places)))


class ReceivedParts:
    """The parts of one state that have come so far."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, sender: NodeId, part: bytes) -> None:
        if self._size + len(part) > LARGEST_STATE:
            raise PeerError(f"{sender} sends a state of more than {LARGEST_STATE} bytes")
        self._parts.append(part)
        self._size += len(part)

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

"""STATUS sends: each gets one result, from the peer or from a time limit.

Every send has a number, which the peer's answer names. A send to a peer that is being dialled waits
for the connection; a send to a node that nobody knows waits for the time limit alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple

from ordercast.kernel.seat import Seat
from ordercast.net.contact import Contact
from ordercast.net.mesh import Mesh
from ordercast.types import NodeId
from ordercast.wire.framing import FrameKind

RESULT_SECONDS = 0.5
MOST_UNSENT = 64
"""Sends that wait for a connection with one peer. Their number bounds them, and the time limit."""


class _Send(NamedTuple):
    name: str  # of the peer
    seat: Seat
    token: Hashable
    timer: asyncio.TimerHandle  # the time limit


class Statuses:
    def __init__(self, result: Callable[[Seat, Hashable, bool], None]) -> None:
        """`result`: for this machine, the send with this token arrived, or it is unknown."""
        self._result = result
        self._loop = asyncio.get_running_loop()
        self._sends: dict[int, _Send] = {}  # without a result, by number
        self._count = 0
        # To peers that are being dialled, by name: the number and the packet of each.
        self.unsent: dict[str, deque[tuple[int, bytes]]] = {}

    def send(
        self, mesh: Mesh, seat: Seat, address: NodeId | str, body: bytes, token: Hashable
    ) -> None:
        self._count = number = self._count + 1
        name = address if isinstance(address, str) else address.name
        timer = self._loop.call_later(RESULT_SECONDS, self._resolve, number, False)
        self._sends[number] = _Send(name, seat, token, timer)
        contact = mesh.contacts.use(name)
        if contact is None or (isinstance(address, NodeId) and contact.node != address):
            return  # nobody is there
        if contact.connection is None and contact.place is not None:
            unsent = self.unsent.setdefault(name, deque(maxlen=MOST_UNSENT))
            unsent.append((number, body))  # it is being dialled
        else:
            mesh.send_frame(contact, FrameKind.STATUS, number.to_bytes(8), body)

    def connected(self, mesh: Mesh, contact: Contact) -> None:
        """What waited for this peer is sent."""
        for number, body in self.unsent.pop(contact.name, ()):
            if number in self._sends:
                mesh.send_frame(contact, FrameKind.STATUS, number.to_bytes(8), body)

    def answered(self, sender: NodeId, number: int) -> None:
        """A peer has what we sent. Nobody can answer for another."""
        send = self._sends.get(number)
        if send is not None and send.name == sender.name:
            self._resolve(number, True)

    def _resolve(self, number: int, arrived: bool) -> None:
        name, seat, token, timer = self._sends.pop(number)
        timer.cancel()
        unsent = self.unsent.get(name)
        while unsent and unsent[0][0] not in self._sends:
            unsent.popleft()
        if unsent is not None and not unsent:
            del self.unsent[name]
        self._result(seat, token, arrived)

    def close(self) -> None:
        """No send gets a result any more."""
        for send in self._sends.values():
            send.timer.cancel()
        self._sends.clear()
        self.unsent.clear()

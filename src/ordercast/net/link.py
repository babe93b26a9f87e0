"""What is underway from this incarnation to one incarnation of a peer: it survives connections.

Rules. Frames are counted from 1 on both ends. A frame is held until the other end says that it
arrived. When a connection is made again each end says how many frames it has, the other forgets
those and sends the rest again, in order. So nothing is lost and nothing comes twice, however often
the connection breaks. Pure: it knows no socket.
"""

from __future__ import annotations

from collections import deque

from ordercast.errors import OrdercastError, PeerError
from ordercast.types import NodeId


class LinkFull(OrdercastError):
    """A peer has not acknowledged so much that holding more would have no bound."""


class Link:
    __slots__ = ("_acknowledged", "_unacknowledged", "limit", "peer", "received", "size")

    def __init__(self, peer: NodeId, limit: int) -> None:
        self.peer = peer
        self.limit = limit  # bytes
        self.size = 0  # bytes of `_unacknowledged`
        self.received = 0  # frames that came from the peer
        self._unacknowledged: deque[bytes] = deque()  # sent or not, in any case not acknowledged
        self._acknowledged = 0  # frames that the peer has: the next one is the first that is held

    def add(self, frame: bytes) -> None:
        """Takes a frame on its way. It is ours until the peer has it."""
        if self.size + len(frame) > self.limit:
            raise LinkFull(f"{self.peer} has not acknowledged {self.size} bytes")
        self._unacknowledged.append(frame)
        self.size += len(frame)

    def acknowledge(self, received: int) -> None:
        """The peer has so many frames in all."""
        count = received - self._acknowledged
        if count < 0:
            return  # an acknowledgement from before a newer one
        if count > len(self._unacknowledged):
            raise PeerError(f"{self.peer} acknowledges frames that were never sent")
        for _ in range(count):
            self.size -= len(self._unacknowledged.popleft())
        self._acknowledged = received

    def resume(self, received: int) -> list[bytes]:
        """A new connection, on which the peer said how many it has: what to send again."""
        least, most = self._acknowledged, self._acknowledged + len(self._unacknowledged)
        if not least <= received <= most:
            raise PeerError(
                f"{self.peer} has {received} frames of ours, and should have {least} to {most}: "
                "one of us began again with an empty data folder, as the same incarnation; start "
                "that node once more, as a new incarnation"
            )
        self.acknowledge(received)
        return list(self._unacknowledged)

    @property
    def underway(self) -> int:
        """Frames that were not acknowledged."""
        return len(self._unacknowledged)

    @property
    def is_untouched(self) -> bool:
        """No frame was ever put on it, at either end."""
        return not (self.received or self._acknowledged or self._unacknowledged)

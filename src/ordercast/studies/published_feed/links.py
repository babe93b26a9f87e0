"""The stream to and from one correspondent: VS, VR and the FIFO queue.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994), section 3 and footnote 1. Messages
between two nodes are numbered. What comes too early waits in the FIFO queue. Numbers outlive
crashes: what was not acknowledged is sent again with the number that it had.

While a link is closed, because the other end is down or one of both recovers, messages are kept for
it: the paper's "marks it as not acknowledged".
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.studies.published_feed.packets import Item, SavedLink
from ordercast.types import NodeId


class Kept(NamedTuple):
    origin: str
    sequence: int
    instead: str = ""


class NumberedLink:
    __slots__ = ("closed", "kept", "node", "queue", "received", "sent", "unacknowledged")

    def __init__(self, peer: str) -> None:
        self.node = NodeId(peer)  # the incarnation that we know
        self.sent = 0  # VS
        self.received = 0  # VR
        self.unacknowledged: dict[int, Kept] = {}  # by number
        self.kept: list[Kept] = []  # not numbered yet
        self.queue: dict[int, Item] = {}  # the FIFO queue, by number; all above VR
        self.closed = False

    def number(self, kept: Kept) -> int:
        self.sent += 1
        self.unacknowledged[self.sent] = kept
        return self.sent

    def next(self) -> Item | None:
        """What is next in this stream, if it has come."""
        return self.queue.get(self.received + 1)

    def take(self) -> None:
        self.received += 1
        del self.queue[self.received]

    def saved(self, peer: str) -> SavedLink:
        unacknowledged = tuple((tag, *kept) for tag, kept in self.unacknowledged.items())
        kept = tuple((one.origin, one.sequence, one.instead) for one in self.kept)
        return SavedLink(peer, self.node, self.sent, self.received, unacknowledged, kept)

    @classmethod
    def of(cls, saved: SavedLink) -> NumberedLink:
        """After a crash: closed until the other end has answered."""
        link = cls(saved.peer)
        link.node, link.sent, link.received = saved.node, saved.sent, saved.received
        link.unacknowledged = {
            tag: Kept(origin, sequence, instead)
            for tag, origin, sequence, instead in saved.unacknowledged
        }
        link.kept = [Kept(*one) for one in saved.kept]
        link.closed = True
        return link

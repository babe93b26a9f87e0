"""Backpressure from links: no group adds to a link that already holds too much.

All groups of a node share one link to a peer, and each group has a window of its own: without this
limit, what waits for a peer would grow with the number of groups.

Rules.
 1. A link is full when it holds more than the limit, in bytes or in frames. It stays full until it
    holds half the limit or less, so that all groups that wait find room.
 2. A link is measured when it grows and when the peer acknowledges frames. A group that sends only
    asks whether any link is full.
 3. A full link blocks only groups that have its incarnation in their view.
"""

from __future__ import annotations

from ordercast.net.contact import Contact
from ordercast.net.link import Link
from ordercast.types import NodeId

PEER_FRAMES = 1 << 16


class LinkBackpressure:
    """The full links of one node."""

    def __init__(self, limit: int) -> None:
        self.contacts: dict[str, Contact] = {}  # the mesh's
        self.full: dict[str, Link] = {}  # by the peer's name
        self._limit = limit  # bytes

    def sent(self, to: tuple[NodeId, ...]) -> None:
        limit, frames = self._limit, PEER_FRAMES
        for node in to:
            contact = self.contacts.get(node.name)
            link = contact.link if contact is not None else None
            if link is not None and (link.size > limit or link.underway > frames):
                self.full[node.name] = link

    def has_room_again(self, contact: Contact) -> bool:
        """Whether its link was full, and now has room or was replaced."""
        link = self.full.get(contact.name)
        if link is None:
            return False
        long = 2 * link.size > self._limit or 2 * link.underway > PEER_FRAMES
        if long and link is contact.link:
            return False
        del self.full[contact.name]
        return True

    def blocks(self, members: tuple[NodeId, ...]) -> bool:
        """Whether the link to one of these is full. A link that was replaced blocks nobody."""
        for node in members:
            link = self.full.get(node.name)
            if link is not None and link.peer == node:
                contact = self.contacts.get(node.name)
                if contact is not None and contact.link is link:
                    return True
                del self.full[node.name]
        return False

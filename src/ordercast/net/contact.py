"""The nodes that we know by name: which incarnation is there, its link, and what connects us.

A contact is remembered for ever. Two things about it change, each by its own table.

Its incarnation. MET: `node` and `link` are set. BROKEN: `broken` is set. All that was underway to
an older incarnation is forgotten with it.

             a newer one greets us    too much is underway to it
    UNMET    MET                      BROKEN
    MET      MET                      BROKEN
    BROKEN   MET                      BROKEN

The connection. One counts at the most; a newer one takes its place. Until the other end has said
how much it has (GREETING) nothing is sent on it.

                it greets    it says how much it has    it ends, or the network is cut
    AWAY        GREETING     (aborted)                  AWAY
    GREETING    GREETING     CONNECTED                  AWAY
    CONNECTED   GREETING     (aborted)                  AWAY

A machine may know of an incarnation that has not greeted us, from others whom it has: what it sends
waits on a link that is `expected`, and becomes the contact's link when that incarnation greets us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from random import Random
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from ordercast.net.incidents import Incidents
from ordercast.net.link import Link
from ordercast.types import NodeId
from ordercast.units import MILLISECOND
from ordercast.wire.greeting import Met

if TYPE_CHECKING:
    from ordercast.net.connection import Connection

LINK_LIMIT = 256 << 20
MOST_CONTACTS = 1024
LIVE = 2500 * MILLISECOND
"""A node that was heard within this time is there. Connections carry a ping each second."""
PLACES_BYTES = 8 << 10
"""Of others' places in a greeting, so that no node finds it too long."""


class ConnectionPhase(Enum):
    AWAY = "away"
    GREETING = "greeting"
    CONNECTED = "connected"


class Contact:
    """A node that we know by name."""

    __slots__ = (
        "_current",
        "birth",
        "broken",
        "connection",
        "dialler",
        "expected",
        "key",
        "learned",
        "link",
        "name",
        "node",
        "phase",
        "place",
        "udp",
    )

    def __init__(self, name: str, place: str | None) -> None:
        self.name = name
        self.place = place  # host:port to dial; None: it must dial us
        self.learned = place is None  # by greetings: where it greets from next is better known
        self.dialler: asyncio.Task[None] | None = None
        self.node: NodeId | None = None  # MET: the newest that greeted us
        self.link: Link | None = None  # MET: to that incarnation
        self.birth: bytes | None = None  # MET or BROKEN: of that incarnation, if it greeted us
        self.broken: NodeId | None = None  # BROKEN: an incarnation that we lost frames to
        self.expected: Link | None = None  # to one that others know, until it greets us
        self.phase = ConnectionPhase.AWAY
        self._current: Connection | None = None  # GREETING or CONNECTED: the newest
        self.connection: Connection | None = None  # CONNECTED: the same
        self.udp: tuple[Any, ...] | None = None  # where datagrams go: host, port, and IPv6's more
        self.key: tuple[bytes, bytes] | None = None  # id and key for datagrams to it

    def __str__(self) -> str:
        return str(self.node or self.name)

    # --- its incarnation -----------------------------------------------------------------------

    @property
    def newest(self) -> NodeId | None:
        """The newest incarnation that we had to do with."""
        return self.node or self.broken

    def met(self) -> Met | None:
        """The newest incarnation that we had to do with, and whether it is there."""
        newest, connection = self.newest, self.connection
        if newest is None:
            return None
        silence = monotonic_ns() - connection.heard_at if connection is not None else None
        return Met(
            newest,
            self.birth,
            is_live=silence is not None and silence <= LIVE,
            place=self.place or (connection.source if connection is not None else ""),
        )

    def link_to(self, node: NodeId) -> Link | None:
        """Where to put what is for this incarnation; None: it is gone, or broken."""
        if self.node == node:
            return self.link
        newest = self.newest
        if newest is not None and node.incarnation <= newest.incarnation:
            return None
        if self.expected is None or self.expected.peer != node:
            self.expected = Link(node, LINK_LIMIT)
        return self.expected

    def meet(self, node: NodeId, birth: bytes) -> Link:
        """This incarnation greets us: the same again, or one that takes the place of an older."""
        if self.node != node:
            if self.node is not None:
                self._forget()
            self.node, self.broken, self.birth = node, None, birth
            expected = self.expected
            if expected is not None and expected.peer.incarnation <= node.incarnation:
                self.expected = None
            is_it = expected is not None and expected.peer == node
            self.link = expected if is_it else Link(node, LINK_LIMIT)
        assert self.link is not None
        return self.link

    def break_with(self, node: NodeId) -> None:
        """Frames to this incarnation are lost: nothing more is exchanged with it."""
        if node == self.node:
            self._forget()
        else:
            self.birth = None
        self.broken, self.expected = node, None

    def _forget(self) -> None:
        self.disconnect()
        self.node = self.link = self.key = None

    def begin_again(self) -> None:
        """Ours is another incarnation now: nothing that was underway to or from the old counts."""
        self._forget()
        self.broken = self.expected = None

    # --- the connection ------------------------------------------------------------------------

    def greet(self, connection: Connection) -> None:
        """The other end of this one is who it should be, and hears from us how much we have.

        What still comes by an older connection must not count any more.
        """
        self.disconnect()
        connection.contact = self
        self.phase, self._current = ConnectionPhase.GREETING, connection

    def connect(self, connection: Connection, received: int) -> list[bytes] | None:
        """The other end has so many frames: what it is sent again. None: a newer one has greeted
        us, which knows better how much we have."""
        if self.phase is not ConnectionPhase.GREETING or connection is not self._current:
            return None
        assert self.link is not None
        again = self.link.resume(received)
        self.phase, self.connection = ConnectionPhase.CONNECTED, connection
        return again

    def disconnect(self) -> None:
        """No connection counts any more, nor one that has not come so far."""
        old, self.phase = self.connection, ConnectionPhase.AWAY
        self._current = self.connection = None
        if old is not None:
            old.abort()

    def lost(self, connection: Connection) -> None:
        """This connection has ended by itself."""
        if self._current is connection:
            self.phase = ConnectionPhase.AWAY
            self._current = self.connection = None


def _nobody(contact: Contact) -> None:
    """Dials nobody: before there is a dialler, and when we are closing."""


class Contacts(dict[str, Contact]):
    """All of them, by name, and from whom and to whom the network is cut, for tests."""

    def __init__(self, me: NodeId, incidents: Incidents, chance: Random) -> None:
        super().__init__()
        self.incidents = incidents
        self.dial: Callable[[Contact], None] = _nobody  # from now on: we know where it is
        self.cut_from: frozenset[str] = frozenset()  # names that must not reach us
        self.cut_to: frozenset[str] = frozenset()  # names that we must not reach
        self._me = me
        self._chance = chance

    def know(self, name: str, place: str | None, learned: bool = False) -> Contact | None:
        """Remembers a node for ever, and dials it if we know where it is. None: it is us, or too
        many are known.

        Learned: from greetings, and not from whoever operates this node.
        """
        if name == self._me.name:
            return None
        contact = self.get(name)
        if contact is None:
            if len(self) >= MOST_CONTACTS:
                self.incidents.count("contacts_over_limit")
                return None
            contact = self[name] = Contact(name, place)
        if place is not None:
            contact.place, contact.learned = place, learned
        if contact.place is not None:
            self.dial(contact)
        return contact

    def places(self) -> dict[str, str]:
        """Where we know others: all of them, or others each time where they are too many."""
        known = [contact for contact in self.values() if contact.place]
        if len(known) > 64:
            self._chance.shuffle(known)
        places, size = {}, 0
        for contact in known:
            assert contact.place is not None
            size += len(contact.name.encode()) + len(contact.place.encode()) + 6
            if size > PLACES_BYTES:
                break
            places[contact.name] = contact.place
        return places

    def is_cut(self, name: str) -> bool:
        return name in self.cut_from or name in self.cut_to

    def stop_dialling(self) -> None:
        self.dial = _nobody

    def cut(self, incoming: frozenset[str], outgoing: frozenset[str]) -> None:
        """As if the network were cut, from and to these names."""
        self.cut_from, self.cut_to = incoming, outgoing
        for name in sorted(incoming | outgoing):
            if name in self:
                self[name].disconnect()

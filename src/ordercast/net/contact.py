"""A node that we know by name: which incarnation is there, its link, and what connects us.

Two things about a contact change, each by its own table.

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
from enum import Enum
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ordercast.net.link import Link
from ordercast.types import NodeId
from ordercast.units import MILLISECOND
from ordercast.wire.greeting import Met

if TYPE_CHECKING:
    from ordercast.net.connection import Connection

LINK_LIMIT = 256 << 20
LIVE = 2500 * MILLISECOND
"""A node that was heard within this time is there. Connections carry a ping each second."""

Source: TypeAlias = Literal["configured", "greeted", "told"]


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
        "carried_at",
        "connection",
        "dialler",
        "expected",
        "failures",
        "heard",
        "heard_at",
        "heard_birth",
        "is_called",
        "is_heard",
        "is_linked",
        "is_parted",
        "is_used",
        "key",
        "learned",
        "link",
        "name",
        "node",
        "opened_at",
        "phase",
        "place",
        "seen_at",
        "source",
        "told_by",
        "udp",
        "used_at",
    )

    def __init__(
        self,
        name: str,
        place: str | None,
        source: Source = "configured",
        told_by: str = "",
        now: int = 0,
    ) -> None:
        self.name = name
        self.source: Source = source
        self.told_by = told_by
        self.seen_at = now  # when we were last connected, or told of it
        self.is_used = False  # a machine has sent to it since `Contacts.tend` looked last
        self.used_at: int | None = None
        self.is_linked = False  # what was sent since then goes by a connection
        self.carried_at: int | None = None  # when a packet last came or went by a connection
        self.is_heard = False  # a datagram of it has come since then
        self.heard_at: int | None = None  # when a datagram of it last came
        self.is_parted = False  # its last connection ended because an end did not need it
        self.is_called = False  # we cannot send it datagrams before it has greeted us
        self.failures = 0  # of dials, since it last answered
        self.place = place  # host:port to dial; None: it must dial us
        # The place is from greetings: where it greets from next is better known.
        self.learned = place is None or source != "configured"
        self.dialler: asyncio.Task[None] | None = None
        self.node: NodeId | None = None  # MET: the newest that greeted us
        self.link: Link | None = None  # MET: to that incarnation
        self.birth: bytes | None = None  # MET or BROKEN: of that incarnation, if it greeted us
        self.opened_at = 0  # MET or BROKEN: when it was opened, on our clock
        self.broken: NodeId | None = None  # BROKEN: an incarnation that we lost frames to
        self.expected: Link | None = None  # to one that others know, until it greets us
        self.heard: NodeId | None = None  # newer than `node`: known by its datagrams alone
        self.heard_birth = b""  # of that one, where datagrams say it
        self.phase = ConnectionPhase.AWAY
        self._current: Connection | None = None  # GREETING or CONNECTED: the newest
        self.connection: Connection | None = None  # CONNECTED: the same
        self.udp: tuple[Any, ...] | None = None  # where datagrams go: host, port, and IPv6's more
        self.key: tuple[bytes, bytes] | None = None  # id and key for datagrams to it

    def __str__(self) -> str:
        return str(self.node or self.name)

    def status(self) -> dict[str, Any]:
        """How it is, as plain values."""
        return {
            "incarnation": str(self.node) if self.node else None,
            "place": self.place,
            "connected": self.connection is not None,
            "link_bytes": self.link.size if self.link else 0,
        }

    # --- its incarnation -----------------------------------------------------------------------

    @property
    def newest(self) -> NodeId | None:
        """The newest incarnation that we had to do with."""
        return self.node or self.broken

    def met(self) -> Met | None:
        """The newest incarnation that we had to do with, and whether it is there."""
        newest, connection = self.newest, self.connection
        if self.heard is not None and self._is_heard():
            return Met(self.heard, self.heard_birth or None, is_live=True, place=self.place or "")
        if newest is None:
            return None
        place = self.place or (connection.source if connection is not None else "")
        return Met(newest, self.birth, is_live=self.is_live, place=place)

    @property
    def is_live(self) -> bool:
        """Whether the incarnation that greeted us was heard a moment ago.

        By its connection; by datagrams only if the last one ended because nobody needed it. One
        that broke says more than datagrams from before.
        """
        if self.connection is not None:
            return monotonic_ns() - self.connection.heard_at <= LIVE
        return self.node is not None and self.is_parted and self._is_heard()

    def _is_heard(self) -> bool:
        recently = monotonic_ns() - LIVE
        return self.is_heard or (self.heard_at is not None and self.heard_at >= recently)

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

    def meet(self, node: NodeId, birth: bytes, age: int = 0) -> Link:
        """This incarnation greets us: the same again, or one that takes the place of an older.

        Age: milliseconds since it was opened.
        """
        self.opened_at = monotonic_ns() - age * MILLISECOND
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

    @property
    def is_untouched(self) -> bool:
        """Nothing was counted on its link, and nothing waits: a new link would be the same."""
        return self.expected is None and (self.link is None or self.link.is_untouched)

    def _forget(self) -> None:
        self.disconnect()
        self.node = self.link = self.key = None

    def begin_again(self) -> None:
        """Ours is another incarnation now: nothing that was underway to or from the old counts."""
        self._forget()
        self.broken = self.expected = self.heard = None

    # --- the connection ------------------------------------------------------------------------

    def greet(self, connection: Connection) -> None:
        """The other end of this one is who it should be, and hears from us how much we have.

        What still comes by an older connection must not count any more.
        """
        self.disconnect()
        connection.contact = self
        self.heard, self.is_called, self.is_parted = None, False, False
        self.phase, self._current = ConnectionPhase.GREETING, connection

    def is_greeted_by(self, node: NodeId) -> bool:
        """Whether this incarnation has dialled us, and has not said yet how much it has."""
        return self.phase is ConnectionPhase.GREETING and self.node == node

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

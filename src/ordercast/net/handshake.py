"""How two nodes greet each other on a new connection, and go on where the last one ended.

Rules. The newest incarnation of a name that greeted us is the one that we talk to; an older one is
refused, and so is one whose link is broken. Both ends say how many frames they have, and send the
rest again. A node that dialled itself, by a seed, notices and hangs up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from ssl import SSLContext
from typing import NamedTuple

from ordercast.errors import PeerError
from ordercast.net.connection import Connection
from ordercast.net.contact import Contact, Contacts
from ordercast.net.sockets import literal_host
from ordercast.types import NodeId
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind
from ordercast.wire.greeting import PROTOCOL_VERSION, Hello, NewKey, Resume

log = logging.getLogger("ordercast.net")

KEY_BYTES, KEY_ID_BYTES = 32, 8


class Security(NamedTuple):
    """How peers prove who they are. The default: not at all."""

    server: SSLContext | None = None
    client: SSLContext | None = None
    certified: Callable[[asyncio.Transport], str | None] | None = None  # the name that was proven
    new_key: Callable[[NodeId], tuple[bytes, bytes]] | None = None  # for its datagrams to us


INSECURE = Security()


class Handshake:
    def __init__(
        self,
        me: NodeId,
        cluster: str,
        security: Security,
        contacts: Contacts,
        connections: set[Connection],
        met: Callable[[Contact], None],  # it is connected
    ) -> None:
        self.port = 0  # where we listen
        self._me = me
        self._cluster = cluster
        self._contacts = contacts
        self._connections = connections
        self._security = security
        self._met = met

    def hello(self, to: NodeId | None = None, received: int = 0) -> bytes:
        new_key = self._security.new_key
        key_id, key = new_key(to) if new_key and to else (b"", b"")
        places = self._contacts.places()
        return greeting.encode(
            Hello(
                PROTOCOL_VERSION, self._cluster, self._me, self.port, received, key, key_id, places
            )
        )

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """The other end said who it is."""
        node = hello.node
        if node == self._me and self._is_ours(connection):
            return
        reason = self._objection(connection, hello)
        contact = self._contacts.get(node.name)
        if reason is None and contact is None:
            contact = self._contacts.know(node.name, None)
            if contact is None:
                reason = "too many nodes are known here"
        if reason is None and self._contacts.is_cut(node.name):
            reason = "cut off by the operator of this node"
        if reason is not None:
            self._contacts.incidents.count("refused_greetings")
            connection.refuse(reason)
            return
        assert contact is not None
        self._meet(contact, connection, hello)

    def _objection(self, connection: Connection, hello: Hello) -> str | None:
        """Why we do not talk to it."""
        node = hello.node
        contact = self._contacts.get(node.name)
        known = contact.newest if contact is not None else None
        reason = greeting.objection(hello, self._me, self._cluster, known)
        if reason is None and contact is not None and contact.broken == node:
            reason = f"the link to {node} is broken: restart {node.name}, as a new incarnation"
        if reason is None and self._security.certified is not None:
            certified = self._security.certified(connection.transport)
            if certified != node.name:
                reason = f"the certificate is of {certified!r}, not of {node.name!r}"
        return reason

    def _is_ours(self, connection: Connection) -> bool:
        """Whether we dialled ourselves: every node may have the same list of seeds."""
        address = connection.transport.get_extra_info("peername")
        for other in self._connections:
            if other.dialled and other.transport.get_extra_info("sockname") == address:
                if not other.greeted.done():
                    other.greeted.set_result(self._me)
                other.abort()
                connection.abort()
                return True
        return False

    def _meet(self, contact: Contact, connection: Connection, hello: Hello) -> None:
        key = _checked_key(hello.key_id, hello.key) if hello.key else None
        received = contact.meet(hello.node).received
        contact.greet(connection)
        contact.udp = (_host_of(contact, connection), hello.port)
        if key is not None:
            contact.key = key
        if contact.learned and hello.port:
            self._contacts.know(contact.name, f"{connection.source}:{hello.port}", learned=True)
        for name, place in hello.places.items():
            if name not in self._contacts:
                self._contacts.know(name, place, learned=True)
        if connection.dialled:
            connection.write(FrameKind.RESUME, greeting.encode(Resume(received)))
            self.resumed(connection, hello.received)
        else:
            connection.write(FrameKind.HELLO, self.hello(hello.node, received))

    def resumed(self, connection: Connection, received: int) -> None:
        """The other end said how much it has: our side of the link goes on."""
        contact = connection.contact
        assert contact is not None and contact.node is not None
        again = contact.connect(connection, received)
        if again is None:
            connection.abort()
            return
        connection.become_ready()
        if connection.dialled and self._security.new_key is not None:
            # Our Hello went out before we knew whom it would reach, so it carried no key.
            key_id, key = self._security.new_key(contact.node)
            connection.write(FrameKind.KEY, greeting.encode(NewKey(key, key_id)))
        if again:
            connection.transport.writelines(again)
            self._contacts.incidents.count("frames_sent_again", len(again))
        log.info("%s is connected with %s", self._me, contact)
        self._met(contact)

    def take_key(self, contact: Contact, new: NewKey) -> None:
        """The other end replaces the key for our datagrams to it."""
        contact.key = _checked_key(new.key_id, new.key)


def _host_of(contact: Contact, connection: Connection) -> str:
    """Where datagrams go until the first one from this contact shows its address.

    A node may dial us from another address than the one that it listens on, so an address in
    our settings comes first.
    """
    configured = None if connection.dialled or contact.learned else literal_host(contact.place)
    return configured or connection.source


def _checked_key(key_id: bytes, key: bytes) -> tuple[bytes, bytes]:
    """A key for datagrams to a peer, or it would wait for datagrams that nobody can seal."""
    if len(key_id) != KEY_ID_BYTES or len(key) != KEY_BYTES:
        raise PeerError(f"a key of {len(key)} bytes with an id of {len(key_id)}")
    return key_id, key

"""The mesh: what connects us with every node that we know, over connections that come and go.

Rules. A contact that is configured or in use is remembered (`contact.py`), and dialled again and
again (`dialler.py`) while a connection with it is needed (`links.py`): a node that was cut off
finds its way back without help. A node that dials us comes in by the listener (`listener.py`).
Between two nodes one connection counts, from the moment that both have greeted (`handshake.py`);
what is underway survives it (`link.py`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from random import Random

from ordercast.errors import UsageError
from ordercast.net.accept_limiter import AcceptLimiter
from ordercast.net.connection import Connection, Receiver
from ordercast.net.contact import Contact
from ordercast.net.contacts import Contacts
from ordercast.net.dialler import Dialler
from ordercast.net.handshake import INSECURE, Handshake, Security
from ordercast.net.identity import Incarnation
from ordercast.net.incidents import Incidents
from ordercast.net.keepalive import PING, Keepalive
from ordercast.net.link import LinkFull
from ordercast.net.links import Links
from ordercast.net.listener import Listener
from ordercast.net.name_watch import NameWatch
from ordercast.net.vouching import Vouching
from ordercast.types import NodeId
from ordercast.wire.framing import FrameKind

log = logging.getLogger("ordercast.net")

MOST_UNSENT = 16 << 20
"""Bytes that may wait for a slow peer before status frames to it are left out."""
DRAIN_SECONDS = 0.01
"""How often we look whether peers have acknowledged everything."""


class Mesh:
    def __init__(
        self,
        us: Incarnation,
        cluster: str,
        receiver: Receiver,
        chance: Random,
        security: Security = INSECURE,
        watch: NameWatch | None = None,
    ) -> None:
        self.me = me = us.node
        self.receiver = receiver
        self.incidents = Incidents()
        self.counters = self.incidents.counters
        self.contacts = Contacts(me, self.incidents, chance)
        self.connections: set[Connection] = set()  # in no order
        self.closing = False
        self.accept_limiter = AcceptLimiter()
        self.handshake = Handshake(us, cluster, security, self.contacts, receiver.met, watch)
        self.vouching = Vouching(self.contacts, self.send_frame, self.handshake.heard_of)
        self.handshake.vouching = self.vouching
        self.links = Links(self.contacts)
        self.keepalive = Keepalive(self.contacts, self._tend)
        self.dialler = Dialler(
            me, self.contacts, self.links, chance, security.client, self._dialled
        )
        self.contacts.dial, self.contacts.greet_at = self.dialler.keep, self.dialler.greet_at
        self.listener = Listener(
            self.accept_limiter, self.incidents, security.server, self._accepted
        )

    @property
    def port(self) -> int:
        """Where we listen; 0: nowhere yet."""
        return self.handshake.port

    # --- start and stop ----------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> None:
        if port >= 1 << 16:
            raise UsageError(f"cannot listen on {host}:{port}: ports end at 65535")
        try:
            self.handshake.port = await self.listener.open(host, port)
        except OSError as error:
            raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        self.keepalive.start()

    def become(self, us: Incarnation) -> None:
        """This node has begun another incarnation: it greets everybody anew."""
        self.me = us.node
        self.handshake.become(us)
        for contact in self.contacts.values():
            contact.begin_again()
        for connection in list(self.connections):
            connection.abort()

    def know(self, name: str, place: str | None) -> None:
        """Remembers a node for ever, and dials it from now on if we know where it is."""
        self.contacts.know(name, place)

    def forget(self, name: str) -> bool:
        """Nothing of this name is known any more, nor underway. False: nothing was.

        UsageError: it is connected.
        """
        contact = self.contacts.get(name)
        if contact is not None and contact.connection is not None:
            raise UsageError(f"{contact} is connected: stop it, and then forget it")
        if contact is not None:
            contact.begin_again()
            if contact.source != "configured":  # those stay, and are dialled
                self.contacts.forget(contact)
        return self.handshake.forget(name) or contact is not None

    def _tend(self) -> None:
        """Once a second."""
        self.links.tend()
        self.vouching.tend()

    def seed(self, place: str) -> None:
        """A place whose node's name we do not know yet."""
        self.dialler.seed(place)

    def _dialled(self) -> Connection:
        return Connection(self, dialled=True)

    def _accepted(self, source: str) -> Connection:
        return Connection(self, dialled=False, source=source)

    async def close(self) -> None:
        self.closing = True
        self.contacts.stop_dialling()
        self.keepalive.stop()
        self.vouching.close()
        try:
            await self.listener.close()
            await self.dialler.close()
            ending = list(self.connections)
            for connection in ending:
                connection.transport.close()  # what was written still goes out
            if ending:
                await asyncio.wait([connection.ended for connection in ending], timeout=2)
        finally:
            for connection in list(self.connections):
                connection.abort()
            self.incidents.report_suppressed(ending=True)

    async def drain(self, seconds: float) -> None:
        """Waits until peers have acknowledged all that is underway, for so long at the most."""
        for contact in self.contacts.values():
            if contact.connection and contact.link and contact.link.underway:
                contact.connection.put(PING)  # which asks for it
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(
                    contact.connection and contact.link and contact.link.underway
                    for contact in self.contacts.values()
                ):
                    await asyncio.sleep(DRAIN_SECONDS)

    def set_cuts(self, incoming: frozenset[str], outgoing: frozenset[str]) -> None:
        """For tests and live scenarios: as if the network were cut, from and to these names."""
        self.contacts.cut(incoming, outgoing)

    # --- sending -----------------------------------------------------------------------------

    def send(self, to: NodeId, data: bytes) -> None:
        """Puts a framed packet on the link to an incarnation, unless that incarnation is gone.

        One that we have not met may be known to a machine by others, who have: it gets all of it
        when we meet.
        """
        contact = self.contacts.use(to.name)
        link = contact.link_to(to) if contact is not None else None
        if contact is None or link is None:
            return
        try:
            link.add(data)
        except LinkFull as error:
            self.incidents.count("links_broken")
            log.error("breaking the link: %s", error)
            contact.break_with(to)
            return
        if link is contact.link and contact.connection is not None:
            contact.connection.put(data)

    def send_frame(self, contact: Contact, kind: FrameKind, *parts: bytes) -> bool:
        """Sends what is not part of the link, if there is a connection."""
        connection = contact.connection
        if connection is None:
            return False
        if connection.transport.get_write_buffer_size() > MOST_UNSENT:
            self.incidents.count("frames_not_sent")  # nobody waits for it, so it must not pile up
            return False
        connection.put_parts(kind, *parts)
        return True

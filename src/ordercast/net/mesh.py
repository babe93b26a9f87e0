"""The mesh: every node that we know, how to reach it, and what connects us now.

Rules. A contact is remembered for ever and dialled for ever (`dialler.py`): a node that was cut
off finds its way back without help. Who dials us comes in by the door (`door.py`). Between two
nodes one connection counts; a newer one takes its place. The newest life of a name that greeted us
is the one that we talk to: a link to an older life is forgotten, with all that was underway, and
an older life is refused.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, Protocol

from ordercast.errors import OrdercastError, PeerError, UsageError
from ordercast.net.connection import Connection
from ordercast.net.dialler import Dialler
from ordercast.net.door import Door
from ordercast.net.gate import Gate
from ordercast.net.link import Link, LinkFull
from ordercast.net.ration import Ration
from ordercast.net.sockets import literal_host
from ordercast.types import NodeId
from ordercast.units import SECOND
from ordercast.wire import greeting
from ordercast.wire.framing import Kind, frame
from ordercast.wire.greeting import PROTOCOL_VERSION, Hello, NewKey, Resume

log = logging.getLogger("ordercast.net")

LINK_LIMIT = 256 << 20
MOST_CONTACTS = 1024
PLACES_BYTES = 8 << 10
"""Of others' places in a greeting, so that it is never too long for who does not know us yet."""
KEY_BYTES, KEY_ID_BYTES = 32, 8
MOST_UNSENT = 16 << 20
"""Bytes that may wait for a slow peer before status frames to it are left out."""
PING_SECONDS = 1.0
FORGIVEN = SECOND
"""After a stall of ours that was longer than this, nobody is blamed for silence."""
SILENCE = 8 * SECOND
"""A connection that brings nothing for so long, not even a ping, is not one any more."""


class Receiver(Protocol):
    """What the mesh hands on."""

    def receive(self, sender: NodeId, bodies: Iterable[memoryview]) -> None: ...

    def receive_status(
        self, sender: NodeId, body: memoryview, answer: Callable[[], None]
    ) -> None: ...

    def answered(self, sender: NodeId, key: int) -> None: ...

    def acknowledged(self, contact: Contact) -> None: ...

    def met(self, contact: Contact) -> None: ...


class Contact:
    """A node that we know by name."""

    __slots__ = (
        "broken",
        "connection",
        "dialler",
        "expected",
        "greeting",
        "key",
        "learned",
        "life",
        "link",
        "name",
        "place",
        "udp",
    )

    def __init__(self, name: str, place: str | None) -> None:
        self.name = name
        self.place = place  # host:port to dial; None: it must dial us
        self.learned = place is None  # by greetings: where it greets from next is better known
        self.life: NodeId | None = None  # the newest that greeted us
        self.broken: NodeId | None = None  # a life that we lost frames to: we are through with it
        self.link: Link | None = None
        self.expected: Link | None = None  # to a life that others told us of, until it greets us
        self.connection: Connection | None = None  # the one that counts, once it is ready
        self.greeting: Connection | None = None  # the last that we told how much we have
        self.udp: tuple[Any, ...] | None = None  # where datagrams go: host, port, and IPv6's more
        self.key: tuple[bytes, bytes] | None = None  # id and key for datagrams to it
        self.dialler: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return str(self.life or self.name)


class Mesh:
    def __init__(
        self,
        me: NodeId,
        cluster: str,
        receiver: Receiver,
        chance: Random,
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        certified: Callable[[asyncio.Transport], str | None] | None = None,
        new_key: Callable[[NodeId], tuple[bytes, bytes]] | None = None,
    ) -> None:
        self.me = me
        self.cluster = cluster
        self.loop = asyncio.get_running_loop()
        self.gate = Gate()
        self.contacts: dict[str, Contact] = {}
        self.connections: set[Connection] = set()  # never iterated but to close them all
        self.counters: Counter[str] = Counter()
        self.port = 0
        self.closing = False
        self.cut_from: frozenset[str] = frozenset()  # names that must not reach us
        self.cut_to: frozenset[str] = frozenset()  # names that we must not reach
        self.receiver = receiver
        self._chance = chance
        self.dialler = Dialler(self, chance, client_tls)
        self._door = Door(self, server_tls)
        self._warnings = Ration()
        self._certified = certified
        self._new_key = new_key
        self._pinger: asyncio.TimerHandle | None = None
        self._ping_due = 0
        self.loop_lag = 0  # nanoseconds that our own event loop was late

    def now(self) -> int:
        return time.monotonic_ns()

    def count(self, what: str) -> None:
        self.counters[what] += 1

    def warn(self, message: str, *values: object) -> None:
        """A warning that peers can bring about: logged within a ration, and in one line each."""
        if self._warnings.take(self.now()):
            text = message % values
            if not text.isprintable():
                text = "".join(each if each.isprintable() else "?" for each in text)
            log.warning("%s", text)

    def _tell_unsaid(self) -> None:
        count = self._warnings.unsaid(self.now(), ending=self.closing)
        if count:
            log.warning("%d more refusals like these were counted, but not logged", count)

    # --- life --------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> None:
        if port >= 1 << 16:
            raise UsageError(f"cannot listen on {host}:{port}: ports end at 65535")
        try:
            self.port = await self._door.open(host, port)
        except OSError as error:
            raise OrdercastError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        self._ping()

    def know(self, name: str, place: str | None, learned: bool = False) -> Contact | None:
        """Remembers a node for ever, and dials it from now on if we know where it is.

        Learned: from greetings, and not from whoever operates this node.
        """
        if name == self.me.name:
            return None
        contact = self.contacts.get(name)
        if contact is None:
            if len(self.contacts) >= MOST_CONTACTS:
                self.count("contacts_over_limit")
                return None
            contact = self.contacts[name] = Contact(name, place)
        if place is not None:
            contact.place, contact.learned = place, learned
        if contact.place is not None and contact.dialler is None and not self.closing:
            self.dialler.keep(contact)
        return contact

    def seed(self, place: str) -> None:
        """A place whose node's name we do not know yet."""
        self.dialler.seed(place)

    async def close(self) -> None:
        self.closing = True
        if self._pinger is not None:
            self._pinger.cancel()
        try:
            await self._door.close()
            await self.dialler.close()
            ending = list(self.connections)
            for connection in ending:
                connection.transport.close()  # what was written still goes out
            if ending:
                await asyncio.wait([connection.ended for connection in ending], timeout=2)
        finally:
            for connection in list(self.connections):
                connection.abort()
            self._tell_unsaid()

    async def drain(self, seconds: float) -> None:
        """Waits until peers have acknowledged all that is underway, for so long at the most."""
        deadline = self.loop.time() + seconds
        while self.loop.time() < deadline and any(
            contact.connection and contact.link and contact.link.underway
            for contact in self.contacts.values()
        ):
            await asyncio.sleep(0.01)

    # --- sending -----------------------------------------------------------------------------

    def send(self, to: NodeId, data: bytes) -> None:
        """Puts a framed packet on the link to a life. A life that is gone gets nothing.

        One that we have not met may be known to a machine by others, who have: it gets all of it
        when we meet.
        """
        contact = self.contacts.get(to.name)
        link = self._link(contact, to) if contact is not None else None
        if contact is None or link is None:
            return
        try:
            link.keep(data)
        except LinkFull as error:
            self.count("links_broken")
            log.error("breaking the link: %s", error)
            if link is contact.link:
                self._forget_life(contact)
            contact.broken, contact.expected = to, None
            return
        if link is contact.link and contact.connection is not None:
            contact.connection.put(data)

    def _link(self, contact: Contact, to: NodeId) -> Link | None:
        if contact.life == to:
            return contact.link
        known = contact.life or contact.broken
        if known is not None and to.incarnation <= known.incarnation:
            return None
        if contact.expected is None or contact.expected.peer != to:
            contact.expected = Link(to, LINK_LIMIT)
        return contact.expected

    def send_frame(self, contact: Contact, kind: Kind, *parts: bytes) -> bool:
        """Sends what is not part of the link, if there is a connection."""
        connection = contact.connection
        if connection is None:
            return False
        if connection.transport.get_write_buffer_size() > MOST_UNSENT:
            self.count("frames_not_sent")  # nobody waits for it, so it must not pile up
            return False
        connection.put_parts(kind, *parts)
        return True

    # --- what connections report ---------------------------------------------------------------

    def receive_other(self, contact: Contact, kind: Kind, body: memoryview) -> None:
        assert contact.life is not None
        if kind == Kind.STATUS:
            if len(body) < 8:
                raise PeerError("a status frame without its number")
            key = bytes(body[:8])
            answer = partial(self._answer, contact, contact.life, key)
            self.receiver.receive_status(contact.life, body[8:], answer)
        elif kind == Kind.ANSWER:
            if len(body) != 8:
                raise PeerError("an answer is a number of eight bytes")
            self.receiver.answered(contact.life, int.from_bytes(body))
        else:
            new = greeting.decode(body, greeting.NewKey)
            contact.key = _checked(new.key_id, new.key)

    def _answer(self, contact: Contact, life: NodeId, key: bytes) -> None:
        """What the peer asked about has arrived, if it is still the one that asked."""
        if contact.connection is not None and contact.life == life:
            contact.connection.reply(Kind.ANSWER, key)

    def on_acknowledged(self, contact: Contact) -> None:
        """Room was made on a link."""
        self.receiver.acknowledged(contact)

    def hello(self, to: NodeId | None = None, received: int = 0) -> Hello:
        key_id, key = self._new_key(to) if self._new_key and to else (b"", b"")
        places = self._places()
        return Hello(
            PROTOCOL_VERSION, self.cluster, self.me, self.port, received, key, key_id, places
        )

    def _places(self) -> dict[str, str]:
        """Where we know others: all of them, or others each time where they are too many."""
        known = [contact for contact in self.contacts.values() if contact.place]
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

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """The other end said who it is."""
        life = hello.node
        contact = self.contacts.get(life.name)
        known = contact.life or contact.broken if contact else None
        if life == self.me and self._is_ours(connection):
            return
        reason = greeting.objection(hello, self.me, self.cluster, known)
        if reason is None and contact is not None and contact.broken == life:
            reason = f"the link to {life} is broken: only a new life of it can come back"
        if reason is None and self._certified is not None:
            certified = self._certified(connection.transport)
            if certified != life.name:
                reason = f"the certificate is of {certified!r}, not of {life.name!r}"
        if reason is None and contact is None:
            contact = self.know(life.name, None)
            if contact is None:
                reason = "too many nodes are known here"
        if reason is None and life.name in self.cut_from | self.cut_to:
            reason = "cut off by the operator of this node"
        if reason is not None:
            self.count("refused_greetings")
            connection.refuse(reason)
            return
        assert contact is not None
        self._meet(contact, connection, hello)

    def _is_ours(self, connection: Connection) -> bool:
        """Whether we dialled ourselves: every node may have the same list of seeds."""
        address = connection.transport.get_extra_info("peername")
        for other in self.connections:
            if other.dialled and other.transport.get_extra_info("sockname") == address:
                if not other.greeted.done():
                    other.greeted.set_result(self.me)
                other.abort()
                connection.abort()
                return True
        return False

    def _meet(self, contact: Contact, connection: Connection, hello: Hello) -> None:
        life = hello.node
        key = _checked(hello.key_id, hello.key) if hello.key else None
        if contact.life != life:
            if contact.life is not None:
                self._forget_life(contact)
            contact.life, contact.broken = life, None
            expected = contact.expected
            if expected is not None and expected.peer.incarnation <= life.incarnation:
                contact.expected = None
            is_it = expected is not None and expected.peer == life
            contact.link = expected if is_it else Link(life, LINK_LIMIT)
        assert contact.link is not None
        # What still comes by the old connection must not count: we tell now how much we have.
        self._detach(contact)
        connection.contact = contact
        contact.greeting = connection
        contact.udp = (self._host_of(contact, connection), hello.port)
        if key is not None:
            contact.key = key
        if contact.learned and hello.port:
            self.know(contact.name, f"{connection.source}:{hello.port}", learned=True)
        for name, place in hello.places.items():
            if name not in self.contacts:
                self.know(name, place, learned=True)
        received = contact.link.received
        if connection.dialled:
            connection.write(Kind.RESUME, greeting.encode(Resume(received)))
            self._take(contact, connection, hello.received)
        else:
            connection.write(Kind.HELLO, greeting.encode(self.hello(life, received)))

    def _host_of(self, contact: Contact, connection: Connection) -> str:
        """Where datagrams go until one of its own tells us better.

        Who dials us may do so from another of its addresses than where it listens; where it
        listens was told to us by whoever wrote our settings, if they name an address.
        """
        told = None if connection.dialled or contact.learned else literal_host(contact.place)
        return told or connection.source

    def resumed(self, connection: Connection, received: int) -> None:
        """The dialler said how much it has: our side of the link goes on."""
        contact = connection.contact
        assert contact is not None
        if contact.greeting is not connection:
            connection.abort()  # another one was told how much we have, so this one must not count
        else:
            self._take(contact, connection, received)

    def _take(self, contact: Contact, connection: Connection, received: int) -> None:
        assert contact.link is not None and contact.life is not None
        again = contact.link.resume(received)
        contact.connection = connection
        connection.become_ready()
        if connection.dialled and self._new_key is not None:
            # Our Hello went out before we knew whom it would reach, so it carried no key.
            key_id, key = self._new_key(contact.life)
            connection.write(Kind.KEY, greeting.encode(NewKey(key, key_id)))
        if again:
            connection.transport.writelines(again)
            self.counters["frames_sent_again"] += len(again)
        log.info("%s is connected with %s", self.me, contact)
        self.receiver.met(contact)

    def _detach(self, contact: Contact) -> None:
        contact.greeting = None  # nor may one count that has not come so far
        if contact.connection is not None:
            old, contact.connection = contact.connection, None
            old.abort()

    def _forget_life(self, contact: Contact) -> None:
        self._detach(contact)
        contact.life = contact.link = contact.key = None

    def lost(self, connection: Connection) -> None:
        contact = connection.contact
        if contact is not None and contact.connection is connection:
            contact.connection = None

    def refused_by(self, connection: Connection, reason: str) -> None:
        self.count("refused_by_peers")
        if not connection.greeted.done():
            connection.greeted.set_exception(PeerError(reason))
            connection.greeted.exception()

    # --- keeping alive -------------------------------------------------------------------------

    def _ping(self) -> None:
        """Every second: says something on quiet connections, and gives dead ones up."""
        now = self.now()
        late = now - self._ping_due if self._ping_due else 0
        self.loop_lag = max(late, self.loop_lag // 2)  # the latest lateness, slowly forgotten
        self._ping_due = now + round(PING_SECONDS * SECOND)
        self._pinger = self.loop.call_later(PING_SECONDS, self._ping)
        self._tell_unsaid()
        ping = frame(Kind.PING, b"")
        for contact in self.contacts.values():
            connection = contact.connection
            if connection is None:
                continue
            if late > FORGIVEN:
                connection.heard_at = now  # we stood still ourselves: what came is not read yet
            if now - connection.heard_at > SILENCE:
                log.info("%s: nothing came for %s s", contact, SILENCE // SECOND)
                connection.abort()
            else:
                connection.put(ping)

    def set_cuts(self, incoming: frozenset[str], outgoing: frozenset[str]) -> None:
        """For tests and live scenarios: as if the network were cut, from and to these names."""
        self.cut_from, self.cut_to = incoming, outgoing
        for name in sorted(incoming | outgoing):
            if name in self.contacts:
                self._detach(self.contacts[name])


def _checked(key_id: bytes, key: bytes) -> tuple[bytes, bytes]:
    """A key for datagrams to a peer, or it would wait for datagrams that nobody can seal."""
    if len(key_id) != KEY_ID_BYTES or len(key) != KEY_BYTES:
        raise PeerError(f"a key of {len(key)} bytes with an id of {len(key_id)}")
    return key_id, key

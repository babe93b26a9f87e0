"""How two nodes greet each other on a new connection, and go on where the last one ended.

Rules. The incarnation that bears a name is the one that we talk to (`greeting.judge`); any other is
refused, and so is one whose link is broken. Both ends say how many frames they have, and send the
rest again. They also say which incarnations they know: a node that hears of a newer one of its own
name has to give up its own. A node that dialled itself, by a seed, notices and hangs up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from ssl import SSLContext
from typing import NamedTuple

from ordercast.errors import PeerError
from ordercast.kernel.identity import Acquaintances
from ordercast.net.connection import Connection
from ordercast.net.contact import Contact
from ordercast.net.contacts import Contacts
from ordercast.net.identity import Incarnation
from ordercast.net.name_watch import NameWatch
from ordercast.net.sockets import literal_host
from ordercast.types import NodeId, is_node_name
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind
from ordercast.wire.greeting import (
    ASKING,
    LARGEST_REPORTED,
    PROTOCOL_VERSION,
    GreetingOutcome,
    Hello,
    Met,
    NewKey,
    Refuse,
    Resume,
)

log = logging.getLogger("ordercast.net")

KEY_BYTES, KEY_ID_BYTES = 32, 8
NUMBERS_BYTES = 4 << 10
"""Of others' incarnations in a greeting, so that no node finds it too long."""
MOST_NUMBERS = 4096
"""Names whose newest incarnation we remember."""


class Security(NamedTuple):
    """How peers prove who they are. The default: not at all."""

    server: SSLContext | None = None
    client: SSLContext | None = None
    certified: Callable[[asyncio.BaseTransport], str | None] | None = None  # the proven name
    new_key: Callable[[NodeId], tuple[bytes, bytes]] | None = None  # for its datagrams to us


INSECURE = Security()


class Handshake:
    def __init__(
        self,
        us: Incarnation,
        cluster: str,
        security: Security,
        contacts: Contacts,
        met: Callable[[Contact], None],  # it is connected
        watch: NameWatch | None,  # what follows when others speak of our name
    ) -> None:
        self.port = 0  # where we listen
        self.advertise = ""  # where others reach us, if that is elsewhere
        self.acquaintances = Acquaintances()  # the newest incarnations, as others report them too
        self.us = us
        self._cluster = cluster
        self._contacts = contacts
        self._security = security
        self._met = met
        self._watch = watch

    def become(self, us: Incarnation) -> None:
        """This node has begun another incarnation."""
        self.us = us
        if self._watch is not None:
            self._watch.reopened()

    def hello(
        self, to: NodeId | None = None, received: int = 0, newest: dict[str, int] | None = None
    ) -> bytes:
        """Newest: incarnations that must be in it."""
        new_key = self._security.new_key
        key_id, key = new_key(to) if new_key and to else (b"", b"")
        us = self.us
        return greeting.encode(
            Hello(
                PROTOCOL_VERSION,
                self._cluster,
                us.node,
                self.port,
                received,
                key,
                key_id,
                self._contacts.places(),
                birth=us.birth,
                age=us.bearer().age,
                newest=self._numbers(newest or {}),
                place=self.advertise,
            )
        )

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """The other end said who it is."""
        node = hello.node
        reason = self._proof_missing(connection, hello)
        if reason is None and ASKING in hello.features and not connection.dialled:
            connection.write(FrameKind.HELLO, self.hello(newest=self._report(node)))
            connection.end()
            return
        verdict = self._judge(connection, hello) if reason is None else GreetingOutcome(reason)
        if verdict.is_ours:
            self._greeted_ourselves(connection)
            return
        if verdict.is_first and self._watch is not None:
            self._watch.taken(verdict.reason)
        contact = None
        if not verdict.reason:
            contact = self._contacts.greeted(node.name, _listens(connection, hello))
            if contact is None:
                verdict = GreetingOutcome("too many nodes are connected here")
        if verdict.reason:
            self._contacts.incidents.count("refused_greetings")
            connection.refuse_greeting(*verdict[:3])
            return
        assert contact is not None
        self._meet(contact, connection, hello)

    def _proof_missing(self, connection: Connection, hello: Hello) -> str | None:
        """Why it cannot be whom it says, or nobody of ours."""
        reason = greeting.objection(hello, self._cluster)
        if reason is None and self._security.certified is not None:
            certified = self._security.certified(connection.transport)
            if certified != hello.node.name:
                reason = f"the certificate is of {certified!r}, not of {hello.node.name!r}"
        return reason

    def _judge(self, connection: Connection, hello: Hello) -> GreetingOutcome:
        """Whether we talk to it."""
        node = hello.node
        contact = self._contacts.get(node.name)
        verdict = greeting.judge(hello, self.us.bearer(), self._known(node.name), connection.source)
        if not verdict.reason and contact is not None and contact.broken == node:
            return GreetingOutcome(
                f"the link to {node} is broken: restart {node.name}, as a new incarnation"
            )
        if not verdict.reason and self._contacts.is_cut(node.name):
            return GreetingOutcome("cut off by the operator of this node")
        return verdict

    def _known(self, name: str) -> Met | None:
        """The incarnation that bears the name, as far as we know: met, or reported by others."""
        contact = self._contacts.get(name)
        met = contact.met() if contact is not None else None
        reported = self.acquaintances.known.get(name)
        if reported is None or (met is not None and met.is_live):
            return met
        if met is not None and met.node.incarnation >= reported.incarnation:
            return met
        return Met(reported, None)

    def _greeted_ourselves(self, connection: Connection) -> None:
        """We dialled ourselves: every node may have the same list of seeds."""
        if not connection.dialled:
            connection.write(FrameKind.HELLO, self.hello())  # so that our other end notices too
            return
        if not connection.greeted.done():
            connection.greeted.set_result(self.us.node)
        connection.abort()

    # --- what is known of numbers --------------------------------------------------------------

    def _number(self, name: str) -> dict[str, int]:
        """The newest incarnation of the name that we know, if we know one."""
        contact, reported = self._contacts.get(name), self.acquaintances.known.get(name)
        us = self.us.node if name == self.us.node.name else None
        known = [us, reported, contact.newest if contact is not None else None]
        numbers = [node.incarnation for node in known if node is not None]
        return {name: max(numbers)} if numbers else {}

    def _report(self, asking: NodeId) -> dict[str, int]:
        """What to say to a node whose folder is empty. With a number: it says which one it takes,
        and to those who ask later that number is known."""
        name, taken = asking.name, self.acquaintances.taken
        numbers = self._number(name)
        if (former := taken.get(name)) is not None:
            numbers[name] = max(numbers.get(name, 0), former.incarnation)
        if 0 < asking.incarnation <= LARGEST_REPORTED:
            taken.pop(name, None)
            if len(taken) >= MOST_NUMBERS:
                del taken[next(iter(taken))]
            taken[name] = asking
        return numbers

    def _numbers(self, first: dict[str, int]) -> dict[str, int]:
        """These, and what we know of others, as much as a greeting may name."""
        numbers, size = dict(first), 0
        for name in dict.fromkeys([*self._contacts, *self.acquaintances.known]):
            size += len(name.encode()) + 8
            if size > NUMBERS_BYTES:
                break
            if name not in numbers:
                numbers |= self._number(name)
        return numbers

    def forget(self, name: str) -> bool:
        """No incarnation of this name is known any more. False: none was."""
        self.acquaintances.taken.pop(name, None)
        return self.acquaintances.known.pop(name, None) is not None

    def _note(self, hello: Hello) -> None:
        """What it is, and what it knows."""
        known, me = self.acquaintances.known, self.us.node.name
        reported = [
            NodeId(name, number)
            for name, number in hello.newest.items()
            if name != me and number <= LARGEST_REPORTED
        ]
        for node in [hello.node, *reported]:
            if node.name in known or (len(known) < MOST_NUMBERS and is_node_name(node.name)):
                self.acquaintances.note([node])
        self.reported(hello.newest.get(me, -1))

    def reported(self, newest: int) -> None:
        """Somebody knew this incarnation of our name before we greeted."""
        if self._watch is not None and 0 <= newest <= LARGEST_REPORTED:
            self._watch.reported(self.us.node.incarnation, newest)

    def refused(self, refuse: Refuse) -> None:
        """The other end does not talk to us."""
        if self._watch is None:
            return
        is_newer = self.us.node.incarnation <= refuse.newest <= LARGEST_REPORTED
        if refuse.code == "taken":
            self._watch.taken(refuse.reason)
        elif refuse.code == "older" and is_newer:
            self._watch.superseded(refuse.newest)

    # --- the link goes on ----------------------------------------------------------------------

    def _meet(self, contact: Contact, connection: Connection, hello: Hello) -> None:
        key = _checked_key(hello.key_id, hello.key) if hello.key else None
        newest = self._number(contact.name)  # before it greeted us
        received = contact.meet(hello.node, hello.birth).received
        self._note(hello)
        contact.greet(connection)
        contact.udp = _datagrams_to(contact, connection, hello)
        if key is not None:
            contact.key = key
        self._contacts.told(hello.places, by=contact.name)
        if connection.dialled:
            connection.write(
                FrameKind.RESUME, greeting.encode(Resume(received, newest.get(contact.name, -1)))
            )
            self.resumed(connection, hello.received)
        else:
            connection.write(FrameKind.HELLO, self.hello(hello.node, received, newest))
            connection.half_greeted()

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
        log.info("%s is connected with %s", self.us.node, contact)
        self._met(contact)
        if self._watch is not None:
            self._watch.accepted()

    def take_key(self, contact: Contact, new: NewKey) -> None:
        """The other end replaces the key for our datagrams to it."""
        contact.key = _checked_key(new.key_id, new.key)


def _listens(connection: Connection, hello: Hello) -> str | None:
    """Where the node that greets us can be dialled, as far as it says or its connection shows."""
    seen = f"{connection.source}:{hello.port}" if hello.port else None
    return hello.place or seen


def _datagrams_to(contact: Contact, connection: Connection, hello: Hello) -> tuple[str, int]:
    """Where datagrams go until the first one from this contact shows its address.

    A node may dial us from another address than the one that it listens on, so an address in
    our settings comes first, and then the one that it advertises.
    """
    configured = None if connection.dialled or contact.learned else literal_host(contact.place)
    host = configured or literal_host(hello.place) or connection.source
    return host, int(hello.place.rpartition(":")[2]) if hello.place else hello.port


def _checked_key(key_id: bytes, key: bytes) -> tuple[bytes, bytes]:
    """A key for datagrams to a peer, or it would wait for datagrams that nobody can seal."""
    if len(key_id) != KEY_ID_BYTES or len(key) != KEY_BYTES:
        raise PeerError(f"a key of {len(key)} bytes with an id of {len(key_id)}")
    return key_id, key

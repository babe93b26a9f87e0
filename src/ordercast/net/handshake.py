"""How two nodes greet each other on a new connection, and go on where the last one ended.

Rules. The incarnation that bears a name is the one that we talk to (`greeting.judge`); any other is
refused, and so is one whose link is broken. Both ends say how many frames they have, and send the
rest again. They also say which incarnations they know: a node that hears of a newer one of its own
name has to give up its own. A node that dialled itself, by a seed, notices and hangs up.

Two nodes may dial each other at once. If each end took the later of two connections, each would end
the one that the other took. So a node gives up its own if the other, of a smaller name, has
greeted it meanwhile.

Two nodes of one name. The second is refused by all that hear the first, or to whom a connected node
vouches for it (`vouching.py`). It hears where the first is, and turns to it: what others say may be
wrong, but the first itself can tell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from ssl import SSLContext
from typing import NamedTuple

from ordercast.errors import PeerError
from ordercast.kernel.identity import LAST, most_believed
from ordercast.net.connection import Connection
from ordercast.net.contact import Contact
from ordercast.net.contacts import Contacts
from ordercast.net.identity import Incarnation
from ordercast.net.known_numbers import KnownNumbers
from ordercast.net.name_watch import NameWatch
from ordercast.net.sockets import literal_host
from ordercast.net.vouching import Bearing, Vouching, bearing_in, bearing_of
from ordercast.types import NodeId, is_node_name
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind
from ordercast.wire.greeting import (
    ASKING,
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


class Security(NamedTuple):
    """How peers prove who they are. The default: not at all."""

    server: SSLContext | None = None
    client: SSLContext | None = None
    certified: Callable[[asyncio.BaseTransport], str | None] | None = None  # the proven name
    new_key: Callable[[NodeId], tuple[bytes, bytes]] | None = None  # for its datagrams to us
    forget: Callable[[str], None] | None = None  # takes back the keys of a name


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
        self.acquaintances = KnownNumbers(contacts)  # as others report them too
        self.us = us
        self.vouching: Vouching  # given before anybody greets
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
                vouched=self.vouching.in_greeting(),
                company=self._contacts.company,
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
            self._watch.met_first(verdict.reason, node == self.us.node)
        contact = None
        if not verdict.reason:
            contact = self._contacts.greeted(node.name, _listens(connection, hello))
            if contact is None:
                verdict = GreetingOutcome("too many nodes are connected here")
        if verdict.reason:
            self._contacts.incidents.count("refused_greetings")
            is_newer = node.incarnation > verdict.newest
            connection.refuse_greeting(*verdict[:4], is_newer=is_newer)
            return
        assert contact is not None
        if connection.dialled and self.us.node.name > node.name and contact.is_greeted_by(node):
            connection.give_way(node)
            return
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
        bearer = self.us.bearer(self._contacts.company)
        verdict = greeting.judge(hello, bearer, self._known(node.name), connection.source)
        if verdict.code == "taken" and self._is_proven_first(hello):
            verdict = greeting.judge(hello, bearer, self._known(node.name), connection.source)
        if verdict.reason:
            return verdict
        if contact is not None and contact.broken == node:
            return GreetingOutcome(
                f"the link to {node} is broken: restart {node.name}, as a new incarnation"
            )
        if self._contacts.is_cut(node.name):
            return GreetingOutcome("cut off by the operator of this node")
        is_known = contact is not None and (contact.node, contact.birth) == (node, hello.birth)
        rival = self.vouching.rival_of(bearing_in(hello), is_known) if hello.birth else None
        return greeting.taken(node, connection.source, rival.met()) if rival else verdict

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
        name = asking.name
        numbers = self._number(name)
        if (former := self.acquaintances.taken.get(name)) is not None:
            numbers[name] = max(numbers.get(name, 0), former.incarnation)
        if asking.incarnation > 0 and self._is_plausible(asking):
            self.acquaintances.take(asking)
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
        return self.acquaintances.forget(name)

    def _is_plausible(self, reported: NodeId) -> bool:
        """One node alone cannot make all others believe that a name has used up its numbers."""
        contact = self._contacts.get(reported.name)
        met = contact.newest if contact is not None else None
        return reported.incarnation <= most_believed(met.incarnation if met is not None else 0)

    def _note(self, hello: Hello) -> None:
        """What it is, and what it knows."""
        me, teller = self.us.node.name, hello.node.name
        reported = [
            NodeId(name, number)
            for name, number in hello.newest.items()
            if name != me and number <= LAST and not self._is_second(hello, name)
        ]
        for node in [hello.node, *filter(self._is_plausible, reported)]:
            if is_node_name(node.name):
                self.acquaintances.hear(node, teller)
        vouch = hello.vouched.get(me)
        if vouch is None or vouch.birth == self.us.birth:
            self.reported(hello.newest.get(me, -1), teller)

    def _is_second(self, hello: Hello, name: str) -> bool:
        """Whether the other end hears a second node of this name, with which nothing happened so
        far, and we the first: its number does not outdate the first."""
        vouch, (_, ours) = hello.vouched.get(name), self._heard(name)
        return (
            vouch is not None and vouch.is_bare and ours is not None and ours.birth != vouch.birth
        )

    def reported(self, newest: int, teller: str = "") -> None:
        """Somebody knew this incarnation of our name before we greeted. One that is not plausible
        does not count: whoever has really met it refuses us."""
        ours = self.us.node.incarnation
        if self._watch is not None and 0 <= newest <= most_believed(ours):
            self._watch.reported(ours, newest, teller)

    def refused(self, connection: Connection, refuse: Refuse) -> None:
        """The other end does not talk to us."""
        if self._watch is None:
            return
        ours, certified = self.us.node, None
        if self._security.certified is not None:
            certified = self._security.certified(connection.transport)
        if refuse.code == "taken":
            self._watch.taken(refuse.reason, self._contacts.company)
            if refuse.place:
                self._contacts.introduce(refuse.place)
        elif refuse.code == "namesake" and certified in (None, ours.name):
            self._watch.met_first(refuse.reason, refuse.newest == ours.incarnation)
        elif refuse.code == "older" and ours.incarnation <= refuse.newest <= LAST:
            self._watch.superseded(refuse.newest, certified or connection.place)

    # --- two nodes of one name -------------------------------------------------------------------

    def heard_of(self, name: str, other: Bearing) -> None:
        """A connected node hears this bearer of a name. If we hear another, the later one goes."""
        if name == self.us.node.name:
            if other.birth != self.us.birth and other.place:
                self._contacts.introduce(other.place)
            return
        contact, ours = self._heard(name)
        if contact is None or ours is None or not ours.birth or ours.birth == other.birth:
            return
        if other.is_before(ours):
            if self.vouching.count(name, other.birth) > 1:
                self._part_with(contact, ours, other)
            elif other.place:
                self._contacts.introduce(other.place)

    def _is_proven_first(self, hello: Hello) -> bool:
        """We hear another node of its name. If that one is the second, as somebody says too, we
        have parted with it."""
        contact, ours = self._heard(hello.node.name)
        first = bearing_in(hello, hello.place)
        if contact is None or ours is None or not first.is_before(ours):
            return False
        if not self.vouching.count(hello.node.name, hello.birth):
            return False
        self._part_with(contact, ours, first)
        return True

    def _heard(self, name: str) -> tuple[Contact | None, Bearing | None]:
        """The node of this name that is connected with us."""
        contact = self._contacts.get(name)
        return contact, bearing_of(contact) if contact is not None else None

    def _part_with(self, contact: Contact, second: Bearing, first: Bearing) -> None:
        """What was exchanged with the second cannot be taken back, so we cannot talk to the first
        under the same number or a lower one: it is outdated here."""
        connection = contact.connection
        assert connection is not None
        self._contacts.incidents.count("rivals_refused")
        connection.refuse_greeting(*greeting.taken(second.node, connection.source, first.met())[:4])
        if self._security.forget is not None:
            self._security.forget(contact.name)
        if second.is_bare:
            contact.begin_again()
            self.acquaintances.known[contact.name] = first.node
        elif first.node <= second.node:
            log.error(
                "%s talked to a second node of the name %s, as %s: it cannot talk to the first, "
                "%s, before that is a newer incarnation%s",
                *(self.us.node, contact.name, second.node, first.node),
                "" if first.node < second.node else ". What it delivered may be of either",
            )

    # --- the link goes on ----------------------------------------------------------------------

    def _meet(self, contact: Contact, connection: Connection, hello: Hello) -> None:
        key = _checked_key(hello.key_id, hello.key) if hello.key else None
        newest = self._number(contact.name)  # before it greeted us
        received = contact.meet(hello.node, hello.birth, hello.age).received
        self._note(hello)
        contact.greet(connection)
        contact.udp = _datagrams_to(contact, connection, hello)
        if key is not None:
            contact.key = key
        self._contacts.told(hello.places, by=contact.name)
        self.vouching.greeted(contact, hello)
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
        self.vouching.met(contact)
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

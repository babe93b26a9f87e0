"""Who bears a name, as connected nodes hear it: so the first of two is known to those that do not
hear it.

Rules.
 1. A node vouches for the nodes that it is connected with and has heard a moment ago: it tells
    connected nodes their births and ages, in its greeting and when something changes.
 2. A vouch counts while the node that gave it is heard, and until it takes it back. It is not
    handed on.
 3. A newcomer is refused if a connected node vouches for another bearer of its name and nobody for
    the newcomer, whoever was opened first: the one that is heard is undisturbed.
 4. If both were let in, each elsewhere, the one that was opened earlier is the first. The node that
    hears the second turns to the first, and parts with the second when the first has greeted it, or
    when a second node vouches for it. What a single node says is not enough: it could part any two.

It decides; the handshake and the mesh act on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import NamedTuple

from ordercast.errors import PeerError
from ordercast.net.contact import Contact
from ordercast.net.contacts import Contacts
from ordercast.types import NodeId, is_node_name
from ordercast.units import MILLISECOND
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind
from ordercast.wire.greeting import MOST_VOUCHED, Hello, Met, Names, Vouch, is_earlier

SAY_SECONDS = 0.1
"""What changes within this time is told together."""
LARGEST_NAMES = 256 << 10
"""Bytes of one message: more than the names and places in it can have."""
VOUCHED_BYTES = 3 << 10
"""In a greeting, so that no node finds it too long. The rest follows it."""
MOST_HEARD = 1024
"""Names that one node may vouch for."""


class Bearing(NamedTuple):
    """A node that bears a name, as somebody hears it."""

    node: NodeId
    birth: bytes
    opened_at: int  # on our clock
    place: str
    is_bare: bool  # nothing but greetings was exchanged with it
    by: str = ""  # who says so, if we do not hear it ourselves

    def met(self) -> Met:
        return Met(self.node, self.birth, is_live=True, place=self.place, by=self.by)

    def is_before(self, other: Bearing) -> bool:
        now = monotonic_ns()
        ages = [(now - each.opened_at) // MILLISECOND for each in (self, other)]
        return is_earlier(ages[0], self.birth, ages[1], other.birth)


def bearing_of(contact: Contact) -> Bearing | None:
    """The one that we hear by a connection."""
    if contact.connection is None or not contact.is_live or contact.node is None:
        return None
    is_bare, place = contact.is_untouched, contact.place or ""
    return Bearing(contact.node, contact.birth or b"", contact.opened_at, place, is_bare)


def bearing_in(hello: Hello, place: str = "") -> Bearing:
    """The one that greets us."""
    opened_at = monotonic_ns() - hello.age * MILLISECOND
    return Bearing(hello.node, hello.birth, opened_at, place, is_bare=True)


class Vouching:
    def __init__(
        self,
        contacts: Contacts,
        send: Callable[[Contact, FrameKind, bytes], object],
        conflict: Callable[[str, Bearing], None],  # somebody hears another bearer of this name
    ) -> None:
        self._contacts = contacts
        self._send = send
        self._conflict = conflict
        self._loop = asyncio.get_running_loop()
        self._said: dict[str, bytes] = {}  # births that connected nodes know from us
        self._bare: set[str] = set()  # those of which we said that they are bare; in no order
        self._named: dict[str, None] = {}  # in greetings since then
        self._by: dict[str, dict[str, Bearing]] = {}  # what others say, by teller and name
        self._timer: asyncio.TimerHandle | None = None

    # --- what we say ---------------------------------------------------------------------------

    def _hears(self) -> dict[str, Vouch]:
        now = monotonic_ns()
        found: dict[str, Vouch] = {}
        for contact in self._contacts.values():
            if contact.connection is not None and (one := bearing_of(contact)) and one.birth:
                age = (now - one.opened_at) // MILLISECOND
                number = one.node.incarnation
                found[contact.name] = Vouch(number, one.birth, age, one.is_bare, one.place)
        return found

    def in_greeting(self) -> dict[str, Vouch]:
        """As many as a greeting may name."""
        vouched: dict[str, Vouch] = {}
        size = 0
        for name, vouch in self._hears().items():
            size += len(name.encode()) + len(vouch.place.encode()) + 32
            if size > VOUCHED_BYTES or len(vouched) >= MOST_VOUCHED:
                break
            vouched[name] = vouch
        self._named |= dict.fromkeys(vouched)
        return vouched

    def met(self, contact: Contact) -> None:
        """A connection is ready: the other end hears what all others know from us."""
        heard = self._hears().items()
        self._say(contact, {name: v for name, v in heard if self._said.get(name) == v.birth}, [])
        self.changed()

    def changed(self) -> None:
        """We hear others than before, or have more to do with them."""
        if self._timer is None:
            self._timer = self._loop.call_later(SAY_SECONDS, self._say_changes)

    def tend(self) -> None:
        """Once a second."""
        heard = self._hears()
        is_new = any(self._said.get(name) != vouch.birth for name, vouch in heard.items())
        is_touched = any(not heard[name].is_bare for name in self._bare if name in heard)
        if is_new or is_touched or self._named or len(heard) != len(self._said):
            self.changed()
        for teller in [name for name in self._by if self._teller(name) is None]:
            del self._by[teller]

    def _say_changes(self) -> None:
        self._timer = None
        heard = self._hears()
        gone = [name for name in {**self._said, **self._named} if name not in heard]
        changed = {
            name: vouch
            for name, vouch in heard.items()
            if self._said.get(name) != vouch.birth or (name in self._bare and not vouch.is_bare)
        }
        self._said = {name: vouch.birth for name, vouch in heard.items()}
        self._bare = {name for name, vouch in heard.items() if vouch.is_bare}
        self._named = {}
        if changed or gone:
            for contact in list(self._contacts.values()):
                if contact.connection is not None:
                    self._say(contact, changed, gone)

    def _say(self, contact: Contact, vouched: dict[str, Vouch], gone: list[str]) -> None:
        others = [(name, vouch) for name, vouch in vouched.items() if name != contact.name]
        for first in range(0, max(len(others), len(gone)), MOST_VOUCHED):
            last = first + MOST_VOUCHED
            names = Names(dict(others[first:last]), gone[first:last])
            self._send(contact, FrameKind.NAMES, greeting.encode(names))

    # --- what others say -------------------------------------------------------------------------

    def greeted(self, contact: Contact, hello: Hello) -> None:
        """What a node says when it greets us takes the place of all that it said before."""
        self._by[contact.name] = {}
        self._take(contact, hello.vouched)

    def receive(self, contact: Contact, body: memoryview) -> None:
        if len(body) > LARGEST_NAMES:
            raise PeerError(f"{len(body)} bytes about names: at most {LARGEST_NAMES}")
        names = greeting.decode(body, Names)
        told = self._by.setdefault(contact.name, {})
        for name in names.gone:
            told.pop(name, None)
        self._take(contact, names.vouched)

    def _take(self, contact: Contact, vouched: dict[str, Vouch]) -> None:
        told, now = self._by[contact.name], monotonic_ns()
        for name, vouch in vouched.items():
            is_known = name in told or len(told) < MOST_HEARD
            if not is_known or name == contact.name or not vouch.birth or not is_node_name(name):
                continue
            node, opened_at = NodeId(name, vouch.number), now - vouch.age * MILLISECOND
            told[name] = Bearing(
                node, vouch.birth, opened_at, vouch.place, vouch.is_bare, contact.name
            )
            self._conflict(name, told[name])

    def _teller(self, name: str) -> Contact | None:
        contact = self._contacts.get(name)
        return contact if contact is not None and contact.connection is not None else None

    def rival_of(self, newcomer: Bearing, is_known: bool) -> Bearing | None:
        """Another bearer of its name, which is there and was first (rules 3 and 4).

        Known: we talked to the newcomer before.
        """
        vouched = self._vouched(newcomer.node.name)
        rivals = [one for one in vouched if one.birth != newcomer.birth]
        if is_known or len(rivals) < len(vouched):  # somebody hears the newcomer too
            rivals = [one for one in rivals if one.is_before(newcomer)]
        return rivals[0] if rivals else None

    def told_by(self, teller: str) -> Mapping[str, Bearing]:
        """The bearers of names for whom this node vouches."""
        return self._by.get(teller, {})

    def count(self, name: str, birth: bytes) -> int:
        """How many nodes vouch for this one."""
        return sum(one.birth == birth for one in self._vouched(name))

    def _vouched(self, name: str) -> list[Bearing]:
        return [
            told[name]
            for teller, told in self._by.items()
            if name in told and (contact := self._teller(teller)) and contact.is_live
        ]

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

"""The nodes that we know by name: how we know them, and which of them are forgotten.

Rules.
 1. A contact is *configured* (by whoever operates this node), *greeted* us, or was *told* by
    another node. Configured ones are never forgotten, and no limit counts them.
 2. A contact is in use for a while after a machine has sent to it. One in use is not forgotten.
 3. Told ones: a few a teller and a few hundred in all, of which the oldest give way. They are
    forgotten after three failed dials in a row, if nothing waits for them, and after ten minutes
    without use. A node of which we have only datagrams is told too, by itself; and so is one to
    which a machine sends by link though nobody has said where it is: what is sent waits until it
    dials us.
 4. Greeted ones are forgotten ten minutes after their last connection, but not while their link has
    counted frames: the other end would find them missing. Beyond some thousand the longest unused
    gives way, so no node is refused because others came before it.
 5. A greeting tells of contacts that are configured, or that we met a short while ago. What we were
    only told we do not tell: names of nodes that do not exist die out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from time import monotonic_ns
from typing import Any

from ordercast.net.contact import ConnectionPhase, Contact, Source
from ordercast.net.incidents import Incidents
from ordercast.net.sockets import place_of
from ordercast.types import NodeId, is_node_name
from ordercast.units import SECOND

MOST_CONTACTS = 4096
"""That greeted us or were told."""
MOST_TOLD = 512
MOST_TOLD_BY_ONE = 32
MOST_FAILURES = 3
"""Failed dials in a row after which a contact that we were told of is forgotten."""
USED = 60 * SECOND
"""How long a contact is in use after a machine has sent to it."""
MOST_CALLS = 16
"""Contacts a second that are dialled only because datagrams to them need a greeting."""
MISSING = 10 * SECOND
"""How long a name that we do not know is missing after a machine has sent to it."""
PRESENT = 5 * SECOND
"""How long after its last datagram a contact is company."""
RECENT = 60 * SECOND
"""How long others are told of a contact after we had a connection with it."""
FORGOTTEN = 600 * SECOND
"""How long after its last connection, or word of it, an unused contact is forgotten."""
FORGETTING = 10 * SECOND
"""How often we look for those."""
MOST_PLACES = 2 * MOST_TOLD_BY_ONE
"""Others' places in a greeting. Nobody takes more than half as many from one teller, and knows some
of them already."""
PLACES_BYTES = 8 << 10
"""Of others' places in a greeting, so that no node finds it too long."""
INTRODUCED = 5 * SECOND
"""How often we turn to a node because another one has its name."""
MOST_INTRODUCED = 64
"""Such nodes that are remembered."""
DATAGRAM_PLACES_BYTES = 600
"""Of others' places in a datagram, which may be as long as datagrams are but for this."""


def _anywhere(place: str) -> bool:
    return True


def _nobody(contact: Contact) -> None:
    """Dials nobody: before there is a dialler, and when we are closing."""


def _no_place(place: str) -> None:
    """Turns to nobody: before there is a dialler."""


def _places(contacts: Iterable[Contact], most: int) -> dict[str, str]:
    """Where these are, in so many bytes."""
    places, size = {}, 0
    for contact in contacts:
        if contact.place is not None:
            size += len(contact.name.encode()) + len(contact.place.encode()) + 6
            if size > most:
                break
            places[contact.name] = contact.place
    return places


class Contacts(dict[str, Contact]):
    """All of them, by name, and from whom and to whom the network is cut, for tests."""

    def __init__(
        self,
        me: NodeId,
        incidents: Incidents,
        chance: Random,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        super().__init__()
        self.incidents = incidents
        self.dial: Callable[[Contact], None] = _nobody  # while it is wanted: we know where it is
        self.believes: Callable[[str], bool] = _anywhere  # whether others' addresses may be dialled
        self.greet_at: Callable[[str], None] = _no_place  # dials a place once
        self.cut_from: frozenset[str] = frozenset()  # names that must not reach us
        self.cut_to: frozenset[str] = frozenset()  # names that we must not reach
        self._missing_at: int | None = None  # a machine has sent to a name that we do not know
        self._me = me
        self.chance = chance
        self._clock = clock
        self._calls = 0  # since `tend` looked last
        self._forgets_at = 0  # when `tend` looks next for contacts to forget
        self._introduced: dict[str, int] = {}  # places, and when we turned to them
        self._told_by: Counter[str] = Counter()  # contacts that we were told of, by teller

    # --- how we know them ----------------------------------------------------------------------

    def know(self, name: str, place: str | None) -> Contact | None:
        """A node that is configured: remembered for ever, and dialled if its place is given.

        None: it is us.
        """
        if name == self._me.name:
            return None
        contact = self.get(name)
        if contact is None:
            contact = self[name] = Contact(name, place, now=self._clock())
        self._is_now(contact, "configured")
        if place is not None:
            contact.place, contact.learned = place, False
        self._dial(contact)
        return contact

    def greeted(self, name: str, place: str | None = None) -> Contact | None:
        """A node that greets us, and where it listens. None: so many are connected that none of
        them can give way."""
        contact = self.get(name)
        now = self._clock()
        place = self._believed(place)
        if contact is None:
            if not self._make_room():
                self.incidents.count("contacts_over_limit")
                return None
            contact = self[name] = Contact(name, place, "greeted", now=now)
        elif contact.source == "told":
            self._is_now(contact, "greeted")
        contact.seen_at, contact.failures = now, 0
        if place is not None and contact.learned:
            contact.place = place
        self._dial(contact)
        return contact

    def told(self, places: dict[str, str], by: str) -> None:
        """Where another node knows others. None of them is dialled before it is used."""
        now = self._clock()
        new = 0
        for name, told in places.items():
            if (place := self._believed(told)) is None:
                continue
            contact = self.get(name)
            if contact is None and new < MOST_TOLD_BY_ONE and self._is_another(name):
                self[name] = Contact(name, place, "told", by, now)
                self._told_by[by] += 1
                new += 1
            elif contact is not None and contact.source == "told":
                contact.seen_at = now
                if contact.place != place and contact.node is None and contact.heard is None:
                    contact.place, contact.udp = place, None
        if self._told_by[by] > MOST_TOLD_BY_ONE:
            self._trim([each for each in self._told() if each.told_by == by], MOST_TOLD_BY_ONE)
        self._trim_told()

    def _is_another(self, name: str) -> bool:
        """What others say goes into the log: a name must not look like a line of it."""
        return name != self._me.name and is_node_name(name)

    def _believed(self, place: str | None) -> str | None:
        """An address that another node says, unless it must not be dialled."""
        if place is None or self.believes(place):
            return place
        self.incidents.count("refused_addresses")
        return None

    def heard(
        self, node: NodeId, address: tuple[Any, ...], birth: bytes | None = None
    ) -> Contact | None:
        """A datagram of an incarnation came that has not greeted us. None: it does not count.

        It counts as told: a plain datagram proves nothing. What a machine sends to it by link is
        `expected` until it greets us, and is then judged. Answers go to the address that it came
        from, so that must be one where we may send. One whose name another node bears has to greet
        us, so that it hears of that.
        """
        contact = self.get(node.name)
        now = self._clock()
        if contact is None and not self._is_another(node.name):
            return None
        is_new = contact is None or contact.heard != node
        if is_new and self._believed(place_of(address)) is None:
            return None
        if contact is None:
            contact = self[node.name] = Contact(node.name, None, "told", node.name, now)
            self._told_by[node.name] += 1
            self._trim_told()
        elif self._is_rival(contact, node, birth):
            self.incidents.count("datagrams_of_rivals")
            self.introduce(place_of(address))
            return None
        elif contact.connection is not None or contact.source == "configured":
            return None  # another incarnation is there; or we dial it, and it greets us soon
        for known in (contact.newest, contact.heard):
            if known is not None and node.incarnation < known.incarnation:
                return None
        if node == contact.broken:
            return None
        if contact.heard != node:
            contact.heard, contact.udp, contact.heard_birth = node, address, birth or b""
            if contact.learned:
                contact.place = place_of(address)
        return contact

    def _is_rival(self, contact: Contact, node: NodeId, birth: bytes | None) -> bool:
        """Whether another node than the one that we know has sent this, though that one is there,
        or has the same number."""
        known = contact.met()
        if known is None or not birth or not known.birth or known.birth == birth:
            return False
        return known.is_live or known.node == node

    def introduce(self, place: str) -> None:
        """Turns to a node that has another one's name, now and then: both hear of it."""
        now = self._clock()
        recently = self._introduced.get(place, now - INTRODUCED)
        if now - recently < INTRODUCED or self._believed(place) is None:
            return
        self._introduced.pop(place, None)
        if len(self._introduced) >= MOST_INTRODUCED:
            del self._introduced[next(iter(self._introduced))]
        self._introduced[place] = now
        self.greet_at(place)

    @property
    def company(self) -> int:
        """How many are connected with us."""
        return sum(each.connection is not None for each in self.values())

    def places_of(self, names: Iterable[str]) -> dict[str, str]:
        """Where these are, as far as we know, for a datagram that names them."""
        known = (contact for name in names if (contact := self.get(name)) is not None)
        return _places(known, DATAGRAM_PLACES_BYTES)

    def has_company(self) -> bool:
        """Whether anybody is there: connected, or heard by datagram a moment ago."""
        recently = self._clock() - PRESENT
        return any(
            each.connection is not None
            or each.is_heard
            or (each.heard_at is not None and each.heard_at >= recently)
            for each in self.values()
        )

    def places(self) -> dict[str, str]:
        """Where we know others: all of them, or others each time where they are too many."""
        recently = self._clock() - RECENT
        known = [
            contact
            for contact in self.values()
            if contact.source == "configured"
            or contact.connection is not None
            or ((contact.node or contact.heard) and contact.seen_at >= recently)
        ]
        if len(known) > MOST_PLACES:
            known = self.chance.sample(known, MOST_PLACES)
        return _places(known, PLACES_BYTES)

    # --- their use -----------------------------------------------------------------------------

    def use(self, name: str, by_link: bool = True) -> Contact | None:
        """A machine sends to it, by a connection or by datagram. None: we do not know it.

        A packet for a connection waits also for a node that we do not know: it may dial us.
        """
        contact = self.get(name)
        if contact is None or (contact.place is None and contact.connection is None):
            self._missing_at = self._clock()
        if contact is None and by_link:
            contact = self._await(name)
        if contact is None:
            return None
        contact.is_used = True
        if by_link:
            contact.is_linked = True
            if contact.connection is None and contact.dialler is None:
                self._dial(contact)
        return contact

    def _await(self, name: str) -> Contact | None:
        """A machine knows it from others, who did not say where it is. None: there are too many."""
        if not self._is_another(name):
            return None
        if self._told_by.total() >= MOST_TOLD:
            self.incidents.count("contacts_over_limit")
            return None
        contact = self[name] = Contact(name, None, "told", name, self._clock())
        self._told_by[name] += 1
        return contact

    def call(self, contact: Contact) -> None:
        """A datagram to it needs a greeting first.

        Gossip has datagrams for everybody in turn: in a large group that would be a connection with
        everybody at the same time. The next datagram calls again.
        """
        if not contact.is_called:
            if self._calls >= MOST_CALLS:
                return
            self._calls += 1
        contact.is_called = True
        if contact.connection is None and contact.dialler is None:
            self._dial(contact)

    def in_use(self, contact: Contact) -> bool:
        return contact.is_used or self._is_within(USED, contact.used_at)

    def is_one_missing(self) -> bool:
        """Whether a machine sends to a name that we do not know."""
        return self._is_within(MISSING, self._missing_at)

    def _is_within(self, duration: int, at: int | None) -> bool:
        return at is not None and at >= self._clock() - duration

    def tend(self) -> None:
        """Once a second: notes what is in use, and forgets what is not."""
        now = self._clock()
        self._calls = 0
        # Most of hundreds are neither: they must cost next to nothing.
        for contact in [
            contact
            for contact in self.values()
            if contact.is_used
            or contact.is_linked
            or contact.is_heard
            or contact.phase is not ConnectionPhase.AWAY
        ]:
            if contact.is_used:
                contact.is_used, contact.used_at = False, now
            if contact.is_linked:
                contact.is_linked, contact.carried_at = False, now
            if contact.is_heard:
                contact.is_heard, contact.heard_at = False, now
            if contact.heard_at == now or contact.phase is not ConnectionPhase.AWAY:
                contact.seen_at = now
        if now < self._forgets_at:
            return
        self._forgets_at = now + FORGETTING
        long_ago = now - FORGOTTEN
        for contact in [contact for contact in self.values() if contact.seen_at < long_ago]:
            is_nobody = contact.source == "told" and contact.place is None
            if contact.source == "configured" or self.in_use(contact):
                continue
            if contact.is_untouched or is_nobody:
                self.forget(contact)

    def failed(self, contact: Contact) -> None:
        """A dial of it has failed."""
        contact.failures += 1
        if contact.source != "told" or contact.failures < MOST_FAILURES:
            return
        if contact.is_untouched:
            self.forget(contact)

    def forget(self, contact: Contact) -> None:
        if self.get(contact.name) is contact:
            del self[contact.name]
            self._is_now(contact, "greeted")  # and no longer counted as told
            self.incidents.count("contacts_forgotten")

    def _is_now(self, contact: Contact, source: Source) -> None:
        if contact.source == "told":
            self._told_by[contact.told_by] -= 1
            if not self._told_by[contact.told_by]:
                del self._told_by[contact.told_by]
        contact.source = source

    def _dial(self, contact: Contact) -> None:
        if contact.place is not None:
            self.dial(contact)

    def _told(self) -> list[Contact]:
        return [contact for contact in self.values() if contact.source == "told"]

    def _trim_told(self) -> None:
        if self._told_by.total() > MOST_TOLD:
            self._trim(self._told(), MOST_TOLD - MOST_TOLD // 8)  # not again for each one more

    def _trim(self, contacts: list[Contact], most: int) -> None:
        """Forgets the oldest of too many, but none in use."""
        over = len(contacts) - most
        idle = [
            contact for contact in contacts if contact.is_untouched and not self.in_use(contact)
        ]
        for contact in sorted(idle, key=lambda contact: contact.seen_at)[: max(0, over)]:
            self.forget(contact)

    def _make_room(self) -> bool:
        """For one more: the longest unused gives way if there are too many."""
        if len(self) < MOST_CONTACTS:
            return True
        learned = [contact for contact in self.values() if contact.source != "configured"]
        if len(learned) < MOST_CONTACTS:
            return True
        away = [
            contact
            for contact in learned
            if contact.phase is ConnectionPhase.AWAY and not self.in_use(contact)
        ]
        if not away:
            return False
        self.forget(min(away, key=lambda contact: max(contact.seen_at, contact.used_at or 0)))
        return True

    # --- the network -----------------------------------------------------------------------------

    def is_cut(self, name: str) -> bool:
        return name in self.cut_from or name in self.cut_to

    def stop_dialling(self) -> None:
        self.dial, self.greet_at = _nobody, _no_place

    def cut(self, incoming: frozenset[str], outgoing: frozenset[str]) -> None:
        """As if the network were cut, from and to these names."""
        self.cut_from, self.cut_to = incoming, outgoing
        for name in sorted(incoming | outgoing):
            if name in self:
                self[name].disconnect()

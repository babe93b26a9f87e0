"""Links on demand: which contacts are dialled, and which connections end because nobody uses them.

Rules.
 1. A connection is needed while its contact is in a view of one of our groups, while its link has
    frames underway or a frame is on its way in either direction, and for half a minute after a
    packet came or went by it. Pings do not count.
    One that carried nothing so far was made for its greeting: it is needed for a few seconds.
 2. A connection that we do not need is offered to the other end (BYE): if that does not need it
    either, it closes it. Neither end dials again, for neither needs it; what one of them sends
    meanwhile waits on the link, and makes it dial.
 3. The last few connections are not offered, and made again when they break, unless datagrams come
    from others: by them we hear of others.
 4. Of many that we do not need, the longest idle ones are closed unasked: a seed whom everybody
    dials once does not keep everybody.
 5. A contact is dialled while it is in a view; while it is in use and either has frames waiting or
    cannot be sent datagrams before a greeting; and a configured one until we have met it, and
    while we have little company.
 6. While a group of ours waits, nobody is connected and no datagrams come, a few contacts are
    dialled that we were only told of: a seed that is gone, or that refuses us because everybody
    turns to it, is not the only way.

It decides; what it decides on (`contact.py`) and the time are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic_ns

from ordercast.net.contact import Contact
from ordercast.net.contacts import Contacts
from ordercast.units import SECOND

IDLE = 30 * SECOND
"""How long a connection is needed after the last packet."""
GREETED = 3 * SECOND
"""How long a new connection is needed that carries none: for the groups and keys that ends tell."""
FEW_LINKS = 3
"""Connections that we keep though no group needs them."""
MOST_IDLE = 32
"""Connections that others may keep with us though we do not need them."""
HEARD = 60 * SECOND
"""How long a node counts as company after a datagram of it."""


class Links:
    def __init__(self, contacts: Contacts, clock: Callable[[], int] = monotonic_ns) -> None:
        self.viewed: Callable[[], Iterable[str]] = tuple  # who is in the views of our groups
        self.waits: Callable[[], bool] = bool  # whether we are not in one of our groups yet
        self._contacts = contacts
        self._clock = clock
        self._names: frozenset[str] = frozenset()  # of those, a second ago at the most
        self._sought: frozenset[str] = frozenset()  # dialled because nobody is there (rule 6)
        self._count = 0  # of connections, then
        self._company = 0  # of these, and of others of whom datagrams come

    def misses(self, name: str, after_a_while: bool) -> bool:
        """Whether we have so few links that this one should be made again.

        At once if it broke; after a while if the other end parted with us, or if it is unknown.
        """
        contact = self._contacts.get(name)
        if self._company >= FEW_LINKS or (contact is not None and contact.connection is not None):
            return False
        return after_a_while or (contact is not None and not contact.is_parted)

    def wants(self, contact: Contact) -> bool:
        """Whether to dial it, if it is not connected."""
        if self._contacts.get(contact.name) is not contact:
            return False  # it is forgotten
        if contact.name in self._names or contact.name in self._sought:
            return True
        if self._contacts.in_use(contact) and (contact.is_called or self._carries(contact)):
            return True
        return contact.source == "configured" and (
            contact.node is None or self._company < FEW_LINKS
        )

    def only_calls(self, contact: Contact) -> bool:
        """Whether it is wanted only because datagrams to it need a greeting."""
        is_needed = contact.name in self._names or contact.name in self._sought
        return contact.is_called and not is_needed and not self._carries(contact)

    def tend(self) -> None:
        """Once a second."""
        now = self._clock()
        self._names = frozenset(self.viewed())
        self._contacts.tend()
        contacts = list(self._contacts.values())  # hundreds, of which few matter at a time
        for contact in [
            contact
            for contact in contacts
            if contact.dialler is None
            and contact.place is not None
            and contact.connection is None
            and (
                contact.is_called  # others have only had datagrams, and need no connection
                or contact.carried_at is not None
                or contact.link is not None
                or contact.expected is not None
                or contact.source == "configured"
                or contact.name in self._names
            )
            and self.wants(contact)
        ]:
            self._contacts.dial(contact)
        connected = [contact for contact in contacts if contact.connection is not None]
        company = [
            contact
            for contact in contacts
            if contact.heard_at is not None
            and contact.heard_at > now - HEARD
            and contact.connection is None
        ]
        self._count, self._company = len(connected), len(connected) + len(company)
        self._seek(contacts)
        idle = []
        for contact in connected:
            connection = contact.connection
            if connection is not None:
                if connection.is_busy:
                    contact.carried_at = now
                elif connection.is_new:
                    contact.carried_at = max(contact.carried_at or 0, now - IDLE + GREETED)
                connection.is_busy = connection.is_new = False
            if not self._needs(contact):
                idle.append(contact)
        self._part(sorted(idle, key=lambda contact: contact.carried_at or 0), now)

    def _seek(self, contacts: list[Contact]) -> None:
        if self._company or not self.waits():
            self._sought = frozenset()
            return
        told = (contact for contact in contacts if contact.source == "told")
        names = [contact.name for contact in told if contact.place is not None]
        sought = [name for name in names if name in self._sought]
        others = [name for name in names if name not in self._sought]
        count = min(len(others), FEW_LINKS - len(sought))
        self._sought = frozenset([*sought, *self._contacts.chance.sample(others, count)])
        for name in self._sought:
            if self._contacts[name].dialler is None:
                self._contacts.dial(self._contacts[name])

    def offered(self, contact: Contact) -> None:
        """The other end does not need the connection. If we do not either, it ends."""
        contact.is_parted = True  # if it ends now, it is because the other end wanted it
        if contact.connection is not None and self._count > FEW_LINKS and not self._needs(contact):
            self._close(contact)

    def _part(self, idle: list[Contact], now: int) -> None:
        unasked = max(0, len(idle) - MOST_IDLE)
        for contact in idle[:unasked]:
            self._close(contact)
        for contact in idle[unasked : max(0, self._count - FEW_LINKS)]:
            connection = contact.connection
            if connection is not None and now - connection.offered_at >= IDLE:
                connection.offered_at = now
                connection.offer()

    def _close(self, contact: Contact) -> None:
        if contact.connection is not None:
            self._count -= 1
            self._contacts.incidents.count("idle_connections_closed")
            contact.is_parted = True
            contact.connection.part()

    def _needs(self, contact: Contact) -> bool:
        return contact.name in self._names or self._carries(contact)

    def _carries(self, contact: Contact) -> bool:
        """Whether something waits on its link, or came or went a short while ago."""
        if contact.is_linked or contact.expected is not None:
            return True
        connection = contact.connection
        if connection is not None and (connection.is_busy or connection.is_sending):
            return True
        if contact.link is not None and contact.link.underway:
            return True
        return contact.carried_at is not None and contact.carried_at > self._clock() - IDLE

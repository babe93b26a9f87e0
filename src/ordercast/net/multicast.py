"""Multicast: one socket for each address, beside the socket for datagrams.

Rules.
 1. The interface is that of the address on which the node listens. Packets do not leave its network
    (TTL 1), and come back to this machine, where other nodes may be. Our own are ignored.
 2. What comes is read as datagrams are: what does not open, is too long, or comes from an
    incarnation that is not connected with us is counted and dropped. Only the kinds of packets that
    the family names go this way.
 3. A packet that cannot be sent by multicast, because there is no such interface or no way there,
    goes by links instead: the caller hears of it, a counter counts it, and the log says so.
 4. With certificates each node seals what it sends with a key of its own for each group
    (`multicast_keys.py`), which the members of its view get by their connections.

What it does not do: bring what is lost. The family does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from ordercast.errors import PeerError
from ordercast.kernel.step import LARGEST_DATAGRAM
from ordercast.net.contact import Contact
from ordercast.net.contacts import Contacts
from ordercast.net.datagrams import AT_ONCE, MOST_WRAPPING, RECEIVE_BUFFER, PlainDatagrams
from ordercast.net.handshake import KEY_BYTES, KEY_ID_BYTES
from ordercast.net.sockets import address_of
from ordercast.types import NodeId, View
from ordercast.wire import greeting
from ordercast.wire.greeting import GroupKey

log = logging.getLogger("ordercast.net")

MARK_PLAIN = b"oc1m"
TTL = 1
ALL_GROUPS = 49
"""Linux's IP_MULTICAST_ALL: 0 leaves out what other sockets of this machine have asked for."""
NOT_SENT = 10.0
"""Seconds between two warnings that an address cannot be reached."""


class OpenedMulticast(NamedTuple):
    sender: NodeId
    birth: bytes | None  # which node of this name and number; None: its key shows that
    group: str | None  # the only one that it may be for; None: any
    body: bytes


class MulticastWrapper(Protocol):
    """How packets become datagrams for all members of a group, and how they are opened again."""

    prefix: bytes  # with which each datagram begins that can open
    least: int  # bytes of the shortest that can open

    def wrap(self, group: str, body: bytes) -> bytes:
        """The datagram."""

    def is_ours(self, data: bytes) -> bool:
        """Whether we have sent it ourselves."""

    def open(self, data: bytes) -> OpenedMulticast | None:
        """None: it is not for us, not whole, or not new."""

    def join_group(self, group: str) -> None:
        """It was joined."""

    def viewed(self, view: View) -> None:
        """Who is in a group now."""

    def met(self, contact: Contact) -> None:
        """A connection with this contact is ready."""

    def receive_key(self, contact: Contact, body: memoryview) -> None:
        """A connected node says what it seals with. PeerError: no node would say that."""

    def forget_group(self, group: str) -> None:
        """It was left."""


class PlainMulticast:
    """Without any protection, where datagrams have none either."""

    def __init__(self, plain: PlainDatagrams) -> None:
        self._plain = plain
        self.prefix = MARK_PLAIN + plain.prefix[len(MARK_PLAIN) :]
        self.least = plain.least
        self._own = MARK_PLAIN + plain.head

    def wrap(self, group: str, body: bytes) -> bytes:
        return MARK_PLAIN + self._plain.seal(body)

    def is_ours(self, data: bytes) -> bool:
        return data.startswith(self._own)

    def open(self, data: bytes) -> OpenedMulticast | None:
        opened = self._plain.open(data[len(MARK_PLAIN) :])
        if opened is None:
            return None
        return OpenedMulticast(opened.sender, opened.birth, None, opened.body)

    def join_group(self, group: str) -> None:
        """There are no keys."""

    def viewed(self, view: View) -> None:
        """And so nothing to give."""

    def met(self, contact: Contact) -> None:
        """Nor anybody who needs one."""

    def receive_key(self, contact: Contact, body: memoryview) -> None:
        """Its sender seals, and we do not: we understand nothing that it multicasts."""
        checked_key(body)

    def forget_group(self, group: str) -> None:
        """Nothing is known of it."""


def checked_key(body: memoryview) -> GroupKey:
    """What a node says that it seals with. PeerError: it cannot be a key."""
    new = greeting.decode(body, GroupKey)
    if len(new.key_id) != KEY_ID_BYTES or len(new.key) != KEY_BYTES:
        raise PeerError(f"a key of {len(new.key)} bytes with an id of {len(new.key_id)}")
    return new


class _Destination:
    """One multicast address, which groups may share."""

    __slots__ = ("groups", "place", "socket", "warned_at")

    def __init__(self, place: str) -> None:
        self.place = place
        self.groups: dict[str, None] = {}
        self.socket: socket.socket | None = None  # None: it does not work here
        self.warned_at = -NOT_SENT


class Multicasts:
    def __init__(
        self,
        contacts: Contacts,
        wrapper: MulticastWrapper,
        receive: Callable[[NodeId, str | None, bytes], None],
    ) -> None:
        self.wrapper = wrapper
        self.interface = ""  # the address on which the node listens
        self.receive = receive
        self.cut_from: frozenset[str] = frozenset()  # names that must not reach us, for tests
        self._contacts = contacts
        self._incidents = contacts.incidents
        self._count = contacts.incidents.count
        self._loop = asyncio.get_running_loop()
        self._by_place: dict[str, _Destination] = {}
        self._by_group: dict[str, _Destination] = {}
        self._buffer = memoryview(bytearray(1 << 16))  # of the datagram that is looked at

    # --- groups ------------------------------------------------------------------------------

    def open(self, group: str, place: str) -> None:
        """A group is joined that has this address."""
        address = self._by_place.get(place)
        if address is None:
            address = self._by_place[place] = _Destination(place)
        address.groups[group] = None
        self._by_group[group] = address
        self.wrapper.join_group(group)
        if address.socket is None:
            self._listen(address)

    def _listen(self, address: _Destination) -> None:
        to = address_of(address.place)
        assert to is not None, "the option was checked"
        try:
            address.socket = _bound(to, self.interface)
        except OSError as error:
            self._count("multicast_unavailable")
            log.warning(
                "no multicast to %s on the interface of %s (%s): links carry groups %s",
                *(address.place, self.interface or "this node", error.strerror or error),
                ", ".join(address.groups),
            )
            return
        self._loop.add_reader(address.socket, self._read, address)

    def forget_group(self, group: str) -> None:
        """It was left."""
        address = self._by_group.pop(group, None)
        if address is None:
            return
        self.wrapper.forget_group(group)
        del address.groups[group]
        if not address.groups:
            del self._by_place[address.place]
            self._close(address)

    def close(self) -> None:
        for group in list(self._by_group):
            self.forget_group(group)

    def _close(self, address: _Destination) -> None:
        if address.socket is not None:
            self._loop.remove_reader(address.socket)
            address.socket.close()
            address.socket = None

    def viewed(self, view: View) -> None:
        if view.group in self._by_group:
            self.wrapper.viewed(view)

    # --- sending -----------------------------------------------------------------------------

    def send(self, group: str, body: bytes) -> bool:
        """False: it does not go by multicast, so each member must get it by its link."""
        address = self._by_group.get(group)
        if address is None or address.socket is None or len(body) > LARGEST_DATAGRAM:
            self._count("multicasts_by_links")
            return False
        try:
            address.socket.sendto(self.wrapper.wrap(group, body), _place(address.place))
        except (BlockingIOError, InterruptedError):  # no room: it is lost, as many are
            self._count("multicast_errors")
        except OSError as error:
            self._count("multicasts_by_links")
            if self._loop.time() - address.warned_at >= NOT_SENT:
                address.warned_at = self._loop.time()
                why = error.strerror or error
                log.warning("multicast to %s fails (%s): links carry it", address.place, why)
            return False
        return True

    # --- receiving ---------------------------------------------------------------------------

    def _read(self, address: _Destination) -> None:
        wrapper, buffer = self.wrapper, self._buffer
        prefix, least = wrapper.prefix, wrapper.least
        start, most = buffer[: len(prefix)], LARGEST_DATAGRAM + MOST_WRAPPING
        for _ in range(AT_ONCE):
            if address.socket is None:
                return  # what was received has ended us
            try:
                size = address.socket.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._count("multicast_errors")
                return
            if least <= size <= most and start == prefix:
                self._admit(bytes(buffer[:size]))
            else:
                self._count("refused_datagrams")

    def _admit(self, data: bytes) -> None:
        if self.wrapper.is_ours(data):
            return
        opened = self.wrapper.open(data)
        if opened is None:
            self._count("refused_datagrams")
            return
        sender, group = opened.sender, opened.group
        contact = self._contacts.get(sender.name)
        if sender.name in self._contacts.cut_from or sender.name in self.cut_from:
            return
        if contact is None or contact.node != sender or not _is_same(contact, opened.birth):
            self._count("multicasts_of_strangers")  # it is not connected yet, or not any more
            return
        self.receive(sender, group, opened.body)


def _is_same(contact: Contact, birth: bytes | None) -> bool:
    return contact.birth == birth or not (contact.birth and birth)


def _place(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    return host, int(port)


def _bound(to: tuple[str, int], interface: str) -> socket.socket:
    """A socket that gets what is sent to this address, by this interface. OSError: none."""
    if ":" in interface:
        raise OSError("it is IPv6, and multicast takes IPv4")
    own = socket.inet_aton(interface or "0.0.0.0")
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # several nodes of one machine
        with suppress(OSError):  # some systems refuse a size that others reduce
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, RECEIVE_BUFFER)
        with suppress(OSError):  # Linux only
            one.setsockopt(socket.IPPROTO_IP, ALL_GROUPS, 0)
        one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, TTL)
        one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        if interface:
            one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        one.bind(to)
        membership: Any = socket.inet_aton(to[0]) + own
        one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except BaseException:
        one.close()
        raise
    return one

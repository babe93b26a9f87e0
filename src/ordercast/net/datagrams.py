"""Datagrams: one UDP socket a node, on the port where it also listens for connections.

A datagram is four bytes of mark, then a body. Plain ones name the sender and are for loopback and
for those who said `insecure`; sealed ones are the business of `security.py`. Whatever does not
open, is too long, or comes from an incarnation that does not count (`Contacts.heard`) is counted
and dropped, garbage before anything of it is decoded or copied: heartbeats wait behind it in the
same socket. For that we read the socket ourselves: the event loops copy each datagram, and take
few in a turn.

Datagrams need no connection. Plain ones go to any place that we learned, and whoever they come from
is known by them, if it is not configured: those are dialled, and greet us once at least. For sealed
ones two nodes greet each other once, and hand over keys. A datagram whose packet names other nodes
also says where they are: then its body begins with a byte with which no packet begins, and the
length of what it says.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from ordercast.errors import OrdercastError, PeerError
from ordercast.kernel.step import LARGEST_DATAGRAM
from ordercast.net.contact import Contact
from ordercast.net.contacts import Contacts
from ordercast.net.sockets import address_of, bound, place_of
from ordercast.types import NodeId
from ordercast.wire.greeting import Birth, Name, Place

MOST_WRAPPING = 1000
"""Bytes that a wrapper adds at the most: names have a bound, and so have seals."""
RECEIVE_BUFFER = 4 << 20
"""Bytes that we ask the system to keep of datagrams that we have not read yet. With its usual
200 KB a flood of some hundred datagrams, within one turn of ours, costs the heartbeats among them.
It gives what it likes (Linux: at most net.core.rmem_max), and that is taken as it is. Not more:
what waits behind garbage must be read while it is still true."""
AT_ONCE = 256
"""Datagrams that are read in one turn of the event loop, so that others get their turn."""
MARK_PLAIN = b"oc1p"
PLACES = b"\xc1"
"""The first byte of a body that says where others are. No value of msgpack begins with it."""
MOST_PLACES = 40


_decode_places = msgspec.msgpack.Decoder(
    Annotated[dict[Name, Place], Meta(max_length=MOST_PLACES)]
).decode


class OpenedDatagram(NamedTuple):
    sender: NodeId
    body: bytes
    is_newest: bool = True  # nothing came before that its sender sent later, as far as we can know
    birth: bytes | None = None  # which node of this name and number; None: its key shows that


class Wrapper(Protocol):
    """How packets become datagrams for one peer, and how they are opened again."""

    mark: bytes
    prefix: bytes  # with which each datagram begins that can open: the mark, and perhaps more
    least: int  # bytes of the shortest that can open
    proves: bool  # whether what opens was made by its sender, and not seen before

    def wrap(self, contact: Contact, body: bytes) -> bytes | None:
        """The datagram for this peer; None while nothing is agreed with it."""

    def open(self, data: bytes) -> OpenedDatagram | None:
        """Who sent it and what; None: it is not for us, not whole, or not new."""


class _PlainDatagram(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    cluster: str
    sender: NodeId
    birth: Birth
    body: bytes


class PlainDatagrams:
    """Without any protection: anybody on the network can pretend to be anybody."""

    mark = MARK_PLAIN
    proves = False

    def __init__(self, me: NodeId, cluster: str, birth: bytes = b"") -> None:
        self._me, self._birth = me, birth
        self._cluster = cluster
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(_PlainDatagram).decode
        self.prefix = MARK_PLAIN + b"\x94" + self._encode(cluster)  # an array of four
        self.least = len(self.prefix) + 6  # a sender, a birth and a body, however short
        self.head = self.prefix[len(MARK_PLAIN) :] + self._encode(me) + self._encode(birth)

    def wrap(self, contact: Contact, body: bytes) -> bytes | None:
        return self.seal(body)

    def seal(self, body: bytes) -> bytes:
        """The same for whomever it is. It begins with `head`."""
        return self._encode(_PlainDatagram(self._cluster, self._me, self._birth, body))

    def open(self, data: bytes) -> OpenedDatagram | None:
        try:
            plain = self._decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if plain.cluster != self._cluster:
            return None
        return OpenedDatagram(plain.sender, plain.body, birth=plain.birth)


def encode_places(places: dict[str, str]) -> bytes:
    """Where the nodes are that a packet names: what comes before it in a datagram."""
    if not places:
        return b""
    body = msgspec.msgpack.encode(places)
    return PLACES + len(body).to_bytes(2) + body


def split_places(body: bytes) -> tuple[dict[str, str], bytes]:
    """Undoes `encode_places`, and what follows. PeerError: no node could have made this."""
    if not body.startswith(PLACES):
        return {}, body
    begin = len(PLACES) + 2
    end = begin + int.from_bytes(body[len(PLACES) : begin])
    try:
        return _decode_places(body[begin:end]), body[end:]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"no places: {error}") from error


class Datagrams:
    def __init__(
        self,
        contacts: Contacts,
        wrapper: Wrapper,
        receive: Callable[[NodeId, bytes], None],
    ) -> None:
        self._contacts = contacts
        self._count = contacts.incidents.count
        self._loop = asyncio.get_running_loop()
        self.wrapper = wrapper
        self.receive = receive
        self.socket: socket.socket | None = None
        self._buffer = memoryview(bytearray(1 << 16))  # of the datagram that is looked at

    async def listen(self, host: str, port: int) -> None:
        try:
            first, *others = await bound(host, port, socket.SOCK_DGRAM)
            for other in others:
                other.close()  # a name with several addresses: datagrams take the first
            with suppress(OSError):  # some systems refuse a size that others reduce
                first.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        except OSError as error:
            raise OrdercastError(
                f"cannot listen on {host}:{port} (UDP): {error.strerror}"
            ) from error
        self.socket = first
        self._loop.add_reader(first, self._read)

    @property
    def host(self) -> str:
        """The address on which it listens."""
        return "" if self.socket is None else str(self.socket.getsockname()[0])

    def close(self) -> None:
        if self.socket is not None:
            self._loop.remove_reader(self.socket)
            self.socket.close()
            self.socket = None

    def send(self, name: str, body: bytes, places: bytes = b"") -> None:
        """Sends to whoever bears the name now. Nothing is promised, and nothing is queued.

        Places: of the nodes that the packet names (`encode_places`).
        """
        if len(body) > LARGEST_DATAGRAM:
            raise OrdercastError(
                f"a datagram of {len(body)} bytes; at most {LARGEST_DATAGRAM} are sent, uncut"
            )
        contact = self._contacts.use(name, by_link=False)
        if contact is None or name in self._contacts.cut_to:
            self._count("datagrams_to_nowhere")
            return
        if contact.udp is None and contact.learned and not self.wrapper.proves:
            contact.udp = address_of(contact.place)
        data = self.wrapper.wrap(contact, places + body) if contact.udp is not None else None
        if data is None or contact.udp is None:
            self._count("datagrams_to_nowhere")
            self._contacts.call(contact)
        elif self.socket is not None:
            try:
                self.socket.sendto(self.wrapper.mark + data, contact.udp)
            except OSError:  # no room, no way there, or no such address: it is lost, as many are
                self._count("datagram_errors")

    # --- receiving ---------------------------------------------------------------------------

    def _read(self) -> None:
        prefix, least = self.wrapper.prefix, self.wrapper.least
        begin, most = len(self.wrapper.mark), LARGEST_DATAGRAM + MOST_WRAPPING
        buffer, start = self._buffer, self._buffer[: len(prefix)]
        for _ in range(AT_ONCE):
            if self.socket is None:
                return  # what was received has ended us
            try:
                size, address = self.socket.recvfrom_into(buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._count("datagram_errors")
                return
            if least <= size <= most and start == prefix:
                self._admit(bytes(buffer[begin:size]), address)
            else:
                self._count("refused_datagrams")

    def _admit(self, data: bytes, address: tuple[Any, ...]) -> None:
        opened = self.wrapper.open(data)
        contact = self._sender(opened, address) if opened is not None else None
        try:
            places, body = split_places(opened.body) if opened is not None else ({}, b"")
        except PeerError:
            contact = None
        if opened is None or contact is None:
            self._count("refused_datagrams")
            return
        contact.is_heard = True
        if places:
            self._contacts.told(places, by=contact.name)
        if address != contact.udp and opened.is_newest:
            self._learn(contact, address)
        self.receive(opened.sender, body)

    def _sender(self, opened: OpenedDatagram, address: tuple[Any, ...]) -> Contact | None:
        name = opened.sender.name
        if name in self._contacts.cut_from:
            return None
        contact = self._contacts.get(name)
        if contact is not None and contact.node == opened.sender:
            known, birth = contact.birth, opened.birth
            if known == birth or not (known and birth):  # the same, or nobody can tell
                return contact
        return self._contacts.heard(opened.sender, address, opened.birth)

    def _learn(self, contact: Contact, address: tuple[Any, ...]) -> None:
        """A datagram of this contact came from elsewhere than where we send ours: it has several
        addresses, or something on the way translates them, and only this one is known to work.

        What a spoofer can do where datagrams are sealed. A source address can be forged, a seal
        cannot, and one that came before does not open again: so it needs a datagram that the peer
        made and that we have not seen, which it sends on from another address before the peer's
        own copy comes. It gets what we send to that one peer, which it cannot open, until the
        next datagram of the peer itself, for that one is newer. One that it held back does
        nothing, for only the newest counts. To drop datagrams on
        the way does as much.

        Where they are plain anybody can pretend anything. The port must be the one that the peer
        named in its greeting: against mistakes, not against enemies. And we must be permitted to
        send there in clear.
        """
        old = contact.udp
        if not self.wrapper.proves and (
            old is None or address[1] != old[1] or not self._contacts.believes(place_of(address))
        ):
            return
        contact.udp = address
        self._count("addresses_learned")

"""Datagrams: one UDP socket a node, on the port where it also listens for connections.

A datagram is four bytes of mark, then a body. Plain ones name the sender and are for loopback and
for those who said `insecure`; sealed ones are the business of `security.py`. Whatever does not
open, is too long, or comes from nobody we have greeted is counted and dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

import msgspec

from ordercast.errors import OrdercastError
from ordercast.net.mesh import Contact, Mesh
from ordercast.types import NodeId

log = logging.getLogger("ordercast.net")

LARGEST_DATAGRAM = 60_000
"""Bytes of one packet sent by datagram. Larger ones are refused, never cut into pieces."""
MARK_PLAIN = b"oc1p"


class Wrapper(Protocol):
    """How packets become datagrams for one peer, and how they are opened again."""

    mark: bytes

    def wrap(self, contact: Contact, body: bytes) -> bytes | None:
        """The datagram for this peer; None while nothing is agreed with it."""

    def open(self, data: bytes) -> tuple[NodeId, bytes] | None:
        """Who sent it and what; None: it is not for us, not whole, or not new."""


class _Plain(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    cluster: str
    sender: NodeId
    body: bytes


class Plain:
    """Without any protection: anybody on the network can pretend to be anybody."""

    mark = MARK_PLAIN

    def __init__(self, me: NodeId, cluster: str) -> None:
        self._me = me
        self._cluster = cluster
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(_Plain).decode

    def wrap(self, contact: Contact, body: bytes) -> bytes | None:
        return self._encode(_Plain(self._cluster, self._me, body))

    def open(self, data: bytes) -> tuple[NodeId, bytes] | None:
        try:
            plain = self._decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return (plain.sender, plain.body) if plain.cluster == self._cluster else None


class Datagrams(asyncio.DatagramProtocol):
    def __init__(
        self, mesh: Mesh, wrapper: Wrapper, receive: Callable[[NodeId, bytes], None]
    ) -> None:
        self._mesh = mesh
        self._wrapper = wrapper
        self._receive = receive
        self._transport: asyncio.DatagramTransport | None = None

    async def listen(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))
        except OSError as error:
            raise OrdercastError(
                f"cannot listen on {host}:{port} (UDP): {error.strerror}"
            ) from error

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def send(self, name: str, body: bytes) -> None:
        """Sends to whoever bears the name now. Nothing is promised, and nothing is queued."""
        if len(body) > LARGEST_DATAGRAM:
            raise OrdercastError(
                f"a datagram of {len(body)} bytes; at most {LARGEST_DATAGRAM} are sent, uncut"
            )
        contact = self._mesh.contacts.get(name)
        if contact is None or contact.udp is None or name in self._mesh.cut_to:
            self._mesh.count("datagrams_to_nowhere")
            return
        data = self._wrapper.wrap(contact, body)
        if data is not None and self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(self._wrapper.mark + data, contact.udp)

    # --- asyncio -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: object) -> None:
        mark = self._wrapper.mark
        opened = self._wrapper.open(data[len(mark) :]) if data.startswith(mark) else None
        if opened is None:
            self._mesh.count("refused_datagrams")
            return
        sender, body = opened
        contact = self._mesh.contacts.get(sender.name)
        if contact is None or contact.life != sender or sender.name in self._mesh.cut_from:
            self._mesh.count("refused_datagrams")
            return
        self._receive(sender, body)

    def error_received(self, exc: Exception) -> None:
        self._mesh.count("datagram_errors")

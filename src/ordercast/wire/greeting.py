"""The handshake: both ends exchange node, cluster, protocol version and frames received so far.

The dialler sends a Hello. The other end answers with a Hello that also says how many data frames of
the dialler's incarnation it has, and the dialler ends with a Resume that says the same of the other
end. From then on both know what to send again. An end that objects sends a Refuse with the reason
and closes, so that both ends know why.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ordercast.errors import PeerError
from ordercast.types import NodeId

PROTOCOL_VERSION = 1

Name = Annotated[str, Meta(min_length=1, max_length=100)]
Place = Annotated[str, Meta(max_length=255)]  # host:port
Count = Annotated[int, Meta(ge=0)]
Key = Annotated[bytes, Meta(max_length=32)]


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """New fields may only be added at the end: older versions ignore them."""

    version: int
    cluster: Name
    node: NodeId
    port: Annotated[int, Meta(ge=0, lt=1 << 16)]  # where it listens, for datagrams and for dialling
    received: Count = 0  # data frames of the other's incarnation, in the answer
    key: Key = b""  # for datagrams to this node; empty where datagrams are plain
    key_id: Annotated[bytes, Meta(max_length=8)] = b""
    places: Annotated[dict[Name, Place], Meta(max_length=1024)] = {}  # where it knows others
    features: Annotated[list[Name], Meta(max_length=32)] = []


class Resume(msgspec.Struct, frozen=True, array_like=True):
    received: Count


class Refuse(msgspec.Struct, frozen=True, array_like=True):
    reason: Annotated[str, Meta(max_length=500)]


class NewKey(msgspec.Struct, frozen=True, array_like=True):
    key: Key
    key_id: Annotated[bytes, Meta(max_length=8)]


T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message)


def decode(body: bytes | memoryview, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"not a {kind.__name__.lower()}: {error}") from error


def objection(hello: Hello, me: NodeId, cluster: str, known: NodeId | None) -> str | None:
    """Why this peer is refused, or None. `known` is the newest incarnation that we met."""
    if hello.version != PROTOCOL_VERSION:
        return f"protocol version {hello.version}; this node speaks {PROTOCOL_VERSION}"
    if hello.cluster != cluster:
        return f"cluster {hello.cluster!r}; this node is in {cluster!r}"
    if hello.node.name == me.name:
        return f"the name {me.name!r} is taken by this node"
    if known is not None and hello.node.incarnation < known.incarnation:
        return (
            f"{hello.node} is an older incarnation: {known} was here. If it lost its data folder, "
            f"write {known.incarnation} into the file 'incarnation' in it and start it again"
        )
    return None

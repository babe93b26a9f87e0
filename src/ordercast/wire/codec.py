"""Packets to bytes and back: MessagePack by msgspec, typed, checked on the way in.

A codec knows the packets of the families that it is made for and no others. What does not
decode exactly into one of them is the peer's mistake, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

import msgspec

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.family import Family
from ordercast.kernel.packet import Packet, tag_of

LARGEST_PACKET = 64 << 20
"""Bytes of one packet, in or out: a limit that no setting can lift."""

MESSAGE_OVERHEAD = 5
"""Bytes that MessagePack puts before one message, at the most."""


class Codec:
    def __init__(self, families: Iterable[Family]) -> None:
        """UsageError: two families have different packets of one tag."""
        kinds = _kinds_of(families)
        assert kinds, "a codec without packets has nothing to do"
        union: Any = Union[kinds]  # noqa: UP007 - built at run time
        # Those that have another form in a machine than on the wire.
        self._rewritten = {kind for kind in kinds if kind.from_wire is not Packet.from_wire}
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Packet] = msgspec.msgpack.Decoder(union)

    def encode(self, packet: Packet) -> bytes:
        data = self._encoder.encode(packet.to_wire())
        assert len(data) <= LARGEST_PACKET, f"a packet of {len(data)} bytes"
        return data

    def decode(self, data: bytes | memoryview) -> Packet:
        if len(data) > LARGEST_PACKET:
            raise PeerError(f"a packet of {len(data)} bytes; the limit is {LARGEST_PACKET}")
        try:
            packet = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PeerError(f"not a packet that we know: {error}") from error
        messages, size, others = packet.carries()
        if messages or size:
            around = MESSAGE_OVERHEAD * messages + others
            if not len(data) - around <= size <= len(data):
                raise PeerError(f"a packet of {len(data)} bytes that says it carries {size}")
        return packet.from_wire() if type(packet) in self._rewritten else packet


def _kinds_of(families: Iterable[Family]) -> tuple[type[Packet], ...]:
    """All kinds of packets. Families may share some."""
    found: dict[str, tuple[type[Packet], Family]] = {}
    for family in families:
        for kind in family.packets:
            other, owner = found.setdefault(tag_of(kind), (kind, family))
            if other is not kind:
                raise UsageError(
                    f"families {owner.name!r} and {family.name!r} both have packets with the tag "
                    f"{tag_of(kind)!r}: begin the tags of a family with its own name"
                )
    return tuple(kind for kind, _ in found.values())

"""How values read in interaction files and messages: short, and on one line.

Families build the words for their packets (`Family.words`) from these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ordercast.kernel.packet import Packet, tag_of
from ordercast.types import COUNTER_BITS, NodeId, name_of

PacketWords: TypeAlias = Mapping[type[Packet], Callable[[Any], str]]
_NO_WORDS: PacketWords = {}

GROUP = "g"
"""The first group of a stage, which lines do not name."""


def value_text(value: object, words: PacketWords = _NO_WORDS) -> str:
    match value:
        case bytes():
            return payload_text(value)
        case Packet():
            return packet_text(value, words)
        case list() | tuple() if not hasattr(value, "_fields"):
            return f"[{' '.join(value_text(each, words) for each in value)}]"
        case dict():
            return f"{{{columns_text(value, words).lstrip()}}}"
    return str(value)


def packet_text(packet: Packet, words: PacketWords = _NO_WORDS) -> str:
    """The tag, then the words of its class, or else every field but the group."""
    fields = {name: getattr(packet, name) for name in packet.__struct_fields__ if name != "group"}
    own = words.get(type(packet))
    return tag_of(type(packet)) + (f" {own(packet)}" if own else columns_text(fields, words))


def columns_text(columns: Mapping[str, object], words: PacketWords = _NO_WORDS) -> str:
    return "".join(f" {k}={value_text(v, words)}" for k, v in columns.items() if v is not None)


def notification_text(news: object, words: PacketWords = _NO_WORDS) -> str:
    """What a machine notified its application of: the class, and every field but the group."""
    names = getattr(type(news), "__match_args__", ())  # of structs, dataclasses and named tuples
    fields = {name: getattr(news, name) for name in names if name != "group"}
    return type(news).__name__ + columns_text(fields, words)


def event_text(origin: str, number: int) -> str:
    node = NodeId(origin, number >> COUNTER_BITS)
    return f"{node}:{number & (1 << COUNTER_BITS) - 1}"


def payload_text(payload: bytes) -> str:
    text = payload.decode("utf-8", errors="backslashreplace")
    if len(text) > 12 and len(set(text)) == 1:
        return f"{text[0]}*{len(text)}"
    return text if text.isprintable() and text and " " not in text else repr(payload)


def in_group(label: str) -> str:
    """Where it happened, if a stage has several groups and it was not the first of them."""
    return "" if name_of(label) == GROUP else f" in {label}"

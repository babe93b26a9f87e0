"""The wording of totally ordered groups in interaction files.

A packet of a stream is `6 after 5, delivered 1, asks for 4`, then its own fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ordercast.kernel.family import Words
from ordercast.kernel.packet import Packet, tag_of
from ordercast.kernel.wording import in_group
from ordercast.protocol.newtop import packets


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(_value, value))}]"
    if isinstance(value, Packet):  # relayed
        return f"{tag_of(type(value))} {_PACKETS[type(value)](value)}"
    return str(value)


def _stream_text(packet: Any) -> str:
    asks = f", asks for {packet.solicits}" if packet.solicits else ""
    head = f"{packet.order} after {packet.previous}, delivered {packet.delivered_up_to}{asks}"
    head += in_group(packet.label)
    own = {name: getattr(packet, name) for name in packet.__struct_fields__[6:]}
    if "origin" in own:
        return f"{head}: {own['origin']}:{own['number']}"
    fields = "".join(f" {name}={_value(value)}" for name, value in own.items() if value is not None)
    return head + (":" if own else "") + fields


def _state_text(packet: packets.State) -> str:
    state = "left out" if packet.is_left_out else _bytes_text(packet.state)
    return f"{packet.order} after {packet.previous}: {state}"


def _bytes_text(state: bytes | None) -> str:
    return "none" if state is None else state.decode(errors="backslashreplace")


def _invite_text(packet: packets.Invite) -> str:
    founding = ", to found the group" if packet.founds else ""
    return f"to {packet.formation} {{{' '.join(map(str, packet.members))}}}{founding}"


def _here_text(packet: packets.Here) -> str:
    where = "in none" if packet.formation is None else f"in {packet.formation or 'the first'}"
    return where + (", who else is?" if packet.asks else "")


_PACKETS: dict[type[Packet], Callable[[Any], str]] = {
    **{kind: _stream_text for kind in packets.PACKETS if issubclass(kind, packets.Numbered)},
    packets.State: _state_text,
    packets.Here: _here_text,
    packets.Please: lambda packet: (
        "take us in" if packet.joiner is None else f"take in {packet.joiner}"
    ),
    packets.Invite: _invite_text,
    packets.Vote: lambda packet: (
        f"on {packet.formation} " + ("yes" if packet.yes else f"no: {packet.why}")
    ),
    packets.Need: lambda packet: f"the state of {packet.formation}",
    packets.PartTaken: lambda packet: f"of {packet.formation}: {packet.count}",
    packets.StatePart: lambda packet: f"of {packet.formation}: {_bytes_text(packet.part)}",
    packets.Copy: lambda packet: f"of {packet.formation}: {_bytes_text(packet.state)}",
}

WORDS = Words(_PACKETS)

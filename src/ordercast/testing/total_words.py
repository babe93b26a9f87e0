"""How packets of totally ordered groups, and what their applications are told, read in
interaction files.

A packet of a stream is `6 after 5, delivered 1, asks for 4`, then what is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ordercast.kernel.packet import Packet
from ordercast.protocol.newtop.packets import PACKETS, Here, Invite, Numbered, State, Vote
from ordercast.testing.stage import GROUP, tag_of
from ordercast.types import Invitation, NodeId, Refused, Subgroup, name_of


def in_group(label: str) -> str:
    """Where it happened, if a stage has several groups and it was not the first of them."""
    return "" if name_of(label) == GROUP else f" in {label}"


News: TypeAlias = Subgroup | Invitation | Refused
"""What applications in such groups are told beside events and views."""


def _names(lives: Any) -> str:
    return f"{{{' '.join(map(str, lives))}}}"


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(_value, value))}]"
    if isinstance(value, Packet):  # relayed
        return f"{tag_of(type(value))} {TOTAL_WORDS[type(value)](value)}"
    return str(value)


def _stream_text(packet: Any) -> str:
    asks = f", asks for {packet.solicits}" if packet.solicits else ""
    said = f"{packet.order} after {packet.previous}, delivered {packet.delivered_up_to}{asks}"
    said += in_group(packet.label)
    own = {name: getattr(packet, name) for name in packet.__struct_fields__[6:]}
    if "origin" in own:
        return f"{said}: {own['origin']}:{own['number']}"
    told = "".join(f" {name}={_value(value)}" for name, value in own.items() if value is not None)
    return said + (":" if own else "") + told


def _state_text(packet: State) -> str:
    state = "none" if packet.state is None else packet.state.decode(errors="backslashreplace")
    return f"{packet.order} after {packet.previous}: {state}"


def _here_text(packet: Here) -> str:
    where = "in none" if packet.formation is None else f"in {packet.formation or 'the first'}"
    return where + (", who else is?" if packet.asks else "")


TOTAL_WORDS: dict[type[Packet], Callable[[Any], str]] = {
    **{kind: _stream_text for kind in PACKETS if issubclass(kind, Numbered)},
    State: _state_text,
    Here: _here_text,
    Invite: lambda packet: f"to {packet.formation} {_names(packet.members)}",
    Vote: lambda packet: f"on {packet.formation} " + ("yes" if packet.yes else f"no: {packet.why}"),
}


def news_text(who: NodeId, what: News) -> str:
    if isinstance(what, Subgroup):
        return f"{who} goes on without {_names(what.gone)}"
    if isinstance(what, Invitation):
        return f"{who} is invited by {what.initiator} to {what.formation} {_names(what.members)}"
    return f"{who} is told: {what.why}"

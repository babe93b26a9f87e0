"""The wording of groups with virtual synchrony in interaction files.

A configuration is `2.n1.0`: its height, its representative, and the serial number of a proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ordercast.kernel.family import Words
from ordercast.kernel.packet import Packet
from ordercast.kernel.wording import value_text
from ordercast.protocol.transis import packets
from ordercast.protocol.transis.packets import ConfigurationId
from ordercast.types import NodeId


def _state(member: Any) -> list[str]:
    current = member.current
    graph, change = current.graph, current.change
    return [
        f"{member.me} is in {current.cid} {_names(current.members)}, stage {change.stage}",
        f"{member.me} has admitted {value_text(graph.received)}, holds {graph.held}, "
        f"has {current.deliveries.waiting} to deliver and {len(member.own.waiting)} to cast",
    ]


def _names(nodes: Iterable[NodeId]) -> str:
    return f"{{{' '.join(map(str, nodes))}}}"


def _joined(joined: Iterable[tuple[NodeId, ConfigurationId]]) -> str:
    sides: dict[ConfigurationId, list[NodeId]] = {}
    for node, cid in joined:
        sides.setdefault(cid, []).append(node)
    return " and ".join(f"{_names(nodes)} of {cid}" for cid, nodes in sides.items())


def _cast(cast: packets.Cast) -> str:
    seen = value_text(list(cast.vector))
    return f"{cast.service} {cast.seq} in {cast.cid}, height {cast.height}, after {seen}"


def _proposal(packet: packets.Proposal) -> str:
    without = f" without {_names(packet.failed)}" if packet.failed else ""
    has = value_text(list(packet.received))
    return f"{packet.serial}: {_joined(packet.joined)}{without}, sent {packet.sent}, has {has}"


def _known(known: Iterable[packets.GoneMember]) -> str:
    return "".join(
        f", knows that {one.node} has {value_text(list(one.acks))} and is at {one.high}"
        for one in known
    )


def _lineage(lineage: packets.Lineage | None) -> str:
    if lineage is None:
        return ""
    mute = ", and cannot give it" * lineage.mute
    return f", has the {'blank ' * lineage.blank}state of {lineage.cid}{mute}"


_PACKETS: dict[type[Packet], Callable[[Any], str]] = {
    packets.Cast: _cast,
    packets.Fetched: lambda packet: f"{packet.origin}: {_cast(packet.cast)}",
    packets.Status: lambda packet: (
        f"in {packet.cid}, sent {packet.sent}, clock {packet.clock}, "
        f"has {value_text(list(packet.vector))}"
    ),
    packets.Query: lambda packet: (
        f"in {packet.cid}, sent {packet.sent}, clock {packet.clock}, "
        f"has {value_text(list(packet.vector))}, asks {packet.asks:b}{' by link' * packet.by_link}"
    ),
    packets.Summary: lambda packet: (
        f"in {packet.cid}, sent {value_text(list(packet.sent))}, "
        f"clocks {value_text(list(packet.clocks))}, all have {value_text(list(packet.stable))}"
    ),
    packets.Fetch: lambda packet: f"{packet.origin}: {packet.first} to {packet.last}",
    packets.Leave: lambda packet: f"{packet.cid} after {packet.sent}",
    packets.Hello: lambda packet: (
        f"in {packet.cid} {_names(packet.members)}, hears {_names(packet.echo)}"
    ),
    packets.Probe: lambda packet: f"{'asks' if packet.asks else 'answers'} in {packet.cid}",
    packets.Court: lambda packet: _joined(packet.joined),
    packets.Decline: lambda packet: f"{packet.candidate}",
    packets.Proposal: _proposal,
    packets.Ready: lambda packet: (
        f"for {packet.decision}{_known(packet.known)}{_lineage(packet.lineage)}"
    ),
    packets.StatePart: lambda packet: f"of {packet.view}, {len(packet.part)} bytes",
    packets.State: lambda packet: (
        f"of {packet.view}: {packet.failure or 'late' * packet.late or value_text(packet.state)}"
        + f" after {packet.parts} parts" * bool(packet.parts)
    ),
    packets.Installed: lambda packet: (
        f"{packet.cid}{''.join(_known(side.known) for side in packet.joint)}"
    ),
    packets.Recall: lambda packet: (
        f"before {packet.view}, since {packet.since or 'ever'}, after {packet.after}"
        + "".join(f", has {value_text(list(one.vector))} of {one.cid}" for one in packet.have)
    ),
    packets.Recalled: lambda packet: _recalled(packet),
}


def _recalled(packet: packets.Recalled) -> str:
    found = [f"{one.origin} {one.number} of {one.cid}" for one in packet.events]
    text = f"before {packet.view}, {packet.outcome}: {', '.join(found) or 'nothing'}"
    if packet.outcome == "more":
        return f"{text}, up to {packet.up_to}"
    if packet.outcome == "end":
        text += f"; {packet.needed} in all, as {_names(packet.alike)} had"
    return text if packet.reaches_back else f"{text}, and more before"


WORDS = Words(_PACKETS, _state)

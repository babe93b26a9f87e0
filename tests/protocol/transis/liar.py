"""A member that says anything: packets of the family, drawn at random and often nearly right."""

from __future__ import annotations

from functools import cache
from random import Random
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet, Value
from ordercast.protocol.primary.packets import PrimaryAttempt, PrimaryReport
from ordercast.protocol.transis import FAMILY
from ordercast.protocol.transis.member import SynchronyMember
from ordercast.protocol.transis.packets import (
    PACKETS,
    Cast,
    ConfigurationId,
    GoneMember,
    Installed,
    Lineage,
    Proposal,
    Ready,
    SideKnowledge,
    State,
    StatePart,
    Status,
)
from ordercast.types import NodeId
from ordercast.wire.codec import Codec

CODEC = Codec([FAMILY])


@cache
def fields_of(kind: type[Any]) -> list[tuple[str, Any]]:
    """Names and types. They are found by evaluating text, which takes most of a liar's time."""
    hints = get_type_hints(kind, include_extras=True)
    return [(field.name, hints[field.name]) for field in msgspec.structs.fields(kind)]


class RandomPackets:
    """Knows the machine that it talks to, and so nearly everything that it could have heard."""

    def __init__(self, draw: Random, me: NodeId, names: tuple[str, ...]) -> None:
        self.draw = draw
        self.me = me
        self.names = names

    def packet(self, machine: SynchronyMember) -> Packet:
        """One that can be read: numbers beyond their bits never reach a member."""
        while True:
            packet = self._filled(self.draw.choice(PACKETS), machine)
            if self.draw.random() < 0.6:
                packet = self._fitted(packet, machine)
            try:
                return CODEC.decode(CODEC.encode(packet))
            except PeerError:
                continue

    def _filled(self, kind: type[Any], machine: SynchronyMember) -> Any:
        values = {name: self._value(name, hint, machine) for name, hint in fields_of(kind)}
        if "payloads" in values:
            values["size"] = sum(map(len, values["payloads"]))
        return kind(**values)

    def _value(self, name: str, kind: Any, machine: SynchronyMember) -> Any:
        draw = self.draw
        if name == "group":
            return machine.group
        if name == "failure":
            return draw.choice(["", "", "why"])
        if name in ("vector", "received", "acks") and draw.random() < 0.9:
            have = machine.current.graph.received
            return tuple(max(0, count + draw.choice([0, 0, 0, 1, -1])) for count in have)
        if get_origin(kind) is Annotated:
            return self._value(name, get_args(kind)[0], machine)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType) and NoneType in arguments:
            some = [one for one in arguments if one is not NoneType]
            return None if draw.random() < 0.5 else self._value(name, some[0], machine)
        if origin is Literal:
            return draw.choice(arguments)
        if origin is list:
            return [self._value("", arguments[0], machine) for _ in range(draw.randrange(4))]
        if origin is tuple and arguments[-1] is ...:
            count = draw.randrange(5)
            found = [self._value("", arguments[0], machine) for _ in range(count)]
            return tuple(found if draw.random() < 0.2 else sorted(found, key=str))
        if origin is tuple:
            return tuple(self._value("", one, machine) for one in arguments)
        if kind is ConfigurationId and draw.random() < 0.8:
            return draw.choice([machine.current.cid, *machine.current.change.readied])
        if isinstance(kind, type) and issubclass(kind, Packet | Value):
            return self._filled(kind, machine)
        return self._plain(kind)

    def _plain(self, kind: Any) -> Any:
        draw = self.draw
        if kind is NodeId:
            return NodeId(draw.choice(self.names), draw.choice([0, 0, 0, 1]))
        if kind is bool:
            return draw.random() < 0.5
        if kind is int:
            return draw.choice([1, 1, 2, 3, draw.randrange(1, 99), (1 << 40) - 1])
        if kind is str:  # a name in a vote
            return draw.choice(self.names)
        assert kind in (bytes, bytearray, memoryview), kind
        return draw.randbytes(draw.randrange(1, 20))

    def _fitted(self, packet: Packet, machine: SynchronyMember) -> Packet:
        """What fits the receiver's view and its change: more of it is believed."""
        if isinstance(packet, Cast | Status | Proposal):
            return self._next_of_stream(packet, machine)
        if isinstance(packet, Ready | Installed):
            return self._agreeing(packet, machine)
        if isinstance(packet, PrimaryReport | PrimaryAttempt):
            packet = msgspec.structs.replace(packet, view=machine.view.id)
            if isinstance(packet, PrimaryReport) and machine.franchise is not None:
                report = machine.franchise.voter.report
                packet = msgspec.structs.replace(packet, report=report)
        elif isinstance(packet, State | StatePart):
            packet = msgspec.structs.replace(packet, view=machine.current.cid)
        return packet

    def _agreeing(self, packet: Ready | Installed, machine: SynchronyMember) -> Packet:
        """With what the receiver decided, but for what is said of others."""
        change, draw = machine.current.change, self.draw
        decided = [change.decision, *change.readied.values()]
        decision = draw.choice([one for one in decided if one is not None] or [None])
        if decision is None:
            return packet
        if isinstance(packet, Ready):
            known, lineage = self._known(machine), self._lineage(machine)
            return Ready(machine.group, machine.current.cid, decision.id, known, lineage)
        joint = []
        for cid, members in decision.sides:
            said = ((node, self._lineage(machine)) for node in members)
            lineages = tuple((node, one) for node, one in said if one is not None)
            joint.append(SideKnowledge(cid, self._known(machine), lineages))
        return Installed(machine.group, decision.id, tuple(joint))

    def _known(self, machine: SynchronyMember) -> tuple[GoneMember, ...]:
        """Of members that are gone, or not."""
        draw, received = self.draw, machine.current.graph.received
        some = [node for node in machine.current.members if draw.random() < 0.3]
        acks = tuple(max(0, count - draw.randrange(2)) for count in received)
        return tuple(GoneMember(node, acks, draw.randrange(9)) for node in some)

    def _lineage(self, machine: SynchronyMember) -> Lineage | None:
        if machine.options.merge == "none":
            return None
        draw, own = self.draw, machine.states.lineage
        report = machine.franchise.voter.report if machine.franchise is not None else None
        cid = draw.choice([own.cid, own.cid, machine.current.cid])
        path = draw.choice([own.path, own.path, 0, 1])
        return Lineage(cid, draw.random() < 0.5, path, draw.random() < 0.3, report)

    def _next_of_stream(self, packet: Cast | Status | Proposal, machine: SynchronyMember) -> Packet:
        """The next of the liar's events or acknowledgements, or a proposal."""
        current, draw = machine.current, self.draw
        graph = current.graph
        place = graph.places.get(self.me)
        if place is None:
            return packet
        seq, height, number = graph.arrived[place]
        vector = list(graph.received)
        if isinstance(packet, Cast):
            vector[place] = seq + 1
            other = draw.randrange(len(vector))
            if other not in (place, graph.me):
                vector[other] += draw.choice([0, 0, 1, 5])
            height += draw.choice([1, 1, 2, 50])
            changed: dict[str, Any] = {"seq": seq + 1, "height": height, "number": number + 1}
        elif isinstance(packet, Status):
            vector[place] = seq + draw.choice([0, 0, 1])
            changed = {"sent": vector[place], "clock": height + draw.choice([0, 3])}
        else:
            joined = dict(packet.joined) | dict.fromkeys(current.members, current.cid)
            if draw.random() < 0.3:
                joined = dict.fromkeys(current.members, current.cid)
            elif draw.random() < 0.5:
                joined = dict(current.change.suggestion.joined)
            vector[place] = seq
            failed = [node for node in joined if node != self.me and draw.random() < 0.2]
            changed = {"joined": tuple(sorted(joined.items())), "failed": tuple(sorted(failed))}
            changed |= {"sent": seq, "received": tuple(vector)}
            if draw.random() < 0.5:
                changed["failed"] = tuple(sorted(current.change.suggestion.failed))
            if draw.random() < 0.7:
                before = current.change.proposals.get(self.me)
                changed["serial"] = before.serial + 1 if before is not None else 1
        if "vector" in packet.__struct_fields__:
            changed["vector"] = tuple(vector)
        return msgspec.structs.replace(packet, cid=current.cid, **changed)

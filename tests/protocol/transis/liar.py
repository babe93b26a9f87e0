"""A member that says anything: packets of the family, drawn at random and often nearly right."""

from __future__ import annotations

from random import Random
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from ordercast.kernel.packet import Packet, Value
from ordercast.protocol.transis.member import SynchronyMember
from ordercast.protocol.transis.packets import PACKETS, Cast, ConfigurationId, Proposal, Status
from ordercast.types import NodeId


class RandomPackets:
    """Knows the machine that it talks to, and so nearly everything that it could have heard."""

    def __init__(self, draw: Random, me: NodeId, names: tuple[str, ...]) -> None:
        self.draw = draw
        self.me = me
        self.names = names

    def packet(self, machine: SynchronyMember) -> Packet:
        packet = self._filled(self.draw.choice(PACKETS), machine)
        return self._fitted(packet, machine) if self.draw.random() < 0.6 else packet

    def _filled(self, kind: type[Any], machine: SynchronyMember) -> Any:
        hints = get_type_hints(kind, include_extras=True)
        values = {
            field.name: self._value(field.name, hints[field.name], machine)
            for field in msgspec.structs.fields(kind)
        }
        if "payloads" in values:
            values["size"] = sum(map(len, values["payloads"]))
        return kind(**values)

    def _value(self, name: str, kind: Any, machine: SynchronyMember) -> Any:
        draw = self.draw
        if name == "group":
            return machine.group
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
        if kind is str:
            return draw.choice(["", "", "why"])
        if kind is int:
            return draw.choice([1, 1, 2, 3, draw.randrange(1, 99), (1 << 40) - 1])
        if kind is str:  # a name in a vote
            return draw.choice(self.names)
        assert kind in (bytes, bytearray, memoryview), kind
        return draw.randbytes(draw.randrange(1, 20))

    def _fitted(self, packet: Packet, machine: SynchronyMember) -> Packet:
        """The next of the liar's stream, or a proposal that fits: more of it is believed."""
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
        elif isinstance(packet, Proposal):
            joined = dict(packet.joined) | dict.fromkeys(current.members, current.cid)
            vector[place] = seq
            failed = [node for node in joined if node != self.me and draw.random() < 0.2]
            changed = {"joined": tuple(sorted(joined.items())), "failed": tuple(sorted(failed))}
            changed |= {"sent": seq, "received": tuple(vector)}
        else:
            return packet
        if "vector" in packet.__struct_fields__:
            changed["vector"] = tuple(vector)
        return msgspec.structs.replace(packet, cid=current.cid, **changed)

"""A member of totally ordered groups that lies: nothing breaks, and the others go on.

What it says is drawn at random from all packets of the family, with numbers, names and formations
that are nearly right. Each is refused, ignored or believed; somebody may be taken for gone by it,
but no machine breaks, and those who follow the rules agree when it is over.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from random import Random
from types import NoneType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from tests.net.nodes import Cluster, kill, live, run, until
from tests.net.ordered import Readers

from ordercast import Atomic, Node, NotFormed, Total
from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet, Value
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.newtop.packets import PACKETS, Numbered
from ordercast.types import NodeId
from ordercast.wire.codec import Codec

PACKETS_OF_A_LIAR = 400
HONEST = (b"before", b"meanwhile", b"as well", b"after", b"and again")
NAMES = ("n1", "n2", "n3", "n9")
_QUICK = {"prompt_after": "5ms", "silence_limit": "50ms", "suspicion_limit": "400ms"}
LEVELS = [Total(**_QUICK), Total(by="sequencer", **_QUICK), Atomic(**_QUICK)]


class Liar:
    """Draws packets. It knows what it could have heard."""

    def __init__(self, draw: Random, formation: str, terms: dict[str, str]) -> None:
        self.draw = draw
        self.formation = formation
        self.formations = [formation, "", "n3.1.1", "n3.1.2", "n1.0.7"]
        self.terms = terms
        self.node = NodeId("n3", 1)

    def packet(self, kind: type[Packet]) -> Packet:
        hints = get_type_hints(kind, include_extras=True)
        values = {
            field.name: self.value(field.name, hints[field.name])
            for field in msgspec.structs.fields(kind)
        }
        if "size" in values and "payloads" in values:
            values["size"] = sum(map(len, values["payloads"]))
        return kind(**values)

    def value(self, name: str, kind: Any) -> Any:
        draw = self.draw
        if name == "group":
            return "orders"
        if name == "formation":
            return draw.choice(self.formations)
        if name == "terms":
            return draw.choice([self.terms, {"kind": "another"}])
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            return draw.choice(arguments)
        if origin is Union or str(origin) == "<class 'types.UnionType'>":
            return self.value(name, draw.choice(arguments))
        if kind is NoneType:
            return None
        if origin is list:
            found = [self.value("", arguments[0]) for _ in range(draw.randrange(4))]
            return sorted(set(found)) if arguments[0] is NodeId else found
        if origin is tuple and arguments[-1] is ...:
            return tuple(self.value("", arguments[0]) for _ in range(draw.randrange(4)))
        if origin is tuple:
            return tuple(self.value("", one) for one in arguments)
        if isinstance(kind, type) and issubclass(kind, Packet | Value):
            return self.packet(kind)
        return self.plain(kind)

    def plain(self, kind: Any) -> Any:
        draw = self.draw
        if kind is NodeId:
            return NodeId(draw.choice(NAMES), draw.choice([0, 0, 1]))
        if kind is bool:
            return draw.random() < 0.5
        if kind is int:
            return draw.choice([1, 2, 3, draw.randrange(1, 300), 1 << 39])
        if kind is bytes:
            return draw.randbytes(draw.randrange(20))
        assert kind is str, kind
        return draw.choice(["", "n1", "n3", "why not"])


def say(node: Node, liar: NodeId, packet: Packet, codec: Codec) -> bool:
    """As it comes off a connection. False: it is refused."""
    try:
        node.driver.receive(liar, [codec.encode(packet)])
    except PeerError:
        return False
    return True


def test_a_liar_knows_every_packet() -> None:
    liar = Liar(Random(1), "n1.0.1", {})
    codec = Codec(FAMILIES.values())
    for kind in PACKETS:
        for _ in range(50):
            packet = liar.packet(kind)
            try:
                assert codec.decode(codec.encode(packet)) == packet
            except PeerError as error:
                assert "not a packet that we know" in str(error), error


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
@pytest.mark.parametrize("level", LEVELS, ids=["everyone", "sequencer", "atomic"])
def test_the_other_members_continue_whatever_a_liar_sends(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    seed: int,
    inside: bool,
    level: Total | Atomic,
) -> None:
    cluster = Cluster(tmp_path, caplog)

    async def staged() -> None:
        try:
            await attack(cluster, seed, inside, level)
        finally:
            await cluster.close()

    with caplog.at_level(logging.ERROR, "ordercast.net"):
        run("uvloop", staged)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def attack(cluster: Cluster, seed: int, inside: bool, level: Total | Atomic) -> None:
    """Inside: it is still in the view, and what it says fits the stream that it had so far."""
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    readers = Readers(n1, n2, n3, level=level)
    one, two, _ = readers.readers
    first, second, _ = readers.groups
    await first.send(b"before", until="stable")
    await kill(n3)
    if not inside:
        await until(lambda: one.names == two.names == ["n1", "n2"])
    machine: Any = n1.driver.machine("orders")
    named = machine.named["orders"]
    liar = Liar(Random(seed), named.current.formation, named.terms)
    codec = Codec(FAMILIES.values())
    refused = 0
    for _ in range(PACKETS_OF_A_LIAR):
        sender = liar.draw.choice([liar.node, n3.me])
        for node in (n1, n2):
            packet = liar.packet(liar.draw.choice(PACKETS))
            if inside and sender == n3.me:
                packet = fitted(packet, node, sender, liar)
            refused += not say(node, sender, packet, codec)
        if liar.draw.random() < 0.1:
            await first.send(b"meanwhile")
            await second.send(b"as well")
            await asyncio.sleep(0)
    assert refused > PACKETS_OF_A_LIAR // 10
    view = None
    while view is None:  # whatever it has brought about comes to its end
        with suppress(NotFormed):
            view = await n1.reform("orders", ["n1", "n2"])
    assert view.members == (n1.me, n2.me)
    await first.send(b"after", until="stable")
    await second.send(b"and again", until="stable")
    # A liar tells two members different events of the same number. Nobody can know it, so what
    # honest members sent counts: in one order, unless the group has none.
    in_order = list if isinstance(level, Total) else sorted

    def seen(data: list[bytes]) -> list[bytes]:
        return in_order(each for each in data if each in HONEST)

    await until(lambda: seen(one.data) == seen(two.data) and one.data[-1] == b"and again")
    assert b"after" in one.data
    assert one.error is None and two.error is None
    await readers.close()


def fitted(packet: Packet, node: Node, sender: NodeId, liar: Liar) -> Packet:
    """The next of the liar's stream, if it is one of a stream and the node still listens."""
    machine: Any = node.driver.machine("orders")
    draw = liar.draw
    group = machine.joined.get(f"orders+{liar.formation}")
    if not isinstance(packet, Numbered) or group is None or sender not in group.live:
        return packet
    last = group.streams.up_to(sender)
    changed: dict[str, Any] = {"formation": liar.formation, "previous": last, "solicits": 0}
    changed["order"] = last + draw.choice([1, 2, 5])
    if draw.random() < 0.8:
        changed["delivered_up_to"] = min(packet.delivered_up_to, last)
    if "origin" in packet.__struct_fields__ and draw.random() < 0.8:
        changed["origin"] = sender
    return msgspec.structs.replace(packet, **changed)


@live
async def test_packets_of_a_node_outside_the_group_are_rejected(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    readers = Readers(n1, n2)
    await readers.groups[0].send(b"x", until="stable")
    liar = Liar(Random(1), "n1.0.1", {})
    codec = Codec(FAMILIES.values())
    for kind in PACKETS:
        packet = liar.packet(kind)
        assert not say(n1, NodeId("n9", 0), packet, codec) or "formation" in kind.__struct_fields__
    await readers.groups[1].send(b"y", until="stable")
    await readers.close()

"""Datagrams: what is sent may arrive, what is garbage never does, and no connection is needed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from tests.net.nodes import PATIENT, Cluster, connected, data_of, live, place_of, until

from ordercast import Gossip, Node
from ordercast.errors import OrdercastError
from ordercast.kernel.step import LARGEST_DATAGRAM
from ordercast.net.datagrams import MARK_PLAIN, encode_places
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.fifo.packets import Alive
from ordercast.types import NodeId
from ordercast.units import MILLISECOND, Duration
from ordercast.wire.codec import Codec
from ordercast.wire.framing import FrameKind, frame


@contextmanager
def shouting(node: Node) -> Iterator[socket.socket]:
    """A socket of nobody's, aimed at a node."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect(("127.0.0.1", node.mesh.port))
        yield out


def plain(sender: NodeId, body: bytes, cluster: str = "ordercast") -> bytes:
    return MARK_PLAIN + msgspec.msgpack.encode((cluster, sender, b"", body))


async def two_nodes(cluster: Cluster) -> tuple[Node, Node, list[tuple[NodeId, bytes]]]:
    """Connected; what arrives at the second one by datagram is noted."""
    n1, n2 = await cluster.nodes("n1", "n2")
    heard: list[tuple[NodeId, bytes]] = []
    n2.datagrams.receive = lambda sender, body: heard.append((sender, body))
    await until(lambda: connected(n1, n2))
    return n1, n2, heard


@live
async def test_a_datagram_arrives_whole_up_to_the_limit(cluster: Cluster) -> None:
    n1, _, heard = await two_nodes(cluster)
    for size in (0, 1, 1000, LARGEST_DATAGRAM):
        n1.datagrams.send("n2", b"x" * size)
        await until(lambda: heard)
        assert heard.pop() == (n1.me, b"x" * size)
    with pytest.raises(OrdercastError, match="60001 bytes; at most 60000 are sent, uncut"):
        n1.datagrams.send("n2", bytes(LARGEST_DATAGRAM + 1))


@live
async def test_a_datagram_to_an_unknown_node_is_not_sent(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    n1.mesh.know("n3", None)
    for name in ("n2", "n3"):
        n1.datagrams.send(name, b"anybody?")
    assert n1.mesh.counters["datagrams_to_nowhere"] == 2


@live
async def test_datagrams_of_unknown_nodes_are_counted_and_dropped(cluster: Cluster) -> None:
    n1, n2, heard = await two_nodes(cluster)
    wrong = [
        b"",
        b"x",
        MARK_PLAIN,
        MARK_PLAIN + b"\x91" * 5000,
        b"oc1s" + plain(n1.me, b"x")[4:],
        plain(n1.me, b"x")[:-1],
        plain(n1.me, b"x") + b"x",
        plain(n1.me, b"x", cluster="bank"),
        plain(NodeId("n1", 7), b"x"),
        plain(n2.me, b"x"),
        bytes(65_000),
    ]
    with shouting(n2) as out:
        for count, data in enumerate(wrong, 1):
            out.send(data)
            await until(lambda c=count: n2.mesh.counters["refused_datagrams"] == c)
        out.send(plain(n1.me, b"right"))
        await until(lambda: heard)
    assert heard == [(n1.me, b"right")]


@live
async def test_two_nodes_need_no_connection_for_datagrams(cluster: Cluster) -> None:
    """Each is known to the other by its datagrams; a link is made when something goes by it."""
    n1, n2 = await cluster.open("n1"), await cluster.open("n2")
    came: list[tuple[NodeId, bytes]] = []
    for node in (n1, n2):
        node.datagrams.receive = lambda sender, body: came.append((sender, body))
    n1.mesh.contacts.told({"n2": place_of(n2)}, by="n9")
    n1.datagrams.send("n2", b"ping")
    await until(lambda: came)
    n2.datagrams.send("n1", b"pong")
    await until(lambda: len(came) == 2)
    assert came == [(n1.me, b"ping"), (n2.me, b"pong")]
    assert not n1.mesh.connections and not n2.mesh.connections
    assert n1.driver.has_company()
    n2.mesh.send(n1.me, frame(FrameKind.DATA, b""))
    await until(lambda: n2.mesh.contacts["n1"].node == n1.me)


@live
async def test_a_datagram_says_where_the_nodes_are_that_it_names(cluster: Cluster) -> None:
    n1, n2, heard = await two_nodes(cluster)
    places = {"n7": "127.0.0.7:7", "n8": "127.0.0.8:7"}
    n1.datagrams.send("n2", b"body", encode_places(places))
    await until(lambda: heard)
    assert heard == [(n1.me, b"body")]
    assert {name: n2.mesh.contacts[name].place for name in places} == places
    with shouting(n2) as out:
        for wrong in (b"\xc1", b"\xc1\xff\xff", b"\xc1\0\2\x81\xa1", b"\xc1\0\1\x01x"):
            out.send(plain(n1.me, wrong))
        await until(lambda: n2.mesh.counters["refused_datagrams"] == 4)
    assert len(heard) == 1


@live
async def test_gossip_members_of_one_seed_need_no_full_mesh(cluster: Cluster) -> None:
    """Rosters name members, and datagrams say where those are."""
    names = [f"n{number}" for number in range(1, 7)]
    seed = await cluster.open("n1")
    nodes = [seed] + [await cluster.open(name, seeds=[place_of(seed)]) for name in names[1:]]
    await until(lambda: all(connected(seed, node) for node in nodes[1:]))
    level = Gossip(round=Duration(10 * MILLISECOND), members="partial", fan_out=5)
    groups = [node.join("news", level, names) for node in nodes]
    await until(lambda: all(group.status()["counters"]["known"] >= 3 for group in groups))
    for group in groups:
        await group.send(group.node.me.name.encode())
    for group in groups:
        assert sorted(await data_of(group, len(names))) == sorted(map(str.encode, names))
    assert all(len(node.mesh.connections) == 1 for node in nodes[1:]), "the one with the seed"


@live
async def test_network_cuts_drop_datagrams_too(cluster: Cluster) -> None:
    n1, n2, heard = await two_nodes(cluster)
    n2.mesh.set_cuts(incoming=frozenset({"n1"}), outgoing=frozenset())
    n1.datagrams.send("n2", b"not heard")
    await until(lambda: n2.mesh.counters["refused_datagrams"])
    n2.mesh.set_cuts(frozenset(), frozenset())
    n1.mesh.set_cuts(incoming=frozenset(), outgoing=frozenset({"n2"}))
    n1.datagrams.send("n2", b"not sent")
    assert n1.mesh.counters["datagrams_to_nowhere"] == 1
    n1.mesh.set_cuts(frozenset(), frozenset())
    await until(lambda: connected(n1, n2))
    n1.datagrams.send("n2", b"heard")
    await until(lambda: heard)
    assert heard == [(n1.me, b"heard")]


@live
async def test_a_wrong_packet_by_datagram_costs_nobody_a_connection(cluster: Cluster) -> None:
    """For who can tell who sent it, where datagrams are plain?"""
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2, level=PATIENT)
    connection = n2.mesh.contacts["n1"].connection
    codec = Codec(FAMILIES.values())
    lies = codec.encode(Alive("orders", [(n2.me, 1000)], [n2.me]))  # n2 never sent so much
    with shouting(n2) as out:
        for body in (lies, b"garbage", b""):
            out.send(plain(n1.me, body))
        await until(lambda: n2.mesh.counters["refused_datagrams"] == 3)
    assert n2.mesh.contacts["n1"].connection is connection
    await first.send(b"all is well", until="stable")
    assert await data_of(second, 1) == [b"all is well"]


@live
async def test_nothing_is_sent_after_the_end(cluster: Cluster) -> None:
    n1, _, heard = await two_nodes(cluster)
    n1.datagrams.close()
    n1.datagrams.send("n2", b"from the grave")
    await asyncio.sleep(0)
    n1.datagrams.send("n2", b"from the grave")
    assert not heard

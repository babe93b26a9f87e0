"""Where datagrams go: to the address from which those of the peer come, and to no spoofer's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random

import msgspec
import pytest
from tests.net.nodes import Caller, Cluster, live, until
from tests.net.test_mesh import Ear

from ordercast import Node
from ordercast.net.contact import Contact
from ordercast.net.datagrams import MARK_PLAIN, RECEIVE_BUFFER, Datagrams
from ordercast.net.identity import Incarnation
from ordercast.net.mesh import Mesh
from ordercast.net.security import MARK, SealedDatagrams
from ordercast.net.sockets import is_free_for_datagrams, literal_host
from ordercast.types import NodeId

HERE, THERE, ELSEWHERE = "127.0.0.1", "127.0.0.2", "127.0.0.3"
PEER = NodeId("n2", 7)


@contextmanager
def ear_at(host: str, port: int = 0) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind((host, port))
        ear.setblocking(False)
        yield ear


@asynccontextmanager
async def dialled_from(host: str, node: Node) -> AsyncIterator[Caller]:
    streams = await asyncio.open_connection(HERE, node.mesh.port, local_addr=(host, 0))
    caller = Caller(*streams)
    yield caller
    await caller.close()


async def heard(node: Node, ear: socket.socket, body: bytes) -> bool:
    """Whether a datagram from the node to n2 comes to this ear. Loopback does not wait."""
    node.datagrams.send("n2", body)
    try:
        return body in ear.recv(1000)
    except BlockingIOError:
        return False


# --- plain -------------------------------------------------------------------------------------


@live
async def test_a_peer_with_two_addresses_is_answered_where_it_listens(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    with ear_at(THERE) as ear:
        port = ear.getsockname()[1]
        async with dialled_from(ELSEWHERE, node) as caller:
            caller.greet("n2", port=port)
            await until(lambda: "n2" in node.mesh.contacts)
            contact = node.mesh.contacts["n2"]
            await until(lambda: contact.udp == (ELSEWHERE, port))
            assert not await heard(node, ear, b"nobody is there")
            word = MARK_PLAIN + msgspec.msgpack.encode(("ordercast", NodeId("n2"), b"", b""))
            with ear_at(ELSEWHERE) as another:
                another.sendto(word, (HERE, node.mesh.port))  # not its port: not believed
                ear.sendto(word, (HERE, node.mesh.port))
                await until(lambda: contact.udp == (THERE, port))
            assert await heard(node, ear, b"here it is")
            assert node.mesh.counters["addresses_learned"] == 1


@live
async def test_an_address_in_the_settings_is_better_than_where_a_call_comes_from(
    cluster: Cluster,
) -> None:
    node = await cluster.open("n1")
    for name, place, host in [
        ("n2", f"{THERE}:9", THERE),
        ("n3", "localhost:9", ELSEWHERE),  # who knows what it will mean next time
        ("n4", None, ELSEWHERE),
    ]:
        contact = node.mesh.contacts.know(name, place)
        async with dialled_from(ELSEWHERE, node) as caller:
            caller.greet(name, port=7)
            await until(lambda c=contact: c.udp is not None)
            assert contact.udp == (host, 7)


@pytest.mark.parametrize(
    ("place", "host"),
    [
        ("10.0.0.1:7", "10.0.0.1"),
        ("[::1]:7", "::1"),
        ("::1:7", "::1"),
        ("n1.example:7", None),
        ("nonsense", None),
        ("", None),
        (None, None),
    ],
)
def test_only_a_numeric_host_is_a_literal_host(place: str | None, host: str | None) -> None:
    assert literal_host(place) == host


# --- sealed ------------------------------------------------------------------------------------


class Scene:
    """A mesh whose datagrams are sealed, the peer, and sockets at the three addresses."""

    def __init__(self, ear: socket.socket, spoofer: socket.socket) -> None:
        self.peer, self.spoofer = ear, spoofer
        self.came: list[bytes] = []
        self.mesh = Mesh(Incarnation(NodeId("n1")), "shop", Ear(), Random(1))
        self.sealed, self._theirs, self._us = (
            SealedDatagrams(),
            SealedDatagrams(),
            Contact("n1", None),
        )
        self.datagrams = Datagrams(
            self.mesh.contacts, self.sealed, lambda _, body: self.came.append(body)
        )
        contact = self.mesh.contacts.know(PEER.name, None)
        assert contact is not None
        self.contact = contact
        contact.node, contact.udp = PEER, (HERE, 9)
        self._us.key = self.sealed.new_key(PEER)
        self.port = 0

    def seal(self, body: bytes) -> bytes:
        """A datagram as the peer makes it. Each is newer than the one before."""
        return MARK + (self._theirs.wrap(self._us, body) or b"")

    async def take(self, by: socket.socket, data: bytes, opens: bool = True) -> bool:
        """Sends it from there; whether what we send to the peer now goes to the peer."""
        refused, came = self.mesh.counters["refused_datagrams"], len(self.came)
        by.sendto(data, (HERE, self.port))
        await until(
            lambda: (
                (len(self.came), self.mesh.counters["refused_datagrams"])
                == ((came + 1, refused) if opens else (came, refused + 1))
            )
        )
        return self.contact.udp == self.peer.getsockname()


@asynccontextmanager
async def sealed_scene() -> AsyncIterator[Scene]:
    with ear_at(THERE) as ear, ear_at(ELSEWHERE) as spoofer:
        scene = Scene(ear, spoofer)
        await scene.datagrams.listen(HERE, 0)
        try:
            scene.port = scene.datagrams.socket.getsockname()[1]
            yield scene
        finally:
            scene.datagrams.close()


@live
async def test_only_a_new_sealed_datagram_changes_the_address_of_a_peer(
    cluster: Cluster,
) -> None:
    async with sealed_scene() as scene:
        held_back, first = scene.seal(b"held back"), scene.seal(b"first")
        assert await scene.take(scene.peer, first), "from its own address: that is believed"
        assert await scene.take(scene.spoofer, first, opens=False), "again"
        assert await scene.take(scene.spoofer, scene.seal(b"x")[:-1] + b"!", opens=False)
        assert await scene.take(scene.spoofer, MARK + bytes(60), opens=False)
        assert await scene.take(scene.spoofer, held_back), "taken, but an older word"
        assert scene.came == [b"first", b"held back"]
        assert scene.mesh.counters["addresses_learned"] == 1


@live
async def test_a_copy_that_arrives_first_moves_the_peer_until_its_next_datagram(
    cluster: Cluster,
) -> None:
    """The most that one who sees everything can do; and it could drop all of it, too."""
    async with sealed_scene() as scene:
        assert await scene.take(scene.peer, scene.seal(b"first"))
        seen = scene.seal(b"seen on the way")
        assert not await scene.take(scene.spoofer, seen)
        assert not await scene.take(scene.peer, seen, opens=False), "the copy that lost the race"
        assert await scene.take(scene.peer, scene.seal(b"next"))


@live
async def test_only_the_connected_incarnation_can_change_its_address(cluster: Cluster) -> None:
    async with sealed_scene() as scene:
        scene.contact.node = NodeId(PEER.name, PEER.incarnation + 1)
        assert not await scene.take(scene.peer, scene.seal(b"from before"), opens=False)
        assert scene.contact.udp == (HERE, 9)


@live
async def test_the_system_is_asked_for_a_large_buffer(cluster: Cluster) -> None:
    """What it gives is its business, but it is not less than before."""
    node = await cluster.open("n1")
    with ear_at(HERE) as usual:
        usual_size = usual.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        usual.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        largest = usual.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    given = node.datagrams.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert given == largest >= usual_size


@live
async def test_an_address_beyond_loopback_that_others_tell_is_dialled_only_if_insecure(
    cluster: Cluster,
) -> None:
    far, near = "10.255.255.1:7101", "127.0.0.1:9"
    for name, insecure in [("n1", False), ("n2", True)]:
        node = await cluster.open(name, insecure=insecure)
        contacts = node.mesh.contacts
        contacts.told({"n3": far, "n4": near}, "n4")
        contacts.greeted("n5", far)
        assert ("n3" in contacts) is insecure
        assert contacts["n4"].place == near
        assert contacts["n5"].place == (far if insecure else None)
        assert node.mesh.counters["refused_addresses"] == (0 if insecure else 2)


def test_a_port_that_datagrams_of_another_process_have_is_not_chosen() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        assert is_free_for_datagrams(listener)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(listener.getsockname())
            assert not is_free_for_datagrams(listener)

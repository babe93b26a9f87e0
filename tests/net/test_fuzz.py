"""Random bytes at every input that strangers reach: all are refused, and no peer is harmed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.net.nodes import PATIENT, Caller, data_of, introduce, run, until, view_of

import ordercast
from ordercast import Group, Node
from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.net.datagrams import MARK_PLAIN
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.fifo.packets import Alive, Data, Leave, Start
from ordercast.types import NodeId
from ordercast.wire import greeting
from ordercast.wire.codec import Codec
from ordercast.wire.framing import LARGEST_GREETING, FrameKind, FrameReader
from ordercast.wire.greeting import PROTOCOL_VERSION, Hello, Resume

CODEC = Codec(FAMILIES.values())
BYTES = st.binary(max_size=300)
LIVE = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

COUNTS = st.integers(0, 3) | st.integers(0, (1 << 40) - 1)
LIVES = st.builds(NodeId, st.sampled_from(["n1", "n2", "n3", "x"]), st.integers(0, 20))
GROUPS = st.sampled_from(["orders", "orders", "other"])


def honest(group: str, origin: NodeId, number: int, payloads: list[bytes]) -> Data:
    """The codec refuses those whose size is a lie."""
    return Data(group, origin, number, payloads, sum(map(len, payloads)))


PACKETS = st.one_of(
    st.builds(honest, GROUPS, LIVES, COUNTS.map(lambda n: max(n, 1)), st.lists(BYTES, max_size=3)),
    st.builds(Start, GROUPS, LIVES, COUNTS),
    st.builds(
        Alive,
        GROUPS,
        st.lists(st.tuples(LIVES, COUNTS), max_size=5),
        st.lists(LIVES, max_size=4),
    ),
    st.builds(Leave, GROUPS),
)


def damaged(data: bytes, place: int, byte: int) -> bytes:
    place %= len(data)
    return data[:place] + bytes([byte]) + data[place + 1 :]


# --- the readers -------------------------------------------------------------------------------


@given(BYTES)
def test_the_decoder_refuses_or_understands(data: bytes) -> None:
    try:
        assert isinstance(CODEC.decode(data), Packet)
    except PeerError as error:
        assert "not a packet that we know" in str(error)


@given(PACKETS, st.integers(0, 1000), st.integers(0, 255))
def test_a_damaged_packet_is_refused_or_another_one(packet: Packet, place: int, byte: int) -> None:
    assert CODEC.decode(CODEC.encode(packet)) == packet
    try:
        again = CODEC.decode(damaged(CODEC.encode(packet), place, byte))
    except PeerError:
        return
    assert CODEC.decode(CODEC.encode(again)) == again


@given(st.lists(BYTES, max_size=10))
def test_the_frame_reader_never_holds_more_than_it_may(pieces: list[bytes]) -> None:
    reader, taken, given_out = FrameReader(), 0, 0
    try:
        for piece in pieces:
            taken += len(piece)
            for _, body in reader.feed(piece):
                assert len(body) <= LARGEST_GREETING
                given_out += len(body) + 5
    except PeerError as error:
        assert "bytes; 16384 are allowed" in str(error)
    else:
        assert reader.held == taken - given_out <= LARGEST_GREETING + 5


@given(BYTES)
def test_hello_is_refused_or_understood(data: bytes) -> None:
    hello = greeting.encode(Hello(PROTOCOL_VERSION, "ordercast", NodeId("n1"), 1))
    for raw in (data, damaged(hello, len(data), sum(data) % 256), hello[: len(data)]):
        try:
            assert isinstance(greeting.decode(raw, Hello), Hello)
        except PeerError as error:
            assert "not a hello" in str(error)


# --- a node, with a group that must go on --------------------------------------------------------

Attack = Callable[[Node], Awaitable[None]]


def under_attack(folder: Path, attack: Attack, then: Callable[[Node], bool]) -> None:
    """Two nodes in a group; one is attacked; messages still go both ways."""

    async def story() -> None:
        async with (
            ordercast.open(name="n1", data=str(folder / "n1")) as n1,
            ordercast.open(name="n2", data=str(folder / "n2")) as n2,
        ):
            introduce(n1, n2)
            groups = [node.join("orders", PATIENT, ["n1", "n2", "n3"]) for node in (n1, n2)]
            for node, group in zip((n1, n2), groups, strict=True):
                node.driver.machine("orders").forming = 1  # n3 does not come
                await view_of(group, "n1", "n2")
            await talk(groups)
            await attack(n1)
            await until(lambda: then(n1))
            await talk(groups)

    run("uvloop", story)


async def talk(groups: list[Group]) -> None:
    for group in groups:
        await group.send(b"to all", until="delivered")
    for group in groups:
        assert await data_of(group, 2) == [b"to all"] * 2


async def dial(node: Node) -> Caller:
    return Caller(*await asyncio.open_connection("127.0.0.1", node.mesh.port))


@LIVE
@given(data=st.lists(st.binary(min_size=5, max_size=300), min_size=1, max_size=8))
def test_random_bytes_do_not_stop_a_listening_node(tmp_path: Path, data: list[bytes]) -> None:
    async def attack(node: Node) -> None:
        callers = [await dial(node) for _ in data]
        for caller, each in zip(callers, data, strict=True):
            caller.write(each)
        for caller in callers:
            await caller.close()

    def settled(node: Node) -> bool:
        return len(node.mesh.connections) == 1  # that with n2

    under_attack(tmp_path, attack, settled)


@LIVE
@given(data=st.lists(BYTES | BYTES.map(lambda b: MARK_PLAIN + b), min_size=1, max_size=20))
def test_random_datagrams_do_not_stop_a_node(tmp_path: Path, data: list[bytes]) -> None:
    async def attack(node: Node) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for each in data:
                out.sendto(each, ("127.0.0.1", node.mesh.port))

    def counted(node: Node) -> bool:
        return node.mesh.counters["refused_datagrams"] >= len(data)

    under_attack(tmp_path, attack, counted)


@LIVE
@given(
    frames=st.lists(
        st.tuples(st.sampled_from(FrameKind) | st.integers(0, 255), BYTES), max_size=10
    ),
    resumes=st.booleans(),
)
def test_random_frames_from_a_connected_node_do_not_stop_a_node(
    tmp_path: Path, frames: list[tuple[int, bytes]], resumes: bool
) -> None:
    async def attack(node: Node) -> None:
        caller = await dial(node)
        caller.greet("n3")
        assert await caller.hear(FrameKind.HELLO)
        if resumes:
            caller.say(FrameKind.RESUME, greeting.encode(Resume(0)))
        for kind, body in frames:
            caller.write(len(body).to_bytes(4) + bytes([kind]) + body)
        await caller.close()

    under_attack(tmp_path, attack, lambda node: len(node.mesh.connections) == 1)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_rejected_input_is_counted(loop: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with ordercast.open(name="n1", data=str(tmp_path / "n1")) as node:
            for _ in range(5):
                caller = await dial(node)
                caller.write(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n")
                assert "bytes; 16384 are allowed" in await caller.refusal()
                await caller.close()
            assert node.mesh.counters["refused_frames"] == 5

    run(loop, story)

"""The listener: limits come before TLS, and a handshake that goes nowhere costs nobody anything."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import suppress

import pytest
from tests.net.nodes import Caller, Cluster, connected, introduce, live, until

from ordercast import Node
from ordercast.net import authority
from ordercast.net import listener as listener_module
from ordercast.wire.framing import FrameKind

CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # and 505 bytes that do not come


async def secure(cluster: Cluster, *names: str) -> list[Node]:
    """Nodes with certificates that know nobody yet."""
    if not (cluster.folder / "ca.pem").exists():
        authority.init(cluster.folder, "shop")
    opened = []
    for name in names:
        made = authority.issue(cluster.folder, name)
        files = {"authority": made.authority, "certificate": made.certificate, "key": made.key}
        files = {what: str(path) for what, path in files.items()}
        opened.append(await cluster.open(name, cluster="shop", tls=files))
    return opened


def shakes(node: Node) -> list[bool]:
    """Grows by one for each handshake of TLS that the node begins as the one who was dialled."""
    context, begun = node.mesh.listener.tls, []
    wrap = context.wrap_bio
    context.wrap_bio = lambda *rest, **named: begun.append(True) or wrap(*rest, **named)
    return begun


def is_idle(node: Node) -> bool:
    """Nothing is half open."""
    return not node.mesh.accept_limiter.open_now and not node.mesh.listener.handshakes


async def end_of(caller: Caller) -> None:
    """Waits until the node has hung up, whatever it says before."""
    with suppress(ConnectionError):
        while await caller.hear() is not None:
            pass


# --- limits -----------------------------------------------------------------------------------


@live
async def test_a_full_limiter_refuses_before_any_byte_of_tls(cluster: Cluster) -> None:
    n1, n2 = await secure(cluster, "n1", "n2")
    begun = shakes(n1)
    n1.mesh.accept_limiter.half_open = 0
    for number in range(1, 4):
        caller = await cluster.dial(n1)
        assert await caller.hear() is None, "hung up on, though it has said nothing"
        assert n1.mesh.counters["refused_accepts"] == number
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await asyncio.open_connection("127.0.0.1", n1.mesh.port, ssl=context)
    assert not begun
    assert n1.mesh.counters["failed_handshakes"] == 0, "none was tried"
    n1.mesh.accept_limiter.half_open = 128
    introduce(n1, n2)
    await until(lambda: connected(n1, n2))
    assert is_idle(n1)


@live
async def test_handshakes_a_second_are_limited_before_tls(cluster: Cluster) -> None:
    (node,) = await secure(cluster, "n1")
    begun = shakes(node)
    limiter = node.mesh.accept_limiter
    limiter.a_second, enter = 3, limiter.enter
    limiter.enter = lambda source, now: enter(source, 0)  # so no token comes back
    for number in range(1, 8):
        caller = await cluster.dial(node)
        caller.write(b"not a handshake")
        await end_of(caller)
        await until(lambda: is_idle(node))
        assert len(begun) == min(3, number)
    assert node.mesh.counters["failed_handshakes"] == 3
    assert node.mesh.counters["refused_accepts"] == 4


@live
async def test_silent_callers_are_accepted_up_to_the_limit(cluster: Cluster) -> None:
    (node,) = await secure(cluster, "n1")
    begun = shakes(node)
    node.mesh.accept_limiter.half_open_a_source = 4
    callers = [await cluster.dial(node) for _ in range(10)]
    await until(lambda: node.mesh.counters["refused_accepts"] == 6 and len(begun) == 4)
    assert not node.mesh.connections, "none has shown who it is"
    for caller in callers:
        await caller.close()
    await until(lambda: is_idle(node))
    assert node.mesh.counters["failed_handshakes"] == 4


# --- handshakes that go nowhere ------------------------------------------------------------------


@live
async def test_garbage_instead_of_a_handshake_frees_its_place(cluster: Cluster) -> None:
    n1, n2 = await secure(cluster, "n1", "n2")
    limiter = n1.mesh.accept_limiter
    limiter.half_open_a_source, limiter.a_second = 1, 1000
    said = [b"GET / HTTP/1.1\r\n\r\n", bytes(1000), CLIENT_HELLO + bytes(2000), b"\x16\x03\x01\0\0"]
    for number, data in enumerate(said * 3, 1):
        caller = await cluster.dial(n1)
        caller.write(data)
        await caller.close()
        await until(lambda n=number: n1.mesh.counters["failed_handshakes"] == n)
        await until(lambda: is_idle(n1))
    assert n1.mesh.counters["refused_accepts"] == 0
    limiter.half_open_a_source = 32
    introduce(n1, n2)
    await until(lambda: connected(n1, n2))


@live
async def test_a_caller_that_disconnects_during_the_handshake_is_forgotten(
    cluster: Cluster,
) -> None:
    (node,) = await secure(cluster, "n1")
    for number, rude in enumerate((False, True), 1):
        caller = await cluster.dial(node)
        caller.write(CLIENT_HELLO)
        await until(lambda: node.mesh.accept_limiter.open_now)
        if rude:
            caller.abort()
        await caller.close()
        await until(lambda n=number: node.mesh.counters["failed_handshakes"] == n)
        await until(lambda: is_idle(node))


@live
async def test_a_caller_that_never_sends_is_disconnected(cluster: Cluster) -> None:
    (node,) = await secure(cluster, "n1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listener_module, "GREETING_SECONDS", 0.05)
        silent, slow = await cluster.dial(node), await cluster.dial(node)
        slow.write(CLIENT_HELLO)
        for caller in (silent, slow):
            await end_of(caller)
        await until(lambda: is_idle(node))
    assert node.mesh.counters["failed_handshakes"] == 2


@live
async def test_a_handshake_has_a_largest_size(cluster: Cluster) -> None:
    (node,) = await secure(cluster, "n1")
    caller = await cluster.dial(node)
    hello = b"\x01" + (130_000).to_bytes(3) + bytes(120_000)  # OpenSSL would wait for the rest
    for place in range(0, len(hello), 16_000):
        piece = hello[place : place + 16_000]
        with suppress(ConnectionError):
            caller.write(b"\x16\x03\x01" + len(piece).to_bytes(2) + piece)
            await caller.drain()
    await end_of(caller)
    await until(lambda: is_idle(node))
    assert node.mesh.counters["failed_handshakes"] == 1
    assert "a TLS handshake failed: it has over 65536 bytes" in cluster.log.text


# --- the end -----------------------------------------------------------------------------------


@live
async def test_closing_in_the_middle_of_handshakes_leaves_nothing(cluster: Cluster) -> None:
    """That no task is left is seen by whoever runs this."""
    (node,) = await secure(cluster, "n1")
    begun = shakes(node)
    callers = [await cluster.dial(node) for _ in range(5)]
    callers[0].write(CLIENT_HELLO)
    await until(lambda: len(begun) == 5)
    await node.mesh.close()
    assert is_idle(node)
    for caller in callers:
        await end_of(caller)
    assert not node.mesh.connections
    assert node.mesh.counters["failed_handshakes"] == 0, "it was us"


@live
async def test_closing_before_a_handshake_leaves_nothing(cluster: Cluster) -> None:
    """Also a turn or two after it has, when uvloop would not tell that the connection is gone."""
    for turns in range(4):
        for node in (await cluster.open(f"plain{turns}"), *await secure(cluster, f"n{turns}")):
            listener = socket.create_server(("127.0.0.1", 0))
            with listener, socket.create_connection(listener.getsockname(), 30) as theirs:
                node.mesh.listener.accept(listener.accept()[0], "nowhere")
                for _ in range(turns):
                    await asyncio.sleep(0)
                await node.mesh.close()
                assert theirs.recv(1) == b""
            assert is_idle(node)
            assert not node.mesh.connections


@live
async def test_a_system_without_room_for_a_connection_is_asked_again(cluster: Cluster) -> None:
    class Tired(socket.socket):
        times = 0

        def accept(self) -> tuple[socket.socket, object]:
            self.times += 1
            if self.times == 1:
                raise OSError(errno.EMFILE, "too many open files")
            return super().accept()

    node = await cluster.open("n1")
    listener = node.mesh.listener
    (plain,) = listener.sockets
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listener_module, "REST_SECONDS", 0.01)
        asyncio.get_running_loop().remove_reader(plain)
        tired = Tired(fileno=plain.detach())
        tired.setblocking(False)
        listener.sockets = [tired]
        listener.watch(tired)
        caller = await cluster.dial(node)
        await caller.connect("n2")
    assert node.mesh.counters["failed_accepts"] == 1
    assert "no connection can be taken for a while: too many open files" in cluster.log.text


@live
async def test_input_before_the_greeting_has_a_limit(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    caller: Caller = await cluster.dial(node)
    for _ in range(40):
        caller.say(FrameKind.PING, bytes(1000))
    assert await caller.refusal() == "over 32768 bytes before the greeting is over"

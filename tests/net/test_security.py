"""Certificates on real connections, sealed datagrams, the replay window, and permissions."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.errors import PeerError
from ordercast.net import authority
from ordercast.net.config import Config, GroupRules
from ordercast.net.connection import Connection
from ordercast.net.contact import Contact
from ordercast.net.datagrams import Datagrams
from ordercast.net.handshake import Security
from ordercast.net.identity import Incarnation
from ordercast.net.mesh import Mesh
from ordercast.net.security import MARK, OVERLAP, WINDOW, SealedDatagrams, Tls, Window, may
from ordercast.types import NodeId
from ordercast.units import SECOND
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind, frame
from ordercast.wire.greeting import NewKey

LONG_AGO = datetime(2001, 2, 3, tzinfo=UTC)
GENEROUS = 30


@pytest.fixture(params=["asyncio", "uvloop"])
def live(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Runs a live test on either event loop, for so long at the most."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None

    def run(test: Awaitable[None]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(GENEROUS):
                await test

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(bounded())

    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority with n1, n2 and n3; made once, changed by nobody."""
    folder = tmp_path_factory.mktemp("certs")
    authority.init(folder, "shop")
    for name in ("n1", "n2", "n3"):
        authority.issue(folder, name)
    return folder


def tls(folder: Path, name: str, **more) -> Tls:
    files = (folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
    return Tls(*files, cluster="shop", name=name, **more)


class Hears:
    """What a mesh hands on, as queues that a test can wait for."""

    def __init__(self) -> None:
        self.contacts: asyncio.Queue[Contact] = asyncio.Queue()
        self.packets: asyncio.Queue[tuple[NodeId, bytes]] = asyncio.Queue()
        self.meeting: Callable[[Contact], None] = lambda contact: None

    def receive(self, sender: NodeId, bodies: Iterable[memoryview]) -> None:
        for body in bodies:
            self.packets.put_nowait((sender, bytes(body)))

    def answered(self, sender: NodeId, key: int) -> None: ...

    def acknowledged(self, contact: Contact) -> None: ...

    def met(self, contact: Contact) -> None:
        self.meeting(contact)
        self.contacts.put_nowait(contact)


@asynccontextmanager
async def node(
    name: str, ours: Tls | None, sealed: SealedDatagrams | None = None
) -> AsyncIterator[tuple[Mesh, Hears]]:
    hears = Hears()
    security = Security(
        server=ours and ours.server,
        client=ours and ours.client,
        certified=ours and ours.certified_name,
        new_key=sealed and sealed.new_key,
    )
    mesh = Mesh(Incarnation(NodeId(name)), "shop", hears, Random(1), security)
    if sealed is not None:
        hears.meeting = lambda contact: mesh.send_frame(
            contact, FrameKind.KEY, sealed.rotate(contact)
        )
    await mesh.listen("127.0.0.1", 0)
    try:
        yield mesh, hears
    finally:
        await mesh.close()


async def dial(mesh: Mesh, port: int, context: ssl.SSLContext | None) -> Connection:
    """One connection, as the mesh makes it. The error says why it was refused."""
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(mesh, dialled=True),
        "127.0.0.1",
        port,
        ssl=context,
        server_hostname="" if context else None,
    )
    await asyncio.shield(connection.greeted)
    return connection


def shown(connection: Connection) -> str:
    """The serial of the certificate that the other end showed."""
    certificate = connection.transport.get_extra_info("ssl_object").getpeercert()
    return certificate["serialNumber"]


# --- connections -----------------------------------------------------------------------------


def test_two_nodes_with_certificates_connect(made: Path, live) -> None:
    async def test() -> None:
        ours, theirs = tls(made, "n1"), tls(made, "n2")
        async with node("n1", ours) as (mesh, hears), node("n2", theirs) as (other, others):
            mesh.know("n2", f"127.0.0.1:{other.port}")
            contact, back = await hears.contacts.get(), await others.contacts.get()
            assert (contact.node, back.node) == (NodeId("n2"), NodeId("n1"))
            channel = contact.connection.transport.get_extra_info("ssl_object")
            assert channel.version() == "TLSv1.3"
            large = random.Random(3).randbytes(3 << 20)
            mesh.send(NodeId("n2"), frame(FrameKind.DATA, large))
            assert await others.packets.get() == (NodeId("n1"), large)
            assert (ours.refused, theirs.refused) == (0, 0)

    live(test())


def test_a_certificate_of_another_authority_is_refused_by_both(
    made: Path, tmp_path: Path, live, caplog: pytest.LogCaptureFixture
) -> None:
    authority.init(tmp_path, "shop")
    authority.issue(tmp_path, "n2")

    async def test() -> None:
        ours, foreign = tls(made, "n1"), tls(tmp_path, "n2")
        trusting = tls(tmp_path, "n2").client
        trusting.load_verify_locations(made / "ca.pem")
        async with node("n1", ours) as (mesh, _), node("n2", foreign) as (other, _):
            with pytest.raises((ssl.SSLCertVerificationError, PeerError)):
                await dial(other, mesh.port, foreign.client)
            assert foreign.refused == 1
            # It trusts us, we do not trust it: our end must be the one to refuse.
            with pytest.raises((OSError, PeerError)):
                await dial(other, mesh.port, trusting)
            assert ours.refused >= 1
            assert not mesh.contacts
            assert not mesh.connections

    live(test())
    assert "self-signed certificate" in caplog.text or "unable to get local issuer" in caplog.text


def test_a_name_other_than_the_certificates_is_refused_with_the_reason(made: Path, live) -> None:
    async def test() -> None:
        ours, theirs = tls(made, "n1"), tls(made, "n2")
        async with node("n1", ours) as (mesh, _), node("n3", theirs) as (liar, _):
            with pytest.raises(PeerError, match="the certificate is of 'n2', not of 'n3'"):
                await dial(liar, mesh.port, theirs.client)
            with pytest.raises(PeerError, match="the certificate is of 'n2', not of 'n3'"):
                await dial(mesh, liar.port, ours.client)
            assert mesh.counters["refused_greetings"] == 2
            ours.cluster = "bank"
            with pytest.raises(PeerError, match="the certificate is of None, not of 'n3'"):
                await dial(liar, mesh.port, theirs.client)

    live(test())


def test_an_expired_certificate_is_refused(
    tmp_path: Path, live, caplog: pytest.LogCaptureFixture
) -> None:
    """It was in order when its node started, and nobody renewed it."""
    authority.init(tmp_path, "shop")
    authority.issue(tmp_path, "n1")
    authority.issue(tmp_path, "n2", days=1, now=LONG_AGO)

    async def test() -> None:
        ours, theirs = tls(tmp_path, "n1"), tls(tmp_path, "n2", now=lambda: LONG_AGO)
        async with node("n1", ours) as (mesh, _), node("n2", theirs) as (other, _):
            with pytest.raises((OSError, PeerError)):
                await dial(other, mesh.port, theirs.client)
            assert ours.refused == 1
            with pytest.raises(ssl.SSLCertVerificationError, match="has expired"):
                await dial(mesh, other.port, ours.client)
            assert not mesh.contacts
            place = f"127.0.0.1:{other.port}"
            mesh.seed(place)
            while place not in mesh.incidents.refused_by:
                await asyncio.sleep(0)
            said = "does not pass as a node by TLS: certificate has expired"
            assert mesh.incidents.refused_by[place] == said

    live(test())
    assert "a TLS handshake failed: certificate has expired" in caplog.text


def test_without_a_certificate_or_tls_13_there_is_no_greeting(made: Path, live) -> None:
    bare = ssl.create_default_context(cafile=made / "ca.pem")
    bare.check_hostname = False
    old = tls(made, "n2").client
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2

    async def test() -> None:
        ours = tls(made, "n1")
        async with node("n1", ours) as (mesh, _), node("n2", None) as (other, _):
            for times, context in enumerate((None, bare, old), 1):
                with pytest.raises((OSError, PeerError)):
                    await dial(other, mesh.port, context)
                assert ours.refused == times
            with pytest.raises((OSError, PeerError)):  # and from TLS to a plain port
                await dial(mesh, other.port, ours.client)
            assert not mesh.contacts
            assert not other.contacts

    live(test())


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path, live) -> None:
    authority.init(tmp_path, "shop")
    for name in ("n1", "n2"):
        authority.issue(tmp_path, name)

    async def test() -> None:
        ours, theirs = tls(tmp_path, "n1"), tls(tmp_path, "n2")
        async with node("n1", ours) as (mesh, _), node("n2", theirs) as (other, _):
            first = shown(await dial(other, mesh.port, theirs.client))
            authority.issue(tmp_path, "n1")
            assert ours.maybe_reload()
            second = shown(await dial(other, mesh.port, theirs.client))
            third = shown(await dial(other, mesh.port, theirs.client))
            assert first != second == third
            authority.issue(tmp_path, "n2")
            assert theirs.maybe_reload()
            await dial(other, mesh.port, theirs.client)  # as the client, too
            (tmp_path / "n1.key").write_bytes(b"junk")
            assert not ours.maybe_reload()
            assert shown(await dial(other, mesh.port, theirs.client)) == second

    live(test())


# --- datagrams -------------------------------------------------------------------------------


class Pair:
    """n1 sends to n2, which gave it a key. The clock stands still until a test moves it."""

    def __init__(self, **limits: int) -> None:
        self.now = 0
        self.sender = SealedDatagrams(lambda: self.now, **limits)
        self.receiver = SealedDatagrams(lambda: self.now, **limits)
        self.to, self.back = Contact("n2", None), Contact("n1", None)
        self.back.node = NodeId("n1", 7)
        self.give()

    def give(self) -> None:
        self.to.key = self.receiver.new_key(self.back.node)

    def wrap(self, body: bytes = b"hello") -> bytes:
        data = self.sender.wrap(self.to, body)
        assert data is not None
        return data

    def arrives(self, data: bytes) -> bool:
        return self.receiver.open(data) is not None


@given(st.binary(max_size=2000))
def test_a_sealed_datagram_opens_once_for_whoever_gave_the_key(body: bytes) -> None:
    pair = Pair()
    data = pair.wrap(body)
    assert len(data) == len(body) + 32
    assert len(body) < 8 or body not in data
    assert pair.sender.open(data) is None  # sent back
    assert pair.receiver.open(data) == (NodeId("n1", 7), body, True, None)
    assert pair.receiver.open(data) is None  # again


@given(st.binary(max_size=50), st.data())
def test_a_changed_or_truncated_datagram_does_not_open(body: bytes, draw: st.DataObject) -> None:
    pair = Pair()
    data = pair.wrap(body)
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    changed = (int.from_bytes(data) ^ 1 << bit).to_bytes(len(data))
    cut = draw.draw(st.integers(0, len(data) - 1))
    for forged in (changed, data[:cut], data[cut + 1 :], data + b"x"):
        assert not pair.arrives(forged)
    assert pair.arrives(data), "what was forged must not spoil what is real"


def test_garbage_does_not_open() -> None:
    pair, chance = Pair(), Random(5)
    known = pair.to.key[0]
    for turn in range(100_000):
        junk = chance.randbytes(chance.randrange(80))
        assert pair.receiver.open(known + junk if turn % 2 else junk) is None
    assert pair.arrives(pair.wrap())


def test_another_key_under_the_same_id_does_not_open() -> None:
    pair = Pair()
    pair.to.key = (pair.to.key[0], bytes(32))
    assert not pair.arrives(pair.wrap())


@pytest.mark.parametrize("key", [None, (b"", b""), (b"12345678", b"short"), (b"1", bytes(32))])
def test_nothing_is_sealed_without_a_proper_key(key: tuple[bytes, bytes] | None) -> None:
    pair = Pair()
    pair.to.key = key
    assert pair.sender.wrap(pair.to, b"hello") is None


@given(st.lists(st.sampled_from(["send", "a", "b", "c"]), max_size=60))
def test_no_nonce_is_used_twice_under_a_key_whatever_keys_the_peer_gives(what: list[str]) -> None:
    sender, to = SealedDatagrams(), Contact("n2", None)
    used: set[tuple[bytes, bytes]] = set()
    for word in what:
        if word != "send":
            to.key = (word.encode() * 8, word.encode() * 32)
        elif (data := sender.wrap(to, b"same")) is not None:
            head = data[:8], data[8:16]
            assert head not in used
            used.add(head)


def test_a_key_that_is_used_up_sends_nothing_until_there_is_another() -> None:
    pair = Pair(most_a_key=3)
    assert [pair.sender.wrap(pair.to, b"") is None for _ in range(5)] == [False] * 3 + [True] * 2
    pair.give()
    assert pair.arrives(pair.wrap())


def test_an_old_key_is_valid_for_an_overlap_and_then_no_more() -> None:
    pair = Pair()
    late, too_late = pair.wrap(), pair.wrap()
    assert pair.arrives(pair.wrap())
    pair.give()
    new = pair.wrap()
    pair.now += 10 * OVERLAP  # the new key is not in use yet: the old one has no end
    assert pair.arrives(late)
    assert pair.arrives(new)
    pair.now += OVERLAP + 1
    assert not pair.arrives(too_late)
    assert pair.arrives(pair.wrap())


def test_keys_that_never_reached_the_peer_do_not_push_out_the_one_in_use() -> None:
    pair = Pair()
    assert pair.arrives(pair.wrap())
    for _ in range(10):
        pair.receiver.new_key(pair.back.node)
        assert pair.arrives(pair.wrap())
    assert len(pair.receiver.incoming) == 3


def test_remembered_keys_are_bounded_and_a_new_incarnation_ends_the_old_ones() -> None:
    pair = Pair(most_peers=10)
    old = pair.wrap()
    pair.receiver.new_key(NodeId("n1", 8))
    assert not pair.arrives(old)
    for number in range(100):
        for _ in range(4):
            pair.receiver.new_key(NodeId(f"x{number}"))
    assert len(pair.receiver.incoming) == 20


def test_rotation_is_due_by_time_by_count_and_for_a_new_incarnation() -> None:
    pair = Pair(rotate_count=5, rotate_after=9 * SECOND)
    receiver, back = pair.receiver, pair.back
    assert not receiver.needs_rotation(back)
    for _ in range(6):
        assert pair.arrives(pair.wrap())
    assert receiver.needs_rotation(back)
    new = greeting.decode(receiver.rotate(back), NewKey)
    pair.to.key = (new.key_id, new.key)
    assert pair.arrives(pair.wrap())
    assert not receiver.needs_rotation(back)
    pair.now += 9 * SECOND
    assert receiver.needs_rotation(back)
    receiver.rotate(back)
    back.node = NodeId("n1", 8)
    assert receiver.needs_rotation(back)
    back.node = None
    assert not receiver.needs_rotation(back)


EDGES = [edge + step for edge in (0, WINDOW, 2 * WINDOW, 1 << 63) for step in (0, 1, 2, WINDOW - 1)]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(EDGES) | st.integers(0, 3 * WINDOW), max_size=80))
def test_the_replay_window_agrees_with_a_set_of_all_received_numbers(counters: list[int]) -> None:
    window, came = Window(), set()
    for counter in counters:
        new = counter not in came and counter > max(came, default=-1) - WINDOW
        assert window.is_new(counter) == new
        if new:
            window.mark(counter)
            came.add(counter)


def test_nodes_exchange_sealed_datagrams(made: Path, live) -> None:
    async def test() -> None:
        a, b, got = SealedDatagrams(), SealedDatagrams(), asyncio.Queue()
        async with (
            node("n1", tls(made, "n1"), a) as (mesh, hears),
            node("n2", tls(made, "n2"), b) as (other, others),
        ):
            ends = [
                Datagrams(
                    each.contacts, wrapper, lambda sender, body: got.put_nowait((sender, body))
                )
                for each, wrapper in ((mesh, a), (other, b))
            ]
            for end, each in zip(ends, (mesh, other), strict=True):
                await end.listen("127.0.0.1", each.port)
            mesh.know("n2", f"127.0.0.1:{other.port}")
            await hears.contacts.get()
            await others.contacts.get()
            mesh.send(NodeId("n2"), frame(FrameKind.DATA, b"after the key"))
            other.send(NodeId("n1"), frame(FrameKind.DATA, b"after the key"))
            await others.packets.get()
            await hears.packets.get()
            ends[0].send("n2", b"there")
            assert await got.get() == (NodeId("n1"), b"there")
            ends[1].send("n1", b"and back")
            assert await got.get() == (NodeId("n2"), b"and back")
            ends[0].socket.sendto(MARK + bytes(60), ("127.0.0.1", other.port))
            ends[0].send("n2", b"after garbage")
            assert await got.get() == (NodeId("n1"), b"after garbage")
            assert other.counters["refused_datagrams"] == 1
            for end in ends:
                end.close()

    live(test())


# --- permissions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "members", "senders"),
    [
        ("unknown", "n1 n2 n3", "n1 n2 n3"),
        ("open", "n1 n2 n3", "n1 n2 n3"),
        ("closed", "n1 n2", "n1 n2"),
        ("feed", "n1 n2", "n1"),
        ("talk", "n1 n2 n3", "n1"),
    ],
)
def test_group_rules_say_which_nodes_may_join_and_send(
    group: str, members: str, senders: str
) -> None:
    rules = {
        "open": GroupRules(),
        "closed": GroupRules(members=["n1", "n2"]),
        "feed": GroupRules(members=["n1", "n2"], may_send=["n1", "n3"]),
        "talk": GroupRules(may_send=["n1"]),
    }
    config, names = Config(name="n1", group=rules), ("n1", "n2", "n3")
    assert " ".join(name for name in names if may(config, name, group, "join")) == members
    assert " ".join(name for name in names if may(config, name, group, "send")) == senders

"""The greeting: who is let in, and that both ends know why somebody is not."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.net.nodes import Cluster, connected, introduce, kill, live, place_of, until

from ordercast import Node
from ordercast.errors import PeerError
from ordercast.net import connection as connection_module
from ordercast.net.contact import PLACES_BYTES
from ordercast.types import NodeId
from ordercast.wire import greeting
from ordercast.wire.framing import LARGEST_GREETING, FrameKind
from ordercast.wire.greeting import PROTOCOL_VERSION, Hello, NewKey, Refuse, Resume, objection

ME = NodeId("n1", 3)
OLDER = (
    "n2#4 is an older incarnation: n2#5 was here. If it lost its data folder, write 5 into the "
    "file 'incarnation' in it and start it again"
)
NAMES = st.text(min_size=1, max_size=20)
HELLOS = st.builds(
    Hello,
    st.integers(0, 100),
    NAMES,
    st.builds(NodeId, NAMES, st.integers(0, 1000)),
    st.integers(0, 65535),
    st.integers(0, 1 << 60),
    st.binary(max_size=32),
    st.binary(max_size=8),
    st.dictionaries(NAMES, NAMES, max_size=3),
    st.lists(NAMES, max_size=3),
)


# --- the words -------------------------------------------------------------------------------


@given(HELLOS)
def test_a_hello_round_trips_through_its_bytes(hello: Hello) -> None:
    assert greeting.decode(greeting.encode(hello), Hello) == hello


def test_a_hello_of_a_later_version_may_have_more_fields() -> None:
    hello = Hello(PROTOCOL_VERSION, "ordercast", ME, 7001)
    raw = greeting.encode(hello)
    assert raw[0] == 0x99  # an array of nine
    assert greeting.decode(b"\x9a" + raw[1:] + b"\xa5later", Hello) == hello


@pytest.mark.parametrize("kind", [Hello, Resume, Refuse, NewKey])
@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", b"\x91" * 5000, b"\x91\xa1\xff", b"\x01"])
def test_bytes_that_are_no_greeting_are_rejected_with_the_reason(kind: type, body: bytes) -> None:
    with pytest.raises(PeerError, match=f"not a {kind.__name__.lower()}"):
        greeting.decode(body, kind)


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        (Hello(1, "shop", NodeId("n2", 5), 1), None),
        (Hello(1, "shop", NodeId("n2", 6), 1), None),
        (Hello(2, "shop", NodeId("n2", 5), 1), "protocol version 2; this node speaks 1"),
        (Hello(1, "bank", NodeId("n2", 5), 1), "cluster 'bank'; this node is in 'shop'"),
        (Hello(1, "shop", NodeId("n1", 9), 1), "the name 'n1' is taken by this node"),
        (Hello(1, "shop", NodeId("n2", 4), 1), OLDER),
    ],
)
def test_a_hello_that_does_not_fit_is_rejected_with_the_reason(
    hello: Hello, said: str | None
) -> None:
    assert objection(hello, ME, "shop", NodeId("n2", 5)) == said


# --- on the wire: somebody dials a node ------------------------------------------------------


@live
async def test_a_node_that_does_not_fit_receives_the_reason(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    wrong = [
        ({"version": 7}, "protocol version 7; this node speaks 1"),
        ({"cluster": "bank"}, "cluster 'bank'; this node is in 'ordercast'"),
    ]
    for changed, said in wrong:
        caller = await cluster.dial(node)
        caller.greet("n2", **changed)
        assert await caller.refusal() == said
        assert await caller.hear() is None, "and then it hangs up"
    caller = await cluster.dial(node)
    caller.greet("n1", incarnation=9)
    assert await caller.refusal() == "the name 'n1' is taken by this node"
    assert node.mesh.counters["refused_greetings"] == 3
    assert not node.mesh.contacts


@live
async def test_an_older_incarnation_is_refused_while_the_newer_one_stays(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    newer, older = await cluster.dial(node), await cluster.dial(node)
    await newer.connect("n2", incarnation=5)
    older.greet("n2", incarnation=4)
    assert await older.refusal() == OLDER
    contact = node.mesh.contacts["n2"]
    await until(lambda: contact.connection is not None)
    assert contact.node == NodeId("n2", 5)
    await newer.close()


@live
async def test_nothing_but_a_hello_opens_a_conversation(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    frames = [
        (FrameKind.DATA, b"x"),
        (FrameKind.ACK, bytes(8)),
        (FrameKind.RESUME, b"\x91\x00"),
        (FrameKind.STATUS, bytes(9)),
        (FrameKind.ANSWER, bytes(8)),
        (FrameKind.KEY, b"x"),
    ]
    for kind, body in frames:
        caller = await cluster.dial(node)
        caller.say(kind, body)
        assert await caller.refusal() == f"a frame of kind {kind} that has no place here"
    assert node.mesh.counters["refused_frames"] == len(frames)


@live
async def test_a_second_hello_ends_the_connection(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    caller = await cluster.dial(node)
    await caller.connect("n2")
    caller.greet("n2")
    assert "has no place here" in await caller.refusal()


@live
async def test_large_frames_are_read_only_after_the_greeting(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    stranger, known = await cluster.dial(node), await cluster.dial(node)
    await known.connect("n2")
    large = bytes(LARGEST_GREETING + 1)
    stranger.say(FrameKind.HELLO, large)
    assert await stranger.refusal() == "a frame of 16385 bytes; 16384 are allowed"
    known.say(FrameKind.DATA, large)
    assert "not a packet that we know" in await known.refusal()


# --- on the wire: two nodes, one of which should not be there ---------------------------------


async def reported_by_both(cluster: Cluster, stays: Node, comes: Node, reason: str) -> None:
    """`comes` dials `stays`: one refuses, the other knows that it was, and both say why."""
    comes.mesh.seed(place_of(stays))
    await until(lambda: comes.mesh.counters["refused_by_peers"])
    assert stays.mesh.counters["refused_greetings"]
    assert not connected(stays, comes)
    assert f"127.0.0.1 refused us: {reason}" in cluster.log.text
    assert f"refusing 127.0.0.1: {reason}" in cluster.log.text
    await until(lambda: comes.mesh.counters["failed_dials"])


@live
async def test_nodes_of_two_clusters_reject_each_other_with_the_reason(cluster: Cluster) -> None:
    n1, n2 = await cluster.open("n1"), await cluster.open("n2", cluster="bank")
    await reported_by_both(cluster, n1, n2, "cluster 'bank'; this node is in 'ordercast'")


@live
async def test_two_nodes_of_one_name_reject_each_other_with_the_reason(cluster: Cluster) -> None:
    first = await cluster.open("n1")
    second = await cluster.open("n1", data=str(cluster.folder / "elsewhere"))
    await reported_by_both(cluster, first, second, "the name 'n1' is taken by this node")


@live
async def test_a_node_that_lost_its_data_folder_is_rejected_with_the_reason(
    cluster: Cluster,
) -> None:
    n1 = await cluster.open("n1")
    await kill(await cluster.open("n2"))
    second = await cluster.open("n2")
    introduce(n1, second)
    await until(lambda: connected(n1, second))
    await kill(second)
    fresh = cluster.folder / "fresh"
    forgetful = await cluster.open("n2", data=str(fresh))
    await reported_by_both(cluster, n1, forgetful, "n2 is an older incarnation: n2#1 was here")
    await kill(forgetful)
    (fresh / "incarnation").write_text("1\n")  # as the reason says
    again = await cluster.open("n2", data=str(fresh))
    introduce(n1, again)
    await until(lambda: connected(n1, again))


@live
async def test_a_node_that_lost_its_folder_in_its_first_incarnation_is_rejected_too(
    cluster: Cluster,
) -> None:
    n1, first = await cluster.nodes("n1", "n2")
    await cluster.join(n1, first)
    await until(lambda: not n1.mesh.contacts["n2"].link.underway)
    await kill(first)
    fresh = str(cluster.folder / "fresh")
    forgetful = await cluster.open("n2", data=fresh)
    introduce(n1, forgetful)
    await until(lambda: "began again with an empty data folder" in cluster.log.text)
    assert not connected(n1, forgetful)
    await kill(forgetful)
    again = await cluster.open("n2", data=fresh)  # once more, as the reason says
    introduce(n1, again)
    await until(lambda: connected(n1, again))


# --- what a greeting may cost ------------------------------------------------------------------


@live
async def test_a_silent_caller_is_disconnected(cluster: Cluster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection_module, "GREETING_SECONDS", 0.05)
        node = await cluster.open("n1")
        silent = await cluster.dial(node)
        assert await silent.hear() is None
    assert node.mesh.counters["slow_greetings"] == 1


@live
async def test_callers_beyond_the_limit_of_half_open_connections_are_refused(
    cluster: Cluster,
) -> None:
    node = await cluster.open("n1")
    most = node.mesh.accept_limiter.half_open_a_source
    callers = [await cluster.dial(node) for _ in range(most + 10)]
    await until(lambda: node.mesh.counters["refused_accepts"] == 10)
    assert len(node.mesh.connections) == most
    for caller in callers:
        await caller.close()
    await until(lambda: not node.mesh.connections)


@live
async def test_a_greeting_fits_however_many_nodes_are_known(cluster: Cluster) -> None:
    """Or a node that knows hundreds could never be greeted again."""
    node = await cluster.open("n1")
    for number in range(600):
        node.mesh.know(f"a-node-with-quite-a-long-name-{number:04}", None)
        contact = node.mesh.contacts[f"a-node-with-quite-a-long-name-{number:04}"]
        contact.place = f"a-host-that-does-not-exist-{number:04}.example:7001"
    told: set[str] = set()
    for number in range(3):
        caller = await cluster.dial(node)
        hello = await asyncio.wait_for(caller.connect(f"m{number}"), 20)
        assert len(hello.places) > 50
        assert sum(len(k) + len(v) for k, v in hello.places.items()) <= PLACES_BYTES
        told |= hello.places.keys()
        await caller.close()
    assert len(told) > len(hello.places), "others each time"

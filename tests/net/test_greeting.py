"""The greeting: who is let in, and that both ends know why somebody is not."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.net.nodes import Cluster, connected, live, place_of, until

from ordercast import Fifo, Node
from ordercast.errors import PeerError
from ordercast.net import connection as connection_module
from ordercast.net.contacts import PLACES_BYTES
from ordercast.types import NodeId
from ordercast.wire import greeting
from ordercast.wire.framing import LARGEST_GREETING, FrameKind
from ordercast.wire.greeting import (
    PROTOCOL_VERSION,
    Bearer,
    GreetingOutcome,
    Hello,
    Met,
    NewKey,
    Refuse,
    Resume,
    judge,
    objection,
)

ME = NodeId("n1", 3)
US = Bearer(ME, b"our birt", 60_000)
KNOWN = NodeId("n2", 5)
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
    st.binary(max_size=8),
    st.integers(0, 1 << 60),
    st.dictionaries(NAMES, st.integers(0, 1 << 22), max_size=3),
)


# --- the words -------------------------------------------------------------------------------


@given(HELLOS)
def test_a_hello_round_trips_through_its_bytes(hello: Hello) -> None:
    assert greeting.decode(greeting.encode(hello), Hello) == hello


def test_a_hello_of_a_later_version_may_have_more_fields() -> None:
    hello = Hello(PROTOCOL_VERSION, "ordercast", ME, 7001)
    raw = greeting.encode(hello)
    assert raw[0] == 0x9F  # an array of fifteen
    assert greeting.decode(b"\xdc\x00\x10" + raw[1:] + b"\xa5later", Hello) == hello


@pytest.mark.parametrize("kind", [Hello, Resume, Refuse, NewKey])
@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", b"\x91" * 5000, b"\x91\xa1\xff", b"\x01"])
def test_bytes_that_are_no_greeting_are_rejected_with_the_reason(kind: type, body: bytes) -> None:
    with pytest.raises(PeerError, match=f"not a {kind.__name__.lower()}"):
        greeting.decode(body, kind)


def test_words_of_an_earlier_version_have_fewer_fields() -> None:
    assert greeting.decode(b"\x91\x05", Resume) == Resume(5, -1)
    assert greeting.decode(b"\x91\xa2no", Refuse) == Refuse("no", "", -1)


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        (Hello(1, "shop", NodeId("n2", 5), 1), None),
        (Hello(2, "shop", NodeId("n2", 5), 1), "protocol version 2; this node speaks 1"),
        (
            Hello(1, "bank", NodeId("n2", 5), 1),
            "the refused node is in cluster 'bank', the refusing one in 'shop'",
        ),
        (
            Hello(1, "shop", NodeId("n2\nERROR disk full", 5), 1),
            r"'n2\nERROR disk full' is no name of a node",
        ),
        (Hello(1, "shop", NodeId("../..", 5), 1), "'../..' is no name of a node"),
    ],
)
def test_a_hello_that_does_not_fit_is_rejected_with_the_reason(
    hello: Hello, said: str | None
) -> None:
    assert objection(hello, "shop") == said


# --- who bears a name ------------------------------------------------------------------------


def greets(node: NodeId, birth: bytes = b"a birth", age: int = 0) -> Hello:
    return Hello(1, "shop", node, 1, birth=birth, age=age)


GONE = Met(KNOWN, b"a birth")
HEARSAY = Met(KNOWN, None)
WHERE = "10.0.0.7:7101"
LIVE = Met(KNOWN, b"a birth", is_live=True, place=WHERE)
OLDER = "n2#4 is an older incarnation: n2#5 was here"
RIVAL = "n2#5 is an older incarnation: n2#5 was here"
TAKEN = (
    "two nodes are named n2: n2#5 at 10.0.0.7:7101 was here first, and n2#{} at 10.0.0.9 greets; "
    "stop one of them, or rename it"
)


@pytest.mark.parametrize(
    ("known", "number", "birth", "verdict"),
    [
        (None, 0, b"a birth", GreetingOutcome()),
        (GONE, 5, b"a birth", GreetingOutcome()),
        (GONE, 6, b"another", GreetingOutcome()),
        (GONE, 900_000, b"another", GreetingOutcome()),
        (GONE, 4, b"another", GreetingOutcome(OLDER, "older", 5)),
        (GONE, 5, b"another", GreetingOutcome(RIVAL, "older", 5)),
        (HEARSAY, 5, b"another", GreetingOutcome()),
        (HEARSAY, 6, b"another", GreetingOutcome()),
        (HEARSAY, 4, b"another", GreetingOutcome(OLDER, "older", 5)),
        (LIVE, 5, b"a birth", GreetingOutcome()),
        (LIVE, 4, b"another", GreetingOutcome(TAKEN.format(4), "taken", 5, WHERE)),
        (LIVE, 5, b"another", GreetingOutcome(TAKEN.format(5), "taken", 5, WHERE)),
        (LIVE, 6, b"another", GreetingOutcome(TAKEN.format(6), "taken", 5, WHERE)),
        (LIVE._replace(birth=b""), 6, b"", GreetingOutcome()),
    ],
)
def test_who_bears_a_name(
    known: Met | None, number: int, birth: bytes, verdict: GreetingOutcome
) -> None:
    assert judge(greets(NodeId("n2", number), birth), US, known, "10.0.0.9") == verdict


@pytest.mark.parametrize(
    ("birth", "age", "is_first"),
    [
        (b"a birth", 66_000, True),
        (b"zzz", 66_000, True),
        (b"a birth", 54_000, False),
        (b"a birth", 60_500, True),  # of those that opened at the same time one by birth
        (b"zzz", 60_500, False),
    ],
)
def test_of_two_nodes_with_our_name_the_one_that_opened_later_has_to_go(
    birth: bytes, age: int, is_first: bool
) -> None:
    verdict = judge(greets(NodeId("n1", 9), birth, age), US, None, "10.0.0.9")
    assert verdict.is_first == is_first
    assert verdict.code == ("" if is_first else "namesake")
    first, second = "n1#3", "n1#9 at 10.0.0.9"
    if is_first:
        first, second = second, first
    assert f"named n1: {first} was here first, and {second} greets" in verdict.reason


@pytest.mark.parametrize(
    ("ours", "theirs", "is_first"), [(0, 0, True), (2, 3, True), (2, 0, False), (0, 1, True)]
)
def test_of_two_nodes_with_our_name_the_one_that_others_talk_to_stays(
    ours: int, theirs: int, is_first: bool
) -> None:
    hello = Hello(1, "shop", NodeId("n1", 9), 1, birth=b"zzz", age=90_000, company=theirs)
    assert judge(hello, US._replace(company=ours), None).is_first == is_first
    younger = Hello(1, "shop", NodeId("n1", 9), 1, birth=b"zzz", age=9, company=theirs)
    is_first = theirs > 0 and ours == 0
    assert judge(younger, US._replace(company=ours), None).is_first == is_first


def test_a_node_that_dialled_itself_notices() -> None:
    assert judge(greets(ME, b"our birt"), US, None).is_ours


# --- on the wire: somebody dials a node ------------------------------------------------------


@live
async def test_a_node_that_does_not_fit_receives_the_reason(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    wrong = [
        ({"version": 7}, "protocol version 7; this node speaks 1"),
        (
            {"cluster": "bank"},
            "the refused node is in cluster 'bank', the refusing one in 'ordercast'",
        ),
    ]
    for changed, said in wrong:
        caller = await cluster.dial(node)
        caller.greet("n2", **changed)
        assert await caller.refusal() == said
        assert await caller.hear() is None, "and then it hangs up"
    caller = await cluster.dial(node)
    caller.greet("n1", incarnation=9, birth=b"\xff" * 8)
    refuse = await caller.refuse()
    assert "n1 was here first, and n1#9 at 127.0.0.1 greets" in refuse.reason
    assert (refuse.code, refuse.newest) == ("namesake", 0)
    assert node.mesh.counters["refused_greetings"] == 3
    assert not node.mesh.contacts


@live
async def test_an_older_incarnation_is_refused_while_the_newer_one_stays(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    newer, older = await cluster.dial(node), await cluster.dial(node)
    await newer.connect("n2", incarnation=5)
    contact = node.mesh.contacts["n2"]
    await until(lambda: contact.connection is not None)
    older.greet("n2", incarnation=4)
    said = "two nodes are named n2: n2#5 at 127.0.0.1 was here first, and n2#4 at 127.0.0.1 greets"
    assert said in await older.refusal()
    assert contact.node == NodeId("n2", 5)
    assert contact.connection is not None
    await newer.close()
    await until(lambda: contact.connection is None)
    older = await cluster.dial(node)
    older.greet("n2", incarnation=4)
    refuse = await older.refuse()
    assert refuse == Refuse("n2#4 is an older incarnation: n2#5 was here", "older", 5)


@live
async def test_an_asking_node_learns_what_is_known_of_its_name_and_is_not_met(
    cluster: Cluster,
) -> None:
    node, _known = await cluster.open_met_by(
        "n2", incarnation=5, newest={"n3": 8, "n4": 1 << 22, "n1": 0}
    )
    await until(lambda: node.mesh.contacts["n2"].connection is not None)
    for name, newest in (("n1", 0), ("n2", 5), ("n3", 8), ("n4", None), ("n5", None)):
        asking = await cluster.dial(node)
        asking.greet(name, features=["asking"])
        heard = await asking.hear(FrameKind.HELLO)
        assert heard is not None
        assert greeting.decode(heard[1], Hello).newest.get(name) == newest, name
        assert await asking.hear() is None, "and then it hangs up"
    assert list(node.mesh.contacts) == ["n2"]
    assert node.mesh.contacts["n2"].connection is not None


@live
async def test_an_incarnation_that_others_have_met_counts_like_one_that_we_met(
    cluster: Cluster,
) -> None:
    node, _friend = await cluster.open_met_by("n2", newest={"n3": 8})
    caller = await cluster.dial(node)
    caller.greet("n3", incarnation=7)
    assert await caller.refuse() == Refuse(
        "n3#7 is an older incarnation: n3#8 was here", "older", 8
    )
    caller = await cluster.dial(node)
    assert (await caller.connect("n3", incarnation=8)).node == node.me


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
    _node, caller = await cluster.open_met_by("n2")
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
    assert f"{place_of(stays)} refuses this node: {reason}" in cluster.log.text
    assert f"refusing 127.0.0.1: {reason}" in cluster.log.text
    await until(lambda: comes.mesh.counters["failed_dials"])


@live
async def test_nodes_of_two_clusters_reject_each_other_with_the_reason(cluster: Cluster) -> None:
    n1, n2 = await cluster.open("n1"), await cluster.open("n2", cluster="bank")
    await reported_by_both(
        cluster, n1, n2, "the refused node is in cluster 'bank', the refusing one in 'ordercast'"
    )


@live
async def test_the_same_refusal_is_logged_once_and_said_where_a_group_waits(
    cluster: Cluster,
) -> None:
    n1 = await cluster.open("n1")
    n2 = await cluster.open("n2", cluster="bank", seeds=[place_of(n1)])
    reason = "the refused node is in cluster 'bank', the refusing one in 'ordercast'"
    await until(lambda: n2.mesh.counters["refused_by_peers"] > 3)
    assert len(cluster.log.messages) == 2, "a line at each end"
    group = n2.join("orders", Fifo())
    with pytest.raises(TimeoutError) as error:
        await group.ready(timeout=0.1)
    assert str(error.value).endswith(
        f"{place_of(n1)} refuses this node: {reason}, and this node may not found 'orders' by "
        "itself"
    )


@live
async def test_a_refusal_with_another_reason_is_logged_again(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    for number in (1, 2, 1, 2, 3):
        caller = await cluster.dial(n1)
        caller.greet("n2", cluster=f"bank-{number}")
        await caller.refusal()
    assert len(cluster.log.messages) == 3


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
async def test_a_caller_that_has_greeted_keeps_nobody_out(cluster: Cluster) -> None:
    """It may be slow to go on: many nodes that start at once on a busy machine all are."""
    node = await cluster.open("n1")
    limiter = node.mesh.accept_limiter
    limiter.half_open_a_source = 1
    slow = await cluster.dial(node)
    await until(lambda: limiter.open_now == 1)
    assert await (await cluster.dial(node)).hear() is None, "there is room for one"
    slow.greet("m1")
    assert await slow.hear(FrameKind.HELLO)
    assert limiter.open_now == 0
    await (await cluster.dial(node)).connect("m2")
    slow.say(FrameKind.RESUME, greeting.encode(greeting.Resume(0)))
    await until(lambda: node.mesh.contacts["m1"].connection is not None)


@live
async def test_a_caller_that_greets_and_says_no_more_is_hung_up_on(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection_module, "GREETING_SECONDS", 0.05)
        caller = await cluster.dial(node)
        caller.greet("m1")
        assert await caller.hear(FrameKind.HELLO)
        assert await caller.hear() is None
    assert node.mesh.counters["slow_greetings"] == 1
    assert node.mesh.accept_limiter.open_now == 0


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


# --- where a node is -----------------------------------------------------------------------------


@live
async def test_a_node_is_dialled_where_it_says_and_not_where_it_is_seen(cluster: Cluster) -> None:
    """As behind a proxy: what n2 listens on is another place than the one that it advertises."""
    n1 = await cluster.open("n1")

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passed.append(writer)
        writer.close()

    passed: list[asyncio.StreamWriter] = []
    proxy = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    place = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    n2 = await cluster.open("n2", advertise=place, seeds=[place_of(n1)])
    await until(lambda: connected(n1, n2))
    contact = n1.mesh.contacts["n2"]
    assert contact.place == place
    assert contact.udp == ("127.0.0.1", int(place.rpartition(":")[2]))
    await n2.abort()
    n1.mesh.know("n2", contact.place)
    await until(lambda: passed)
    proxy.close()


@pytest.mark.parametrize("place", ["nowhere", "a b:1", ":", "host:123456"])
def test_an_advertised_place_is_a_place(place: str) -> None:
    hello = Hello(PROTOCOL_VERSION, "ordercast", ME, 7001, place=place)
    with pytest.raises(PeerError, match="not a hello"):
        greeting.decode(greeting.encode(hello), Hello)

"""Two nodes of one name that were let in by different nodes: the first stays, the second goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.net.nodes import (
    GROUP,
    QUICK,
    Cluster,
    connected,
    data_of,
    introduce,
    live,
    place_of,
    until,
    view_of,
)
from tests.net.test_lost_folder import ended

from ordercast import Group, Node
from ordercast.errors import Abandoned, NameTaken
from ordercast.net import name_watch
from ordercast.net.datagrams import PlainDatagrams
from ordercast.net.identity import number_from_zero
from ordercast.types import NodeId
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind
from ordercast.wire.greeting import MOST_VOUCHED, Names, Refuse, Vouch

MEMBERS = ["n1", "n2", "n3"]


@asynccontextmanager
async def soon() -> AsyncIterator[None]:
    """A node ends soon after it was told that its name is taken, and ages are told apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_watch, "TAKEN_SECONDS", 0.3)
        patch.setattr(greeting, "SAME_AGE", 0)
        yield


async def second(cluster: Cluster, *peers: Node, is_same: bool = False) -> Node:
    """Another n1 is started, which knows these. Same: it has the number of the first, too."""
    folder = cluster.folder / "elsewhere"
    if is_same:
        number_from_zero(folder)
    places = {peer.me.name: place_of(peer) for peer in peers}
    return await cluster.open("n1", data=str(folder), peers=places)


async def first_alone_with(cluster: Cluster, peer: Node) -> tuple[Node, Group, Group]:
    """The first n1, which is in a group with this one, and nobody else knows it."""
    n1 = await cluster.open("n1")
    introduce(n1, peer)
    ours, theirs = n1.join(GROUP, QUICK, MEMBERS), peer.join(GROUP, QUICK, MEMBERS)
    await view_of(ours, "n1", peer.me.name)
    await view_of(theirs, "n1", peer.me.name)
    return n1, ours, theirs


# --- a newcomer, and nodes that do not hear the first --------------------------------------------


@pytest.mark.parametrize("is_same", [False, True])
def test_a_node_that_does_not_hear_the_first_refuses_the_second(
    is_same: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """n2 hears it, and n2 and n3 are connected."""

    @live
    async def staged(cluster: Cluster) -> None:
        n2, n3 = await cluster.nodes("n2", "n3")
        await until(lambda: connected(n2, n3))
        n1 = await cluster.open("n1", peers={"n2": place_of(n2)})
        await until(lambda: connected(n1, n2))
        before = n2.mesh.contacts["n1"].connection
        await until(lambda: "n1" in n3.mesh.vouching.told_by("n2"))
        async with soon():
            rival = await second(cluster, n3, is_same=is_same)
            group = rival.join(GROUP, QUICK, ["n1", "n3"])
            with pytest.raises(NameTaken, match="two nodes are named n1: n1"):
                await ended(group)
        assert "n1" not in n3.mesh.contacts, "it never came in"
        assert n2.mesh.contacts["n1"].connection is before
        assert n1.me == NodeId("n1")
        assert "refusing 127.0.0.1: two nodes are named n1" in cluster.log.text

    staged("asyncio", tmp_path, caplog)


@live
async def test_the_first_keeps_its_groups_when_a_second_comes_during_a_partial_cut(
    cluster: Cluster,
) -> None:
    """n3 is cut off from the first n1, and n2 hears both."""
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    first, _, third = await cluster.join(n1, n2, n3)
    n1.mesh.set_cuts(frozenset({"n3"}), frozenset({"n3"}))
    await view_of(third, "n2", "n3")
    async with soon():
        rival = await second(cluster, n3)
        assert rival.me.incarnation > n1.me.incarnation
        group = rival.join(GROUP, QUICK, MEMBERS)
        with pytest.raises(NameTaken):
            await ended(group)
    n1.mesh.set_cuts(frozenset(), frozenset())
    await view_of(third, "n1", "n2", "n3")
    assert n1.me == NodeId("n1")
    await first.send(b"still here", until="stable")
    assert await data_of(third, 1) == [b"still here"]


@live
async def test_a_vouch_ends_when_the_node_is_gone(cluster: Cluster) -> None:
    n2, n3 = await cluster.nodes("n2", "n3")
    n1 = await cluster.open("n1", peers={"n2": place_of(n2)})
    await until(lambda: connected(n2, n3) and connected(n1, n2))
    rival = await second(cluster, n3)
    await until(lambda: rival.mesh.counters["refused_by_peers"])
    await n1.abort()
    await until(lambda: connected(rival, n3))


# --- both were let in ----------------------------------------------------------------------------


@pytest.mark.parametrize("is_same", [False, True])
def test_of_two_that_were_let_in_by_nodes_that_did_not_know_each_other_the_later_goes(
    is_same: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @live
    async def staged(cluster: Cluster) -> None:
        n2, n3 = [await cluster.open(name) for name in ("n2", "n3")]
        n1, ours, theirs = await first_alone_with(cluster, n2)
        await until(lambda: n1.mesh.handshake.us.bearer().age > 100)
        async with soon():
            rival = await second(cluster, n3, is_same=is_same)
            await until(lambda: connected(rival, n3))
            assert (rival.me == n1.me) is is_same
            group = rival.join("another", QUICK, ["n1"])
            before = n2.mesh.contacts["n1"].connection
            introduce(n2, n3)
            with pytest.raises(NameTaken):
                await ended(group)
        assert n1.me == NodeId("n1")
        assert n2.mesh.contacts["n1"].connection is before
        n1.mesh.know("n3", place_of(n3))
        await until(lambda: connected(n1, n3))
        await ours.send(b"still here", until="stable")
        assert await data_of(theirs, 1) == [b"still here"]

    staged("asyncio", tmp_path, caplog)


@live
async def test_where_packets_of_a_second_were_taken_the_first_has_to_begin_anew(
    cluster: Cluster,
) -> None:
    """n3 was in a group with the second, as with a newer incarnation: it cannot go back."""
    n2, n3 = [await cluster.open(name) for name in ("n2", "n3")]
    n1, ours, _ = await first_alone_with(cluster, n2)
    await until(lambda: n1.mesh.handshake.us.bearer().age > 100)
    async with soon():
        rival = await second(cluster, n3)
        group, third = rival.join(GROUP, QUICK, MEMBERS), n3.join(GROUP, QUICK, MEMBERS)
        await view_of(group, "n1", "n3")
        await group.send(b"of the second", until="stable")
        introduce(n2, n3)
        with pytest.raises(NameTaken):
            await ended(group)
        n1.mesh.know("n3", place_of(n3))
        with pytest.raises(Abandoned):
            await ended(ours)
    assert n1.me.incarnation > rival.me.incarnation
    again = n1.join(GROUP, QUICK, MEMBERS)
    await view_of(again, "n1", "n2", "n3")
    await again.send(b"of the first", until="stable")
    heard = await data_of(third, 2)
    assert heard == [b"of the second", b"of the first"]
    said = f"n3 talked to a second node of the name n1, as {rival.me}"
    assert said in cluster.log.text


@live
async def test_a_node_that_others_talk_to_is_not_ended_by_one_that_says_its_name_is_taken(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    await until(lambda: connected(n1, n2))
    async with soon():
        for _ in range(20):
            liar = await cluster.dial(n1)
            refuse = Refuse("two nodes are named n1", "taken", 7)
            liar.say(FrameKind.REFUSE, greeting.encode(refuse))
            assert await liar.hear() is None
        group = n1.join(GROUP, QUICK, ["n1"])
        await group.ready()
    assert connected(n1, n2)


# --- what is told --------------------------------------------------------------------------------


@live
async def test_a_node_vouches_for_those_that_it_hears_and_takes_it_back(cluster: Cluster) -> None:
    n1, told = await cluster.open_met_by("n2", birth=b"of n2")
    other = await cluster.dial(n1)
    hello = await other.connect("n3", incarnation=5, birth=b"of n3", age=60_000)
    assert {name: vouch.birth for name, vouch in hello.vouched.items()} == {"n2": b"of n2"}
    heard = await told.hear(FrameKind.NAMES)
    while heard is not None and not (names := greeting.decode(heard[1], Names)).vouched:
        heard = await told.hear(FrameKind.NAMES)
    assert names.vouched["n3"].number == 5
    assert names.vouched["n3"].birth == b"of n3"
    assert names.vouched["n3"].age >= 60_000
    assert names.vouched["n3"].is_bare
    assert "n2" not in names.vouched, "it knows that itself"
    other.abort()
    heard = await told.hear(FrameKind.NAMES)
    assert heard is not None
    assert greeting.decode(heard[1], Names) == Names({}, ["n3"])


@live
async def test_a_node_cannot_vouch_for_more_names_than_are_remembered(cluster: Cluster) -> None:
    n1, liar = await cluster.open_met_by("n2", birth=b"of n2")
    for first in range(0, 8 * MOST_VOUCHED, MOST_VOUCHED):
        names = {f"m{first + each}": Vouch(1, b"x", 0) for each in range(MOST_VOUCHED)}
        liar.say(FrameKind.NAMES, greeting.encode(Names(names)))
    liar.say(FrameKind.NAMES, greeting.encode(Names({"": Vouch(1, b"x", 0)})))
    assert "not a names" in await liar.refusal()
    assert len(n1.mesh.vouching.told_by("n2")) == 1024


@live
async def test_a_datagram_of_a_second_node_does_not_count_and_makes_it_hear_why(
    cluster: Cluster,
) -> None:
    """They have one number, and datagrams need no connection: only the birth tells them apart."""
    n2 = await cluster.open("n2")
    n1 = await cluster.open("n1", peers={"n2": place_of(n2)})
    await until(lambda: connected(n1, n2))
    async with soon():
        rival = await second(cluster, is_same=True)
        assert rival.me == n1.me
        group = rival.join("another", QUICK, ["n1"])
        contact = n2.mesh.contacts["n1"]
        udp = contact.udp
        rival.mesh.know("n2", None)
        rival.mesh.contacts["n2"].udp = ("127.0.0.1", n2.mesh.port)
        rival.datagrams.send("n2", b"mine")
        await until(lambda: n2.mesh.counters["datagrams_of_rivals"])
        with pytest.raises(NameTaken):
            await ended(group)
    assert contact.udp == udp
    assert contact.node == n1.me


def test_a_plain_datagram_says_which_node_of_the_name_sent_it() -> None:
    one = PlainDatagrams(NodeId("n1", 3), "shop", b"a birth")
    data = one.wrap(None, b"body")  # type: ignore[arg-type]
    assert data is not None
    opened = one.open(data)
    assert opened is not None
    assert (opened.sender, opened.body, opened.birth) == (NodeId("n1", 3), b"body", b"a birth")

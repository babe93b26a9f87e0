"""A node whose folder was lost comes back by itself, and nobody mistakes it for its former self."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from tests.net.held_disk import disk_held
from tests.net.nodes import (
    GROUP,
    QUICK,
    Cluster,
    connected,
    data_of,
    introduce,
    kill,
    live,
    messages_of,
    place_of,
    until,
    view_of,
)
from tests.net.ordered import Readers, judged, traced
from tests.net.test_open import OPEN, enter, found, in_every_family, say

from ordercast import Causal, Group, Node, View
from ordercast.errors import Abandoned, TraceError
from ordercast.kernel.family import Level
from ordercast.kernel.inputs import Backpressure
from ordercast.net import asking, authority, name_watch
from ordercast.net.committer import Committer
from ordercast.net.directory import Mismatch
from ordercast.net.node import NodeState
from ordercast.trace.log import read_log
from ordercast.types import NodeId

KNOWN = (1 << 20) + 5
"""Above all that are drawn."""
SENT = [b"%d" % number for number in range(12)]


async def lose(cluster: Cluster, node: Node) -> None:
    """Its process and its folder are gone."""
    await kill(node)
    shutil.rmtree(cluster.folder / node.me.name)


async def come_back(cluster: Cluster, name: str, /, *peers: Node, **settings: object) -> Node:
    """A container without a volume is started again."""
    places = {peer.me.name: place_of(peer) for peer in peers}
    node = await cluster.open(name, peers=places, **settings)
    introduce(node, *peers)
    return node


async def abandon_slowly(node: Node) -> list[Callable[[], None]]:
    """Its incarnation is over, and the next one begins when these are called."""
    slow_disk: list[Callable[[], None]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Committer, "rewrite", lambda self, path, content, done: slow_disk.append(done)
        )
        node.mesh.handshake.reported(1000)
        await until(lambda: node.state is NodeState.BROKEN)
    return slow_disk


async def ended(group: Group) -> None:
    """Reads on until the group ends, and raises why."""
    while True:
        await anext(group)


# --- an empty folder, and peers who know the name ----------------------------------------------


@live
async def test_a_fifo_member_comes_back_and_all_that_it_sends_arrives(cluster: Cluster) -> None:
    n1, n2, n3 = await traced(cluster, "n1", "n2", "n3")
    groups = await cluster.join(n1, n2, n3)
    for data in SENT:
        await groups[1].send(data)
    assert await data_of(groups[0], len(SENT)) == SENT
    await lose(cluster, n2)
    again = await come_back(cluster, "n2", n1, n3, trace=str(cluster.folder / "n2-again.rows"))
    assert 8 <= again.me.incarnation < 16, "everybody answered, so only a few are left out"
    group = again.join(GROUP, QUICK, ["n1", "n2", "n3"])
    await view_of(group, "n1", "n2", "n3")
    for data in SENT:
        receipt = await group.send(data)
    await receipt.wait("stable")
    for reader in (groups[0], groups[2]):
        heard = await messages_of(reader, len(SENT))
        while heard[0].sender != again.me:
            heard = [*heard[1:], *await messages_of(reader, 1)]
        assert [message.data for message in heard] == SENT
    again.driver.flush()
    rows = [row for file in ("n2", "n2-again") for row in read_log(cluster.folder / f"{file}.rows")]
    assert [row.cause for row in rows if row.kind == "start"] == [None, "empty"]
    judged(cluster.folder, "fifo")


@live
async def test_a_causal_updater_comes_back_and_its_updates_arrive(cluster: Cluster) -> None:
    names, level = ["n1", "n2", "n3"], Causal(updaters=["n1", "n2"], round="5ms")
    n1, n2, n3 = await cluster.nodes(*names)
    groups = [node.join("world", level, names) for node in (n1, n2, n3)]
    for data in SENT:
        await groups[1].send(data, until="delivered")
    assert await data_of(groups[0], len(SENT)) == SENT
    assert await data_of(groups[2], len(SENT)) == SENT
    await lose(cluster, n2)
    again = await come_back(cluster, "n2", n1, n3)
    assert 8 <= again.me.incarnation < 16
    group = again.join("world", level, names)
    for data in SENT:
        await group.send(data, until="delivered")
    for reader in (groups[0], groups[2]):
        heard = await messages_of(reader, len(SENT))
        assert [(each.sender, each.data) for each in heard] == [(again.me, data) for data in SENT]


@live
async def test_a_total_member_comes_back_into_the_next_formation(cluster: Cluster) -> None:
    n1, n2 = await traced(cluster, "n1", "n2")
    readers = Readers(n1, n2)
    await readers.groups[1].send(b"first incarnation", until="stable")
    await lose(cluster, n2)
    await until(lambda: readers.readers[0].names == ["n1"])
    again = await come_back(cluster, "n2", n1, trace=str(cluster.folder / "n2-again.rows"))
    group, reader = readers.add(again, ["n1", "n2"])
    view = await n1.reform(GROUP, ["n1", "n2"])
    assert view.members == (n1.me, again.me)
    await group.send(b"second incarnation", until="stable")
    expected = [b"first incarnation", b"second incarnation"]
    await until(lambda: reader.data == readers.readers[0].data == expected)
    await readers.close()
    judged(cluster.folder)


@live
async def test_one_that_asks_hears_of_nodes_that_it_does_not_know(cluster: Cluster) -> None:
    """n1 has never met n2, but knows where n3 is, and n3 has."""
    n1, n3 = await cluster.nodes("n1", "n3")
    await until(lambda: connected(n1, n3))
    stranger = await cluster.dial(n3)
    await stranger.connect("n2", incarnation=41)
    await stranger.close()
    again = await cluster.open(
        "n2", data=str(cluster.folder / "empty"), seeds=[place_of(n1)], listen="127.0.0.1:0"
    )
    assert 49 <= again.me.incarnation < 57
    assert again.is_reborn
    assert {each.mesh.handshake.acquaintances.taken["n2"] for each in (n1, n3)} == {again.me}


@live
async def test_a_number_that_was_taken_and_lost_before_anybody_met_it_is_not_taken_again(
    cluster: Cluster,
) -> None:
    n1, _former = await cluster.open_met_by("n2", incarnation=41)
    numbers = [41]
    for attempt in range(4):  # each takes its number, and is gone before it dials anybody
        data, peers = cluster.folder / f"{attempt}", {"n1": place_of(n1)}
        with pytest.raises(TraceError, match="cannot be written"):
            await cluster.open("n2", data=str(data), peers=peers, trace=str(cluster.folder))
        numbers.append(int((data / "incarnation").read_text().split()[0]))
    assert all(after - before >= 8 for before, after in pairwise(numbers))
    contact = n1.mesh.contacts["n2"]
    assert contact.node == NodeId("n2", 41), "and the one that is there is undisturbed"
    assert n1.mesh.handshake.acquaintances.known["n2"] == NodeId("n2", 41)


@live
async def test_numbers_are_skipped_when_somebody_does_not_answer(cluster: Cluster) -> None:
    n1, former = await cluster.open_met_by("n2", incarnation=41)
    await former.close()
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections, and says nothing
    place = f"127.0.0.1:{silent.getsockname()[1]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "ASK_SECONDS", 0.3)
        again = await cluster.open(
            "n2", data=str(cluster.folder / "empty"), peers={"n1": place_of(n1), "n3": place}
        )
    assert 49 <= again.me.incarnation < 49 + 1024
    silent.close()


@live
async def test_a_name_that_nobody_knows_draws_its_number_once(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    folder = str(cluster.folder / "empty")
    n2 = await cluster.open("n2", data=folder, peers={"n1": place_of(n1)})
    alone = await cluster.open("n3", data=str(cluster.folder / "alone"))
    assert all(1 <= node.me.incarnation <= 1 << 20 for node in (n2, alone))
    assert not n2.is_reborn
    await kill(n2)
    again = await cluster.open("n2", data=folder, peers={"n1": place_of(n1)})
    assert again.me == NodeId("n2", n2.me.incarnation + 1)
    await until(lambda: connected(n1, again))


@live
async def test_a_node_of_another_cluster_answers_nothing_that_counts(cluster: Cluster) -> None:
    n1 = await cluster.open("n1", cluster="bank")
    former = await cluster.dial(n1)
    await former.connect("n2", incarnation=41, cluster="bank")
    await former.close()
    n2 = await cluster.open("n2", data=str(cluster.folder / "empty"), peers={"n1": place_of(n1)})
    assert not n2.is_reborn


# --- an empty folder, and nobody to ask --------------------------------------------------------


@live
async def test_a_node_that_started_alone_abandons_its_incarnation_when_told_of_a_newer_one(
    cluster: Cluster,
) -> None:
    n1 = await cluster.open("n1", trace=str(cluster.folder / "n1.rows"))
    former = await cluster.dial(n1)
    await former.connect("n2", incarnation=KNOWN)
    await former.close()
    await until(lambda: n1.mesh.contacts["n2"].connection is None)
    n2 = await cluster.open(
        "n2", data=str(cluster.folder / "empty"), trace=str(cluster.folder / "n2.rows")
    )
    drawn = n2.me
    group = n2.join(GROUP, QUICK, ["n1", "n2"])
    await group.send(b"alone")
    receipt = await group.send(b"alone too")
    other = n1.join(GROUP, QUICK, ["n1", "n2"])
    introduce(n1, n2)
    with pytest.raises(Abandoned, match=f"{drawn} is abandoned: others have met n2#1048581"):
        await receipt.wait("stable")
    assert n2.me != drawn, "whoever is told may join again at once"
    assert n2.me.incarnation > KNOWN
    assert n2.is_reborn
    group = n2.join(GROUP, QUICK, ["n1", "n2"])
    await view_of(group, "n1", "n2")
    for data in SENT:
        receipt = await group.send(data)
    await receipt.wait("stable")
    heard = await messages_of(other, len(SENT))
    assert [(each.sender, each.data) for each in heard] == [(n2.me, data) for data in SENT]
    judged(cluster.folder, "fifo")


@live
async def test_a_node_that_drew_a_high_number_hears_that_its_name_was_there_before(
    cluster: Cluster,
) -> None:
    """Nothing has to be abandoned, but it must not found what its former self may have founded."""
    n1, former = await cluster.open_met_by("n2")
    await former.close()
    await until(lambda: n1.mesh.contacts["n2"].connection is None)
    n2 = await cluster.open("n2", data=str(cluster.folder / "empty"))
    drawn = n2.me
    assert not n2.is_reborn
    with disk_held() as held:
        introduce(n1, n2)
        await until(lambda: connected(n1, n2))
        await until(lambda: n2.is_reborn)
        await until(held.is_held)
        assert threading.get_ident() not in held.threads, "the event loop waited for the disk"
    file = cluster.folder / "empty" / "incarnation"
    await until(lambda: file.read_text() == f"{drawn.incarnation}\nreborn\n")
    assert n2.me == drawn
    n2.mesh.handshake.reported(drawn.incarnation)
    n2.mesh.handshake.reported(0)
    assert n2.me == drawn


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("family", ["fifo", "causal", "total"])
def test_a_founder_that_hears_of_its_lost_folder_does_not_found_again(
    is_left: bool, family: str, tmp_path, caplog
) -> None:
    """It founded the group anew while nobody knew it, and has left it or restarted since."""

    @live
    async def staged(cluster: Cluster) -> None:
        level = OPEN[family]
        n2 = await cluster.open("n2")
        second = n2.join("orders", level)
        await second.ready()
        former = await cluster.dial(n2)
        await former.connect("n1")
        await former.close()
        await until(lambda: n2.mesh.contacts["n1"].connection is None)
        settings = {"data": str(cluster.folder / "empty")}
        n1 = await cluster.open("n1", **settings)
        drawn, group = n1.me, n1.join("orders", level)
        await group.ready()
        if is_left:
            await group.leave()
        else:
            await n1.abort()
            n1 = await cluster.open("n1", **settings)
        introduce(n1, n2)
        await until(lambda: n1.is_reborn)
        assert n1.me.incarnation > drawn.incarnation + 1, "it abandoned what it had founded"
        back = n1.join("orders", level)
        await until(lambda: n1.me in second.members and n2.me in back.members)
        if second.permit is not None:
            await until(lambda: cluster_of(n1) == cluster_of(n2))

    staged("asyncio", tmp_path, caplog)


def cluster_of(node: Node) -> int:
    machine: Any = node.driver.machine("orders")
    return machine.ownership.part.cluster


@in_every_family
async def test_a_founder_that_lost_its_folder_comes_back_to_its_group(
    cluster: Cluster, level: Level
) -> None:
    """It has no seeds, so it founds the group again; then it hears that its name was there."""
    n1, first = await found(cluster, level)
    n2, second = await enter(cluster, "n2", n1, level)
    await until(lambda: len(first.members) == len(second.members) == 2)
    place = place_of(n1)
    await lose(cluster, n1)
    again = await cluster.open("n1", listen=place)
    group = again.join("orders", level)
    await until(lambda: again.is_reborn)
    if not group.is_open:
        assert isinstance(group.ended, Abandoned)
        group = again.join("orders", level)
    await group.ready()
    await until(lambda: again.me in second.members and n2.me in group.members)
    if group.permit is not None:
        return  # the lease replica that was lost was half of them: there are no more tickets
    reading = asyncio.create_task(messages_of(second, 1))
    while not reading.done():
        await say(group, b"back")  # gossip may lose one
        await asyncio.wait([reading], timeout=0.5)
    (heard,) = await reading
    assert (heard.sender, heard.data) == (again.me, b"back")


@live
async def test_an_abandoned_incarnation_forgets_its_records_and_never_returns(
    cluster: Cluster,
) -> None:
    level = Causal(tickets=1, guards=1, round="5ms", lease="400ms", join_wait="5ms")
    n2 = await cluster.open("n2", data=str(cluster.folder / "empty"))
    group = n2.join("novel", level, ["n2"])
    await group.become_updater(timeout=20)
    assert n2.store.records("novel")
    teller = await cluster.dial(n2)
    first = n2.me.incarnation
    await teller.connect("n1", newest={"n2": first + 50})
    await until(lambda: n2.me.incarnation != first)
    assert n2.me.incarnation > first + 50
    assert not n2.store.records()
    with pytest.raises(Abandoned):
        await group.send(b"x")
    await kill(n2)
    again = await cluster.open("n2", data=str(cluster.folder / "empty"))
    assert again.me == NodeId("n2", n2.me.incarnation + 1)


@live
async def test_an_application_that_joins_in_a_loop_goes_on_after_an_abandonment(
    cluster: Cluster,
) -> None:
    n1 = await cluster.open("n1")
    views: list[View] = []

    async def application() -> None:
        while True:
            with suppress(Abandoned):
                async with n1.join(GROUP, QUICK, ["n1"]) as group:
                    async for item in group:
                        assert isinstance(item, View)
                        views.append(item)

    running = asyncio.create_task(application())
    await until(lambda: views)
    teller = await cluster.dial(n1)
    await teller.connect("n2", newest={"n1": 1000})
    await until(lambda: len(views) == 2)
    assert [view.members[0].incarnation > 1000 for view in views] == [False, True]
    running.cancel()
    await asyncio.wait([running])


@live
async def test_what_is_sent_while_its_node_begins_anew_is_refused_when_it_has(
    cluster: Cluster,
) -> None:
    n1 = await cluster.open("n1")
    group = n1.join(GROUP, QUICK, ["n1"])
    await group.ready()
    end_of_turn = asyncio.Event()
    slow_disk = await abandon_slowly(n1)
    receipt = await group.send(b"too late")
    asyncio.get_running_loop().call_soon(end_of_turn.set)
    await end_of_turn.wait()
    group.give(Backpressure(GROUP, True))
    assert not receipt.stable
    for done in slow_disk:
        done()
    with pytest.raises(Abandoned):
        await receipt.wait("stable")
    assert "Traceback" not in cluster.log.text


@live
async def test_a_group_that_ends_while_its_node_begins_anew_ends_with_that(
    cluster: Cluster,
) -> None:
    """A peer may say meanwhile that the group has other terms: that was said of the last one."""
    n1 = await cluster.open("n1")
    group = n1.join(GROUP, QUICK, ["n1"])
    await group.ready()
    slow_disk = await abandon_slowly(n1)
    n1.end(group, Mismatch("on other terms"))
    assert group.is_open
    for done in slow_disk:
        done()
    assert isinstance(group.ended, Abandoned)


@live
async def test_a_group_can_be_left_while_its_node_begins_anew(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    group = n1.join(GROUP, QUICK, ["n1"])
    await group.ready()
    slow_disk = await abandon_slowly(n1)
    await group.leave()
    assert not group.is_open
    for done in slow_disk:
        done()
    assert n1.state is NodeState.OPEN
    assert n1.me.incarnation > 1000
    await n1.join(GROUP, QUICK, ["n1"]).ready()


@live
async def test_an_incarnation_is_abandoned_once_however_often_it_is_told(cluster: Cluster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_watch, "ABANDON_SECONDS", 3600.0)
        n1 = await cluster.open("n1")
        tellers = [await cluster.dial(n1) for _ in range(5)]
        for teller in tellers:  # none waits for an answer: a node that begins anew hangs up
            teller.greet("n2", newest={"n1": 1000})
        await until(lambda: n1.me.incarnation)
        number = n1.me.incarnation
        assert 1000 < number < 1008 + 1024
        await until(lambda: n1.state is NodeState.OPEN)
        teller = await cluster.dial(n1)
        await teller.connect("n2", newest={"n1": number + 1})
        await until(lambda: n1.mesh.contacts["n2"].connection is not None)
        assert n1.me.incarnation == number, "not yet: an hour lies between"


# --- with certificates -------------------------------------------------------------------------


async def secure(cluster: Cluster, name: str, *peers: Node) -> Node:
    """A node of the cluster "shop" that proves its name."""
    if not (cluster.folder / "ca.pem").exists():
        authority.init(cluster.folder, "shop")
    if not (cluster.folder / f"{name}.pem").exists():
        authority.issue(cluster.folder, name)
    files = {"authority": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
    tls = {what: str(cluster.folder / file) for what, file in files.items()}
    return await come_back(cluster, name, *peers, cluster="shop", tls=tls)


@live
async def test_a_node_with_a_certificate_comes_back_and_gossips_with_new_keys(
    cluster: Cluster,
) -> None:
    level = Causal(updaters=["n2"], round="5ms")
    n1 = await secure(cluster, "n1")
    n2 = await secure(cluster, "n2", n1)
    await until(lambda: connected(n1, n2))
    reader = n1.join("world", level, ["n1", "n2"])
    await lose(cluster, n2)
    again = await secure(cluster, "n2", n1)
    assert 8 <= again.me.incarnation < 16
    group = again.join("world", level, ["n1", "n2"])
    await group.send(b"once more")
    assert await data_of(reader, 1) == [b"once more"]
    again.mesh.handshake.reported(5000)  # as a peer would that has met it
    await until(lambda: again.me.incarnation > 5000)
    group = again.join("world", level, ["n1", "n2"])
    await group.send(b"and again")
    (heard,) = await messages_of(reader, 1)
    assert (heard.sender, heard.data) == (again.me, b"and again")

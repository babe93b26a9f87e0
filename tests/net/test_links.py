"""Links on demand: who is dialled, and which connections end. The time is given."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.net.nodes import Cluster, connected, data_of, introduce, live, place_of, until
from tests.net.test_contacts import Scene
from tests.net.test_mesh import two_ends

from ordercast import Gossip, Node
from ordercast.net import authority
from ordercast.net import keepalive as keepalive_module
from ordercast.net import links as limits
from ordercast.net import statuses as statuses_module
from ordercast.net.contact import ConnectionPhase, Contact
from ordercast.net.contacts import MOST_CALLS, MOST_FAILURES
from ordercast.types import NodeId
from ordercast.units import MILLISECOND, SECOND


class Wire:
    """A connection that only notes what is done with it."""

    def __init__(self, contact: Contact) -> None:
        self.contact = contact
        self.is_busy = self.is_new = True
        self.is_sending = False
        self.offered_at = 0
        self.offers = 0
        contact.phase = ConnectionPhase.CONNECTED
        contact.connection = self  # type: ignore[assignment]

    def offer(self) -> None:
        self.offers += 1

    def part(self) -> None:
        self.contact.phase, self.contact.connection = ConnectionPhase.AWAY, None


def connect(scene: Scene, *names: str) -> list[Any]:
    """Connections with nodes that greeted us, the first one longest ago."""
    wires = []
    for name in names:
        contact = scene.contacts.greeted(name, "10.0.0.1:7")
        assert contact is not None
        contact.meet(NodeId(name), b"")
        wires.append(Wire(contact))
        scene.links.tend()
        scene.clock.wait(MILLISECOND)
    return wires


def test_an_idle_connection_is_offered_to_the_other_end_now_and_then() -> None:
    scene = Scene()
    first, *others = connect(scene, "n1", "n2", "n3", "n4")
    scene.wait(29 * SECOND)
    assert first.offers == 0
    scene.wait(2 * SECOND)
    assert first.offers == 1, "the longest idle"
    assert not any(other.offers for other in others), "the last three stay"
    scene.wait(120 * SECOND)
    assert 3 <= first.offers <= 5
    assert first.contact.connection is first, "the other end needs it"


def test_an_offered_connection_is_closed_if_we_do_not_need_it_either() -> None:
    scene = Scene()
    first, second, *_ = connect(scene, "n1", "n2", "n3", "n4")
    scene.links.offered(first.contact)
    assert first.contact.connection is first, "it carried something a moment ago"
    scene.wait(40 * SECOND)
    scene.links.offered(first.contact)
    assert first.contact.connection is None
    assert not scene.links.wants(first.contact)
    scene.wait(2 * SECOND)
    second.is_busy = True
    scene.wait(2 * SECOND)
    scene.links.offered(second.contact)
    assert second.contact.connection is second
    assert scene.contacts.incidents.counters["idle_connections_closed"] == 1


def test_what_is_in_a_view_or_underway_is_needed() -> None:
    scene = Scene()
    viewed, sending, expecting, idle, *_ = connect(scene, *(f"n{number}" for number in range(1, 9)))
    scene.links.viewed = lambda: ["n1"]
    sending.contact.link.add(b"underway")
    expecting.contact.link_to(NodeId("n3", 7)).add(b"for its next incarnation")
    scene.wait(100 * SECOND)
    assert not (viewed.offers or sending.offers or expecting.offers)
    assert idle.offers
    for wire in (viewed, sending, expecting):
        wire.part()
    assert scene.links.wants(viewed.contact), "a member of one of our groups"
    assert not scene.links.wants(sending.contact), "no machine has sent for a while"
    scene.contacts.use("n2")
    assert scene.links.wants(sending.contact)


def test_of_many_idle_connections_the_longest_idle_are_closed_unasked() -> None:
    scene = Scene()
    wires = connect(scene, *(f"n{number}" for number in range(limits.MOST_IDLE + 10)))
    scene.links.viewed = lambda: ["n0"]
    scene.wait(40 * SECOND)
    up = [wire.contact.connection is not None for wire in wires]
    assert up == [True] + [False] * 9 + [True] * limits.MOST_IDLE


def test_a_connection_that_was_made_for_its_greeting_ends_after_a_few_seconds() -> None:
    """As for the keys of datagrams: in a large group that is one with everybody in turn."""
    scene = Scene()
    wires = connect(scene, *(f"n{number}" for number in range(limits.MOST_IDLE + 10)))
    for wire in wires:
        wire.is_busy, wire.is_new, wire.contact.carried_at = False, True, None
    wires[0].is_busy = True
    scene.links.tend()
    assert all(wire.contact.connection is wire for wire in wires)
    scene.wait(limits.GREETED)
    up = [wire.contact.connection is not None for wire in wires]
    assert up == [True] + [False] * 9 + [True] * limits.MOST_IDLE
    assert wires[10].offers == 1, "the others are offered"
    assert not wires[0].offers, "it carried a packet"


def test_so_many_contacts_a_second_are_called_for_datagrams() -> None:
    scene = Scene()
    scene.contacts.told({f"n{number}": "10.0.0.1:7" for number in range(30)}, by="n1")
    for _ in range(2):
        for contact in list(scene.contacts.values()):
            scene.contacts.call(contact)
    assert len({*scene.dialled}) == MOST_CALLS
    scene.contacts.tend()
    for contact in list(scene.contacts.values()):
        scene.contacts.call(contact)
    assert len({*scene.dialled}) == 30


def test_a_configured_contact_is_met_once_and_then_dialled_on_demand() -> None:
    scene = Scene()
    contact = scene.contacts.know("n9", "10.0.0.9:7")
    assert contact is not None
    connect(scene, "n1", "n2", "n3")
    scene.links.tend()
    assert scene.links.wants(contact), "we have not met it"
    contact.meet(NodeId("n9"), b"")
    assert not scene.links.wants(contact)
    scene.contacts.use("n9", by_link=False)
    assert not scene.links.wants(contact), "datagrams need no connection"
    scene.contacts.call(contact)
    assert scene.links.wants(contact), "but for a greeting, if there was none"
    contact.is_called = False
    scene.contacts.use("n9")
    assert scene.links.wants(contact)
    scene.wait(2 * limits.IDLE)
    assert not scene.links.wants(contact)
    for name in ("n1", "n2", "n3"):
        scene.contacts[name].connection = None
    scene.dialled.clear()
    scene.links.tend()
    scene.links.tend()
    assert scene.dialled == ["n9"], "we have few connections"


def test_a_lost_link_is_missed_while_there_is_little_company() -> None:
    scene = Scene()
    first, *_ = connect(scene, "n1", "n2", "n3")
    scene.links.tend()
    first.part()
    assert not scene.links.misses("n1", after_a_while=False), "a second ago there were three"
    scene.links.tend()
    assert scene.links.misses("n1", after_a_while=False)
    assert not scene.links.misses("n2", after_a_while=True), "it is connected"
    first.contact.is_parted = True
    assert not scene.links.misses("n1", after_a_while=False), "the other end wanted it"
    assert scene.links.misses("n1", after_a_while=True)
    heard = scene.contacts.heard(NodeId("n9"), ("10.0.0.9", 7))
    assert heard is not None
    heard.is_heard = True
    scene.links.tend()
    assert not scene.links.misses("n1", after_a_while=True), "datagrams come from another"


def test_while_a_group_waits_and_nobody_is_there_some_told_ones_are_dialled() -> None:
    scene = Scene()
    scene.contacts.told({f"n{number}": "10.0.0.1:7" for number in range(1, 10)}, by="n1")
    scene.wait(10 * SECOND)
    assert not scene.dialled, "no group waits"
    scene.links.waits = lambda: True
    scene.links.tend()
    sought = list(scene.dialled)
    assert len(sought) == limits.FEW_LINKS
    scene.links.tend()
    assert {*scene.dialled} == {*sought}, "the same ones, until they failed"
    for _ in range(MOST_FAILURES):
        scene.contacts.failed(scene.contacts[sought[0]])
    scene.links.tend()
    assert len({*scene.dialled}) == limits.FEW_LINKS + 1
    assert scene.links.wants(scene.contacts[sought[1]])
    connect(scene, "n1")
    scene.links.tend()
    assert not any(scene.links.wants(contact) for contact in scene.contacts.values())


@live
async def test_a_seed_that_refuses_is_not_the_only_way_into_a_group(cluster: Cluster) -> None:
    """n1 answers n3 once, before n3 has a number, and then has no room for it."""
    n1 = await cluster.open("n1")
    n2 = await cluster.open("n2", seeds=[place_of(n1)])
    groups = [node.join("orders", Gossip(round="10ms")) for node in (n1, n2)]
    await asyncio.gather(*(group.ready() for group in groups))
    limiter, entered = n1.mesh.accept_limiter, []
    enter = limiter.enter

    def enter_once(source: str, now: int) -> bool:
        entered.append(source)
        return len(entered) == 1 and enter(source, now)

    limiter.enter = enter_once  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keepalive_module, "PING_SECONDS", 0.01)
        n3 = await cluster.open("n3", data=str(cluster.folder / "empty"), seeds=[place_of(n1)])
        await n3.join("orders", Gossip(round="10ms")).ready()
        await until(lambda: n3.me in groups[1].members)


@live
async def test_idle_connections_end_and_come_back_with_the_next_packet(cluster: Cluster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keepalive_module, "PING_SECONDS", 0.01)
        patch.setattr(limits, "IDLE", 50 * MILLISECOND)
        patch.setattr(limits, "FEW_LINKS", 0)
        async with two_ends() as (one, two):
            one.say(b"first")
            await until(lambda: not one.mesh.connections and not two.mesh.connections)
            assert not one.mesh.counters["failed_dials"]
            one.say(b"second")
            two.say(b"third")
            await until(lambda: one.ear.heard and len(two.ear.heard) == 2)
            assert (one.ear.heard, two.ear.heard) == ([b"third"], [b"first", b"second"])


def count_looks(node: Node) -> list[None]:
    """Grows whenever the node looks for idle connections."""
    looks: list[None] = []
    tend = node.mesh.links.tend
    node.mesh.links.tend = lambda: (looks.append(None), tend())[1]
    return looks


@live
async def test_members_of_a_view_stay_connected(cluster: Cluster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keepalive_module, "PING_SECONDS", 0.01)
        patch.setattr(limits, "IDLE", 50 * MILLISECOND)
        patch.setattr(limits, "FEW_LINKS", 0)
        n1, n2, n3 = [await cluster.open(name) for name in ("n1", "n2", "n3")]
        introduce(n1, n2, n3)
        await cluster.join(n1, n2)
        await until(lambda: all(n3.mesh.contacts[name].node for name in ("n1", "n2")))
        await until(lambda: connected(n1, n2) and not n3.mesh.connections)
        looks = count_looks(n1)
        await until(lambda: len(looks) > 20)
        assert connected(n1, n2)
        assert not n3.mesh.connections


@live
async def test_a_status_waits_for_the_connection_that_it_needs(cluster: Cluster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keepalive_module, "PING_SECONDS", 0.01)
        patch.setattr(limits, "IDLE", 400 * MILLISECOND)
        patch.setattr(limits, "FEW_LINKS", 0)
        n1, n2 = await cluster.nodes("n1", "n2")
        await until(lambda: connected(n1, n2))
        await until(lambda: not n1.mesh.connections and not n2.mesh.connections)
        patch.setattr(statuses_module, "RESULT_SECONDS", 20)  # however busy the machine is
        level = Gossip(transport="status", hops=0, members="all")
        first, second = [node.join("news", level, ["n1", "n2"]) for node in (n1, n2)]
        await first.send(b"sent once")
        assert await data_of(second, 1) == [b"sent once"]
        assert not n1.driver.statuses.unsent


@live
async def test_sealed_datagrams_need_a_connection_once_for_their_keys(cluster: Cluster) -> None:
    names = [f"n{number}" for number in range(1, 6)]
    authority.init(cluster.folder, "shop")
    nodes: list[Node] = []
    for name in names:
        authority.issue(cluster.folder, name)
        files = {"authority": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
        tls = {what: str(cluster.folder / file) for what, file in files.items()}
        seeds = [place_of(node) for node in nodes[:1]]
        nodes.append(await cluster.open(name, cluster="shop", tls=tls, seeds=seeds))
    groups = [node.join("orders", Gossip(round="10ms")) for node in nodes]
    await until(lambda: all(len(group.members) == len(names) for group in groups))
    contacts = [node.mesh.contacts for node in nodes]
    await until(lambda: all(len(known) == len(names) - 1 for known in contacts))
    await until(lambda: all(contact.key for known in contacts for contact in known.values()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keepalive_module, "PING_SECONDS", 0.01)
        patch.setattr(limits, "IDLE", 50 * MILLISECOND)
        patch.setattr(limits, "FEW_LINKS", 0)
        await until(lambda: not any(node.mesh.connections for node in nodes))
        await groups[0].send(b"without a connection")
        for group in groups:
            assert await data_of(group, 1) == [b"without a connection"]
        await until(lambda: not any(node.mesh.connections for node in nodes))

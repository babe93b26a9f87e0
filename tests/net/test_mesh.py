"""The mesh: nodes find each other and stay together, and a link loses nothing on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random

import pytest
from tests.net.nodes import (
    PATIENT,
    QUICK,
    Cluster,
    connected,
    cut_off,
    data_of,
    introduce,
    kill,
    live,
    place_of,
    until,
)

from ordercast.errors import PeerError
from ordercast.net import keepalive as keepalive_module
from ordercast.net.contact import Contact
from ordercast.net.identity import Incarnation
from ordercast.net.mesh import Mesh
from ordercast.types import NodeId
from ordercast.units import MILLISECOND
from ordercast.wire.framing import FrameKind, frame

# --- links, with nothing above them ------------------------------------------------------------


class Ear:
    """Whatever a mesh hands on, in the order in which it came."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.deaf = False  # what comes is for nobody here
        self.is_late = False  # it answers when something else is done
        self.refuses: bytes | None = None  # what costs a peer its connection
        self.answers: list[int] = []
        self.meetings = 0  # connections that became ready

    def receive(self, sender: NodeId, bodies: Iterable[memoryview]) -> None:
        for body in bodies:
            if self.refuses is not None and bytes(body) == self.refuses:
                raise PeerError("refused")
            self.heard.append(bytes(body))

    def receive_status(self, sender: NodeId, body: memoryview, answer: Callable[[], None]) -> None:
        self.heard.append(bytes(body))
        if self.is_late:
            asyncio.get_running_loop().call_later(0.01, answer)
        elif not self.deaf:
            answer()

    def acknowledged(self, contact: Contact) -> None: ...

    def answered(self, sender: NodeId, key: int) -> None:
        self.answers.append(key)

    def met(self, contact: Contact) -> None:
        self.meetings += 1


class End:
    """A mesh with an ear, and the other one to speak to."""

    def __init__(self, name: str) -> None:
        self.ear = Ear()
        self.mesh = Mesh(Incarnation(NodeId(name)), "ordercast", self.ear, Random(1))
        self.to: End

    @property
    def contact(self) -> Contact:
        return self.mesh.contacts[self.to.mesh.me.name]

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.mesh.port}"

    def say(self, body: bytes) -> None:
        self.mesh.send(self.to.mesh.me, frame(FrameKind.DATA, body))

    def cut(self) -> None:
        if self.contact.connection is not None:
            self.contact.connection.transport.abort()

    @property
    def is_connected(self) -> bool:
        return self.to.mesh.me.name in self.mesh.contacts and self.contact.connection is not None


@asynccontextmanager
async def unmet_ends() -> AsyncIterator[tuple[End, End]]:
    one, two = End("n1"), End("n2")
    one.to, two.to = two, one
    try:
        for end in (one, two):
            await end.mesh.listen("127.0.0.1", 0)
        yield one, two
    finally:
        await one.mesh.close()
        await two.mesh.close()


@asynccontextmanager
async def two_ends(whoever_dials: str = "both") -> AsyncIterator[tuple[End, End]]:
    async with unmet_ends() as (one, two):
        for end in (one, two):
            if whoever_dials in (end.mesh.me.name, "both"):
                end.mesh.know(end.to.mesh.me.name, end.to.place)
        await until(lambda: one.is_connected and two.is_connected)
        yield one, two


@live
async def test_two_nodes_are_connected_whoever_dials(cluster: Cluster) -> None:
    for whoever in ("n1", "n2", "both"):
        async with two_ends(whoever) as (one, two):
            one.say(b"ping")
            two.say(b"pong")
            await until(lambda o=one, t=two: o.ear.heard and t.ear.heard)
            assert (one.ear.heard, two.ear.heard) == ([b"pong"], [b"ping"])


@live
async def test_a_burst_survives_a_connection_that_breaks_all_the_time(cluster: Cluster) -> None:
    """Both ends speak at once, and either may be the one at which it breaks, also in a frame."""
    count = 2000
    chance = Random(7)
    bodies = [number.to_bytes(4) + bytes(chance.choice([0, 10, 5000])) for number in range(count)]
    async with two_ends() as (one, two):
        cuts = 0
        for number, body in enumerate(bodies):
            one.say(body)
            two.say(body)
            if number % 50 == 0:
                await asyncio.sleep(0)
            if number % 250 == 125:
                chance.choice([one, two]).cut()
                cuts += 1
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
            if number % 500 == 499:
                await until(lambda: one.is_connected and two.is_connected)
        await until(lambda: len(one.ear.heard) >= count and len(two.ear.heard) >= count)
        assert one.ear.heard == bodies
        assert two.ear.heard == bodies
        again = one.mesh.counters["frames_sent_again"] + two.mesh.counters["frames_sent_again"]
        assert again > 0 and cuts == 8, "or this test shows nothing"
        await until(lambda: not one.contact.link.underway and not two.contact.link.underway)


@live
async def test_packets_behind_a_rejected_packet_are_sent_again(cluster: Cluster) -> None:
    """They may come in one piece, but what was not looked at must not count as received."""
    async with two_ends() as (one, two):
        two.ear.refuses = b"bad"
        for body in (b"first", b"second", b"bad", b"third", b"fourth"):
            one.say(body)
        await until(lambda: len(two.ear.heard) >= 4)
        assert two.ear.heard == [b"first", b"second", b"third", b"fourth"]
        assert two.mesh.counters["refused_frames"] == 1
        await until(lambda: not one.contact.link.underway)


@live
async def test_both_dial_at_once_and_one_connection_is_left(cluster: Cluster) -> None:
    async with two_ends() as (one, two):
        said = 0
        for _ in range(10):
            one.cut()
            dials = [end.mesh.dialler.dial(end.to.place) for end in (one, two)]
            for _ in range(20):
                one.say(said.to_bytes(4))
                two.say(said.to_bytes(4))
                said += 1
            await asyncio.gather(*dials)
        expected = [number.to_bytes(4) for number in range(said)]
        await until(lambda: len(one.ear.heard) >= said and len(two.ear.heard) >= said)
        assert one.ear.heard == two.ear.heard == expected
        await until(lambda: len(one.mesh.connections) == len(two.mesh.connections) == 1)


@live
async def test_acknowledged_frames_are_let_go(cluster: Cluster) -> None:
    async with two_ends() as (one, two):
        one.say(bytes(1_000_000))
        assert one.contact.link.size > 1_000_000
        await until(lambda: one.contact.link.size == 0)
        assert len(two.ear.heard) == 1


@live
async def test_what_is_sent_before_anybody_knows_the_receiver_arrives(cluster: Cluster) -> None:
    async with unmet_ends() as (one, two):
        one.say(b"early")
        two.mesh.know("n1", one.place)
        await until(lambda: two.ear.heard == [b"early"])


@live
async def test_of_two_dials_at_once_that_of_the_smaller_name_counts(cluster: Cluster) -> None:
    """If each end took the later one, each would end the one that the other took."""
    async with unmet_ends() as (one, two):
        dials = [end.mesh.dialler.dial(end.to.place) for end in (one, two)]
        assert await asyncio.gather(*dials) == [NodeId("n2"), NodeId("n1")]
        await until(lambda: one.is_connected and two.is_connected)
        assert one.contact.connection.dialled
        assert not two.contact.connection.dialled
        assert (one.ear.meetings, two.ear.meetings) == (1, 1)


@live
async def test_status_frames_are_answered(cluster: Cluster) -> None:
    async with two_ends() as (one, two):
        assert one.mesh.send_frame(one.contact, FrameKind.STATUS, (77).to_bytes(8) + b"there?")
        await until(lambda: one.ear.answers)
        assert (one.ear.answers, two.ear.heard) == ([77], [b"there?"])
        two.ear.deaf = True
        assert one.mesh.send_frame(one.contact, FrameKind.STATUS, (78).to_bytes(8) + b"and you?")
        await until(lambda: len(two.ear.heard) == 2)
        two.ear.deaf = False
        assert one.mesh.send_frame(one.contact, FrameKind.STATUS, (79).to_bytes(8) + b"now?")
        await until(lambda: len(one.ear.answers) == 2)
        assert one.ear.answers == [77, 79]
        two.ear.is_late = True
        assert one.mesh.send_frame(one.contact, FrameKind.STATUS, (80).to_bytes(8) + b"later?")
        one.mesh.keepalive.stop()  # so that nothing else comes, after which it would be written
        await until(lambda: one.ear.answers == [77, 79, 80])
        one.cut()
        await until(lambda: not one.is_connected)
        assert not one.mesh.send_frame(one.contact, FrameKind.STATUS, bytes(8))


@live
async def test_a_broken_link_stays_closed_for_that_incarnation(cluster: Cluster) -> None:
    """Frames were lost to it, so nothing may follow them: only a new incarnation starts afresh."""
    async with two_ends() as (one, two):
        one.say(b"first")
        await until(lambda: two.ear.heard and not one.contact.link.underway)
        one.contact.link.limit = 10
        one.say(b"more than ten bytes")
        assert one.mesh.counters["links_broken"] == 1
        one.say(b"late")
        await until(lambda: one.mesh.counters["refused_greetings"])
        assert "the link to n2 is broken" in cluster.log.text
        assert two.ear.heard == [b"first"]
        await two.mesh.close()
        two.mesh = Mesh(Incarnation(NodeId("n2", 1)), "ordercast", two.ear, Random(1))
        await two.mesh.listen("127.0.0.1", 0)
        one.mesh.know("n2", two.place)
        await until(lambda: one.is_connected and two.is_connected)
        one.say(b"again")
        await until(lambda: len(two.ear.heard) == 2)
        assert two.ear.heard == [b"first", b"again"]


@live
async def test_a_connection_that_is_silent_is_given_up_and_one_that_pings_is_not(
    cluster: Cluster,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keepalive_module, "PING_SECONDS", 0.01)
        patch.setattr(keepalive_module, "SILENCE", 500 * MILLISECOND)
        node = await cluster.open("n1")
        n2 = await cluster.open("n2")
        introduce(node, n2)
        await until(lambda: connected(node, n2))
        first = node.mesh.contacts["n2"].connection
        mute = await cluster.dial(node)
        await mute.connect("mute")
        contact = node.mesh.contacts["mute"]
        await until(lambda: contact.connection is not None)
        await until(lambda: contact.connection is None)
        assert node.mesh.contacts["n2"].connection is first


@live
async def test_a_wrong_acknowledgement_ends_the_connection(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    for body, said in [
        ((5).to_bytes(8), "n2 acknowledges frames that were never sent"),
        (b"\0\0\5", "an acknowledgement is a number of eight bytes"),
    ]:
        caller = await cluster.dial(node)
        await caller.connect("n2")
        caller.say(FrameKind.ACK, body)
        assert await caller.refusal() == said
        contact = node.mesh.contacts["n2"]
        assert contact.connection is None, "from the moment of the refusal on"
        node.mesh.send(NodeId("n2"), frame(FrameKind.DATA, b"kept"))


# --- nodes -------------------------------------------------------------------------------------


@live
async def test_three_nodes_are_connected_each_with_each(cluster: Cluster) -> None:
    nodes = await cluster.nodes("n1", "n2", "n3")
    for one in nodes:
        for other in nodes:
            await until(lambda a=one, b=other: a is b or connected(a, b))


@live
async def test_a_group_goes_on_over_connections_that_break(cluster: Cluster) -> None:
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    groups = await cluster.join(n1, n2, n3, level=PATIENT)
    count = 700

    async def send(group, mark: bytes) -> None:
        for number in range(count):
            await group.send(mark + number.to_bytes(4))
            if number % 10 == 0:
                await asyncio.sleep(0)
            if number % 200 == 100:
                cut_off(group.node)

    reading = [asyncio.create_task(data_of(group, 3 * count)) for group in groups]
    await asyncio.gather(*map(send, groups, [b"a", b"b", b"c"]))
    for got in await asyncio.gather(*reading):
        for mark in (b"a", b"b", b"c"):
            mine = [data for data in got if data.startswith(mark)]
            assert mine == [mark + number.to_bytes(4) for number in range(count)]


@live
async def test_a_node_that_was_away_is_found_again(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    await until(lambda: connected(n1, n2))
    place, old = place_of(n2), n2.me
    await kill(n2)
    await until(lambda: n1.mesh.counters["failed_dials"])
    again = await cluster.open("n2", listen=place)
    await until(lambda: connected(n1, again))
    assert again.me == NodeId("n2", old.incarnation + 1)


@live
async def test_a_node_that_moved_is_remembered_where_it_is_now(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    first = await cluster.open("n2", seeds=[place_of(n1)])
    await until(lambda: connected(n1, first))
    assert n1.mesh.contacts["n2"].place == place_of(first)
    await kill(first)
    second = await cluster.open("n2", seeds=[place_of(n1)])
    await until(lambda: connected(n1, second))
    assert n1.mesh.contacts["n2"].place == place_of(second)
    n3 = await cluster.open("n3", seeds=[place_of(n1)])
    await until(lambda: connected(n1, n3))
    await cluster.join(n1, second, n3)
    await until(lambda: connected(n3, second))


@live
async def test_the_newest_incarnation_of_a_name_is_the_one_that_counts(cluster: Cluster) -> None:
    node, old = await cluster.open_met_by("n2", incarnation=1)
    contact = node.mesh.contacts["n2"]
    await until(lambda: contact.connection is not None)
    node.mesh.send(NodeId("n2", 1), frame(FrameKind.DATA, b"for the old one"))
    assert await old.hear(FrameKind.DATA) == (FrameKind.DATA, b"for the old one")
    new = await cluster.dial(node)
    hello = await new.connect("n2", incarnation=2)
    assert hello.received == 0, "an incarnation begins with nothing"
    await until(lambda: contact.connection is not None)
    assert contact.node == NodeId("n2", 2)
    assert await old.hear(FrameKind.DATA) is None, "it was hung up on"
    node.mesh.send(NodeId("n2", 1), frame(FrameKind.DATA, b"for nobody"))
    node.mesh.send(NodeId("n2", 2), frame(FrameKind.DATA, b"for the new one"))
    assert await new.hear(FrameKind.DATA) == (FrameKind.DATA, b"for the new one")


@live
async def test_a_network_cut_holds_until_it_is_healed(cluster: Cluster) -> None:
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    groups = await cluster.join(n1, n2, n3)
    n1.mesh.set_cuts(frozenset({"n2"}), frozenset({"n2"}))
    assert not connected(n1, n2)
    await groups[0].send(b"past the cut")
    assert b"past the cut" in await data_of(groups[1], 1), "somebody else relays"
    await until(lambda: n1.mesh.counters["refused_greetings"])
    assert "cut off by the operator of this node" in cluster.log.text
    assert not connected(n1, n2)
    assert connected(n1, n3)
    n1.mesh.set_cuts(frozenset(), frozenset())
    await until(lambda: connected(n1, n2))


@live
async def test_a_network_cut_during_a_greeting_holds_too(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    caller = await cluster.dial(node)
    caller.greet("n2")
    assert await caller.hear(FrameKind.HELLO)
    node.mesh.set_cuts(frozenset({"n2"}), frozenset())
    caller.say(FrameKind.RESUME, b"\x91\x00")
    assert await caller.hear(FrameKind.REFUSE) is None
    assert node.mesh.contacts["n2"].connection is None


@live
async def test_places_that_cannot_be_dialled_do_no_harm(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    for number, place in enumerate(["127.0.0.1:99999", "nonsense", ":", "127.0.0.1:0", "a\0b:1"]):
        n1.mesh.know(f"bad{number}", place)
    await until(lambda: n1.mesh.counters["failed_dials"] >= 10)
    for contact in n1.mesh.contacts.values():
        assert not contact.dialler.done()
    n2 = await cluster.open("n2", seeds=[place_of(n1)])
    await until(lambda: connected(n1, n2))


@live
async def test_another_node_at_an_address_is_met_and_not_dialled_again(cluster: Cluster) -> None:
    """Each further try would cost the two their connection."""
    n1, n2 = await cluster.open("n1"), await cluster.open("n2")
    n1.mesh.know("n9", place_of(n2))
    await until(lambda: n1.mesh.counters["strangers_at_places"])
    await until(lambda: connected(n1, n2))
    assert f"n9 should be at {place_of(n2)}, but n2 is" in cluster.log.text


@live
async def test_closing_ends_connections_before_their_greeting(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    n1.mesh.know("n2", "127.0.0.1:1")
    caller = await cluster.dial(n1)
    await until(lambda: n1.mesh.connections)
    await n1.mesh.close()
    assert await caller.hear() is None
    assert not n1.mesh.connections


@live
async def test_closing_in_the_middle_of_a_dial_leaves_nothing(cluster: Cluster) -> None:
    """After however many turns: uvloop does not tell of a connection that was given up."""
    n1 = await cluster.open("n1")
    for turns in range(8):
        end = End(f"m{turns}")
        end.mesh.seed(place_of(n1))
        for _ in range(turns):
            await asyncio.sleep(0)
        await end.mesh.close()
        assert not end.mesh.connections


@live
async def test_a_configured_address_is_preferred_to_the_one_in_greetings(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    for name, place in (("n2", None), ("n3", "127.0.0.9:9")):
        caller = await cluster.dial(node)
        caller.greet(name, port=7)
        assert await caller.hear(FrameKind.HELLO)
        assert node.mesh.contacts[name].place == "127.0.0.1:7"
        node.mesh.know(name, place)  # the settings are read while it greets already
        again = await cluster.dial(node)
        again.greet(name, port=8)
        assert await again.hear(FrameKind.HELLO)
        assert node.mesh.contacts[name].place == (place or "127.0.0.1:8")


@live
async def test_a_member_that_restarts_is_met_as_a_new_incarnation(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, _ = await cluster.join(n1, n2, level=QUICK)
    await kill(n2)
    again = await cluster.open("n2")
    introduce(n1, again)
    second = again.join("orders", QUICK, ["n1", "n2"])
    async for item in first:
        members = getattr(item, "members", ())
        if again.me in members:
            break
    await first.send(b"welcome back")
    assert (await data_of(second, 1)) == [b"welcome back"]

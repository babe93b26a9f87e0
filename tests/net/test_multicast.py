"""Groups whose events go by multicast, between real nodes on loopback."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from tests.net.nodes import GROUP, Cluster, data_of, introduce, kill, live, until
from tests.net.ordered import judged, traced
from tests.net.test_synchrony import QUICK, merged, whole

from ordercast import Group, Node, Synchrony
from ordercast.net import authority
from ordercast.net.datagrams import PlainDatagrams
from ordercast.net.multicast import MARK_PLAIN, PlainMulticast
from ordercast.net.multicast_keys import MARK
from ordercast.protocol.transis import FAMILY
from ordercast.protocol.transis.packets import Cast, Leave
from ordercast.types import NodeId
from ordercast.wire.codec import Codec

PLACE = "239.77.1.2:{}"
NUMBERS = 40


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def level() -> Synchrony:
    place = PLACE.format(free_port())
    return msgspec.structs.replace(QUICK, multicast=place)


def files(cluster: Cluster, name: str) -> dict[str, str]:
    made = {"authority": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
    return {what: str(cluster.folder / file) for what, file in made.items()}


async def secured(cluster: Cluster, *names: str) -> list[Node]:
    authority.init(cluster.folder, "shop")
    for name in names:
        authority.issue(cluster.folder, name)
    opened = [await cluster.open(one, cluster="shop", tls=files(cluster, one)) for one in names]
    introduce(*opened)
    return opened


def counters(*nodes: Node) -> Counter[str]:
    return sum((node.mesh.counters for node in nodes), Counter[str]())


def figures(node: Node) -> dict[str, int]:
    machine = node.driver.machine(GROUP)
    assert machine is not None
    return machine.counters(GROUP)


@contextmanager
def recorded(node: Node) -> Iterator[list[bytes]]:
    """What a node multicasts."""
    wrapper, found = node.driver.multicasts.wrapper, list[bytes]()
    wrap = wrapper.wrap

    def wrapped(group: str, body: bytes) -> bytes:
        found.append(wrap(group, body))
        return found[-1]

    wrapper.wrap = wrapped
    try:
        yield found
    finally:
        wrapper.wrap = wrap


def say(group_level: object, *datagrams: bytes) -> None:
    """From outside, to everybody who listens."""
    host, _, port = group_level.multicast.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        for datagram in datagrams:
            one.sendto(datagram, (host, int(port)))


async def all_send(*groups: Group) -> None:
    for number in range(NUMBERS):
        for at, group in enumerate(groups):
            await group.send(b"%d of %d" % (number, at))
    told = [await data_of(group, NUMBERS * len(groups)) for group in groups]
    assert all(one == told[0] for one in told), "one order"


@live
async def test_four_nodes_share_one_order(cluster: Cluster) -> None:
    nodes = await traced(cluster, "n1", "n2", "n3", "n4")
    groups = await merged(*nodes, level=level())
    await all_send(*groups)
    assert not counters(*nodes)["multicasts_by_links"]
    assert "multicast that is refused" not in cluster.log.text
    for node in nodes:
        node.driver.flush()
    laws = judged(cluster.folder, "synchrony")
    assert laws["total-in-view"] == laws["safe"] == laws["virtual-synchrony"] == "holds"


@live
async def test_nothing_is_read_or_forged_where_datagrams_are_sealed(cluster: Cluster) -> None:
    n1, n2, n3 = await secured(cluster, "n1", "n2", "n3")
    shared = level()
    groups = await merged(n1, n2, n3, level=shared)
    with recorded(n1) as datagrams:
        await groups[0].send(b"a secret")
        assert [await data_of(group, 1) for group in groups] == [[b"a secret"]] * 3
        await all_send(*groups)
    assert all(one.startswith(MARK) and b"secret" not in one for one in datagrams)
    refused = counters(n2)["refused_datagrams"]
    forged = datagrams[-1][:-1] + bytes([datagrams[-1][-1] ^ 1])
    bad = [*datagrams[:20], forged, b"garbage", MARK + b"short", MARK_PLAIN + b"plain"]
    say(shared, *bad)
    await until(lambda: counters(n2)["refused_datagrams"] >= refused + len(bad))
    await all_send(*groups)


@live
async def test_a_member_that_left_cannot_open_what_follows(cluster: Cluster) -> None:
    n1, n2, n3 = await secured(cluster, "n1", "n2", "n3")
    first, second, third = await merged(n1, n2, n3, level=level())
    await first.send(b"before")
    assert await data_of(third, 1) == [b"before"]
    former = n3.driver.multicasts.wrapper
    keys = dict(former.others)
    await third.leave()
    for group in (first, second):
        await whole(group, "n1", "n2")
    with recorded(n1) as datagrams:
        await first.send(b"after")
        assert await data_of(second, 1) == [b"after"]
    assert datagrams
    assert all(one[len(MARK) : len(MARK) + 8] not in keys for one in datagrams)


@live
async def test_plain_packets_are_taken_of_connected_nodes_only(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    shared = level()
    groups = await merged(n1, n2, level=shared)
    with recorded(n1) as datagrams:
        await groups[0].send(b"hello")
        assert [await data_of(group, 1) for group in groups] == [[b"hello"]] * 2
    wrapper = n1.driver.multicasts.wrapper
    other = PlainMulticast(PlainDatagrams(NodeId("n9"), "ordercast", b"birth"))
    say(shared, other.wrap(GROUP, b"anything"), datagrams[0], wrapper.wrap(GROUP, b"\x91\xa1x"))
    await until(lambda: counters(n2)["multicasts_of_strangers"] == 1)
    await until(lambda: counters(n2)["refused_datagrams"] >= 1)
    assert "refused" in cluster.log.text
    await all_send(*groups)


@live
async def test_only_what_the_family_names_may_be_multicast(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    shared = level()
    groups = await merged(n1, n2, level=shared)
    current = n1.driver.machine(GROUP).current
    body = Codec([FAMILY]).encode(Leave(GROUP, current.cid, current.graph.sent))
    assert n1.driver.multicasts.send(GROUP, body)
    await until(lambda: counters(n2)["refused_datagrams"] == 1)
    assert "a Leave of" in cluster.log.text
    await all_send(*groups)


@live
async def test_what_is_lost_is_asked_for(cluster: Cluster) -> None:
    nodes = await cluster.nodes("n1", "n2", "n3")
    groups = await merged(*nodes, level=level())
    multicasts, codec = nodes[2].driver.multicasts, Codec([FAMILY])
    receive = multicasts.receive

    def without_events(sender: NodeId, group: str | None, body: bytes) -> None:
        if not isinstance(codec.decode(body), Cast):
            receive(sender, group, body)

    multicasts.receive = without_events
    for number in range(NUMBERS):
        await groups[number % 2].send(b"%d" % number)
        assert [await data_of(group, 1) for group in groups] == [[b"%d" % number]] * 3
    assert figures(nodes[2])["requests"] > 0
    assert sum(figures(node)["recovered_for_others"] for node in nodes[:2]) > 0


@live
async def test_a_member_that_multicast_does_not_reach_gets_links_and_it_is_said(
    cluster: Cluster,
) -> None:
    nodes = await cluster.nodes("n1", "n2", "n3")
    groups = await merged(*nodes, level=level())
    nodes[2].driver.multicasts.receive = lambda *packet: None
    for number in range(20):
        await groups[0].send(b"%d" % number)
        assert [await data_of(group, 1) for group in groups] == [[b"%d" % number]] * 3
    assert figures(nodes[0])["unreached"] == 1
    assert "does not get to n3" in cluster.log.text
    assert counters(nodes[0])["multicast_unreached"] >= 1


@live
async def test_links_carry_a_group_without_such_an_interface(cluster: Cluster) -> None:
    nodes = await cluster.nodes("n1", "n2")
    for node in nodes:
        node.driver.multicasts.interface = "192.0.2.1"  # of no interface here
    groups = await merged(*nodes, level=level())
    await all_send(*groups)
    assert counters(*nodes)["multicast_unavailable"] == 2
    assert "no multicast to 239.77.1.2" in cluster.log.text


@live
async def test_a_large_batch_goes_by_links(cluster: Cluster) -> None:
    nodes = await cluster.nodes("n1", "n2", "n3")
    groups = await merged(*nodes, level=level())
    large = bytes(200_000)
    await groups[0].send(large)
    await groups[0].send(b"small")
    assert [await data_of(group, 2) for group in groups] == [[large, b"small"]] * 3
    assert sum(figures(node)["recovered_for_others"] for node in nodes) == 0


@live
async def test_a_restarted_member_comes_back(cluster: Cluster) -> None:
    nodes = await secured(cluster, "n1", "n2", "n3")
    shared = level()
    first, second, _ = await merged(*nodes, level=shared)
    await kill(nodes[2])
    for group in (first, second):
        await whole(group, "n1", "n2")
    again = await cluster.open("n3", cluster="shop", tls=files(cluster, "n3"))
    introduce(*nodes[:2], again)
    third = again.join(GROUP, shared, ["n1", "n2", "n3"])
    for group in (first, second, third):
        await whole(group, "n1", "n2", "n3")
    await all_send(first, second, third)


@live
async def test_two_groups_share_an_address(cluster: Cluster) -> None:
    nodes = await cluster.nodes("n1", "n2")
    shared = level()
    names = [node.me.name for node in nodes]
    groups = await merged(*nodes, level=shared)
    others = [node.join("other", shared, names) for node in nodes]
    for group in others:
        await whole(group, *names)
    await all_send(*others)
    await groups[0].leave()
    await all_send(*others)


@pytest.mark.parametrize("one", ["239.1.2.3", "10.1.2.3:7777", "239.1.2.3:0", "[ff02::1]:7777"])
def test_an_address_must_be_one_of_multicast(one: str) -> None:
    with pytest.raises(ValueError, match="multicast"):
        type(QUICK)(multicast=one)

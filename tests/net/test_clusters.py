"""Causal clusters and gossip between real nodes: readers, updaters, state, coming and going."""

from __future__ import annotations

import asyncio

import pytest
from tests.net.nodes import Cluster, data_of, live, until

from ordercast import Causal, Gossip, Group, Node, UsageError
from ordercast.units import MILLISECOND, Duration

QUICK = Duration(5 * MILLISECOND)
WORLD = "world/7"
ONE_UPDATER = Causal(updaters=["n1"], round=QUICK)
TWO_UPDATERS = Causal(updaters=["n1", "n2"], round=QUICK)


async def joined(*nodes: Node, level: Causal = TWO_UPDATERS) -> list[Group]:
    names = [node.me.name for node in nodes]
    return [node.join(WORLD, level, names) for node in nodes]


@live
async def test_readers_see_updates_in_causal_order(cluster: Cluster) -> None:
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    first, second, reader = await joined(n1, n2, n3)
    for number in range(20):
        await first.send(b"landed %d" % number)
        heard = await data_of(second, 2 if number else 1)  # its own answer comes first
        assert heard[-1] == b"landed %d" % number
        await second.send(b"left %d" % number)
        assert (await data_of(first, 2))[-1] == b"left %d" % number  # so the next one follows it
    expected = [b"%s %d" % (word, number) for number in range(20) for word in (b"landed", b"left")]
    assert await data_of(reader, 40) == expected


@live
async def test_a_member_without_a_ticket_cannot_send(cluster: Cluster) -> None:
    n1, n3 = await cluster.nodes("n1", "n3")
    _, reader = await joined(n1, n3, level=ONE_UPDATER)
    with pytest.raises(UsageError, match="it only reads"):
        await reader.send(b"me too")


@live
async def test_waiting_for_stability_is_rejected_in_a_cluster(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    (group,) = await joined(n1, level=ONE_UPDATER)
    with pytest.raises(UsageError, match="nobody knows who has what"):
        await group.send(b"a", until="stable")
    receipt = await group.send(b"a", until="delivered")
    assert receipt.delivered


@live
async def test_updaters_must_be_named_where_members_are_not(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    with pytest.raises(UsageError, match="anybody may join it: name its updaters"):
        n1.join(WORLD, Causal(ownership="fixed"))


@live
async def test_events_too_long_for_a_datagram_arrive(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await joined(n1, n2)
    for size in (10, 70_000, 1_000_000, 20):
        await first.send(b"x" * size)
        await asyncio.sleep(0)
    assert [len(data) for data in await data_of(second, 4)] == [10, 70_000, 1_000_000, 20]


@live
async def test_a_cluster_works_over_tcp_alone(cluster: Cluster) -> None:
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    level = Causal(updaters=["n1", "n2"], round=QUICK, transport="status")
    first, second, reader = await joined(n1, n2, n3, level=level)
    await first.send(b"a")
    assert await data_of(second, 1) == [b"a"]
    await second.send(b"b")
    assert await data_of(reader, 2) == [b"a", b"b"]


@live
async def test_a_newcomer_gets_recent_events(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first = n1.join(WORLD, ONE_UPDATER, ["n1", "n2"])
    for number in range(5):
        await first.send(b"%d" % number, until="delivered")
    second = n2.join(WORLD, ONE_UPDATER, ["n1", "n2"])
    assert await data_of(second, 5) == [b"0", b"1", b"2", b"3", b"4"]


@live
async def test_a_newcomer_gets_the_applications_state(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    level = Causal(updaters=["n1"], round=QUICK, state=True)
    names = ["n1", "n2"]
    log: list[bytes] = []
    first = n1.join(WORLD, level, names, snapshot=lambda: b",".join(log), restore=log.extend)

    async def apply() -> None:
        while True:
            log.extend(await data_of(first, 1))

    applying = asyncio.create_task(apply())
    for number in range(5):
        await first.send(b"%d" % number, until="delivered")
    given: list[bytes] = []
    second = n2.join(WORLD, level, names, snapshot=lambda: b"", restore=given.append)
    reading = asyncio.create_task(data_of(second, 1))
    await until(lambda: given)
    await first.send(b"5")
    assert given == [b"0,1,2,3,4"]
    assert await reading == [b"5"]
    applying.cancel()
    await asyncio.wait([applying])


@live
async def test_snapshot_and_restore_are_needed_together(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    with pytest.raises(UsageError, match="a snapshot and a restore"):
        n1.join(WORLD, Causal(updaters=["n1"], state=True), snapshot=lambda: b"")


@live
async def test_a_member_leaves_a_cluster_and_joins_it_again(cluster: Cluster) -> None:
    """The same incarnation leaves and joins again, and hears nothing twice."""
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await joined(n1, n2, level=ONE_UPDATER)
    await first.send(b"a")
    assert await data_of(second, 1) == [b"a"]
    await second.leave()
    await first.send(b"b", until="delivered")
    again = n2.join(WORLD, ONE_UPDATER, ["n1", "n2"])
    await first.send(b"c", until="delivered")
    assert await data_of(again, 2) == [b"b", b"c"]
    await again.leave()
    with pytest.raises(UsageError, match="with other options"):
        n2.join(WORLD, TWO_UPDATERS, ["n1", "n2"])


@live
async def test_a_process_is_in_many_clusters_at_once(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    names = ["n1", "n2"]
    regions = [f"world/{number}" for number in range(10)]
    mine = [n1.join(region, ONE_UPDATER, names) for region in regions]
    theirs = [n2.join(region, ONE_UPDATER, names) for region in regions]
    for region, group in zip(regions, mine, strict=True):
        await group.send(region.encode())
    for region, group in zip(regions, theirs, strict=True):
        assert await data_of(group, 1) == [region.encode()]


@live
async def test_gossip_over_partial_views_reaches_all(cluster: Cluster) -> None:
    names = [f"n{number}" for number in range(1, 7)]
    nodes = await cluster.nodes(*names)
    level = Gossip(members="partial", view_size=3, fan_out=3, hops=6, round=QUICK)
    groups = [node.join("news", level, names) for node in nodes]
    await until(lambda: all(group.status()["counters"]["known"] >= 3 for group in groups))
    await groups[0].send(b"extra")
    for group in groups:
        assert await data_of(group, 1) == [b"extra"]


@live
async def test_status_has_a_counter_of_lost_events(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    await joined(n1, level=ONE_UPDATER)
    counters = n1.status()["groups"][WORLD]["counters"]
    assert {"lost", "late", "waiting", "recovered", "not_relayed"} <= counters.keys()

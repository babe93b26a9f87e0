"""What all groups of a node have on the way to one peer is bounded: then their sends wait."""

from __future__ import annotations

import asyncio

import pytest
from tests.net.nodes import PATIENT, QUICK, Cluster, data_of, kill, live, until, view_of

from ordercast import Group, Node
from ordercast.net import link_backpressure
from ordercast.net.link import Link
from ordercast.net.send_queue import LIMITS

LIMIT = 1 << 20
LARGE = bytes(LIMITS.full_bytes)
"""A batch by itself."""
AROUND = 1000
"""More than what is around the messages of a batch on the wire."""


def deafen(node: Node, peer: Node) -> None:
    """It reads nothing from the peer any more, while its heartbeats still come and go."""
    connection = node.mesh.contacts[peer.me.name].connection
    assert connection is not None
    connection.transport.pause_reading()


def listen_again(node: Node, peer: Node) -> None:
    connection = node.mesh.contacts[peer.me.name].connection
    assert connection is not None
    connection.transport.resume_reading()


def link_to(node: Node, peer: Node) -> Link:
    link = node.mesh.contacts[peer.me.name].link
    assert link is not None
    return link


def is_held_up(group: Group) -> bool:
    """It waits, and not because its own window is full."""
    has_room = group.node.driver.room(group.name) is not None
    return group.status()["waiting_out"] > 0 and has_room


def numbered(count: int) -> list[bytes]:
    """At most 60, or who sends must also read: what it delivers to itself waits for it."""
    return [b"%d " % number + LARGE for number in range(count)]


async def send_all(group: Group, messages: list[bytes]) -> None:
    for data in messages:
        await group.send(data)
        await asyncio.sleep(0)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@live
async def test_two_groups_wait_for_a_peer_that_does_not_read_and_lose_nothing(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2", peer_limit="1MiB")
    names = ["world/1", "world/2"]
    pairs = [await cluster.join(n1, n2, name=name, level=PATIENT) for name in names]
    deafen(n2, n1)
    messages = numbered(50)
    sending = [asyncio.create_task(send_all(here, messages)) for here, _ in pairs]
    await until(lambda: all(is_held_up(here) for here, _ in pairs))
    await turns(500)
    link = link_to(n1, n2)
    assert LIMIT // 2 < link.size <= LIMIT + LIMITS.credit_bytes + AROUND
    assert n1.status()["peers"]["n2"]["full"]
    assert not any(task.done() for task in sending)
    listen_again(n2, n1)
    for _, there in pairs:
        assert await data_of(there, 50) == messages
    await asyncio.gather(*sending)
    for here, _ in pairs:
        await here.send(b"last", until="stable")
    await until(lambda: link.size == 0)
    assert not n1.driver.backpressure.full
    assert not n1.status()["peers"]["n2"]["full"]


@live
async def test_a_link_stays_within_its_limit_while_many_groups_send(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2", peer_limit="64KiB")
    pairs = [await cluster.join(n1, n2, name=f"g{i}", level=PATIENT) for i in range(8)]
    messages = numbered(20)
    link, longest = link_to(n1, n2), 0

    async def watch() -> None:
        nonlocal longest
        while True:
            longest = max(longest, link.size)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    sending = [asyncio.create_task(send_all(here, messages)) for here, _ in pairs]
    for _, there in pairs:
        assert await data_of(there, 20) == messages
    await asyncio.gather(*sending)
    watching.cancel()
    await asyncio.wait([watching])
    assert 0 < longest <= (64 << 10) + LIMITS.credit_bytes + AROUND


@live
async def test_small_frames_are_counted_too(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2, level=PATIENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link_backpressure, "PEER_FRAMES", 10)
        deafen(n2, n1)
        sent = [b"%d" % number for number in range(200)]
        sending = asyncio.create_task(send_all(first, sent))
        await until(lambda: is_held_up(first))
        await turns(100)
        assert 5 < link_to(n1, n2).underway <= 11  # what it had read before is acknowledged late
        listen_again(n2, n1)
        assert await data_of(second, 200) == sent
        await sending


@live
async def test_groups_without_the_slow_peer_do_not_wait(cluster: Cluster) -> None:
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3", peer_limit="64KiB")
    all_of_them = await cluster.join(n1, n2, n3, name="all", level=PATIENT)
    first, third = await cluster.join(n1, n3, name="others", level=PATIENT)
    deafen(n2, n1)
    sending = asyncio.create_task(send_all(all_of_them[0], numbered(20)))
    await until(lambda: is_held_up(all_of_them[0]))
    await send_all(first, numbered(20))
    assert await data_of(third, 20) == numbered(20)
    assert is_held_up(all_of_them[0])
    listen_again(n2, n1)
    for group in all_of_them[1:]:
        assert await data_of(group, 20) == numbered(20)
    await sending


@live
async def test_a_peer_that_dies_holds_nobody_up_for_ever(cluster: Cluster) -> None:
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3", peer_limit="64KiB")
    first, _, third = await cluster.join(n1, n2, n3, level=QUICK)
    deafen(n2, n1)
    sending = asyncio.create_task(send_all(first, numbered(50)))
    await until(lambda: is_held_up(first))
    await kill(n2)
    assert await data_of(third, 50) == numbered(50)
    await sending
    assert [member.name for member in (await view_of(first, "n1", "n3")).members] == ["n1", "n3"]
    again = await cluster.open("n2")
    again.mesh.know("n1", f"127.0.0.1:{n1.mesh.port}")
    again.mesh.know("n3", f"127.0.0.1:{n3.mesh.port}")
    again.join("orders", QUICK, ["n1", "n2", "n3"])
    await view_of(first, "n1", "n2", "n3")
    await first.send(b"to the new incarnation", until="stable")
    assert "n2" not in n1.driver.backpressure.full


@live
async def test_a_connection_that_breaks_while_its_link_is_full_comes_back(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2", peer_limit="64KiB")
    first, second = await cluster.join(n1, n2, level=PATIENT)
    deafen(n2, n1)
    sending = asyncio.create_task(send_all(first, numbered(20)))
    await until(lambda: is_held_up(first))
    connection = n1.mesh.contacts["n2"].connection
    assert connection is not None
    connection.transport.abort()
    assert await data_of(second, 20) == numbered(20)
    await sending


@live
async def test_leaving_does_not_wait_for_a_full_peer(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2", peer_limit="0B")
    first, second = await cluster.join(n1, n2, level=PATIENT)
    deafen(n2, n1)
    await first.send(LARGE)
    await first.send(b"last words")
    await until(lambda: is_held_up(first))
    leaving = asyncio.create_task(first.leave())
    await until(lambda: first.status()["waiting_out"] == 0)
    listen_again(n2, n1)
    assert await data_of(second, 2) == [LARGE, b"last words"]
    await leaving

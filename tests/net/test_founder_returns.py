"""A founder that lost its folder is back in a group of three, and its messages arrive."""

from __future__ import annotations

import asyncio

from tests.net.nodes import Cluster, messages_of, place_of, until
from tests.net.test_lost_folder import lose
from tests.net.test_open import enter, found, in_families, say

from ordercast import Abandoned, FoundedTwice, Group, Node
from ordercast.kernel.family import Level

THE_SET_OF_THREE = 2
"""The first set of lease replicas is the founder alone."""


async def come_in(node: Node, level: Level) -> Group:
    """As an application that joins in a loop."""
    group = node.join("orders", level)
    await until(lambda: node.is_reborn or not group.is_open)
    try:
        await group.ready()
    except (Abandoned, FoundedTwice):
        return await come_in(node, level)
    return group


@in_families("fifo", "causal", "total")
async def test_a_founder_of_three_is_back_and_sends(cluster: Cluster, level: Level) -> None:
    n1, first = await found(cluster, level)
    place = place_of(n1)
    _, second = await enter(cluster, "n2", n1, level)
    _, third = await enter(cluster, "n3", n1, level)
    for group in (first, second, third):
        await group.ready()
    if first.permit is not None:
        await until(lambda: second.status()["counters"]["guards_set"] == THE_SET_OF_THREE)
    await lose(cluster, n1)
    again = await cluster.open("n1", listen=place)
    group = await come_in(again, level)
    await until(lambda: again.me in second.members and again.me in third.members)
    reading = asyncio.gather(*(messages_of(one, 1) for one in (second, third)))
    while not reading.done():
        await say(group, b"back")  # gossip may lose one
        await asyncio.wait([reading], timeout=0.5)
    heard = [message for messages in await reading for message in messages]
    assert [(one.sender, one.data) for one in heard] == [(again.me, b"back")] * 2

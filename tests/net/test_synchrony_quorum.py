"""Groups with virtual synchrony and a quorum, live: one side sends, and merges are voted on."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from tests.net.nodes import GENEROUS, GROUP, Cluster, live, until
from tests.net.ordered import Reader, judged, part, traced
from tests.net.test_synchrony import QUICK

from ordercast import CaughtUp, Group, Node, NoQuorum, Primary, Synchrony

MAJORITY = replace(QUICK, quorum="majority")
WRITES = 18


class Voters:
    """Three members, with readers that note all they hear."""

    def __init__(self, nodes: list[Node], level: Synchrony) -> None:
        names = [node.me.name for node in nodes]
        self.nodes = nodes
        self.readers = [Reader() for _ in nodes]
        self.groups = []
        for node, reader in zip(nodes, self.readers, strict=True):
            hooks = {"snapshot": reader.snapshot, "restore": reader.restore}
            given = hooks if level.merge == "largest" else {}
            self.groups.append(node.join(GROUP, level, names, **given))
        pairs = zip(self.readers, self.groups, strict=True)
        self._tasks = [asyncio.create_task(reader.read(group)) for reader, group in pairs]

    async def primary(self, count: int, *places: int) -> None:
        """Until these are in a primary view of so many."""
        await until(lambda: all(self._is_in(place, count) for place in places))

    def _is_in(self, place: int, count: int) -> bool:
        news = self.news(place)
        return news is not None and news.is_primary and len(news.view.members) == count

    def news(self, place: int) -> Primary | None:
        """The last that its application has read."""
        found = [one for one in self.readers[place].others if isinstance(one, Primary)]
        return found[-1] if found else None

    async def close(self) -> None:
        for group in self.groups:
            await group.leave()
        await asyncio.gather(*self._tasks)


async def voters(cluster: Cluster, level: Synchrony = MAJORITY) -> Voters:
    nodes = await traced(cluster, "n1", "n2", "n3")
    part(nodes)
    found = Voters(nodes, level)
    await found.primary(3, 0, 1, 2)
    return found


async def write(group: Group, word: str) -> list[bytes]:
    written = [f"{word} {number}".encode() for number in range(WRITES)]
    async with asyncio.timeout(GENEROUS):
        for data in written:
            await group.send(data, until="majority")
    return written


@live
async def test_a_lone_member_acknowledges_nothing_and_catches_up(cluster: Cluster) -> None:
    found = await voters(cluster)
    nodes, (first, _, lone) = found.nodes, found.groups
    before = await write(lone, "before")
    part(nodes[:2], nodes[2:])
    async with asyncio.timeout(GENEROUS):
        with pytest.raises(NoQuorum):
            while True:  # the first ones may still be sent in the view of three
                await lone.send(b"alone", until="majority")
        with pytest.raises(NoQuorum, match="missing: n1, n2"):
            await lone.send(b"alone")
    await found.primary(2, 0, 1)
    meanwhile = await write(first, "meanwhile")
    part(nodes)
    await found.primary(3, 0, 1, 2)
    news = found.news(2)
    assert news is not None
    assert news.up_to_date == ("n1", "n2")
    lone.give(CaughtUp(GROUP, news.view.id))
    after = await write(lone, "after")
    acknowledged = {*before, *meanwhile, *after}
    await until(lambda: all(acknowledged <= set(one.data) for one in found.readers[:2]))
    assert not set(meanwhile) & set(found.readers[2].data), "that is what it lacks"
    await found.close()
    assert judged(cluster.folder, "synchrony")["one-primary"] == "holds"


@live
async def test_a_member_that_is_given_the_state_is_up_to_date(cluster: Cluster) -> None:
    """n1 and n2 go on, and then n3 with n1: it has what they acknowledged meanwhile."""
    found = await voters(cluster, replace(MAJORITY, merge="largest"))
    nodes, (first, _, lone) = found.nodes, found.groups
    written = await write(lone, "before")
    part(nodes[:2], nodes[2:])
    await found.primary(2, 0, 1)
    written += await write(first, "meanwhile")
    part(nodes)
    await found.primary(3, 0, 1, 2)
    news = found.news(2)
    assert news is not None
    assert news.up_to_date == ("n1", "n2", "n3")
    written += await write(lone, "after")
    await until(lambda: all(one.data == written for one in found.readers))
    await found.close()
    assert judged(cluster.folder, "synchrony")["one-primary"] == "holds"


@live
async def test_sends_wait_for_the_primary_view_if_that_is_wanted(cluster: Cluster) -> None:
    found = await voters(cluster, replace(MAJORITY, when_split="wait"))
    nodes, lone = found.nodes, found.groups[2]
    part(nodes[:2], nodes[2:])
    await until(lambda: lone.status()["primary"] is False)
    receipt = await lone.send(b"patient")
    assert receipt.number is None
    part(nodes)
    await receipt.wait("majority", timeout=GENEROUS)
    await until(lambda: all(b"patient" in one.data for one in found.readers))
    await found.close()


@live
async def test_a_message_under_way_when_the_quorum_is_lost_is_in_doubt(cluster: Cluster) -> None:
    found = await voters(cluster)
    nodes, lone = found.nodes, found.groups[2]
    part(nodes[:2], nodes[2:])
    receipt = await lone.send(b"cut off", service="safe")
    with pytest.raises(NoQuorum, match="not known here"):
        await receipt.wait("majority", timeout=GENEROUS)
    assert receipt.number is not None
    part(nodes)
    await found.primary(3, 0, 1, 2)
    assert b"cut off" in found.readers[2].data
    assert not receipt.secured
    await found.close()

"""Groups with a quorum, live: one side of a partition sends, and what it acknowledged is kept."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from tests.net.nodes import GENEROUS, GROUP, Cluster, kill, live, until
from tests.net.ordered import QUICK, Readers, judged, part, traced

from ordercast import NoQuorum, Primary, Reformed, Total, UsageError

MAJORITY = replace(QUICK, quorum="majority")
WRITES = 18


async def together(cluster: Cluster, level: Total) -> tuple[list, Readers]:
    nodes = await traced(cluster, "n1", "n2", "n3")
    part(nodes)
    readers = Readers(*nodes, level=level)
    for group in readers.groups:
        await group.ready(GENEROUS)
    return nodes, readers


async def mended(nodes: list, readers: Readers) -> None:
    """The sides hear each other again, and n3, which was alone, asks for the group."""
    part(nodes)
    await nodes[0].reform(GROUP, timeout=GENEROUS)
    await until(lambda: all(len(one.names) == 3 for one in readers.readers))


@live
async def test_without_a_quorum_the_writes_of_a_lone_member_are_lost(cluster: Cluster) -> None:
    nodes, readers = await together(cluster, QUICK)
    lone = readers.groups[2]
    part(nodes[:2], nodes[2:])
    await until(lambda: readers.readers[2].names == ["n3"])
    await until(lambda: readers.readers[0].names == ["n1", "n2"])
    written = [b"%d" % number for number in range(WRITES)]
    for data in written:
        await lone.send(data, until="stable")
    await mended(nodes, readers)
    states = [reader.data for reader in readers.readers]
    assert not any(data in state for state in states for data in written), "18 of 18"
    await readers.close()


@live
async def test_with_a_quorum_no_acknowledged_write_is_lost(cluster: Cluster) -> None:
    nodes, readers = await together(cluster, MAJORITY)
    acknowledged: list[bytes] = []

    async def write(place: int, word: str) -> None:
        for number in range(WRITES):
            data = f"{word} {number}".encode()
            await readers.groups[place].send(data, until="majority")
            acknowledged.append(data)

    await write(2, "before")
    part(nodes[:2], nodes[2:])
    async with asyncio.timeout(GENEROUS):
        with pytest.raises(NoQuorum) as raised:
            while True:  # the first ones may still be sent in the view of three
                await readers.groups[2].send(b"alone", until="majority")
        with pytest.raises(NoQuorum, match="missing: n1, n2") as raised:
            await readers.groups[2].send(b"alone")
        await write(0, "meanwhile")
    assert raised.value.missing == ("n1", "n2")
    assert raised.value.last == ("n1", "n2", "n3")
    assert readers.groups[2].status()["primary"] is False
    await mended(nodes, readers)
    async with asyncio.timeout(GENEROUS):
        await write(2, "after")
    assert len(acknowledged) == 3 * WRITES
    await until(lambda: all(set(acknowledged) <= set(r.data) for r in readers.readers))
    assert all(one.data == readers.readers[0].data for one in readers.readers)
    news = [one for one in readers.readers[2].others if isinstance(one, Primary)]
    assert [one.is_primary for one in news][:2] == [True, False]
    assert news[-1].is_primary
    await readers.close()
    assert judged(cluster.folder)["one-primary"] == "holds"


@live
async def test_sends_wait_for_the_primary_view_if_that_is_wanted(cluster: Cluster) -> None:
    nodes, readers = await together(cluster, replace(MAJORITY, when_split="wait"))
    lone = readers.groups[2]
    part(nodes[:2], nodes[2:])
    await until(lambda: lone.status()["primary"] is False)
    receipt = await lone.send(b"patient")
    assert receipt.number is None
    await mended(nodes, readers)
    await receipt.wait("majority", timeout=GENEROUS)
    await until(lambda: all(b"patient" in one.data for one in readers.readers))
    await readers.close()


@live
async def test_a_message_under_way_when_the_quorum_is_lost_is_in_doubt(cluster: Cluster) -> None:
    nodes, readers = await together(cluster, MAJORITY)
    lone = readers.groups[2]
    await until(lambda: lone.status()["primary"] is True)
    part(nodes[:2], nodes[2:])
    receipt = await lone.send(b"cut off")
    with pytest.raises((NoQuorum, Reformed), match="not known here"):
        await receipt.wait("majority", timeout=GENEROUS)
    assert receipt.number is not None
    assert not receipt.secured
    await mended(nodes, readers)
    assert not receipt.secured
    await readers.close()


@live
async def test_the_vote_is_in_the_folder(cluster: Cluster) -> None:
    """n1 goes on alone in the end, and all restart: n2 and n3 are no majority of its view."""
    nodes, readers = await together(cluster, MAJORITY)
    part(nodes[:2], nodes[2:])
    await until(lambda: readers.groups[0].status()["primary"] is True)
    await until(lambda: readers.readers[0].names == ["n1", "n2"])
    part(nodes[:1], nodes[1:2], nodes[2:])
    await until(lambda: readers.readers[0].names == ["n1"])
    await until(lambda: readers.groups[0].status()["primary"] is True)
    for node in nodes:
        await kill(node)
    again = await cluster.nodes("n2", "n3")
    back = Readers()
    for node in again:
        back.add(node, ["n1", "n2", "n3"], level=MAJORITY)
    await again[0].reform(GROUP, members=["n2", "n3"], timeout=GENEROUS)
    await until(lambda: [one.status()["primary"] for one in back.groups] == [False, False])
    with pytest.raises(NoQuorum, match="missing: n1"):
        await back.groups[0].send(b"x")
    await back.close()


@live
async def test_a_majority_is_told_only_where_there_is_a_quorum(cluster: Cluster) -> None:
    _, readers = await together(cluster, QUICK)
    with pytest.raises(UsageError, match="quorum='majority'"):
        await readers.groups[0].send(b"x", until="majority")
    await readers.close()

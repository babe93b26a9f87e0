"""Several groups of a node read as one stream, in the one order that they have."""

from __future__ import annotations

import asyncio

import pytest
from tests.net.nodes import Cluster, data_of, live, until
from tests.net.ordered import QUICK, formed

from ordercast import Ejected, Fifo, Group, Message, Node, Together, UsageError, View

COUNT = 100


async def talk(groups: list[Group], mark: str) -> None:
    """A message here, a message there."""
    for number in range(COUNT):
        group = groups[number % len(groups)]
        await group.send(f"{mark}{number} in {group.name}".encode())
        await asyncio.sleep(0)


async def read(stream: Together, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        item = await anext(stream)
        if isinstance(item, Message):
            found.append(item.data)
    return found


@live
async def test_all_read_two_groups_in_the_same_order(cluster: Cluster) -> None:
    nodes = await cluster.nodes("n1", "n2", "n3")
    one, two = await formed(*nodes, name="one"), await formed(*nodes, name="two")
    pairs = [list(pair) for pair in zip(one, two, strict=True)]
    streams = [Together(*pair) for pair in pairs]
    talking = [asyncio.create_task(talk(*each)) for each in zip(pairs, "abc", strict=True)]
    heard = await asyncio.gather(*(read(stream, 3 * COUNT) for stream in streams))
    await asyncio.gather(*talking)
    assert heard[0] == heard[1] == heard[2]
    for mark in "abc":
        numbers = [int(data[1:].split()[0]) for data in heard[0] if data[:1] == mark.encode()]
        assert numbers == list(range(COUNT)), "what somebody sent later follows, in whichever group"


@live
async def test_an_answer_in_one_group_follows_the_question_in_the_other(cluster: Cluster) -> None:
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    asking, _, hearing = await formed(n1, n2, n3, name="questions")
    question = n2.groups["questions"]
    answering, heard_answers = await formed(n2, n3, name="answers")

    async def answer() -> None:
        for data in range(COUNT):
            (asked,) = await data_of(question, 1)
            assert asked == b"%d?" % data
            await answering.send(b"%d!" % data)

    async def ask() -> None:
        for number in range(COUNT):
            await asking.send(b"%d?" % number)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(work()) for work in (answer, ask)]
    heard = await read(Together(heard_answers, hearing), 2 * COUNT)
    await asyncio.gather(*tasks)
    for number in range(COUNT):
        assert heard.index(b"%d?" % number) < heard.index(b"%d!" % number)


@live
async def test_batches_are_handed_out_whole_and_in_turn(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    one, two = [n1.join(name, Fifo(), ["n1"]) for name in ("one", "two")]
    await one.send_many([b"1", b"2"], until="delivered")
    await two.send_many([b"3", b"4"], until="delivered")
    await one.send_many([b"5"], until="delivered")
    stream = Together(two, one)
    assert await read(stream, 3) == [b"1", b"2", b"3"]
    assert (await one.next_batch()).payloads == [b"5"]  # nothing was taken that was not handed out
    assert await read(stream, 1) == [b"4"]


@live
async def test_the_stream_ends_with_the_last_of_its_groups(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    (one,) = await formed(n1, name="one")
    stream = Together(one)
    (two,) = await formed(n1, name="two")
    stream.add(two)
    stream.add(two)
    await one.send(b"a", until="delivered")
    await one.leave()
    await two.send(b"b", until="delivered")
    assert await read(stream, 2) == [b"a", b"b"]
    ending = asyncio.create_task(anext(stream, None))
    await asyncio.sleep(0)
    await two.leave()
    assert await ending is None


@live
async def test_a_failed_group_raises_after_its_last_event(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    one, two = [n1.join(name, Fifo(), ["n1"]) for name in ("one", "two")]
    await one.send(b"a", until="delivered")
    n1.end(one, Ejected("put out, as a test"))
    stream = Together(one, two)
    assert isinstance(await anext(stream), View)
    assert await read(stream, 1) == [b"a"]
    with pytest.raises(Ejected, match="as a test"):
        await anext(stream)
    await two.send(b"b")
    assert await read(stream, 1) == [b"b"]


@live
async def test_groups_of_two_nodes_have_no_one_order(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    groups = [node.join("one", Fifo(), ["n1", "n2"]) for node in (n1, n2)]
    with pytest.raises(UsageError, match="of another node"):
        Together(*groups)


@live
async def test_a_state_is_that_of_its_place_in_the_stream(cluster: Cluster) -> None:
    """Though it is read together with another group, of whose messages it also speaks."""
    nodes = await cluster.nodes("n1", "n2")
    logs: dict[str, list[bytes]] = {"n1": [], "n2": []}
    given: list[bytes] = []

    def hooks(node: Node) -> dict[str, object]:
        log = logs[node.me.name]
        return {"snapshot": lambda: b",".join(log), "restore": given.append}

    other = await formed(*nodes, name="other")
    names = ["n1", "n2"]
    groups = [node.join("main", QUICK, names, **hooks(node)) for node in nodes]
    streams = [Together(*pair) for pair in zip(other, groups, strict=True)]

    async def keep(stream: Together, log: list[bytes]) -> None:
        async for item in stream:
            if isinstance(item, Message):
                log.append(item.data)

    tasks = [
        asyncio.create_task(keep(stream, logs[name]))
        for stream, name in zip(streams, names, strict=True)
    ]
    await other[0].send(b"in other", until="stable")
    await groups[1].send(b"in main", until="stable")
    await until(lambda: all(len(log) == 2 for log in logs.values()))
    await groups[1].leave()  # one that comes again needs the state
    groups[1] = nodes[1].join("main", QUICK, names, **hooks(nodes[1]))
    streams[1].add(groups[1])
    await nodes[0].reform("main")
    await until(lambda: b"in other,in main" in given)
    for group in (*other, *groups):
        await group.leave()
    await asyncio.gather(*tasks)

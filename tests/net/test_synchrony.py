"""Groups with virtual synchrony between real nodes: merging, splitting, services, leaving."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.net.nodes import GROUP, Cluster, data_of, kill, live
from tests.net.ordered import judged, traced

from ordercast import (
    DifferenceLost,
    Group,
    Merged,
    Message,
    Node,
    SideState,
    SideStates,
    Synchrony,
    UsageError,
    View,
)

QUICK = Synchrony(
    silence_limit="50ms", suspicion_limit="400ms", stage_limit="200ms", rest="50ms", hello="20ms"
)
NUMBERS = 30


async def whole(group: Group, *names: str) -> View:
    """Reads up to the first regular view of exactly these members."""
    async for item in group:
        is_regular = isinstance(item, View) and not item.transitional
        if is_regular and [member.name for member in item.members] == list(names):
            return item
    raise AssertionError("the group has ended")


async def merged(*nodes: Node, level: Synchrony = QUICK) -> list[Group]:
    names = [node.me.name for node in nodes]
    groups = [node.join(GROUP, level, names) for node in nodes]
    for group in groups:
        await whole(group, *names)
    return groups


@live
async def test_members_that_start_alone_merge_and_read_one_order(cluster: Cluster) -> None:
    nodes = await traced(cluster, "n1", "n2", "n3")
    groups = await merged(*nodes)

    async def send(group: Group, mark: bytes) -> None:
        for number in range(NUMBERS):
            service = ("agreed", "safe")[number % 2]
            await group.send(b"%s %d" % (mark, number), service=service)
            await asyncio.sleep(0)

    await asyncio.gather(*map(send, groups, (b"a", b"b", b"c")))
    heard = [await data_of(group, 3 * NUMBERS) for group in groups]
    assert heard[0] == heard[1] == heard[2]
    for node in nodes:
        node.driver.flush()
    laws = judged(cluster.folder, "synchrony")
    assert laws["total-in-view"] == laws["safe"] == laws["virtual-synchrony"] == "holds"


@live
async def test_the_survivors_of_a_crash_go_on_in_a_view_without_it(cluster: Cluster) -> None:
    nodes = await cluster.nodes("n1", "n2", "n3")
    first, second, third = await merged(*nodes)
    await third.send(b"last words", until="stable")
    await kill(nodes[2])
    for group in (first, second):
        view = await whole(group, "n1", "n2")
        assert view.came_with == (nodes[0].me, nodes[1].me)
    await first.send(b"next", until="stable")
    assert (await data_of(second, 1)) == [b"next"]


@live
async def test_an_application_hears_of_sides_that_merge(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first = n1.join(GROUP, QUICK, ["n1", "n2"])
    alone = await whole(first, "n1")
    assert alone.came_with == (n1.me,)
    await first.send(b"to myself")
    message = await anext(first)
    assert isinstance(message, Message)
    assert (message.data, message.service) == (b"to myself", "agreed")
    second = n2.join(GROUP, QUICK, ["n1", "n2"])
    view = await whole(first, "n1", "n2")
    news = await anext(first)
    assert isinstance(news, Merged)
    assert (news.view, news.sides) == (view, ((n1.me,), (n2.me,)))
    assert view.came_with == (n1.me,)
    await whole(second, "n1", "n2")
    news = await anext(second)
    assert isinstance(news, Merged)
    assert news.sides == ((n2.me,), (n1.me,))
    difference = await news.difference((n1.me,))
    assert [event.payloads for event in difference.events] == [[b"to myself"]]
    assert difference.complete
    with pytest.raises(UsageError, match="n2 is no other side"):
        await news.difference((n2.me,))
    await kill(n1)
    with pytest.raises(DifferenceLost, match="none of n1"):
        await news.difference((n1.me,))


@live
async def test_a_member_that_leaves_may_come_back(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await merged(n1, n2)
    await second.send(b"goodbye")
    await second.leave()
    assert await data_of(first, 1) == [b"goodbye"]
    await whole(first, "n1")
    again = n2.join(GROUP, QUICK, ["n1", "n2"])
    await whole(first, "n1", "n2")
    await whole(again, "n1", "n2")
    await first.send(b"welcome")
    assert await data_of(again, 1) == [b"welcome"]


@live
async def test_an_open_group_begins_with_as_many_as_are_expected(cluster: Cluster) -> None:
    n1 = await cluster.open("n1", cluster="c")
    n2 = await cluster.open("n2", cluster="c", seeds=[f"127.0.0.1:{n1.mesh.port}"])
    first = n1.join(GROUP, QUICK, expect=2)
    assert first.view is None
    second = n2.join(GROUP, QUICK, expect=2)
    for group in (first, second):
        view = await group.ready(timeout=20)
        assert view is not None
        assert [member.name for member in view.members] == ["n1", "n2"]


@live
async def test_a_quorum_needs_members_of_which_there_is_a_majority(cluster: Cluster) -> None:
    n1 = await cluster.open("n1", cluster="c")
    with pytest.raises(UsageError, match="list its members"):
        n1.join(GROUP, Synchrony(quorum="majority"))


@live
async def test_a_service_that_does_not_exist_is_refused(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    group = n1.join(GROUP, QUICK, ["n1"])
    with pytest.raises(UsageError, match="did you mean 'safe'"):
        await group.send(b"x", service="sure")


@live
async def test_the_state_of_the_larger_side_counts(cluster: Cluster) -> None:
    level = msgspec.structs.replace(QUICK, merge="largest")
    names = ["n1", "n2", "n3"]
    states: dict[str, list[bytes]] = {name: [] for name in names}
    heard = asyncio.Event()

    async def take_part(node: Node) -> Group:
        mine = states[node.me.name]

        def restore(state: bytes) -> None:
            mine[:] = state.split()
            heard.set()

        def take(item: object) -> None:
            if isinstance(item, Message):
                mine.append(item.data)
            heard.set()

        group = node.join(GROUP, level, names, snapshot=lambda: b" ".join(mine), restore=restore)
        tasks.append(asyncio.create_task(group.run(take)))
        await group.ready()
        return group

    async def until(state: list[bytes], *who: str) -> None:
        while any(states[name] != state for name in who):
            await heard.wait()
            heard.clear()

    tasks: list[asyncio.Task[None]] = []
    n1, n2, n3 = await cluster.nodes(*names)
    second, third = await take_part(n2), await take_part(n3)
    await second.send(b"a")
    await until([b"a"], "n2", "n3")
    first = await take_part(n1)
    await until([b"a"], "n1")  # it never was in a view in which this was delivered
    await first.send(b"b")
    await until([b"a", b"b"], *names)
    assert first.waiting is None
    for group in (first, second, third):
        await group.leave()
    await asyncio.gather(*tasks)


@live
async def test_the_states_of_all_sides_are_handed_to_all(cluster: Cluster) -> None:
    level = msgspec.structs.replace(QUICK, merge="all")
    nodes = await cluster.nodes("n1", "n2")
    n1, n2 = (node.me for node in nodes)

    async def take_part(node: Node) -> SideStates:
        name = node.me.name.encode()
        group = node.join(GROUP, level, ["n1", "n2"], snapshot=lambda: name, restore=print)
        async for item in group:
            if isinstance(item, SideStates):
                return item
        raise AssertionError("the group has ended")

    for given in await asyncio.gather(*map(take_part, nodes)):
        assert given.states == (SideState((n1,), b"n1"), SideState((n2,), b"n2"))


@live
async def test_a_state_needs_a_snapshot(cluster: Cluster) -> None:
    [n1] = await cluster.nodes("n1")
    with pytest.raises(UsageError, match="give join a snapshot"):
        n1.join(GROUP, Synchrony(merge="largest"), ["n1"])
    with pytest.raises(UsageError, match='merge="largest"'):
        n1.join(GROUP, Synchrony(), ["n1"], snapshot=bytes, restore=print)

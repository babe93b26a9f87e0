"""Joins that go wrong: half open, in the middle of a failure, two at once, or of nobody at all."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.net.nodes import Cluster, cut_off, kill, live, place_of, until
from tests.net.test_open import OPEN, enter, found, in_every_family

from ordercast import Group, Node, View
from ordercast.kernel.family import Level
from ordercast.protocol.families import FAMILIES
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind
from ordercast.wire.groups import Groups

FORMED = [name for name in OPEN if FAMILIES[name].formation is not None]


def knows(group: Group, *nodes: Node) -> bool:
    return {node.me for node in nodes} <= {*group.members}


async def claim(cluster: Cluster, node: Node, name: str, **changed: object) -> None:
    """A stranger greets, says of the node's group what the node said, but for this, and nothing
    ever again."""
    caller = await cluster.dial(node)
    await caller.connect(name)
    heard = await caller.hear(FrameKind.GROUPS)
    assert heard is not None
    [note] = greeting.decode(heard[1], Groups).notes
    note = msgspec.structs.replace(note, **changed)
    caller.say(FrameKind.GROUPS, greeting.encode(Groups([note])))
    await caller.drain()


@in_every_family
async def test_one_that_begins_to_join_and_says_no_more_keeps_nobody_out(
    cluster: Cluster, level: Level
) -> None:
    n1, first = await found(cluster, level)
    await claim(cluster, n1, "half", is_in=False, members={})
    n2, second = await enter(cluster, "n2", n1, level)
    await second.ready()
    await until(lambda: knows(first, n1, n2) and knows(second, n1, n2))
    assert "half" not in [member.name for member in (*first.members, *second.members)]


@in_every_family
async def test_members_that_do_not_exist_delay_nobody_for_long(
    cluster: Cluster, level: Level
) -> None:
    n1, first = await found(cluster, level)
    ghosts = {f"ghost{number}": "127.0.0.1:1" for number in range(4)}
    await claim(cluster, n1, "liar", members=ghosts)
    n2, second = await enter(cluster, "n2", n1, level)
    await second.ready()
    await until(lambda: knows(first, n1, n2) and knows(second, n1, n2))
    assert not [each for each in second.members if each.name.startswith("ghost")]


@in_every_family
async def test_a_joiner_that_dies_in_the_middle_keeps_nobody_out(
    cluster: Cluster, level: Level
) -> None:
    n1, first = await found(cluster, level)
    for number, turns in enumerate((0, 20, 200, 2000)):
        dying, group = await enter(cluster, f"d{number}", n1, level)
        for _ in range(turns):
            if group.readiness.is_in:
                break
            await asyncio.sleep(0)
        await kill(dying)
    n2, second = await enter(cluster, "n2", n1, level)
    await second.ready()
    await until(lambda: knows(first, n1, n2) and knows(second, n1, n2))


@in_every_family
async def test_several_join_at_once(cluster: Cluster, level: Level) -> None:
    n1, first = await found(cluster, level)
    nodes = [await cluster.open(f"n{number}", seeds=[place_of(n1)]) for number in range(2, 6)]
    groups = [node.join("orders", level) for node in nodes]
    await asyncio.gather(*(group.ready() for group in groups))
    await until(lambda: all(knows(group, n1, *nodes) for group in (first, *groups)))


@in_every_family
async def test_one_whose_connections_break_as_it_joins_is_in_when_they_last(
    cluster: Cluster, level: Level
) -> None:
    n1, first = await found(cluster, level)
    n2, second = await enter(cluster, "n2", n1, level)
    for _ in range(5):
        await until(lambda: n2.mesh.connections or second.readiness.is_in)
        cut_off(n2)
        await asyncio.sleep(0)
    await second.ready()
    await until(lambda: knows(first, n1, n2) and knows(second, n1, n2))


@in_every_family
async def test_a_group_whose_name_nobody_else_has_is_waited_for_with_a_reason(
    cluster: Cluster, level: Level
) -> None:
    n1, _ = await found(cluster, level)
    n2 = await cluster.open("n2", seeds=[place_of(n1)])
    misspelt = n2.join("ordrs", level)
    await until(lambda: n2.driver.directory.groups_of_others() == [("n1", ["orders"])])
    joined = r"no connected node has joined 'ordrs' \(n1 is in 'orders'\)"
    why = rf"it waits for n1, since \S+ s: {joined}"
    with pytest.raises(TimeoutError, match=rf"^n2 is not in 'ordrs' after 0\.3 s: {why}$"):
        await misspelt.ready(timeout=0.3)


@pytest.mark.parametrize("family", FORMED)
def test_nobody_sees_a_view_of_itself_alone_while_the_group_is_formed_anew(
    family: str, tmp_path: Any, caplog: Any
) -> None:
    @live
    async def story(cluster: Cluster) -> None:
        n1, first = await found(cluster, OPEN[family])
        groups: list[Group] = [first]
        seen: list[list[int]] = [[] for _ in range(4)]
        for name in ("n2", "n3", "n4"):
            _, group = await enter(cluster, name, n1, OPEN[family])
            await group.ready()
            groups.append(group)
            await until(lambda: all(len(each.members) == len(groups) for each in groups))
        for group, sizes in zip(groups, seen, strict=True):
            while len(groups) not in sizes:
                item = await anext(group)
                if isinstance(item, View):
                    sizes.append(len(item.members))
        assert seen[0][0] == 1, "the founder"
        assert all(min(sizes[1:], default=2) > 1 for sizes in seen), seen
        assert all(min(sizes) > 1 for sizes in seen[1:]), seen

    story("asyncio", tmp_path, caplog)

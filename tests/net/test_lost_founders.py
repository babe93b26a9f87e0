"""Open groups whose nodes have no volumes: they are founded, or say what the operator has to do."""

from __future__ import annotations

from tests.net.nodes import Cluster, connected, kill, live, place_of, until
from tests.net.test_lost_folder import lose
from tests.net.test_open import OPEN, in_families

from ordercast import Fifo, Group, Node, UsageError
from ordercast.kernel.family import Level
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.newtop.packets import FoundingRecord
from ordercast.store.file import FileStore
from ordercast.wire.codec import Codec


async def start(cluster: Cluster, level: Level, name: str, *others: Node, **rule: int) -> Group:
    node = await cluster.open(name, seeds=[place_of(other) for other in others])
    await until(lambda: all(connected(node, other) for other in others))
    return node.join("orders", level, **rule)  # type: ignore[arg-type]


async def without_folder(cluster: Cluster) -> tuple[Node, Node]:
    """n1 has lost its folder, and n2 knows its name."""
    n2 = await cluster.open("n2")
    former = await cluster.dial(n2)
    await former.connect("n1", incarnation=41)
    await former.close()
    await until(lambda: n2.mesh.contacts["n1"].connection is None)
    n1 = await cluster.open("n1", data=str(cluster.folder / "empty"), seeds=[place_of(n2)])
    assert n1.is_reborn
    return n1, n2


@in_families("fifo", "causal", "total", "sequenced", "atomic")
async def test_three_nodes_found_the_group_although_one_was_restarted_before(
    cluster: Cluster, level: Level
) -> None:
    rule = {"expect": 3, "of": 3}
    n2 = (await start(cluster, level, "n2", **rule)).node
    n1 = (await start(cluster, level, "n1", n2, **rule)).node
    await lose(cluster, n1)
    back = await start(cluster, level, "n1", n2, **rule)
    assert back.node.is_reborn
    third = await start(cluster, level, "n3", n2, **rule)
    groups = [back, n2.groups["orders"], third]
    for group in groups:
        await group.ready()
    await until(lambda: all(len(group.members) == 3 for group in groups))


@in_families("total", "sequenced", "atomic")
async def test_three_nodes_found_the_group_again_although_all_were_restarted(
    cluster: Cluster, level: Level
) -> None:
    """Each before the last one was back in the group."""
    rule = {"expect": 3, "of": 3}
    groups = [await start(cluster, level, "n1", **rule)]
    groups.append(await start(cluster, level, "n2", groups[0].node, **rule))
    groups.append(await start(cluster, level, "n3", groups[0].node, **rule))
    for group in groups:
        await group.ready()
    n1, n2, n3 = (group.node for group in groups)
    await lose(cluster, n1)
    n1 = (await start(cluster, level, "n1", n2, n3, **rule)).node
    await lose(cluster, n2)
    n2 = (await start(cluster, level, "n2", n1, n3, **rule)).node
    await lose(cluster, n3)
    n3 = (await start(cluster, level, "n3", n1, n2, **rule)).node
    assert all(node.is_reborn for node in (n1, n2, n3))
    for node in (n1, n2, n3):
        await node.groups["orders"].ready()


@in_families("causal", "total")
async def test_a_node_that_does_not_count_says_why_and_what_helps(
    cluster: Cluster, level: Level
) -> None:
    n1, n2 = await without_folder(cluster)
    groups = [node.join("orders", level, expect=2) for node in (n1, n2)]
    for group in groups:
        await until(lambda group=group: "n1 lost the data folder" in str(group.waiting))
        assert "or all 3; if fewer than 3 nodes give expect, say how many" in str(group.waiting)


@in_families("fifo", "causal", "total")
async def test_a_founder_that_lost_its_folder_says_what_helps(
    cluster: Cluster, level: Level
) -> None:
    n1, _ = await without_folder(cluster)
    group = n1.join("orders", level, founder="n1")
    await until(lambda: "this node lost its data folder" in str(group.waiting))
    assert "delete their data folders, and start them" in str(group.waiting)


@live
async def test_how_many_nodes_expect_a_number_must_make_sense(cluster: Cluster) -> None:
    n1 = await cluster.open("n1")
    for rule in ({"of": 3}, {"expect": 3, "of": 2}, {"expect": 3, "of": 6}):
        try:
            n1.join("orders", OPEN["total"], **rule)
        except UsageError as error:
            assert "how many nodes give expect" in str(error)
        else:
            raise AssertionError(rule)


@live
async def test_an_operator_ends_the_wait_for_one_that_may_have_founded_the_group(
    cluster: Cluster,
) -> None:
    """n2 had started in a founding of n9 when it was killed. n9 is gone for good."""
    level = OPEN["total"]
    n2 = await cluster.open("n2")
    await n2.abort()
    store = FileStore(cluster.folder / "n2", Codec(FAMILIES.values()))
    store.append([FoundingRecord("orders", "n9", ("n2", "n9"))])
    store.sync()
    store.close()
    second = await start(cluster, level, "n2", expect=2)
    third = await start(cluster, level, "n3", second.node, expect=2)
    await until(lambda: "n9 may have founded it" in str(second.waiting))
    assert second.waiting is not None
    assert second.waiting.on == ("n9",)
    assert await second.node.forget("n9") == []
    for group in (second, third):
        await group.ready()


@live
async def test_a_founder_that_lost_its_folder_and_meets_nobody_is_asked_for_no_address(
    cluster: Cluster,
) -> None:
    n1, other = await without_folder(cluster)
    group = n1.join("orders", Fifo(), founder="n1")
    await kill(other)
    said = f"nobody answers at {place_of(other)}: this node lost its data folder"
    await until(lambda: said in str(group.waiting))
    assert "check the address" not in str(group.waiting)

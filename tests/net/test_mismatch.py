"""Members that join one group on different terms: an error at the one that is wrong, once."""

from __future__ import annotations

import asyncio

import pytest
from tests.net.nodes import QUICK, Cluster, connected, live, until
from tests.net.ordered import QUICK as ORDERED

from ordercast import Causal, Fifo, Group, Mismatch, Total
from ordercast.kernel.family import Level

NAMES = ["n1", "n2"]


async def ended(group: Group) -> Mismatch:
    await until(lambda: group.ended is not None)
    assert isinstance(group.ended, Mismatch)
    return group.ended


@live
async def test_fifo_against_total_is_an_error_of_the_one_that_came_later(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes(*NAMES)
    await until(lambda: connected(n1, n2))
    first = n1.join("orders", QUICK, NAMES)
    await first.ready()
    second = n2.join("orders", ORDERED, NAMES)
    why = await ended(second)
    assert "n2 joined 'orders' on other terms than n1" in str(why)
    assert "family is total here and fifo there" in str(why)
    for call in (second.ready(), second.send(b"x"), anext(second)):
        with pytest.raises(Mismatch, match="on other terms"):
            await call
    await until(lambda: "family is fifo here and total there" in cluster.log.text)
    assert first.is_open
    assert "orders" not in n2.groups


@pytest.mark.parametrize(
    ("ours", "theirs", "what", "values"),
    [
        (Causal(tickets=2), Causal(tickets=3), "tickets", ("2", "3")),
        (Causal(updaters=["n1"]), Causal(updaters=["n2"]), "updaters", ("['n1']", "['n2']")),
        (Fifo(heartbeat="20ms"), Fifo(), "heartbeat", ("20ms", "50ms")),
        (Total(), Total(by="sequencer"), "Total.by", ("everyone", "sequencer")),
    ],
)
def test_other_options_are_an_error_that_names_both_values(
    ours: Level, theirs: Level, what: str, values: tuple[str, str], tmp_path, caplog
) -> None:
    """Each of the two says it, as it sees it: in the error of its group, or in one line."""

    @live
    async def story(cluster: Cluster) -> None:
        n1, n2 = await cluster.nodes(*NAMES)
        await until(lambda: connected(n1, n2))
        groups = [n1.join("orders", ours, NAMES), n2.join("orders", theirs, NAMES)]
        await until(lambda: any(group.ended for group in groups))
        for group, (here, there) in zip(groups, (values, values[::-1]), strict=True):
            said = f"{what} is {here} here and {there} there"
            await until(lambda said=said: said in cluster.log.text)
            if group.ended:
                assert said in str(await ended(group))
            [line] = [line for line in cluster.log.messages if said in line]
            assert line.startswith(f"{group.node.me} joined 'orders' on other terms than ")
        with pytest.raises(Mismatch, match="on other terms"):
            for group in groups:
                await group.ready(timeout=0.2)

    story("asyncio", tmp_path, caplog)


@live
async def test_other_members_are_an_error(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes(*NAMES)
    await until(lambda: connected(n1, n2))
    first = n1.join("orders", ORDERED, NAMES)
    second = n2.join("orders", ORDERED, ["n1", "n2", "n3"])
    await until(lambda: first.ended or second.ended)
    why = first.ended or second.ended
    assert "members is" in str(why)
    assert "n1 n2 n3" in str(why)


@live
async def test_nodes_that_connect_later_compare_too(cluster: Cluster) -> None:
    n1, n2 = await cluster.open("n1"), await cluster.open("n2")
    first = n1.join("orders", ORDERED, NAMES)
    second = n2.join("orders", Fifo(), NAMES)
    await second.ready()
    n1.mesh.know("n2", f"127.0.0.1:{n2.mesh.port}")
    assert "family is total here and fifo there" in str(await ended(first))
    assert second.is_open


@live
async def test_groups_of_one_name_on_the_same_terms_go_on(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes(*NAMES)
    first, second = await cluster.join(n1, n2)
    await first.send(b"x", until="stable")
    assert first.is_open
    assert second.is_open
    assert not cluster.log.text


@live
async def test_both_are_told_if_only_one_has_a_snapshot(cluster: Cluster) -> None:
    """The member without it joins a group that has a state, and would never know."""
    n1, n2 = await cluster.nodes(*NAMES)
    hooks = {"snapshot": bytes, "restore": lambda state: None}
    first = n1.join("orders", ORDERED, founder="n1", **hooks)
    await first.ready()
    reading = asyncio.create_task(first.run(lambda item: None))
    second = n2.join("orders", ORDERED, founder="n1")
    await second.ready()
    for said in (
        "n1 joined 'orders' with snapshot and restore, and n2 without them",
        "n2 joined 'orders' without snapshot and restore, and n1 with them",
    ):
        await until(lambda said=said: said in cluster.log.text)
        assert cluster.log.text.count(said) == 1
    await first.leave()
    await reading


@live
async def test_a_member_that_only_sends_needs_no_snapshot(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes(*NAMES)
    first = n1.join("orders", ORDERED, founder="n1", snapshot=bytes, restore=lambda state: None)
    reading = asyncio.create_task(first.run(lambda item: None))
    second = n2.join("orders", ORDERED, founder="n1", read=False)
    await second.ready()
    await second.send(b"x", until="stable")
    assert "snapshot" not in cluster.log.text
    await first.leave()
    await reading

"""Totally ordered groups that are re-formed: after cuts and deaths, with a state and a say."""

from __future__ import annotations

import asyncio

import pytest
from tests.net.nodes import Cluster, introduce, kill, live, until
from tests.net.ordered import PATIENT, QUICK, Reader, Readers, formed, judged, part, traced

from ordercast import (
    Fifo,
    Invitation,
    NotFormed,
    Partitioned,
    Reformed,
    SnapshotFailed,
    Total,
    UsageError,
    View,
    Waiting,
)
from ordercast.types import NodeId

AUTO = Total(prompt_after="5ms", silence_limit="50ms", suspicion_limit="400ms", reform="auto")


@live
async def test_both_sides_of_a_partition_continue_and_unite_with_one_state(
    cluster: Cluster,
) -> None:
    n1, n2, n3, n4 = nodes = await traced(cluster, "n1", "n2", "n3", "n4")
    readers = Readers(*nodes)
    one, two, three, four = readers.readers
    first, _, third, _ = readers.groups
    await first.send(b"before", until="stable")
    part([n1, n2], [n3, n4])
    await until(lambda: one.names == two.names == ["n1", "n2"])
    await until(lambda: three.names == four.names == ["n3", "n4"])
    assert any(isinstance(news, Partitioned) for news in one.others)
    await first.send(b"here", until="stable")
    await third.send(b"there", until="stable")
    part(nodes)
    view = await n3.reform("orders")
    assert [member.name for member in view.members] == ["n1", "n2", "n3", "n4"]
    assert view.formation.startswith("n3.0.")  # a busy machine may need more than one try
    await first.send(b"after", until="stable")
    expected = [b"before", b"there", b"after"]  # the part of whoever asks goes on
    await until(lambda: all(reader.data == expected for reader in readers.readers))
    await readers.close()
    laws = judged(cluster.folder)
    assert laws["total"] == laws["virtual-synchrony"] == laws["disjoint-views"] == "holds"


@live
async def test_sides_that_meet_again_are_told_that_they_can_unite(cluster: Cluster) -> None:
    """A member that was paused would write to nobody for ever, and nothing would say so."""
    n1, n2, n3 = nodes = await cluster.nodes("n1", "n2", "n3")
    readers = Readers(*nodes)
    one, two, three = readers.readers
    await readers.groups[0].send(b"before", until="stable")
    part([n1], [n2, n3])
    await until(lambda: one.names == ["n1"] and two.names == three.names == ["n2", "n3"])
    part(nodes)

    def is_told(reader: Reader, *on: str) -> bool:
        waits = [item for item in reader.others if isinstance(item, Waiting)]
        return bool(waits) and waits[-1].on == on and "in another part of 'orders'" in waits[-1].why

    await until(lambda: is_told(one, "n2", "n3") and is_told(two, "n1") and is_told(three, "n1"))
    assert "await node.reform('orders') unites this part with them" in str(one.others[-1])
    assert readers.groups[0].waiting is not None
    await n2.reform("orders")
    await until(lambda: all(group.waiting is None for group in readers.groups))
    await readers.close()


@live
async def test_sides_of_a_partition_re_form_automatically_if_configured(cluster: Cluster) -> None:
    n1, n2, n3 = nodes = await traced(cluster, "n1", "n2", "n3")
    readers = Readers(*nodes, level=AUTO)
    one, two, three = readers.readers
    await readers.groups[0].send(b"before", until="stable")
    part([n1], [n2, n3])
    await until(lambda: one.names == ["n1"] and two.names == three.names == ["n2", "n3"])
    await readers.groups[1].send(b"the larger part", until="stable")
    part(nodes)
    await until(lambda: all(reader.names == ["n1", "n2", "n3"] for reader in readers.readers))
    await readers.groups[0].send(b"after", until="stable")
    expected = [b"before", b"the larger part", b"after"]
    await until(lambda: all(reader.data == expected for reader in readers.readers))
    await readers.close()
    judged(cluster.folder)


@live
async def test_a_new_incarnation_enters_with_the_state_and_sends(cluster: Cluster) -> None:
    n1, n2 = await traced(cluster, "n1", "n2")
    readers = Readers(n1, n2)
    first, second = readers.groups
    await second.send(b"first incarnation", until="stable")
    await kill(n2)
    await until(lambda: readers.readers[0].names == ["n1"])
    receipt = await first.send(b"meanwhile", until="stable")
    again = await cluster.open("n2", trace=str(cluster.folder / "n2-again.rows"))
    introduce(n1, again)
    group, reader = readers.add(again, ["n1", "n2"])
    view = await n1.reform("orders", ["n1", "n2"])
    assert view.members == (NodeId("n1"), NodeId("n2", 1))
    assert receipt.stable, "and stays so, though the formation is another"
    await group.send(b"second incarnation", until="stable")
    expected = [b"first incarnation", b"meanwhile", b"second incarnation"]
    await until(lambda: reader.data == readers.readers[0].data == expected)
    await readers.close()


@live
async def test_a_receipt_of_the_old_formation_ends_with_an_error(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, _ = await formed(n1, n2, level=PATIENT)
    await first.send(b"with all", until="stable")
    await kill(n2)
    receipt = await first.send(b"with nobody")
    waiting = [asyncio.create_task(receipt.wait(until)) for until in ("delivered", "stable")]
    await until(lambda: receipt.number is not None)
    same = first.status()["formation"]
    first.take(View("orders", 1, (n1.me, n2.me), same))
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    first.take(View("orders", 2, (n1.me,), "n1.0.99"))
    for task in waiting:
        with pytest.raises(Reformed, match="'orders' was re-formed before all members had this"):
            await task
    assert not receipt.stable


@live
async def test_an_application_may_vote_no(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    asked: list[Invitation] = []

    refuses = asyncio.Event()

    def vote(invitation: Invitation) -> bool:
        asked.append(invitation)
        return not refuses.is_set()

    quick = Total(prompt_after="5ms", silence_limit="50ms", suspicion_limit="400ms")
    first = n1.join("orders", quick, ["n1", "n2"])
    second = n2.join("orders", quick, ["n1", "n2"], vote=vote)
    view = await anext(first)
    assert isinstance(view, View)
    await anext(second)
    refuses.set()
    with pytest.raises(NotFormed, match="the application of n2 does not want it"):
        await n1.reform("orders")
    assert asked[0].members == (n1.me, n2.me)
    assert {invitation.initiator for invitation in asked} == {n1.me}
    await first.send(b"all is as it was", until="stable")
    assert n1.status()["groups"]["orders"]["formation"] == view.formation


@live
async def test_a_vote_that_raises_counts_as_no(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    votes = [True]
    quick = Total(prompt_after="5ms", silence_limit="20ms", suspicion_limit="100ms")
    first = n1.join("orders", quick, ["n1", "n2"])
    n2.join("orders", quick, ["n1", "n2"], vote=lambda invitation: votes.pop())
    await anext(first)
    with pytest.raises(NotFormed, match="the application of n2 does not want it"):
        await n1.reform("orders")
    assert "IndexError" in cluster.log.text


@live
async def test_a_member_that_does_not_answer_is_named_and_the_wait_can_be_cancelled(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    quick = Total(prompt_after="5ms", silence_limit="20ms", suspicion_limit="100ms")
    readers = Readers(n1, n2, level=quick)
    await readers.groups[0].send(b"x", until="stable")
    await kill(n2)
    with pytest.raises(NotFormed, match="n2 does not answer"):
        await n1.reform("orders", ["n1", "n2"])
    with pytest.raises(TimeoutError, match=r"saw no new formation of .* within"):
        await n1.reform("orders", ["n1", "n2"], timeout=0)
    view = await n1.reform("orders")
    assert view.members == (n1.me,)
    await readers.close()


@live
async def test_an_impossible_formation_is_rejected_at_once(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    await formed(n1, n2, level=PATIENT)
    n1.join("plain", Fifo(), ["n1", "n2"])
    with pytest.raises(UsageError, match="n1 is not in group 'nothing'"):
        await n1.reform("nothing")
    with pytest.raises(UsageError, match="'plain' is fifo"):
        await n1.reform("plain")
    with pytest.raises(UsageError, match="n9 is not a member of 'orders': n1, n2"):
        await n1.reform("orders", ["n1", "n9"])
    with pytest.raises(UsageError, match="n1 forms 'orders', and so is in it"):
        await n1.reform("orders", ["n2"])


@live
async def test_leaving_ends_the_wait_for_a_formation(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    group = n1.join("orders", QUICK, ["n1", "n2"])
    waiting = asyncio.create_task(n1.reform("orders"))
    await asyncio.sleep(0)
    await group.leave()
    with pytest.raises(Exception, match="has left orders"):
        await waiting
    assert not n1.groups
    introduce(n1, n2)


@live
async def test_a_state_that_is_too_large_is_an_error_of_its_application(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    hooks = {"snapshot": lambda: bytes(33 << 20), "restore": lambda state: None}
    group = n1.join("orders", QUICK, ["n1", "n2"], **hooks)
    n2.join("orders", QUICK, ["n1", "n2"], **hooks)
    failed = await anext(group)
    assert isinstance(failed, SnapshotFailed)
    assert "a state has at most" in failed.why

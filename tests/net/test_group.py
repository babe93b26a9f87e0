"""A group as an application has it: one stream, sends that wait, and ways to end."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.net.nodes import (
    PATIENT,
    QUICK,
    Cluster,
    data_of,
    limit,
    live,
    messages_of,
    until,
    view_of,
)

from ordercast import Ejected, Fifo, Group, GroupClosed, Message, Size, UsageError, View
from ordercast.errors import OrdercastError
from ordercast.net.send_queue import LIMITS
from ordercast.types import Event
from ordercast.units import MILLISECOND, SECOND, Duration


def narrow(window: int, **more) -> Fifo:
    """So small a window that a test can fill it."""
    fast = {"heartbeat": Duration(10 * MILLISECOND), "suspicion_limit": Duration(20 * SECOND)}
    return Fifo(window=window, **fast, **more)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- the stream --------------------------------------------------------------------------------


@live
async def test_a_stream_begins_with_a_view_and_keeps_the_order(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = (node.join("orders", QUICK, ["n1", "n2"]) for node in (n1, n2))
    for group in (first, second):
        view = await anext(group)
        assert isinstance(view, View)
        assert view.members == (n1.me, n2.me)
        assert group.view == view
    for number in range(100):
        await first.send(b"%d" % number)
        if number % 7 == 0:
            await asyncio.sleep(0)
    expected = [b"%d" % number for number in range(100)]
    for group in (first, second):
        got = await messages_of(group, 100)
        assert [message.data for message in got] == expected
        assert {(message.sender, message.group) for message in got} == {(n1.me, "orders")}


@live
async def test_a_group_may_have_one_member(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    async with node.join("diary", QUICK) as group:
        assert (await anext(group)).members == (node.me,)
        await group.send(b"", until="stable")
        assert await data_of(group, 1) == [b""]


@live
async def test_messages_are_any_bytes(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2)
    sent = [b"", b"\0", bytearray(b"array"), memoryview(b"view")[1:], b"x" * 1_000_000, b""]
    for data in sent:
        await first.send(data)
    assert await data_of(second, len(sent)) == [bytes(data) for data in sent]


@live
async def test_a_lone_message_leaves_when_its_turn_ends(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    group = node.join("diary", QUICK)
    await group.ready()
    receipt = await group.send(b"lone")
    assert receipt.number is None
    await turns(1)
    assert receipt.delivered


@live
async def test_a_stream_of_messages_gathers_for_some_turns(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    group = node.join("diary", QUICK)
    limit(group, gather_time=3600 * SECOND)  # or a slow machine would need no gathering
    receipts = []
    for number in range(1 + 5 * (LIMITS.gather_turns + 1)):
        receipts.append(await group.send(b"%d" % number))
        await turns(1)
    numbers = [receipt.number for receipt in receipts]
    assert numbers[0] == 1, "the first has nobody before it"
    assert numbers[1:] == [
        2 + turn // (LIMITS.gather_turns + 1) for turn in range(len(numbers) - 1)
    ]


@live
async def test_nothing_gathers_while_somebody_waits_for_it(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    group = node.join("diary", QUICK)
    limit(group, gather_time=3600 * SECOND)
    for number in range(1, 4):
        receipt = await group.send(b"waited for", until="delivered")
        assert receipt.number == number
    open_batch = await group.send(b"queued")
    await turns(2)
    assert open_batch.number is None
    waiting = asyncio.create_task(open_batch.wait("delivered"))
    await turns(2)
    assert open_batch.number == 4
    await waiting


@live
async def test_sends_of_one_turn_are_one_batch(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2)
    receipts = [await first.send(b"%d" % number) for number in range(5)]
    receipts.append(await first.send_many([b"5", b"6"]))
    assert receipts[0].number is None, "the turn has not ended"
    await asyncio.sleep(0)
    assert receipts[0].number is not None, "a message waits for nothing but that"
    lone = await first.send(b"7")
    await asyncio.sleep(0)
    got = await messages_of(second, 8)
    assert [message.data for message in got] == [b"%d" % number for number in range(8)]
    assert [message.number for message in got] == [receipts[0].number] * 7 + [lone.number]
    assert receipts == [receipts[0]] * 6


@live
async def test_a_batch_that_is_large_leaves_at_once(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2)
    large = await first.send(bytes(LIMITS.full_bytes))
    assert large.number is not None
    small = await first.send(b"small")
    assert small.number is None
    assert [len(data) for data in await data_of(second, 2)] == [LIMITS.full_bytes, 5]


@live
async def test_next_batch_returns_the_rest_of_a_batch_or_a_whole_one(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2)
    await first.send_many([b"a", b"b", b"c"])
    assert (await anext(second)).data == b"a"
    rest = await second.next_batch()
    assert isinstance(rest, Event)
    assert rest.payloads == [b"b", b"c"]
    await first.send_many([b"d", b"e"])
    batch = await second.next_batch()
    assert batch.payloads == [b"d", b"e"]
    await second.leave()
    with pytest.raises(GroupClosed, match="n2 has left orders"):
        await second.next_batch()


@live
async def test_a_receipt_waits_for_queued_delivered_or_stable(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2)
    receipt = await first.send(b"queued")
    assert (receipt.delivered, receipt.stable) == (False, False)
    assert await receipt.wait("queued") is receipt
    await receipt.wait("delivered")
    assert receipt.delivered
    assert await data_of(first, 1) == [b"queued"]
    n1.mesh.set_cuts(frozenset({"n2"}), frozenset({"n2"}))
    receipt = await first.send(b"delivered", until="delivered")
    assert (receipt.delivered, receipt.stable) == (True, False), "the other cannot have it"
    n1.mesh.set_cuts(frozenset(), frozenset())
    receipt = await first.send(b"stable", until="stable")
    assert receipt.stable
    assert await data_of(second, 3) == [b"queued", b"delivered", b"stable"]
    nothing = await first.send_many([], until="stable")
    assert nothing.stable


@live
async def test_a_node_is_in_two_groups_at_once(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    orders = await cluster.join(n1, n2, name="orders")
    prices = await cluster.join(n1, n2, name="prices")
    await orders[0].send(b"an order")
    await prices[0].send(b"a price")
    assert await data_of(prices[1], 1) == [b"a price"]
    await prices[1].leave()
    await view_of(prices[0], "n1")
    await orders[0].send(b"another")
    assert await data_of(orders[1], 2) == [b"an order", b"another"]


# --- what cannot be sent -----------------------------------------------------------------------


@live
async def test_a_wrong_send_raises_an_error_at_the_caller(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2)
    for wrong in ("text", None, 5, [b"list"]):
        with pytest.raises(UsageError, match="a message is bytes, not "):
            await first.send(wrong)
        with pytest.raises(UsageError, match="a message is bytes, not "):
            await first.send_many([b"fine", wrong])
    with pytest.raises(UsageError, match="did you mean 'stable'"):
        await first.send(b"x", until="stabel")
    with pytest.raises(UsageError, match=f"{LIMITS.credit_count + 1} messages at once"):
        await first.send_many([b""] * (LIMITS.credit_count + 1))
    receipt = await first.send(b"and nothing of it was sent", until="stable")
    with pytest.raises(UsageError, match="did you mean 'delivered'"):
        await receipt.wait("delivred")
    assert await data_of(second, 1) == [b"and nothing of it was sent"]


@live
async def test_a_message_larger_than_the_window_is_rejected_and_the_group_continues(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    level = narrow(4, window_size=Size(10_000))
    first, second = await cluster.join(n1, n2, level=level)
    with pytest.raises(UsageError, match="a message of 10001 bytes: 'orders' takes 10000 at once"):
        await first.send(bytes(10_001))
    with pytest.raises(UsageError, match="2 messages, 10002 bytes"):
        await first.send_many([bytes(5001)] * 2)
    await first.send(bytes(10_000), until="stable")
    await second.send(bytes(10_000), until="stable")
    assert sorted(map(len, await data_of(first, 2))) == [10_000, 10_000]


@live
async def test_sends_that_together_are_larger_than_the_window_go_in_parts(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    level = narrow(4, window_size=Size(10_000))
    first, second = await cluster.join(n1, n2, level=level)
    sent = [bytes([number]) * 3000 for number in range(50)]
    sending = asyncio.gather(*(first.send(data) for data in sent))
    assert await data_of(second, 50) == sent
    await sending


@live
async def test_a_message_beyond_any_packet_is_refused_too(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    huge = {"window_size": Size(1 << 30), "retain_size": Size(1 << 31)}
    group = node.join("diary", narrow(4, **huge))
    with pytest.raises(UsageError, match="takes 66060288 at once"):
        await group.send(bytes(64 << 20))
    await group.send(b"fine", until="stable")


# --- credit ------------------------------------------------------------------------------------


@live
async def test_send_waits_when_window_and_credit_are_full_and_goes_on_later(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2, level=narrow(4))
    sent = []

    async def send() -> None:
        for number in range(500):
            await first.send(b"%d" % number)
            sent.append(b"%d" % number)
            await asyncio.sleep(0)

    limit(first, credit_count=50, gather_turns=0)
    n1.mesh.set_cuts(frozenset({"n2"}), frozenset({"n2"}))
    sending = asyncio.create_task(send())
    await until(lambda: first.status()["waiting_out"] == 50)
    await turns(200)
    assert first.status()["waiting_out"] == 50
    assert len(sent) < 60 and not sending.done()
    n1.mesh.set_cuts(frozenset(), frozenset())
    assert await data_of(second, 500) == [b"%d" % number for number in range(500)]
    await sending


@live
async def test_senders_that_wait_for_credit_are_served_in_order(cluster: Cluster) -> None:
    """Also a large message among small ones, which would fit where it does not."""
    n1, n2 = await cluster.nodes("n1", "n2")
    level = narrow(2, window_size=Size(1000))
    first, second = await cluster.join(n1, n2, level=level)
    sent = [b"%03d" % number + bytes(900 if number % 10 == 0 else 10) for number in range(200)]
    tasks = [asyncio.create_task(first.send(data)) for data in sent]
    assert await data_of(second, 200) == sent
    await asyncio.gather(*tasks)


@live
async def test_a_slow_consumer_slows_its_senders_and_loses_nothing(cluster: Cluster) -> None:
    n1, n2, n3 = await cluster.nodes("n1", "n2", "n3")
    first, second, slow = await cluster.join(n1, n2, n3, level=narrow(8))
    count = 2000

    async def send(group: Group, mark: bytes) -> None:
        for number in range(count):
            await group.send(mark + b"%d" % number)
            await asyncio.sleep(0)

    limit(first, second, credit_count=50)
    limit(slow, most_unread=200)
    reading = [asyncio.create_task(data_of(group, 2 * count)) for group in (first, second)]
    sending = [asyncio.create_task(send(*each)) for each in ((first, b"a"), (second, b"b"))]
    await until(lambda: first.status()["waiting_out"] == second.status()["waiting_out"] == 50)
    assert slow.status()["throttled"]
    most = 200 + 2 * 8 * 50  # the limit, and two windows that were underway
    assert 200 < slow.status()["waiting_in"] < most
    await turns(300)
    assert slow.status()["waiting_in"] < most
    assert not any(task.done() for task in (*sending, *reading))
    got = [await data_of(slow, 2 * count), *await asyncio.gather(*reading)]
    await asyncio.gather(*sending)
    for data in got:
        for mark in (b"a", b"b"):
            mine = [each for each in data if each.startswith(mark)]
            assert mine == [mark + b"%d" % number for number in range(count)]
    assert not slow.status()["throttled"]


@live
async def test_a_member_that_sends_and_never_reads_blocks_itself(cluster: Cluster) -> None:
    """Its own messages are in its own stream: they must not pile up there without a bound."""
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2, level=narrow(8))
    limit(first, credit_count=50, most_unread=200)
    reading = asyncio.create_task(data_of(second, 2000))
    sending = [asyncio.create_task(first.send(b"%d" % number)) for number in range(2000)]
    await until(lambda: first.status()["throttled"] and first.status()["waiting_out"] == 50)
    assert first.status()["waiting_in"] <= 200 + 8 * 50, "the limit and a window"
    expected = [b"%d" % number for number in range(2000)]
    assert await data_of(first, 2000) == await reading == expected
    await asyncio.gather(*sending)


@live
async def test_a_member_that_leaves_without_reading_has_sent_its_messages(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2, level=narrow(8))
    limit(first, most_unread=10)
    await first.send_many([b"%d" % number for number in range(20)])
    await until(lambda: first.status()["throttled"])
    await first.send(b"last")
    reading = asyncio.create_task(data_of(second, 21))
    await first.leave()
    assert (await reading)[-1] == b"last"


@live
async def test_a_member_that_reads_nothing_for_too_long_is_ejected(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2", eject_after="50ms")
    first, asleep = await cluster.join(n1, n2)
    limit(asleep, most_unread=10)
    await first.send_many([b"%d" % number for number in range(20)])
    await data_of(first, 20)
    await view_of(first, "n1")
    assert "n2 is ejected from 'orders': its queue was full" in cluster.log.text
    got = []
    with pytest.raises(Ejected, match="ejected from 'orders'"):
        async for item in asleep:
            got.append(item)
    assert [item.data for item in got] == [b"%d" % number for number in range(20)]
    for wrong in (asleep.send(b"x"), asleep.next_batch(), anext(asleep)):
        with pytest.raises(Ejected):
            await wrong
    with pytest.raises(UsageError, match="only a new incarnation can join it again"):
        n2.join("orders", QUICK, ["n1", "n2"])
    await asleep.leave()
    await first.send(b"the others go on", until="stable")


@live
async def test_a_member_that_reads_slowly_is_not_ejected(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2", eject_after="1h")
    first, slow = await cluster.join(n1, n2)
    limit(slow, most_unread=10)
    for number in range(30):  # a batch each: the application takes one of them at a time
        await first.send(b"%d" % number, until="delivered")
    await until(lambda: slow.status()["throttled"] and slow.status()["waiting_in"] == 30)
    for number in range(3):
        assert (await anext(slow)).data == b"%d" % number
        slow.monitor.time_is_over()
        assert slow.status()["throttled"] and slow.name in n2.groups
    slow.monitor.time_is_over()
    assert slow.name not in n2.groups


# --- cancellation ------------------------------------------------------------------------------


@live
async def test_reading_may_be_cancelled_at_any_moment(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2, level=PATIENT)
    chance, got = Random(5), []

    async def read() -> None:
        async for item in second:
            got.append(item.data)
            if chance.random() < 0.2:
                await asyncio.sleep(0)

    async def send() -> None:
        for number in range(1000):
            await first.send(b"%d" % number)
            if chance.random() < 0.5:
                await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    while len(got) < 1000:
        reading = asyncio.create_task(read())
        await turns(chance.randrange(12))
        reading.cancel()
        await asyncio.wait([reading])
    await sending
    assert got == [b"%d" % number for number in range(1000)]


@live
async def test_a_send_that_is_cancelled_was_sent_or_was_not(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2, level=narrow(2))
    chance, returned, begun = Random(9), [], []

    async def send() -> None:
        while len(begun) < 300:
            data = b"%d" % len(begun)
            begun.append(data)
            await first.send(data, until=chance.choice(["queued", "delivered", "stable"]))
            returned.append(data)

    limit(first, credit_count=2)
    while len(begun) < 300:
        tasks = [asyncio.create_task(send()) for _ in range(5)]
        await turns(chance.randrange(40))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    await first.send(b"end")
    got = []
    while not got or got[-1] != b"end":
        got += await data_of(second, 1)
    got.pop()
    assert len(set(got)) == len(got), "nothing came twice"
    assert set(returned) <= set(got) <= set(begun)
    assert got == sorted(got, key=int)
    assert not first.queue.in_line


@live
async def test_every_waiting_call_raises_when_the_group_closes(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, _ = await cluster.join(n1, n2, level=narrow(2))
    limit(first, credit_count=2)
    n1.mesh.set_cuts(frozenset({"n2"}), frozenset({"n2"}))
    await first.send(b"x", until="delivered")
    stable = asyncio.create_task(first.send(b"y", until="stable"))
    sending = [asyncio.create_task(first.send(b"z")) for _ in range(10)]
    await turns(20)
    n1.leave(first)
    for task in (stable, *(task for task in sending if not task.done())):
        with pytest.raises(GroupClosed, match="n1 has left orders"):
            await task
    assert sum(task.exception() is None for task in sending) < 10
    with pytest.raises(OrdercastError):
        await first.send(b"late")
    rest = [item.data async for item in first if isinstance(item, Message)]
    assert rest[:2] == [b"x", b"y"]

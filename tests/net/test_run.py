"""Reading a group by a handler, not reading it at all, and hooks that raise."""

from __future__ import annotations

import asyncio

import pytest
from tests.net.nodes import (
    PATIENT,
    QUICK,
    Cluster,
    data_of,
    limit,
    live,
    place_of,
    until,
    view_of,
)
from tests.net.ordered import QUICK as ORDERED

from ordercast import (
    Causal,
    Fifo,
    GroupClosed,
    Message,
    OrdercastError,
    RestoreFailed,
    SnapshotFailed,
    Together,
    UsageError,
    View,
)
from ordercast.kernel.step import Heard


class Collected:
    """A handler that keeps the messages, and waits for the test where it should."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.views: list[View] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def __call__(self, item: Heard) -> None:
        if isinstance(item, Message):
            self.data.append(item.data)
        elif isinstance(item, View):
            self.views.append(item)
        await self.may_go_on.wait()


@live
async def test_a_handler_reads_everything_in_order_until_the_group_is_left(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = (node.join("orders", QUICK, ["n1", "n2"]) for node in (n1, n2))
    collected, plain = Collected(), []
    tasks = [
        asyncio.create_task(first.run(collected)),
        asyncio.create_task(second.run(plain.append)),
    ]
    for number in range(20):
        await first.send(b"%d" % number)
    await until(lambda: len(collected.data) == 20 and len(plain) >= 20)
    assert collected.data == [b"%d" % number for number in range(20)]
    assert collected.views
    assert [item.data for item in plain if isinstance(item, Message)] == collected.data
    with pytest.raises(UsageError, match="'orders' is read by another call of run"):
        await first.run(collected)
    for group in (first, second):
        await group.leave()
    assert await asyncio.gather(*tasks) == [None, None]


@live
async def test_a_slow_handler_slows_the_senders(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    fast = {"heartbeat": "10ms", "suspicion_limit": "20s"}
    first, second = await cluster.join(n1, n2, level=Fifo(window=8, **fast))
    limit(first, credit_count=50)
    limit(second, most_unread=100)
    slow = Collected()
    slow.may_go_on.clear()
    running = asyncio.create_task(second.run(slow))
    reading = asyncio.create_task(first.run(lambda item: None))
    count = 2000

    async def send() -> None:
        for number in range(count):
            await first.send(b"%d" % number)
            await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    await until(lambda: first.status()["waiting_out"] == 50)
    assert second.status()["throttled"]
    assert not sending.done()
    slow.may_go_on.set()
    await sending
    await until(lambda: len(slow.data) == count)
    for group in (first, second):
        await group.leave()
    await asyncio.gather(running, reading)


@live
async def test_an_error_of_the_handler_leaves_the_group_and_is_raised(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    first, second = await cluster.join(n1, n2)

    def handler(item: Heard) -> None:
        raise ZeroDivisionError(f"cannot divide {type(item).__name__}")

    await second.send(b"x")
    with pytest.raises(ZeroDivisionError, match="cannot divide Message"):
        await first.run(handler)
    assert not first.is_open
    await view_of(second, "n2")
    with pytest.raises(GroupClosed):
        await first.send(b"more")


@live
async def test_a_handler_that_returns_something_is_a_mistake(cluster: Cluster) -> None:
    node = await cluster.open("n1")

    async def generator(item: Heard):
        yield item

    with pytest.raises(UsageError, match="None or an awaitable, not async_generator"):
        await node.join("diary", QUICK).run(generator)


@live
async def test_a_cancelled_run_stays_in_the_group(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    group = node.join("diary", QUICK)
    collected = Collected()
    for number in range(2):
        running = asyncio.create_task(group.run(collected))
        await group.send(b"%d" % number)
        await until(lambda number=number: len(collected.data) == number + 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert group.is_open


# --- a member that does not read ---------------------------------------------------------------


@live
async def test_a_member_that_only_sends_stores_nothing_and_is_not_ejected(
    cluster: Cluster,
) -> None:
    n1, n2 = await cluster.nodes("n1", "n2", eject_after="100ms")
    producer = n1.join("orders", PATIENT, ["n1", "n2"], read=False)
    reader = n2.join("orders", PATIENT, ["n1", "n2"])
    limit(producer, most_unread=1)
    reading = asyncio.create_task(data_of(reader, 2000))
    for number in range(1000):
        await producer.send(b"%d" % number)
        await reader.send(b"back")
    await reading
    await producer.send(b"last", until="stable")
    assert producer.status()["waiting_in"] == 0
    assert not producer.monitor.is_throttled
    assert producer.is_open
    for read in (producer.__aiter__, lambda: Together(reader, producer)):
        with pytest.raises(UsageError, match="n1 joined 'orders' with read=False: it only sends"):
            read()
    for waiting in (anext(producer), producer.next_batch(), producer.run(print)):
        with pytest.raises(UsageError, match="read=False"):
            await waiting


@live
async def test_a_member_that_does_not_read_has_no_state(cluster: Cluster) -> None:
    (n1,) = await cluster.nodes("n1")
    hooks = {"snapshot": lambda: b"", "restore": lambda state: None}
    with pytest.raises(UsageError, match="a member with read=False has none"):
        n1.join("orders", ORDERED, ["n1"], read=False, **hooks)
    with pytest.raises(UsageError, match="a member with read=False has none"):
        n1.join("novel", Causal(updaters=["n1"], state=True), read=False)


@live
async def test_a_newcomer_gets_the_state_of_a_member_that_reads(cluster: Cluster) -> None:
    """n1 is the first of the group by name and only sends: it has no state to give."""
    n1 = await cluster.open("n1")
    producer = n1.join("orders", ORDERED, read=False)
    await producer.ready()
    given: list[bytes] = []
    runs = []
    for count, name in enumerate(("n2", "n3"), 2):
        node = await cluster.open(name, seeds=[place_of(n1)])
        state = name.encode()
        group = node.join("orders", ORDERED, snapshot=lambda s=state: s, restore=given.append)
        runs.append((group, asyncio.create_task(group.run(lambda item: None))))
        await until(lambda count=count: len(producer.members) == count)
        await group.ready()
    await until(lambda: given)
    assert given == [b"n2"], "n2 got none, for nobody had one"
    for group, reading in runs:
        await group.leave()
        await reading


# --- hooks that raise --------------------------------------------------------------------------


def no_state() -> bytes:
    raise KeyError("accounts")


def no_room(state: bytes) -> None:
    raise ValueError(f"{len(state)} bytes are too many")


@live
async def test_a_snapshot_that_raises_costs_the_one_who_needs_it(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    names, fine = ["n1", "n2"], {"snapshot": lambda: b"", "restore": lambda state: None}
    bad = n1.join("orders", ORDERED, names, snapshot=no_state, restore=lambda state: None)
    good = n2.join("orders", ORDERED, names, **fine)
    assert await anext(bad) == SnapshotFailed("orders", "KeyError: 'accounts'")
    lacking = (
        "n2#?[0-9]* leaves 'orders': n1#?[0-9]* could not give its state: KeyError: 'accounts'"
    )
    with pytest.raises(OrdercastError, match="could not give its state: KeyError"):
        async for _ in good:
            pass
    with pytest.raises(OrdercastError, match=lacking):
        await good.ready()
    assert "orders" not in n2.groups
    await view_of(bad, "n1")
    await bad.send(b"more", until="stable")


@live
async def test_a_restore_that_raises_leaves_the_others_undisturbed(cluster: Cluster) -> None:
    n1, n2 = await cluster.nodes("n1", "n2")
    names = ["n1", "n2"]
    good = n1.join("orders", ORDERED, names, snapshot=lambda: b"abc", restore=lambda state: None)
    bad = n2.join("orders", ORDERED, names, snapshot=lambda: b"", restore=no_room)
    reading = asyncio.create_task(view_of(good, "n1"))
    said = "n2#?[0-9]* leaves 'orders': its restore raised ValueError: 3 bytes are too many"
    with pytest.raises(RestoreFailed, match=said) as raised:
        async for _ in bad:
            pass
    assert isinstance(raised.value.__cause__, ValueError)
    assert bad.ended is raised.value
    await reading
    await good.send(b"alone", until="stable")
    again = n2.join("orders", ORDERED, names, snapshot=lambda: b"", restore=lambda state: None)
    assert again.is_open, "its machine is sound"

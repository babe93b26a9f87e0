"""A condition wakes all who wait, and whoever gives up waiting takes nobody along."""

from __future__ import annotations

import asyncio

from tests.net.nodes import Cluster, live

from ordercast.net.condition import Condition


@live
async def test_all_waiters_wake_and_later_ones_wait_for_the_next_notification(
    cluster: Cluster,
) -> None:
    condition = Condition()
    condition.notify()  # nobody there
    waiting = [asyncio.create_task(condition.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait([waiting[1]])
    assert not waiting[0].done() and not waiting[2].done()
    condition.notify()
    await asyncio.gather(waiting[0], waiting[2])
    late = asyncio.create_task(condition.wait())
    await asyncio.sleep(0)
    assert not late.done()
    condition.notify()
    await late


@live
async def test_waiters_that_are_cancelled_leave_nothing_behind(cluster: Cluster) -> None:
    condition = Condition()
    for _ in range(100):
        task = asyncio.create_task(condition.wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert not condition.waiting


@live
async def test_a_waiter_that_is_cancelled_after_the_notification_is_cancelled(
    cluster: Cluster,
) -> None:
    condition = Condition()
    task = asyncio.create_task(condition.wait())
    await asyncio.sleep(0)
    condition.notify()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()

"""A bell wakes all who wait, and whoever gives up waiting takes nobody along."""

from __future__ import annotations

import asyncio

from tests.net.nodes import Cluster, live

from ordercast.net.bell import Bell


@live
async def test_all_who_wait_wake_and_who_comes_later_waits_for_the_next(cluster: Cluster) -> None:
    bell = Bell(asyncio.get_running_loop())
    bell.ring()  # nobody there
    waiting = [asyncio.create_task(bell.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait([waiting[1]])
    assert not waiting[0].done() and not waiting[2].done()
    bell.ring()
    await asyncio.gather(waiting[0], waiting[2])
    late = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    assert not late.done()
    bell.ring()
    await late


@live
async def test_who_gives_up_again_and_again_leaves_nothing_behind(cluster: Cluster) -> None:
    bell = Bell(asyncio.get_running_loop())
    for _ in range(100):
        task = asyncio.create_task(bell.wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert not bell._waiting


@live
async def test_who_is_cancelled_after_the_ring_is_cancelled(cluster: Cluster) -> None:
    bell = Bell(asyncio.get_running_loop())
    task = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    bell.ring()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()

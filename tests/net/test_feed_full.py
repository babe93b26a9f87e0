"""A feed whose node has a disk of 20 MB that fills up."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.net.nodes import Cluster, place_of, run, until

from ordercast import Feed, LoggedGroup, Post, Subscription, UsageError, Waiting

NAME, BEAT = "news", "50ms"
SIZE = 100_000


def test_a_full_disk_is_told_nothing_is_lost_and_posts_go_on(
    small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(tmp_path, caplog)

    async def scene() -> None:
        try:
            await fill_and_empty(cluster, small_disk)
        finally:
            await cluster.close()

    run("asyncio", scene)


async def fill_and_empty(cluster: Cluster, disk: Path) -> None:
    large = await cluster.open("n1")
    small = await cluster.open("n2", seeds=[place_of(large)], data=str(disk / "data"))
    root = large.join(NAME, Feed(beat=BEAT))
    feed = small.join(NAME, Feed(beat=BEAT))
    await feed.ready()
    news = feed.since("latest")
    other = disk / "other"
    other.write_bytes(bytes(8 << 20))

    count = 0
    while not feed.status()["log"]["strained"]:
        await feed.post(b"%9d" % count + bytes(SIZE))
        count += 1
    blocked = asyncio.ensure_future(feed.post(b"%9d" % count))
    told = await waiting_in(news)
    assert "the disk is nearly full" in told.why
    assert feed.waiting is not None
    assert not blocked.done()

    # What others post waits until there is room here; it is lost to nobody.
    mark = await root.post(b"from n1")
    assert root.status()["place"]["children"] == ["n2"] or feed.status()["place"]["children"]
    other.unlink()
    assert (await waiting_in(news)).why == ""
    assert (await blocked).position >= count
    await mark.wait_stable()
    reader = feed.since("earliest")
    own = [
        post
        for post in [await message(reader) for _ in range(count + 2)]
        if post.sender == small.me
    ]
    assert [int(post.data[:9]) for post in own] == list(range(count + 1))
    await until(lambda: root.tail == feed.tail == count + 2)


async def waiting_in(reader: Subscription) -> Waiting:
    while not isinstance(item := await anext(reader), Waiting):
        pass
    return item


async def message(reader: Subscription) -> Post:
    while not isinstance(item := await anext(reader), Post):
        pass
    return item


def test_a_disk_that_is_full_at_the_start(
    small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No node begins where it cannot write its number. With some room for that, the log that is
    there is read, and the application is told that it takes nothing."""
    cluster = Cluster(tmp_path, caplog)

    async def scene() -> None:
        try:
            feed = await joined(cluster, small_disk, "n1")
            await feed.post(b"one")
            await feed.node.abort()  # type: ignore[attr-defined]
            fill(small_disk)
            with pytest.raises(UsageError, match="incarnation cannot be written: No space left"):
                await joined(cluster, small_disk, "n1")
            give_back(small_disk, 1 << 16)
            again = await joined(cluster, small_disk, "n1")
            reader = again.since("earliest")
            assert (await message(reader)).data == b"one"
            while not again.status()["log"]["strained"]:  # it had set some room aside
                await again.post(bytes(SIZE))
            assert again.waiting is None or "the disk is nearly full" in again.waiting.why
            told = await waiting_in(reader)
            assert "the disk is nearly full" in told.why
        finally:
            await cluster.close()

    run("asyncio", scene)


async def joined(cluster: Cluster, disk: Path, name: str) -> LoggedGroup:
    node = await cluster.open(name, data=str(disk / "data"))
    return node.join(NAME, Feed(beat=BEAT))


def give_back(disk: Path, size: int) -> None:
    other = disk / "other"
    os.truncate(other, other.stat().st_size - size)


def fill(disk: Path) -> None:
    with (disk / "other").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass

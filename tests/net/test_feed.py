"""Feeds on real nodes: a log on disk at each of them, read from any place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.net.nodes import Cluster, kill, live, place_of, until

import ordercast
from ordercast import (
    Feed,
    Gap,
    LoggedGroup,
    Mark,
    Node,
    Post,
    Reference,
    Subscription,
    Together,
    UsageError,
    Vector,
    Waiting,
)

NAME = "news"
BEAT = "50ms"


async def opened(cluster: Cluster, *names: str, **settings: Any) -> list[Node]:
    """The first node has no seed, and is that of the others."""
    first = await cluster.open(names[0], **settings)
    seeds = [place_of(first)]
    return [first, *[await cluster.open(name, seeds=seeds, **settings) for name in names[1:]]]


async def feeds(cluster: Cluster, *names: str, **options: Any) -> list[LoggedGroup]:
    """All of them are in one tree, whose root is the first."""
    nodes = await opened(cluster, *names)
    joined = [node.join(NAME, Feed(beat=BEAT, **options)) for node in nodes]
    for feed in joined:
        await feed.ready()
    return joined


async def posts(subscription: Subscription, count: int) -> list[Post]:
    found: list[Post] = []
    while len(found) < count:
        item = await anext(subscription)
        if isinstance(item, Post):
            found.append(item)
    return found


async def texts(subscription: Subscription, count: int) -> list[bytes]:
    return [post.data for post in await posts(subscription, count)]


# --- posts -----------------------------------------------------------------------------------


@live
async def test_a_post_is_in_every_log_and_a_reply_behind_it(cluster: Cluster) -> None:
    first, second = await feeds(cluster, "n1", "n2")
    await first.post(b"question")
    (question,) = await posts(second.since("earliest"), 1)
    mark = await second.post(b"answer", reply_to=question)
    assert mark.reference is not None
    await mark.wait_stable()
    assert mark.stable

    there = await posts(first.since("earliest"), 2)
    assert [post.data for post in there] == [b"question", b"answer"]
    assert there[0].reference == question.reference == there[1].reply_to
    assert there[1].reference == mark.reference
    assert there[0].log == first.log != question.log == second.log


@live
async def test_the_group_itself_is_read_from_the_join_on(cluster: Cluster) -> None:
    first, second = await feeds(cluster, "n1", "n2")
    await first.post(b"before")
    assert await texts(second.since("earliest"), 1) == [b"before"]
    await second.leave()
    again = second.node.join(NAME, Feed(beat=BEAT))
    await first.post(b"after")
    assert (await anext(again)).data == b"after"


@live
async def test_posts_of_one_turn_share_a_batch_and_have_their_own_marks(
    cluster: Cluster,
) -> None:
    (feed,) = await feeds(cluster, "n1")
    marks = await asyncio.gather(*(feed.post(b"%d" % number) for number in range(4)))
    assert [(mark.position, mark.index) for mark in marks] == [(0, 1), (0, 2), (0, 3), (1, 0)]
    assert [post.mark for post in await posts(feed.since("earliest"), 4)] == marks
    many = await feed.post_many([b"4", b"5"])
    assert [(mark.position, mark.index) for mark in many] == [(1, 1), (2, 0)]


@live
async def test_a_lone_post_is_not_stable_before_another_log_has_it(cluster: Cluster) -> None:
    (feed,) = await feeds(cluster, "n1")
    mark = await feed.post(b"alone")
    assert not mark.stable
    with pytest.raises(TimeoutError, match=r"is not stable after 0\.05 s"):
        await mark.wait_stable(0.05)
    other = await cluster.open("n2", seeds=[place_of(feed.node)])
    other.join(NAME, Feed(beat=BEAT))
    await mark.wait_stable()


# --- places in a feed --------------------------------------------------------------------------


@live
async def test_a_mark_in_the_midst_of_a_batch_neither_repeats_nor_skips(cluster: Cluster) -> None:
    (feed,) = await feeds(cluster, "n1")
    await asyncio.gather(*(feed.post(b"%d" % number) for number in range(5)))
    await feed.post(b"5")
    seen: list[bytes] = []
    mark: Mark | None = None
    for _ in range(6):  # a reader that is replaced after each message
        reader = feed.since(mark if mark is not None else "earliest")
        (post,) = await posts(reader, 1)
        seen.append(post.data)
        assert reader.mark == post.mark
        assert reader.behind == feed.tail - post.mark.position
        mark = Mark.parse(str(post.mark))
    assert seen == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert mark is not None
    assert feed.since(mark).behind == 0


@live
async def test_a_vector_goes_on_at_another_node(cluster: Cluster) -> None:
    first, second = await feeds(cluster, "n1", "n2")
    await asyncio.gather(*(first.post(b"%d" % number) for number in range(3)))
    await (await second.post(b"other")).wait_stable()
    reader = first.since("earliest")
    await posts(reader, 2)
    vector = Vector.parse(bytes(await reader.vector()))
    assert vector == await first.vector(reader.mark)

    there = second.since(vector)
    assert set(await texts(there, 2)) == {b"2", b"other"}
    await first.post(b"3")
    (post,) = await posts(there, 1)
    assert post.data == b"3"
    assert there.is_level
    assert post.mark == there.mark  # which says as much as the vector now


@live
async def test_a_vector_of_what_this_log_has_not_yet(cluster: Cluster) -> None:
    first, second = await feeds(cluster, "n1", "n2")
    await kill(second.node)
    await asyncio.gather(*(first.post(b"%d" % number) for number in range(3)))
    reader = first.since("earliest")
    await posts(reader, 3)
    vector = await reader.vector()

    alone = await cluster.open("n2")  # nobody is there
    feed = alone.join(NAME, Feed(beat=BEAT))
    there = feed.since(vector)
    await feed.post(b"own")
    (own,) = await posts(there, 1)
    assert own.data == b"own"
    for told in (lambda: own.mark, lambda: there.mark):
        with pytest.raises(UsageError, match="has no mark before it is level"):
            told()
    alone.mesh.know("n1", place_of(first.node))
    await first.post(b"3")
    assert await texts(there, 1) == [b"3"]  # what the vector has did not come again
    waiting = asyncio.ensure_future(anext(there))
    await until(lambda: feed.changed.waiting and there.is_level)
    assert there.mark == Mark(feed.log, feed.tail)
    await first.post(b"4")
    assert (await waiting).mark.position == feed.tail


@live
async def test_what_subscribers_commit_is_in_the_log_of_the_node(cluster: Cluster) -> None:
    (feed,) = await feeds(cluster, "n1")
    assert feed.committed() is None
    marks = await asyncio.gather(*(feed.post(b"%d" % number) for number in range(3)))
    await feed.commit(marks[0])
    await feed.commit(marks[1], "other")
    await feed.commit(marks[1])
    assert feed.status()["committed"] == {"main": str(marks[1]), "other": str(marks[1])}
    await kill(feed.node)
    again = (await cluster.open("n1")).join(NAME, Feed(beat=BEAT))
    assert again.committed() == again.committed("other") == marks[1]
    assert await texts(again.since(marks[1]), 1) == [b"2"]


# --- readers -----------------------------------------------------------------------------------


@live
async def test_a_reader_that_does_not_read_slows_nobody(cluster: Cluster) -> None:
    first, second = await feeds(cluster, "n1", "n2")
    idle = second.since("earliest")
    data = bytes(50_000)
    for _ in range(40):
        await first.post_many([data] * 20)
    quick = second.since("earliest")
    assert len(await posts(quick, 800)) == 800  # 40 MB, far more than a queue in memory takes
    assert idle.behind == 40
    assert len(await posts(idle, 800)) == 800


@live
async def test_one_subscription_has_one_reader(cluster: Cluster) -> None:
    (feed,) = await feeds(cluster, "n1")
    reader = feed.since("earliest")
    waiting = asyncio.ensure_future(anext(reader))
    await until(lambda: feed.changed.waiting)
    with pytest.raises(UsageError, match="is read by another task"):
        await anext(reader)
    await feed.post(b"one")
    assert (await waiting).data == b"one"


@live
async def test_readers_end_with_the_group(cluster: Cluster) -> None:
    (feed,) = await feeds(cluster, "n1")
    await feed.post(b"one")
    found: list[object] = []

    async def read() -> None:
        async with feed.since("earliest") as reader:
            async for item in reader:
                found.append(item)

    reading = asyncio.ensure_future(read())
    await until(lambda: found)
    await feed.leave()
    await reading
    assert [item.data for item in found if isinstance(item, Post)] == [b"one"]


@live
async def test_a_handler_is_given_one_item_after_the_other(cluster: Cluster) -> None:
    first, second = await feeds(cluster, "n1", "n2")
    seen: list[bytes] = []

    async def handle(item: Any) -> None:
        seen.append(item.data)
        if len(seen) == 3:
            raise ValueError("enough")

    running = asyncio.ensure_future(second.since("earliest").run(handle))
    await first.post_many([b"0", b"1", b"2", b"3"])
    with pytest.raises(ValueError, match="enough"):
        await running
    assert seen == [b"0", b"1", b"2"]
    assert not second.is_open  # a handler that fails ends the membership


# --- what is lost ------------------------------------------------------------------------------


@live
async def test_what_was_trimmed_is_a_gap(cluster: Cluster) -> None:
    (feed,) = await feeds(cluster, "n1", keep_bytes="1MiB")
    (first,) = await feed.post_many([bytes(50_000)])
    idle = feed.since("earliest")
    while feed.floor <= first.position:
        await feed.post(bytes(50_000))
    assert first.reference is not None
    for reader in (feed.since(first), idle):
        gap = await anext(reader)
        assert isinstance(gap, Gap)
        assert (gap.origin, gap.birth) == first.reference.stream
        assert gap.up_to >= first.reference.number
        (post,) = await posts(reader, 1)
        assert (post.position, post.number) == (feed.floor, gap.up_to + 1)
    with pytest.raises(UsageError, match="has positions"):
        await feed.vector(first)


async def spoiled(cluster: Cluster) -> tuple[LoggedGroup, Node]:
    """A feed at n1, of whose three entries the first cannot be read; n2 had them all."""
    first, second = await feeds(cluster, "n1", "n2")
    for text in (b"zero", b"one", b"two"):
        await (await first.post(text * 10)).wait_stable()
    folder = first.status()["log"]["folder"]
    await kill(first.node)
    (segment,) = [path for path in cluster.folder.rglob("*.segment") if str(path.parent) == folder]
    data = bytearray(segment.read_bytes())
    data[data.index(b"zero" * 10)] ^= 1
    segment.write_bytes(data)
    again = await cluster.open("n1")
    return again.join(NAME, Feed(beat=BEAT, patience="200ms")), second.node


@live
async def test_an_entry_that_the_disk_has_lost_comes_from_a_neighbour(cluster: Cluster) -> None:
    feed, other = await spoiled(cluster)
    feed.node.mesh.know("n2", place_of(other))
    await until(lambda: feed.status()["place"]["children"] or feed.status()["place"]["parent"])
    reader = feed.since("earliest")
    waits = await anext(reader)
    assert isinstance(waits, Waiting)
    assert "its disk has lost an entry" in waits.why
    assert await texts(reader, 3) == [b"zero" * 10, b"one" * 10, b"two" * 10]
    assert feed.status()["counters"]["repaired"] == 1
    assert await texts(feed.since("earliest"), 1) == [b"zero" * 10]


@live
async def test_an_entry_that_nobody_has_is_a_gap(cluster: Cluster) -> None:
    feed, other = await spoiled(cluster)
    await kill(other)
    reader = feed.since("earliest")
    items = [await anext(reader) for _ in range(3)]
    assert [type(item) for item in items] == [Waiting, Gap, Post]
    assert items[2].data == b"one" * 10
    assert items[1].up_to == items[2].number - 1


# --- nodes that go and come ----------------------------------------------------------------------


@live
async def test_a_child_finds_another_parent(cluster: Cluster) -> None:
    root, middle = await feeds(cluster, "n1", "n2")
    low = await cluster.open("n3", seeds=[place_of(root.node), place_of(middle.node)])
    feed = low.join(NAME, Feed(beat=BEAT, parent="n2"))
    await until(lambda: feed.status()["place"]["path"] == ["n2", "n1"])
    reader = feed.since("latest")
    await kill(middle.node)
    await root.post(b"meanwhile")
    assert await texts(reader, 1) == [b"meanwhile"]
    assert feed.status()["place"]["path"] == ["n1"]


@live
async def test_an_orphan_says_that_it_waits_and_that_it_goes_on(cluster: Cluster) -> None:
    root, low = await feeds(cluster, "n1", "n2")
    reader = low.since("latest")
    await kill(root.node)
    waits = await anext(reader)
    assert isinstance(waits, Waiting)
    assert "it looks for a parent" in waits.why
    await low.post(b"all the same")
    items = [await anext(reader) for _ in range(2)]
    assert any(isinstance(item, Post) for item in items)
    assert any(isinstance(item, Waiting) and not item.why for item in items)
    assert low.status()["place"]["is_root"]


@live
async def test_a_node_without_its_folder_begins_another_log(cluster: Cluster) -> None:
    first, second = await feeds(cluster, "n1", "n2")
    mark = await second.post(b"old")
    await mark.wait_stable()
    await kill(second.node)
    seeds, data = [place_of(first.node)], str(cluster.folder / "elsewhere")
    again = (await cluster.open("n2", seeds=seeds, data=data)).join(NAME, Feed(beat=BEAT))
    assert await texts(again.since("earliest"), 1) == [b"old"]
    assert again.log != mark.log
    with pytest.raises(UsageError, match="is a mark of another log"):
        again.since(mark)
    await (await again.post(b"new")).wait_stable()
    old, new = await posts(first.since("earliest"), 2)
    assert (old.sender.name, new.sender.name) == ("n2", "n2")
    assert old.birth != new.birth


@live
async def test_marks_and_readers_outlive_a_membership(cluster: Cluster) -> None:
    first, second = await feeds(cluster, "n1", "n2")
    mark = await second.post(b"one")
    await second.leave()
    await first.post(b"two")
    again = second.node.join(NAME, Feed(beat=BEAT))
    await again.ready()
    assert await texts(again.since(mark), 1) == [b"two"]
    await (await again.post(b"three")).wait_stable()


# --- what is refused -----------------------------------------------------------------------------


@live
async def test_what_is_wrong_is_said(cluster: Cluster) -> None:
    (feed,) = await feeds(cluster, "n1")
    await feed.post(b"one")
    for since, said in (
        (Mark(feed.log ^ 1, 0), "is a mark of another log than that of 'news' here"),
        (Mark(feed.log, 2), "is behind the end of the log of 'news', 1"),
        (Mark(feed.log, 1, 1), "is behind the end"),
        ("newest", "since takes a Mark, a Vector, 'earliest' or 'latest', not 'newest'"),
        (None, "not None"),
    ):
        with pytest.raises(UsageError, match=said):
            feed.since(since)
    with pytest.raises(UsageError, match="has no event 77 of n9 here"):
        await feed.post(b"reply", reply_to=Reference("n9", 5, 77))
    with pytest.raises(UsageError, match="is a message of the group or its reference, not str"):
        await feed.post(b"reply", reply_to="n9")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a message is bytes"):
        await feed.post("text")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="give one message at the least"):
        await feed.post_many([])
    with pytest.raises(UsageError, match="a subscriber has a name of 1 to 100 characters"):
        await feed.commit(Mark(feed.log, 1), "")
    with pytest.raises(UsageError, match="is a mark of another log"):
        await feed.commit(Mark(1, 1))
    with pytest.raises(UsageError, match="it is read from its log, by itself"):
        Together(feed)
    with pytest.raises(UsageError, match="only a mark that post returned"):
        _ = Mark(feed.log, 1).stable


@pytest.mark.parametrize("text", ["", "x", "1:2", "1:2:3:4", "z:1:1", "1:-1:0", "1:0:-1", "0" * 99])
def test_what_is_no_mark(text: str) -> None:
    with pytest.raises(UsageError, match="is no mark"):
        Mark.parse(text)


@pytest.mark.parametrize(
    "data", [b"", b"\x93", b"garbage", bytes(Vector({1: 2}))[:-1], b"\x93\x02\x80\xc0"]
)
def test_what_is_no_vector(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"are no vector|a vector of version 2"):
        Vector.parse(data)


@live
async def test_nobody_founds_a_feed_or_waits_for_others(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    for how in ({"expect": 2}, {"founder": "n1"}):
        with pytest.raises(UsageError, match="which nobody founds and which waits for nobody"):
            node.join(NAME, Feed(beat=BEAT), **how)


@live
async def test_a_folder_that_cannot_be_used_is_refused(cluster: Cluster) -> None:
    (feed,) = await feeds(cluster, "n1")
    await feed.post(b"one")
    folder = cluster.folder / "n1" / "logs" / NAME
    await kill(feed.node)
    for path in folder.glob("*.segment"):
        path.write_bytes(b"something else" + path.read_bytes())
    for path in folder.glob("*.index"):
        path.unlink()
    node = await cluster.open("n1")
    with pytest.raises(UsageError, match=r"'news' cannot be joined: .*news"):
        node.join(NAME, Feed(beat=BEAT))
    assert node.groups == {}
    other = node.join("other", Feed(beat=BEAT))
    await other.post(b"goes on")
    assert isinstance(other, ordercast.Group)

"""A live node whose disk fails, or that is killed in the middle of a commit: what it said holds."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.net.nodes import Cluster, data_of, introduce, live, until
from tests.net.processes import MemberProcess
from tests.net.test_durable import GUARDED, MEMBERS, WORLD
from tests.net.test_updaters import joined

from ordercast import DiskError, Fifo, Group, Node, UsageError
from ordercast.store import node_store
from ordercast.store.file import NAME, FileStore
from ordercast.types import NodeId

# --- killed in the middle of a commit -------------------------------------------------------------

MOMENTS = [(1, "half"), (2, "none"), (3, "none"), (3, "all")]
"""A commit writes its records, syncs them, and writes the mark that says so: in the middle of the
first, before the second, before the third and after it."""


class Datagrams:
    """How many a node sent, and how many came to it from n1."""

    def __init__(self, node: Node, patch: pytest.MonkeyPatch) -> None:
        self.sent = self.received = 0
        self._send, self._receive = node.datagrams.send, node.datagrams.receive
        patch.setattr(node.datagrams, "send", self.send)
        patch.setattr(node.datagrams, "receive", self.receive)

    def send(self, name: str, body: bytes, places: bytes = b"") -> None:
        self.sent += name == "n1"
        self._send(name, body, places)

    def receive(self, sender: NodeId, body: bytes) -> None:
        self.received += sender.name == "n1"
        self._receive(sender, body)


async def nothing_is_said(n1: MemberProcess, datagrams: Datagrams) -> None:
    """While the disk stands still, whatever n1 is asked."""
    before, asked = datagrams.received, datagrams.sent
    await until(lambda: datagrams.sent > asked + 3)
    await n1.visit()
    assert datagrams.received == before


@live
async def test_a_node_killed_during_a_commit_has_said_nothing_of_it(cluster: Cluster) -> None:
    n2, n3 = await cluster.nodes("n2", "n3")
    n1 = MemberProcess(cluster.folder, WORLD, MEMBERS)
    await n1.start(n2, n3, halting=MOMENTS[0])
    with pytest.MonkeyPatch.context() as patch:
        datagrams = Datagrams(n3, patch)
        try:
            second, third = (node.join(WORLD, GUARDED, MEMBERS) for node in (n2, n3))
            for following in [*MOMENTS[1:], None]:
                await second.become_updater()
                await second.stop_updating()
                n1.halt()
                waiting = asyncio.create_task(third.become_updater())
                await n1.halted()
                await nothing_is_said(n1, datagrams)
                assert third.updating is None
                await n1.kill()
                await n1.start(n2, n3, halting=following)
                assert await waiting == 0
                assert second.updating is None
                await third.send(b"mine")
                assert await data_of(second, 1) == [b"mine"]
                await third.stop_updating()
        finally:
            await n1.kill()


# --- a disk that fails ----------------------------------------------------------------------------

Call = Callable[..., Any]


def fails(number: int) -> Callable[[Call], Call]:
    """A system call that always fails so."""

    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return lambda call: fail


def fills_up(write: Call) -> Call:
    """The last block of the disk takes half of what is written, and then it is full."""
    room = [True]

    def write_half(file: int, data: bytes) -> int:
        if not room.pop():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room.append(False)
        written: int = write(file, data[: len(data) // 2])
        return written

    return write_half


FAULTS = [
    ("fsync", fails(errno.EIO), "Input/output error"),
    ("fsync", fails(errno.ENOSPC), "No space left on device"),
    ("write", fails(errno.EROFS), "Read-only file system"),
    ("write", fills_up, "No space left on device"),
]


async def next_error(group: Group) -> str:
    with pytest.raises(DiskError) as caught:
        while True:
            await group.next_batch()
    return str(caught.value)


@live
async def test_a_node_whose_disk_fails_stops_and_says_nothing_more(cluster: Cluster) -> None:
    """And its next incarnation, on a disk that works, goes on from what was acknowledged."""
    n2 = await cluster.open("n2")
    waiting: asyncio.Task[int] | None = None
    second = n2.join(WORLD, GUARDED, ["n1", "n2"])
    for call, fault, why in FAULTS:
        n1 = await cluster.open("n1")
        introduce(n1, n2)
        first, other = n1.join(WORLD, GUARDED, ["n1", "n2"]), n1.join("orders", Fifo(), ["n1"])
        await until(lambda first=first: first.status()["counters"]["guards_set"])
        if waiting is not None:  # since the last failure
            assert await waiting == 0
            await second.send(why.encode())
            while await data_of(first, 1) != [why.encode()]:
                pass  # what was sent before this incarnation may come again
            await second.stop_updating()
        granted = second.status()["counters"]["tickets_acquired"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, call, fault(getattr(os, call)))
            waiting = asyncio.create_task(second.become_updater())
            for group in (first, other):
                said = await next_error(group)
                assert said.startswith(f"{n1.me} stops: ")
                assert f"{cluster.folder / 'n1' / NAME} cannot be used: {why}" in said
        await it_has_stopped(n1, first, other, why)
        # What it would have said is that the ticket is n2's.
        assert second.status()["counters"]["tickets_acquired"] == granted
        assert f"{n1.me} stops" in cluster.log.text
        await n1.abort()
    assert waiting is not None
    waiting.cancel()
    await asyncio.wait([waiting])


async def it_has_stopped(node: Node, first: Group, other: Group, why: str) -> None:
    for act in (first.become_updater(), first.send(b"a"), other.send(b"a")):
        with pytest.raises(DiskError, match=why):
            await act
    with pytest.raises(DiskError, match="stops"):
        node.join("more", Fifo(), ["n1"])
    assert node.status()["groups"] == {}


# --- a folder in which nothing can be made --------------------------------------------------------


def open_nothing_new(call: Call) -> Call:
    def open_existing(path: Path, flags: int, *more: Any, **named: Any) -> Any:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return call(path, flags, *more, **named)

    return open_existing


@live
async def test_a_folder_that_becomes_read_only_stops_a_node_when_its_file_is_written_anew(
    cluster: Cluster,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_store, "FileStore", partial(FileStore, least_garbage=0))
        n1 = await cluster.open("n1")
        (group,) = joined(n1, level=GUARDED)
        await group.become_updater()
        patch.setattr(os, "open", open_nothing_new(os.open))
        with pytest.raises(DiskError, match="records cannot be used: Read-only file system"):
            while True:
                await group.stop_updating()
                await group.become_updater()
        found = n1.store.records(WORLD)
        await n1.abort()
        with pytest.raises(UsageError, match="incarnation cannot be written: Read-only"):
            await cluster.open("n1")
    again = await cluster.open("n1")
    assert again.me.incarnation == 1, "it could not use up an incarnation in between"
    assert again.store.records(WORLD) == found
    (group,) = joined(again, level=GUARDED)
    await group.become_updater()
    await group.send(b"goes on", until="delivered")

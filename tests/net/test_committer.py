"""Commits off the event loop: gathered, in order, acknowledged when they are durable."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.store.stored import Counted, counted, found_in, opened

from ordercast.errors import DiskError
from ordercast.kernel.packet import Packet
from ordercast.net.committer import Committer

GENEROUS = 30  # seconds, for what takes a fraction of one


class HeldDisk:
    """Its syncs end when they are let go, and it writes down what they made durable."""

    def __init__(self) -> None:
        self.cached: list[Packet | str] = []
        self.synced: list[list[Packet | str]] = []
        self.threads: set[int] = set()
        self.trouble: Exception | None = None
        self._free = threading.Semaphore(0)

    def append(self, records: Sequence[Packet]) -> None:
        self.cached += records

    def forget(self, group: str) -> None:
        self.cached.append(group)

    def sync(self) -> None:
        self.threads.add(threading.get_ident())
        assert self._free.acquire(timeout=GENEROUS)
        if self.trouble is not None:
            raise self.trouble
        self.synced.append(self.cached)
        self.cached = []

    def let_go(self, count: int = 1) -> None:
        self._free.release(count)


class Heard:
    """What came back on the event loop, in order."""

    def __init__(self) -> None:
        self.words: list[object] = []
        self.errors: list[DiskError] = []
        self._changed = asyncio.Event()

    def word(self, word: object) -> Callable[[], None]:
        def done() -> None:
            asyncio.get_running_loop()  # or it raises: not on the loop
            self.words.append(word)
            self._changed.set()

        return done

    def failed(self, error: DiskError) -> None:
        self.errors.append(error)
        self._changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(GENEROUS):
            while len(self.words) + len(self.errors) < count:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run_in_a_loop(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(story)

    return run_in_a_loop


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_one_sync_serves_all_commits_that_gathered_meanwhile(run: Run) -> None:
    async def story() -> None:
        disk, heard = HeldDisk(), Heard()
        committer = Committer(disk, heard.failed)
        for number in range(6):
            committer.commit(counted(number), heard.word(number))
        assert heard.words == []
        disk.let_go(2)
        await heard.until(6)
        assert heard.words == [0, 1, 2, 3, 4, 5]
        assert disk.synced == [counted(0), counted(1, 2, 3, 4, 5)]
        assert threading.get_ident() not in disk.threads
        await committer.close()

    run(story())


def test_the_loop_goes_on_while_the_disk_is_busy(run: Run) -> None:
    async def story() -> None:
        disk, heard = HeldDisk(), Heard()
        committer = Committer(disk, heard.failed)
        committer.commit(counted(1), heard.word("durable"))
        for _ in range(100):  # turns of the loop
            await asyncio.sleep(0)
        assert heard.words == []
        disk.let_go()
        await heard.until(1)
        await committer.close()

    run(story())


def test_a_step_that_takes_effect_may_commit_again(run: Run) -> None:
    async def story() -> None:
        disk, heard = HeldDisk(), Heard()
        committer = Committer(disk, heard.failed)

        def commit_more() -> None:
            heard.word("first")()
            committer.commit(counted(3), heard.word("third"))

        committer.commit(counted(1), commit_more)
        committer.commit(counted(2), heard.word("second"))
        disk.let_go(3)
        await heard.until(3)
        assert heard.words == ["first", "second", "third"]
        assert disk.synced == [counted(1), counted(2), counted(3)]
        await committer.close()

    run(story())


def test_records_of_a_group_are_forgotten_by_a_commit_in_its_turn(run: Run) -> None:
    async def story() -> None:
        disk, heard = HeldDisk(), Heard()
        committer = Committer(disk, heard.failed)
        committer.commit(counted(1), heard.word(1))
        committer.forget("g", heard.word("forgotten"))
        committer.commit(counted(2), heard.word(2))
        disk.let_go(2)
        await committer.close()
        assert heard.words == [1, "forgotten", 2]
        assert disk.synced == [counted(1), ["g", *counted(2)]]

    run(story())


def test_a_file_is_written_between_the_records_before_and_after_it(
    run: Run, tmp_path: Path
) -> None:
    """Records that are given later may rely on it, and it may rely on those given before."""

    async def story() -> None:
        disk, heard = HeldDisk(), Heard()
        committer = Committer(disk, heard.failed)
        file = tmp_path / "groups"

        def look(word: str) -> None:
            heard.word(word)()
            seen.append((word, file.read_bytes() if file.exists() else None, len(disk.synced)))

        seen: list[tuple[str, bytes | None, int]] = []
        committer.commit(counted(0), lambda: look("begun"))  # the rest is one batch
        committer.commit(counted(1), lambda: look("records"))
        committer.rewrite(file, b"first", lambda: look("first"))
        committer.rewrite(file, b"second", lambda: look("second"))
        committer.commit(counted(2), lambda: look("more"))
        committer.rewrite(file, b"third", lambda: look("third"))
        disk.let_go()
        await heard.until(1)
        assert seen == [("begun", None, 1)]
        disk.let_go()
        while not file.exists():
            await asyncio.sleep(0)
        assert file.read_bytes() == b"second", "one sync later: the first is not written at all"
        assert disk.synced[1:] == [counted(1)]
        disk.let_go(9)
        await heard.until(6)
        assert heard.words == ["begun", "records", "first", "second", "more", "third"]
        assert file.read_bytes() == b"third"
        assert disk.synced[2] == counted(2)
        assert file.stat().st_mode & 0o777 == 0o600
        await committer.close()

    run(story())


def test_who_awaits_a_commit_hears_of_a_failure(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        heard, store = Heard(), opened(tmp_path)
        committer = Committer(store, heard.failed)
        await committer.awaited(lambda done: committer.rewrite(tmp_path / "here", b"x", done))
        assert (tmp_path / "here").read_bytes() == b"x"
        for _ in range(2):  # then nothing is written any more
            with pytest.raises(DiskError, match=r"nowhere.groups cannot be written|any more"):
                await committer.awaited(
                    lambda done: committer.rewrite(tmp_path / "nowhere" / "groups", b"x", done)
                )
        assert len(heard.errors) == 1
        await committer.close()
        store.close()

    run(story())


def test_after_a_failure_nothing_is_acknowledged(run: Run) -> None:
    async def story() -> None:
        disk, heard = HeldDisk(), Heard()
        committer = Committer(disk, heard.failed)
        committer.commit(counted(1), heard.word(1))
        disk.let_go()
        await heard.until(1)
        disk.trouble = DiskError("no more")
        committer.commit(counted(2), heard.word(2))
        committer.commit(counted(3), heard.word(3))
        disk.let_go(9)
        await heard.until(2)
        committer.commit(counted(4), heard.word(4))
        await committer.close()
        assert (heard.words, [str(error) for error in heard.errors]) == ([1], ["no more"])
        assert disk.synced == [counted(1)]

    run(story())


def test_an_unexpected_error_in_writing_counts_as_a_failed_disk(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise whoever waits for the commit would wait for ever."""

    async def story() -> None:
        disk, heard = HeldDisk(), Heard()
        committer = Committer(disk, heard.failed)
        disk.trouble = ZeroDivisionError("oops")
        committer.commit(counted(1), heard.word(1))
        disk.let_go()
        await heard.until(1)
        assert [str(error) for error in heard.errors] == ["records could not be persisted: oops"]
        assert heard.words == []
        await committer.close()

    run(story())
    assert "ZeroDivisionError" in caplog.text


def test_a_step_that_breaks_does_not_hold_up_the_others(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    async def story() -> None:
        disk, heard = HeldDisk(), Heard()
        committer = Committer(disk, heard.failed)
        committer.commit(counted(1), broken)
        committer.commit(counted(2), heard.word(2))
        disk.let_go(2)
        await heard.until(1)
        await committer.close()

    run(story())
    assert "did not take effect" in caplog.text


def test_closing_waits_for_open_commits_and_takes_no_more(run: Run) -> None:
    async def story() -> None:
        disk, heard = HeldDisk(), Heard()
        committer = Committer(disk, heard.failed)
        committer.commit(counted(1), heard.word(1))
        committer.commit(counted(2), heard.word(2))
        closing = asyncio.create_task(committer.close())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not closing.done()
        disk.let_go(2)
        await closing
        assert heard.words == [1, 2]
        committer.commit(counted(3), heard.word(3))
        await committer.close()
        assert disk.synced == [counted(1), counted(2)]
        assert heard.words == [1, 2]

    run(story())


def test_a_disk_that_fails_after_the_end_concerns_nobody(run: Run) -> None:
    """Whoever was cancelled while it closed the committer has closed everything else too."""

    async def story() -> None:
        disk, heard = HeldDisk(), Heard()
        committer = Committer(disk, heard.failed)
        committer.commit(counted(1), heard.word(1))
        closing = asyncio.create_task(committer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        disk.trouble = DiskError("the file is closed")
        disk.let_go()
        await committer.close()
        assert (heard.words, heard.errors) == ([], [])

    run(story())


def test_acknowledged_records_are_in_the_file(run: Run, tmp_path: Path) -> None:
    """A real file, and many commits from many machines: each is there when it is acknowledged."""
    acknowledged: list[int] = []

    async def story() -> None:
        store, heard = opened(tmp_path), Heard()
        committer = Committer(store, heard.failed)

        def look(number: int) -> None:
            acknowledged.append(number)
            assert len(store.records()) >= len(acknowledged)

        for number in range(300):
            committer.commit(counted(number), lambda number=number: look(number))
            if number % 7 == 0:
                await asyncio.sleep(0)
        await committer.close()
        assert heard.errors == []
        store.close()

    run(story())
    assert acknowledged == list(range(300))
    assert found_in(tmp_path) == counted(*range(300))


def test_a_failing_disk_is_reported_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_sync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def story() -> None:
        store, heard = opened(tmp_path), Heard()
        committer = Committer(store, heard.failed)
        committer.commit(counted(1), heard.word(1))
        await heard.until(1)
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", fail_to_sync)
            committer.commit(counted(2), heard.word(2))
            committer.commit(counted(3), heard.word(3))
            await heard.until(2)
        await committer.close()
        assert heard.words == [1]
        (error,) = heard.errors
        assert "cannot be used: No space left on device" in str(error)
        store.close()

    run(story())
    assert found_in(tmp_path)[:1] == counted(1)


def test_a_record_that_is_too_large_fails_its_commit(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        store, heard = opened(tmp_path, largest=1000), Heard()
        committer = Committer(store, heard.failed)
        committer.commit([Counted("g", 1, bytes(2000))], heard.word(1))
        await committer.close()
        assert heard.words == []
        assert "is full" in str(heard.errors[0])
        store.close()

    run(story())
    assert found_in(tmp_path) == []

"""Commits off the event loop: records are gathered, and a thread makes them durable.

A commit may also be a small file that is written whole (`Rewrite`), or anything else that only the
thread that writes may do (`Act`). Its turn comes when the records that were given before it are
durable, and before those that were given after it. If a file is given several times, with nothing
in between, only the last content is written.

While the thread writes and syncs one batch, further commits gather; one more write and one sync
then serve all of them. So the event loop never waits for the disk while machines run, and a slow
disk costs latency and not throughput. (An incarnation begins when its number is on the disk. It has
no machine then.)

  1. `done` is called on the event loop, never inside `commit`, and in the order of the commits.
  2. After an error of the disk `failed` is called once, unless the committer was closed before, and
     no `done` any more: what was given and not acknowledged may or may not be on the disk, and
     nobody may rely on it.
  3. `close` returns when everything that was given is durable or has failed, with what was given
     while it waited. A commit that is given after that is ignored, and so never acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from ordercast.errors import DiskError
from ordercast.kernel.packet import Packet
from ordercast.kernel.world import Commit
from ordercast.store.log import replace_file

log = logging.getLogger("ordercast.net")


class Rewrite(NamedTuple):
    """What is to be in a file, in place of what is there."""

    path: Path
    content: bytes


class Act(NamedTuple):
    """What is to be done in the thread. DiskError: the disk has failed."""

    act: Callable[[], None]


_Change: TypeAlias = Sequence[Packet] | str | Rewrite | Act
"""Records to be persisted, the name of a group whose records are to be forgotten, a file, or
anything else."""


class Store(Protocol):
    """The disk as the committer's thread sees it: only this thread writes to it."""

    def append(self, records: Sequence[Packet]) -> None: ...

    def forget(self, group: str) -> None: ...

    def sync(self) -> None: ...


class Committer:
    def __init__(self, store: Store, failed: Callable[[DiskError], None]) -> None:
        """To be made on the event loop that it serves. `failed` is called on it, at most once."""
        self.failed = failed
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "ordercast-commit")
        self._gathered: list[tuple[_Change, Callable[[], None]]] = []
        self._writing: asyncio.Future[None] | None = None
        self._over = False  # closed, or the disk has failed
        self._awaited: set[asyncio.Future[None]] = set()  # in no order

    def commit(self, records: Sequence[Packet], done: Callable[[], None]) -> None:
        """Calls `done` when all of them are on the disk."""
        self._gather(records, done)

    def forget(self, group: str, done: Callable[[], None]) -> None:
        """Calls `done` when no record of the group counts any more that was committed before."""
        self._gather(group, done)

    def rewrite(self, path: Path, content: bytes, done: Callable[[], None]) -> None:
        """Calls `done` when the file on the disk has this content, or that of a later call."""
        self._gather(Rewrite(path, content), done)

    def act(self, act: Callable[[], None], done: Callable[[], None]) -> None:
        """Calls `done` when this was done, in the thread that writes."""
        self._gather(Act(act), done)

    async def awaited(self, commit: Commit) -> None:
        """Gives a commit, and returns when it is durable. DiskError: it may not be."""
        if self._over:
            raise DiskError("nothing is written any more: the node is closed, or its disk failed")
        durable = self._loop.create_future()

        def done() -> None:
            if not durable.done():  # it was cancelled meanwhile
                durable.set_result(None)

        self._awaited.add(durable)
        try:
            commit(done)
            await durable
        finally:
            self._awaited.discard(durable)

    async def close(self) -> None:
        """Returns when everything that was given before is durable or has failed."""
        try:
            while self._writing is not None:
                await asyncio.wait([self._writing])
        finally:  # cancelled too: the thread ends with what it has begun
            self._over = True
            self._thread.shutdown(wait=False)

    def _gather(self, change: _Change, done: Callable[[], None]) -> None:
        if self._over:
            return
        self._gathered.append((change, done))
        if self._writing is None:
            self._write_gathered()

    def _write_gathered(self) -> None:
        batch, self._gathered = self._gathered, []
        changes = [change for change, _ in batch]
        self._writing = self._loop.run_in_executor(self._thread, self._persist, changes)
        self._writing.add_done_callback(lambda writing: self._written(writing, batch))

    def _persist(self, changes: list[_Change]) -> None:
        """In the thread."""
        for change, following in zip(changes, [*changes[1:], None], strict=True):
            if isinstance(change, str):
                self._store.forget(change)
            elif isinstance(change, Act):
                self._store.sync()
                change.act()
            elif not isinstance(change, Rewrite):
                self._store.append(change)
            elif not (isinstance(following, Rewrite) and following.path == change.path):
                self._store.sync()
                _write(change)
        self._store.sync()

    def _written(
        self,
        writing: asyncio.Future[None],
        batch: list[tuple[_Change, Callable[[], None]]],
    ) -> None:
        self._writing = None
        error = writing.exception()
        if error is not None:
            self.fail(error)
            return
        if self._gathered:  # first, so that the disk is busy while the batch takes effect
            self._write_gathered()
        for _, done in batch:
            try:
                done()
            except Exception:
                log.exception("a step whose records are on the disk did not take effect")

    def fail(self, error: BaseException) -> None:
        """The disk does not persist what it was given, or a record of ours cannot be encoded."""
        was_closed, self._over = self._over, True  # by a `close` that was cancelled while it waited
        self._gathered.clear()
        if not isinstance(error, DiskError):
            log.error("records could not be persisted", exc_info=error)
            error = DiskError(f"records could not be persisted: {error}")
        for durable in self._awaited:
            if not durable.done():
                durable.set_exception(error)
        if not was_closed:
            self.failed(error)


def _write(file: Rewrite) -> None:
    try:
        replace_file(file.path, file.content)
    except OSError as error:
        raise DiskError(f"{file.path} cannot be written: {error.strerror}") from error

"""A recorder: a member that only reads, and writes down what it is handed, to be read by others.

    async with ordercast.open("watcher.toml") as node, node.join("orders", Fifo()) as group:
        with Recorder(Path("recording"), node.me) as recorder:
            await recorder.record(group)

It joins like any member and sends nothing. Every event and every view becomes
one record, in the order of delivery; ordercast.trace.recording has the form, docs/streams.md what
reads it.

  1. While the disk is busy with one batch of records the next one gathers, up to a limit; then the
     group's own queue fills, and its level says what becomes of a member that is slow.
  2. A recorder that restarts on its folder truncates a torn record and appends. It does not record
     again what an earlier incarnation recorded. What the group delivers twice in one incarnation it
     records twice: it is a witness, and judges nothing.
  3. A recorder misses, while it is away, what the group's level lets any member miss.
  4. A disk that fails ends it. The folder is locked while it runs.

`python -m ordercast.net.recorder SETTINGS GROUP FOLDER` runs one until SIGTERM or SIGINT, for a
group that the settings' file describes.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from ordercast.errors import OrdercastError, UsageError
from ordercast.kernel.family import Level
from ordercast.kernel.step import Heard
from ordercast.levels import find_family, level_of, level_type
from ordercast.net.config import GroupRules
from ordercast.net.message import GroupClosed
from ordercast.net.node import open_node
from ordercast.settings import dotted, located
from ordercast.trace.record_log import KEEP_BYTES, SEGMENT_BYTES, Recorded, RecordLog
from ordercast.trace.recording import Numbers, Record
from ordercast.types import Event, NodeId, View

GATHER_BYTES = 8 << 20
GATHER_COUNT = 16_384
"""What may wait for the disk; an event counts for its payloads."""


class RecordedGroup(Protocol):
    """Where items come from, one by one, until it raises GroupClosed: a group is one."""

    async def next_batch(self) -> Heard: ...


class Recorder:
    """Writes down what groups hand over. A context manager; one a folder, for any many groups."""

    def __init__(
        self,
        folder: Path,
        me: NodeId,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        keep_bytes: int = KEEP_BYTES,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.log = RecordLog(folder, segment_bytes=segment_bytes, keep_bytes=keep_bytes)
        self.skipped = 0  # events that an earlier incarnation had recorded
        self._me = me
        self._clock = clock
        self._before: Recorded = {
            key: Numbers(list(numbers.spans), numbers.floor)
            for key, numbers in self.log.recorded.items()
        }
        self._line = asyncio.Lock()  # one batch at a time is on its way to the disk

    @property
    def committed(self) -> int:
        """The offset that comes next."""
        return self.log.next_offset

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.log.close()

    async def record(self, group: RecordedGroup) -> None:
        """Until the group is left. What it had handed over by then is committed.

        Cancelling it loses nothing that is in the recording.
        """
        gathered: list[Record] = []
        arrived, taken = asyncio.Event(), asyncio.Event()
        reading = asyncio.create_task(self._read(group, gathered, arrived, taken))
        reading.add_done_callback(lambda _: arrived.set())
        try:
            while gathered or not reading.done():
                await arrived.wait()
                arrived.clear()
                batch = gathered[:]
                gathered.clear()
                taken.set()
                if batch:
                    await self._append(batch)
                if reading.done():
                    arrived.set()
            reading.result()
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, OrdercastError):
                await reading

    async def _append(self, batch: list[Record]) -> None:
        """In a thread, as the disk takes its time. Cancelled, it still waits for the thread."""
        async with self._line:
            writing = asyncio.create_task(asyncio.to_thread(self.log.append, batch))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait([writing])
                writing.exception()  # retrieved: the caller has cancelled, and nothing is logged
                raise

    async def _read(
        self,
        group: RecordedGroup,
        gathered: list[Record],
        arrived: asyncio.Event,
        taken: asyncio.Event,
    ) -> None:
        size = 0
        while True:
            try:
                item = await group.next_batch()
            except GroupClosed:
                return
            record = self._record_of(item)
            if record is None:
                continue
            if not gathered:
                size = 0
            gathered.append(record)
            size += record.size or 0
            arrived.set()
            if size >= GATHER_BYTES or len(gathered) >= GATHER_COUNT:
                taken.clear()
                await taken.wait()

    def _record_of(self, item: Heard) -> Record | None:
        """None: an earlier incarnation has recorded it, or it is no delivery but news about us."""
        me, at = self._me, self._clock()
        if isinstance(item, View):
            names = tuple(sorted(member.name for member in item.members))
            return Record(
                *(0, "view", at, me.name, me.incarnation, item.group),
                view=item.id,
                members=names,
                cause="transitional" if item.transitional else None,
            )
        if not isinstance(item, Event):
            return None
        before = self._before.get((item.group, item.origin.name))
        if before is not None and item.number in before:
            self.skipped += 1
            return None
        return Record(
            0,
            "deliver",
            at,
            me.name,
            me.incarnation,
            item.group,
            item.origin.name,
            item.origin.incarnation,
            item.number,
            item.index,
            item.stamp,
            item.order,
            item.hops,
            size=item.size,
            payloads=item.payloads,
            cause=item.service or None,
        )


# --- a process of its own ------------------------------------------------------------------------


async def run_recorder(settings: Path, name: str, folder: Path) -> None:
    """Joins the group that the settings describe and records it, until a signal says stop."""
    node = open_node(settings)
    rules = node.config.group.get(name)
    if rules is None:
        raise UsageError(f"{settings} describes no group {name!r}: write a table [group.{name}]")
    level = _level(name, rules)
    async with node:
        with Recorder(folder, node.me) as recorder:
            group = node.join(name, level)
            loop = asyncio.get_running_loop()
            leaving = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, leaving.set)
            print(f"recording {name} from offset {recorder.committed}", flush=True)
            recording = asyncio.create_task(recorder.record(group))
            waiting = asyncio.create_task(leaving.wait())
            await asyncio.wait((recording, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            await group.leave()
            await recording


def _level(name: str, rules: GroupRules) -> Level:
    try:
        return level_of(rules.family, rules.options)
    except UsageError as error:
        raise UsageError(f"group {name!r}: {error}") from error
    except msgspec.ValidationError as error:
        where, what = located(str(error), level_type(find_family(rules.family)))
        raise UsageError(f"group {name!r}: options.{dotted(where)}: {what}") from error


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ordercast.net.recorder")
    parser.add_argument("settings", type=Path, help="a node's settings, with a table of the group")
    parser.add_argument("group")
    parser.add_argument("folder", type=Path, help="of the recording: a new one, or one to go on")
    given = parser.parse_args()
    try:
        asyncio.run(run_recorder(given.settings, given.group, given.folder))
    except OrdercastError as error:
        print(f"recorder: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

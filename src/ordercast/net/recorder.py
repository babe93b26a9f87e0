"""A recorder: a member that only reads, and writes down what it is handed, to be read by others.

    async with ordercast.open("watcher.toml") as node, node.join("orders", Fifo()) as group:
        with Recorder(Path("recording"), node.me) as recorder:
            await recorder.record(group)

It joins through the same door as everybody and sends nothing. Every event and every view becomes
one record, in the order of delivery; ordercast.trace.recording has the form, docs/streams.md what
reads it.

  1. While the disk is busy with one batch of records the next one gathers, up to a limit; then the
     group's own queue fills, and its level says what becomes of a member that is slow.
  2. A recorder that is started again on its folder cuts off what was torn, and goes on. What a
     life before it has recorded is not recorded again. What it was handed twice in one life it
     records twice: it is a witness, and judges nothing.
  3. What it did not write down because it was away is what the group's level lets it miss.
  4. A disk that fails ends it. The folder is locked while it runs.

`python -m ordercast.net.recorder SETTINGS GROUP FOLDER` runs one until SIGTERM or SIGINT, for a
group that the settings' file describes.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol

import msgspec

from ordercast.errors import DiskError, OrdercastError, TraceError, UsageError
from ordercast.kernel.family import Level
from ordercast.levels import find_family, level_of, level_type
from ordercast.net.config import GroupRules
from ordercast.net.message import GroupClosed, Item
from ordercast.net.node import open_node
from ordercast.settings import dotted, located
from ordercast.trace.recording import (
    COMMIT,
    HEADER,
    OFFSET,
    RECORD,
    RECORDING_VERSION,
    SUFFIX,
    SUMMARY,
    Header,
    Numbers,
    Record,
    Walk,
    checked_header,
    decode_record,
    find_segments,
    is_recording,
    pack_frame,
    pack_header,
    read_header,
)
from ordercast.types import NodeId, Subgroup, Updating, View

SEGMENT_BYTES = 64 << 20
KEEP_BYTES = 64 << 30
"""The oldest segments go when all of them together are larger."""
GATHER_BYTES = 8 << 20
GATHER_COUNT = 16_384
"""What may wait for the disk; an event counts for its payloads."""
ORIGINS = 10_000
"""Of how many origins the numbers are remembered; who was silent longest is forgotten."""

_TEMPORARY = ".tmp"

Recorded = dict[tuple[str, str], Numbers]
"""Which numbers of an origin, in a group, are in the recording."""


class RecordLog:
    """The writer of a recording. Not for two at once: the folder is locked."""

    def __init__(
        self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES, keep_bytes: int = KEEP_BYTES
    ) -> None:
        if segment_bytes < 1 << 12 or keep_bytes < 2 * segment_bytes:
            raise UsageError("a segment has at least 4 KiB, and at least two are kept")
        self.folder = folder
        self.next_offset = 0
        self.recorded: Recorded = {}
        self._segment_bytes = segment_bytes
        self._keep_bytes = keep_bytes
        self._file = -1
        self._size = 0
        self._salt = 0
        self._identity = 0
        self._encode = msgspec.msgpack.Encoder().encode
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("a", encoding="ascii")
        try:
            self._take_lock()
            with self._writing():
                self._open()
        except BaseException:
            self.close()
            raise

    def append(self, records: list[Record]) -> int:
        """Writes them with the next offsets; when it returns they are committed.

        Returns the offset that comes next. DiskError: nothing can be written any more.
        """
        if self._file < 0:
            raise DiskError(f"{self.folder}: the recording is closed")
        with self._writing():
            try:
                if self._size > self._segment_bytes:
                    self._begin_segment()
                buffer = bytearray()
                for record in records:
                    numbered = msgspec.structs.replace(record, offset=self.next_offset)
                    buffer += pack_frame(RECORD, self._encode(numbered), self._salt)
                    self.next_offset += 1
                    self._remember(numbered)
                self._write(buffer)
                os.fsync(self._file)
                self._commit()
            except BaseException:
                self._close_file()  # half a frame may be there: who opens it again cuts it
                raise
        return self.next_offset

    def close(self) -> None:
        with self._writing():
            if self._file >= 0:
                os.fsync(self._file)
            self._close_file()
            self._lock.close()

    # --- opening -----------------------------------------------------------------------------

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"{self.folder} is in use: another recorder writes there") from error

    def _open(self) -> None:
        for path in self.folder.glob("*" + SUFFIX + _TEMPORARY):
            path.unlink()
        if not is_recording(self.folder):
            if others := sorted(path.name for path in self.folder.iterdir() if path.name != "lock"):
                raise UsageError(
                    f"{self.folder} holds {others[0]}, and is no recording: give an empty folder"
                )
            self._identity = secrets.randbits(63)
            self._begin_segment()
            return
        segments = find_segments(self.folder)
        self._identity = read_header(segments[0][1]).identity
        self._resume(*segments[-1])

    def _resume(self, first: int, path: Path) -> None:
        """Goes on with the last segment, without what was torn."""
        header = checked_header(path, first, self._identity)
        self.next_offset, self._salt = first, header.salt
        walk = Walk(path, header.salt)
        for frame in walk:
            if frame.mark == RECORD:
                self._remember(decode_record(path, frame, self.next_offset))
                self.next_offset += 1
            elif frame.mark == SUMMARY:
                self.recorded = _unpack_summary(path, frame.body)
        if said := walk.objection():
            raise TraceError(said)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._file, walk.place)
        os.fsync(self._file)
        self._size = walk.place
        self._commit()

    # --- segments ----------------------------------------------------------------------------

    def _begin_segment(self) -> None:
        """All of the last one is on the disk. The new one gets its name when its head is."""
        self._salt = secrets.randbits(32)
        head = pack_header(
            Header(RECORDING_VERSION, self._salt, self._identity, self.next_offset)
        ) + pack_frame(SUMMARY, self._encode(_summary(self.recorded)), self._salt)
        path = self.folder / f"{self.next_offset:020}{SUFFIX}"
        fresh = path.with_name(path.name + _TEMPORARY)
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            _write_all(file, head)
            os.fsync(file)
            if self._file >= 0:
                os.fsync(self._file)  # its last commit too
            fresh.rename(path)
            _sync_folder(self.folder)
        except BaseException:
            os.close(file)
            raise
        self._close_file()
        self._file, self._size = file, len(head)
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        sizes = [(path, path.stat().st_size) for _, path in find_segments(self.folder)]
        total = sum(size for _, size in sizes)
        for path, size in sizes[:-1]:
            if total <= self._keep_bytes:
                break
            path.unlink()
            total -= size

    def _commit(self) -> None:
        self._write(pack_frame(COMMIT, OFFSET.pack(self.next_offset), self._salt))

    def _write(self, data: bytes | bytearray) -> None:
        _write_all(self._file, data)
        self._size += len(data)

    def _remember(self, record: Record) -> None:
        if record.origin is None or record.number is None:
            return
        key = (record.group, record.origin)
        numbers = self.recorded.pop(key, None) or Numbers()
        self.recorded[key] = numbers  # the last one spoke last
        numbers.add(record.number)
        if len(self.recorded) > ORIGINS:
            del self.recorded[next(iter(self.recorded))]

    def _close_file(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskError(f"{self.folder} cannot be written: {error.strerror}") from error


def _write_all(file: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _summary(recorded: Recorded) -> list[tuple[str, str, int, list[int]]]:
    return [
        (group, origin, numbers.floor, numbers.spans)
        for (group, origin), numbers in recorded.items()
    ]


def _unpack_summary(path: Path, body: bytes) -> Recorded:
    try:
        rows = msgspec.msgpack.decode(body, type=list[tuple[str, str, int, list[int]]])
    except msgspec.MsgspecError as error:
        raise TraceError(f"{path} is damaged at byte {HEADER.size}: {error}.") from error
    return {(group, origin): Numbers(spans, floor) for group, origin, floor, spans in rows}


class Feed(Protocol):
    """Where items come from, one by one, until it raises GroupClosed: a group is one."""

    async def next_batch(self) -> Item: ...


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
        self.skipped = 0  # events that an earlier life had recorded
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.log.close()

    async def record(self, group: Feed) -> None:
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
                writing.exception()  # who cancels does not ask
                raise

    async def _read(
        self,
        group: Feed,
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

    def _record_of(self, item: Item) -> Record | None:
        """None: an earlier life has recorded it, or it is no delivery but news about us."""
        if isinstance(item, Updating | Subgroup):
            return None
        me, at = self._me, self._clock()
        if isinstance(item, View):
            names = tuple(sorted(member.name for member in item.members))
            return Record(
                0, "view", at, me.name, me.incarnation, item.group, view=item.id, members=names
            )
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

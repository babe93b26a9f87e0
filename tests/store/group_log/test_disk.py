"""A group's log on a real disk: one that fills up, writers that are killed, readers beside them."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import DISK_BYTES
from tests.store.group_log.logged import everything, made, opened, persist, started
from tests.store.stored import CODEC, Latest

from ordercast.errors import DiskError
from ordercast.kernel.log import Appended, At, Bad, Entry, Knowledge, Trimmed
from ordercast.store.group_log.form import LOCK, SEGMENT, SPARE
from ordercast.store.group_log.log import GroupLog
from ordercast.store.group_log.writing import LogLimits

LIMITS = LogLimits(segment=1 << 20, reserve=1 << 18)
ROOT = Path(__file__).resolve().parents[3]


class Log:
    """A log on the small disk, and what it said of its room."""

    def __init__(self, folder: Path) -> None:
        self.said: list[bool] = []
        self.log = GroupLog(folder, "g", CODEC, limits=LIMITS, strained=self.said.append)


ENTRIES = list(made(1200, payload=os.urandom(20_000)))


def fill(log: Log) -> int:
    """Appends until it is told that there is no room."""
    count = 0
    while not log.log.is_strained:
        persist(log.log, ENTRIES[count])
        count += 1
    return count


def persist_without_end(log: GroupLog) -> None:
    for number in range(10_000):
        persist(log, Latest("g", "x" * 1000, number))


def use_up(disk: Path) -> None:
    """Somebody else takes all that is left."""
    file = os.open(disk / "other", os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while True:
            os.write(file, bytes(1 << 10))
    os.close(file)
    assert shutil.disk_usage(disk).free == 0


def test_a_disk_that_fills_up_is_told_early_and_states_still_fit(small_disk: Path) -> None:
    log = Log(small_disk / "log")
    count = fill(log)
    assert log.said == [True]
    assert 900 < count < 1030
    for number in range(500):
        persist(log.log, Latest("g", "a", number))
    persist(log.log, *ENTRIES[count : count + 3])  # what was under way
    with pytest.raises(DiskError, match=r"the disk is full: \d+ bytes are left for the log"):
        persist_without_end(log.log)
    log.log.close()
    again = Log(small_disk / "log")
    assert again.log.is_strained
    assert everything(again.log)[: count + 3] == ENTRIES[: count + 3]
    assert Latest("g", "a", 499) in again.log.records()


def test_a_trim_on_a_full_disk_makes_room_again(small_disk: Path) -> None:
    log = Log(small_disk / "log")
    count = fill(log)
    use_up(small_disk)
    below = log.log.extents()[4].first
    persist(log.log, Trimmed("g", below))
    assert log.log.floor == below
    assert log.said == [True, False]
    persist(log.log, *ENTRIES[count : count + 20])
    assert everything(log.log) == ENTRIES[below : count + 20]
    assert (small_disk / "log" / SPARE).exists()


def test_room_that_others_give_back_is_noticed(small_disk: Path) -> None:
    other = small_disk / "other"
    other.write_bytes(bytes(DISK_BYTES // 2))
    log = Log(small_disk / "log")
    count = fill(log)
    log.log.look_for_room()
    assert log.said == [True]
    other.unlink()
    log.log.look_for_room()
    assert log.said == [True, False]
    persist(log.log, *ENTRIES[count : count + 200])
    assert everything(log.log) == ENTRIES[: count + 200]


def test_a_disk_that_is_full_at_the_start(small_disk: Path) -> None:
    """A log that is there is opened, strained; a new one is refused, and leaves nothing."""
    log = Log(small_disk / "log")
    persist(log.log, *ENTRIES[:100])
    log.log.close()
    use_up(small_disk)
    again = Log(small_disk / "log")
    assert everything(again.log) == ENTRIES[:100]
    persist(again.log, Latest("g", "a", 1))
    assert again.log.records() == [Latest("g", "a", 1)]
    with pytest.raises(DiskError, match="cannot be used: No space left on device"):
        opened(small_disk / "new", LIMITS)
    assert [path.name for path in (small_disk / "new").iterdir()] in ([], [LOCK])


# --- writers that are killed ---------------------------------------------------------------------


def killed_after(folder: Path, lines: int) -> int:
    """Runs a writer and kills it. Returns the tail that it had said last."""
    with started(folder) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().splitlines()
    return int(rest[-1]) if rest else said[-1]


def check_killed(folder: Path, rounds: int) -> None:
    for number in range(rounds):
        tail = killed_after(folder, 5 + 17 * (number % 3))
        log = opened(folder)
        assert tail <= log.tail
        found = everything(log)
        numbers: dict[str, int] = {}
        for position, entry in enumerate(found):
            assert isinstance(entry, Entry)
            assert entry.payloads == [b"%d" % position]
            assert entry.prev == numbers.get(entry.origin, 0)
            numbers[entry.origin] = entry.number
        assert {name: last for (name, _), last in log.opened().received.items()} == numbers
        (latest,) = log.records()
        assert isinstance(latest, Latest)
        assert tail <= latest.number <= log.tail
        log.close()


@pytest.mark.slow(3)
def test_a_writer_that_is_killed_again_and_again_loses_nothing(quick_folder: Path) -> None:
    check_killed(quick_folder / "log", 3)


@pytest.mark.long
def test_a_writer_that_is_killed_for_long_loses_nothing(tmp_path: Path) -> None:
    check_killed(tmp_path / "log", 60)


# --- readers beside a writer ---------------------------------------------------------------------


def test_others_read_while_it_is_written_and_trimmed(quick_folder: Path) -> None:
    entries = list(made(3000, payload=b"p" * 50))
    log = opened(quick_folder / "log")
    wrong: list[object] = []
    read = [0, 0]

    def follow(reader: int) -> None:
        position = 0
        while position < len(entries) and not wrong:
            first, found, _ = log.read(At(position), 1 << (8 + 6 * reader))
            for at, entry in enumerate(found, first):
                if isinstance(entry, Bad) or entry != entries[at]:
                    wrong.append((at, entry))
            position = first + len(found)
            read[reader] += len(found)

    def search() -> None:
        while log.tail < len(entries) and not wrong:
            try:
                first, found, gaps = log.read(Knowledge({}), 1)
            except DiskError as error:
                wrong.append(error)
            else:
                is_right = list(found) == entries[first : first + len(found)]
                is_right &= bool(gaps) == (first > 0)
                wrong.extend([] if is_right else [(first, found, gaps)])

    readers = [threading.Thread(target=follow, args=(reader,)) for reader in range(2)]
    readers.append(threading.Thread(target=search))
    for reader in readers:
        reader.start()
    for begin in range(0, len(entries), 10):
        log.append([Appended("g", entry) for entry in entries[begin : begin + 10]])
        log.append([Trimmed("g", begin - 1500)] if begin % 500 == 0 and begin > 1500 else [])
        log.sync()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert min(read) > 1000
    assert log.floor > 500
    assert len(list((quick_folder / "log").glob(f"*{SEGMENT}"))) == len(log.extents())

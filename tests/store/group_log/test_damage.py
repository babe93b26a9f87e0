"""A group's log after power failures and on a disk that forgets: by the thousand.

Whatever is torn or flipped, every entry that was acknowledged is found at its position as it was
written, or is lost at its position, and known by its stream and number if anybody can know.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec import structs
from tests.store.group_log.logged import SMALL, everything, made, opened, persist
from tests.store.stored import Latest

from ordercast.errors import DiskError
from ordercast.kernel.log import Bad, Entry, Repaired
from ordercast.store.group_log.entries import pack_entry
from ordercast.store.group_log.form import INDEX, SEGMENT, find_files
from ordercast.store.group_log.log import GroupLog
from ordercast.store.log import COMMIT, HEAD_SIZE

LARGE = SMALL._replace(segment=1 << 20)


class Written:
    """A log that was killed, and what had been acknowledged when its newest file was so long."""

    def __init__(self, folder: Path, entries: list[Entry], batch: int) -> None:
        self.folder = folder
        self.entries = entries
        log = opened(folder, LARGE)
        self.path = folder / f"{0:020}{SEGMENT}"
        self.acknowledged: list[tuple[int, int]] = []  # bytes, and the tail then
        for begin in range(0, len(entries), batch):
            persist(log, *entries[begin : begin + batch], Latest("g", "a", begin))
            self.acknowledged.append((used(self.path), log.tail))
        log.close()
        self.data = self.path.read_bytes()[: used(self.path)]

    def tail_at(self, size: int) -> int:
        return max((tail for at, tail in self.acknowledged if at <= size), default=0)


def used(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


def check(log: GroupLog, entries: list[Entry], tail: int) -> list[int]:
    """Returns which positions are lost."""
    found = everything(log)
    assert log.tail >= tail, "acknowledged entries are gone"
    assert len(found) == log.tail - log.floor
    lost = []
    for position, each in enumerate(found, log.floor):
        if isinstance(each, Bad):
            lost.append(position)
            expected = entries[position]
            if each.stream != ("", 0):
                assert each == Bad(expected.stream, expected.number, expected.prev)
        else:
            assert each == entries[position]
    return lost


def looking_like_commits(folder: Path) -> list[Entry]:
    """Payloads that have whole frames of another log, and of this one as far as one can know."""
    opened(folder / "other", LARGE).close()
    data = (folder / "other" / f"{0:020}{SEGMENT}").read_bytes()
    commit = data[data.index(COMMIT) : used(folder / "other" / f"{0:020}{SEGMENT}")]
    return list(made(8, payload=(COMMIT + commit) * 5))


@pytest.fixture
def written(quick_folder: Path) -> Written:
    return Written(quick_folder / "log", list(made(30)), 5)


OFTEN = pytest.mark.parametrize("often", [1, pytest.param(20, marks=pytest.mark.long)])


def torn_anywhere(written: Written, often: int) -> Iterator[tuple[bytes, int]]:
    """Any prefix, with and without room behind it."""
    chance = Random(4)
    for size in range(written.acknowledged[0][0] - 400, len(written.data)):
        if chance.randrange(5) < often:
            yield written.data[:size] + bytes(chance.randrange(2) * 700), size


def reopened(folder: Path, path: Path, data: bytes) -> GroupLog:
    path.write_bytes(data)
    return opened(folder, LARGE)


@OFTEN
def test_a_tail_that_is_torn_anywhere_loses_nothing_acknowledged(
    written: Written, often: int
) -> None:
    for data, size in torn_anywhere(written, often):
        log = reopened(written.folder, written.path, data)
        tail = written.tail_at(size)
        assert check(log, written.entries, tail) == []
        assert log.tail <= tail + 5
        following = written.entries[log.tail] if log.tail < 30 else next(made(1))
        persist(log, following)
        log.close()
        log = opened(written.folder, LARGE)
        assert everything(log)[-1] == following
        log.close()


@OFTEN
def test_sectors_of_the_last_batch_that_are_zeros_are_a_torn_tail(
    quick_folder: Path, often: int
) -> None:
    """Blocks of a batch that was not synced reach the disk in any order."""
    written = Written(quick_folder / "log", list(made(24, payload=b"p" * 2000)), 8)
    before, after = written.acknowledged[-2][0], written.acknowledged[-1][0]
    chance = Random(5)
    for _ in range(100 * often):
        data = bytearray(written.data[: after - 330])  # without the commit: it comes after the sync
        for sector in range(before // 512 + 1, len(data) // 512 + 1):
            if chance.random() < 0.4:
                data[sector * 512 : (sector + 1) * 512] = bytes(512)
        log = reopened(written.folder, written.path, bytes(data))
        assert check(log, written.entries, 16) == []
        log.close()


def test_payloads_that_look_like_commits_are_payloads(quick_folder: Path) -> None:
    entries = looking_like_commits(quick_folder)
    written = Written(quick_folder / "log", entries, 2)
    for size in range(written.acknowledged[1][0], len(written.data), 7):
        for at in (None, written.acknowledged[1][0] + 3):
            data = bytearray(written.data[:size])
            if at is not None and at < size:
                data[at] ^= 1
            log = reopened(written.folder, written.path, bytes(data))
            lost = check(log, entries, 4 if at is None or size <= at else 0)
            assert at is not None or lost == []
            log.close()


def flips(size: int, count: int, seed: int) -> Iterator[tuple[int, int]]:
    chance = Random(seed)
    for _ in range(count):
        at = chance.randrange(size)
        yield at, 1 << chance.randrange(8)


def test_what_was_torn_does_not_come_back_behind_what_is_written_next(
    quick_folder: Path,
) -> None:
    """Whole frames behind a bad one, and then a frame that ends where they begin."""
    written = Written(quick_folder / "log", list(made(10, payload=b"p" * 60)), 5)
    data = bytearray(written.data[: written.data.rindex(COMMIT)])
    data[written.acknowledged[0][0] + 20] ^= 1
    log = reopened(written.folder, written.path, bytes(data))
    assert log.tail == 5
    before = written.path.read_bytes()
    commit = len(COMMIT) + 8 + 8 + 4  # of nothing: it was written when the log was opened
    entry = written.entries[5]
    shorter = entry.payloads[0][commit:]
    following = structs.replace(entry, payloads=[shorter], size=entry.size)
    persist(log, following)
    log.close()
    after = written.path.read_bytes()
    end = after.rindex(COMMIT)
    assert end == written.data.index(pack_entry(written.entries[6])) - HEAD_SIZE
    written.path.write_bytes(after[:end] + before[end:])  # killed before the commit
    log = opened(written.folder, LARGE)
    assert everything(log) == [*written.entries[:5], following]
    log.close()


def test_an_old_commit_that_turns_up_again_confirms_nothing(written: Written) -> None:
    """A sector that was written to the wrong place, behind the end or in it."""
    begin = written.data.index(COMMIT, written.acknowledged[0][0])
    commit = written.data[begin : written.acknowledged[1][0]]
    log = reopened(written.folder, written.path, written.data + commit)
    assert check(log, written.entries, 30) == []
    assert log.tail == 30
    log.close()
    last = written.acknowledged[-2][0] - len(commit)  # a commit of the last batch must be there
    for at in range(written.acknowledged[2][0], last, 37):
        data = written.data[:at] + commit + written.data[at + len(commit) :]
        log = reopened(written.folder, written.path, data)
        check(log, written.entries, 30)
        assert log.tail == 30
        log.close()


@OFTEN
def test_a_flipped_bit_in_the_newest_segment_costs_one_entry_at_most(
    written: Written, often: int
) -> None:
    """And none if it is in a commit or a state, in the header, or in the summary."""
    for at, bit in flips(len(written.data), 400 * often, seed=1):
        data = bytearray(written.data)
        data[at] ^= bit
        log = reopened(written.folder, written.path, bytes(data))
        lost = check(log, written.entries, 30)
        log.close()
        assert len(lost) <= 1, f"byte {at}"


@OFTEN
@pytest.mark.parametrize("indexed", [True, False])
def test_a_flipped_bit_in_sealed_segments_is_one_entry_that_is_known(
    quick_folder: Path, indexed: bool, often: int
) -> None:
    entries = list(made(200, payload=b"p" * 100))
    log = opened(quick_folder / "log")
    for begin in range(0, 200, 4):
        persist(log, *entries[begin : begin + 4])
    log.close()
    segments = list(find_files(quick_folder / "log", SEGMENT).values())
    assert len(segments) > 3
    for path in segments[:2]:
        whole = path.read_bytes()
        for at, bit in flips(len(whole), 40 * often, seed=2):
            data = bytearray(whole)
            data[at] ^= bit
            path.write_bytes(data)
            if not indexed and at >= 44:  # a header that nobody has a copy of: see below
                path.with_suffix(INDEX).unlink(missing_ok=True)
            log = opened(quick_folder / "log")
            assert len(check(log, entries, 200)) <= 1
            assert dict(log.opened().received) == received(entries)
            log.close()
        path.write_bytes(whole)


def received(entries: list[Entry]) -> dict[tuple[str, int], int]:
    return {entry.stream: entry.number for entry in entries}


def test_flipped_bits_in_other_files_lose_nothing(quick_folder: Path) -> None:
    """Indexes, vectors and repairs: each is a cache, has a copy, or is fetched again."""
    folder = quick_folder / "log"
    entries = list(made(300, payload=b"p" * 100))
    log = opened(folder)
    for begin in range(0, 300, 4):
        persist(log, *entries[begin : begin + 4])
    log.close()
    spoiled = next(iter(find_files(folder, SEGMENT).values()))
    data = bytearray(spoiled.read_bytes())
    place = data.index(entries[5].payloads[0])
    data[place] ^= 1
    spoiled.write_bytes(data)
    log = opened(folder)
    assert check(log, entries, 300) == [5]
    persist(log, Repaired("g", 5, entries[5]))
    assert check(log, entries, 300) == []
    log.close()
    copy = quick_folder / "copy"
    shutil.copytree(folder, copy)
    others = [path for path in sorted(copy.iterdir()) if path.suffix not in (SEGMENT, "")]
    for path in others:
        whole = path.read_bytes()
        for at, bit in flips(len(whole), 12, seed=3):
            data = bytearray(whole)
            data[at] ^= bit
            path.write_bytes(data)
            log = opened(copy)
            assert check(log, entries, 300) in ([], [5])
            assert dict(log.opened().received) == received(entries)
            log.close()
        path.write_bytes(whole)


def test_a_header_that_is_damaged_without_an_index_is_an_error_with_its_place(
    written: Written,
) -> None:
    data = bytearray(written.data)
    data[20] ^= 1
    written.path.write_bytes(data)
    written.path.with_suffix(INDEX).unlink()
    with pytest.raises(DiskError, match="damaged at byte 0"):
        opened(written.folder, LARGE)
    assert written.path.read_bytes() == data

"""The file of records: what was synced is found again, and what was replaced makes room."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.stored import (
    CODEC,
    SMALL,
    Counted,
    Latest,
    counted,
    found_in,
    opened,
    persist,
)
from tests.store.test_slots import RECORDS, newest

from ordercast.errors import DiskError
from ordercast.kernel.packet import Packet
from ordercast.store import file
from ordercast.store.file import NAME
from ordercast.store.log import HEAD, HEADER, TEMPORARY
from ordercast.store.memory import SimulatedDisk

ROOT = Path(__file__).resolve().parents[2]


# --- keeping -------------------------------------------------------------------------------------


def test_a_new_store_is_empty_and_stays_so(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.records() == []
    store.sync()
    store.append([])
    store.sync()
    store.close()
    assert found_in(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_synced_records_are_found_again_in_the_order_of_writing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    persist(store, [Counted("g", 1, b"\x00\xff" * 100), Latest("h", "a", 1)])
    persist(store, counted(2, 2))
    assert len(store.records()) == 4
    store.close()
    again = opened(tmp_path)
    persist(again, [Counted("ä" * 50, -(1 << 40))])
    again.close()
    assert found_in(tmp_path) == [
        Counted("g", 1, b"\x00\xff" * 100),
        Latest("h", "a", 1),
        *counted(2, 2),
        Counted("ä" * 50, -(1 << 40)),
    ]


def test_the_records_of_one_group_can_be_asked_for(tmp_path: Path) -> None:
    store = opened(tmp_path)
    persist(store, [*counted(1), Counted("h", 2), *counted(3)])
    assert store.records("g") == counted(1, 3)
    assert store.records("h") == [Counted("h", 2)]
    assert store.records("nobody") == []
    store.close()


def test_a_forgotten_group_stays_forgotten(tmp_path: Path) -> None:
    store = opened(tmp_path)
    persist(store, [*counted(1), Latest("h", "a", 1), Latest("g", "a", 1)])
    store.forget("g")
    store.append([Latest("g", "a", 2)])  # it is joined again
    assert len(store.records("g")) == 2, "nothing counts before it is synced"
    store.sync()
    assert store.records() == [Latest("h", "a", 1), Latest("g", "a", 2)]
    store.close()
    assert found_in(tmp_path) == [Latest("h", "a", 1), Latest("g", "a", 2)]


def test_groups_that_come_and_are_forgotten_do_not_fill_the_disk(tmp_path: Path) -> None:
    store = opened(tmp_path, largest=2000, least_garbage=SMALL)
    persist(store, counted(1))
    for number in range(100):
        persist(store, [Counted(f"world/{number}", number, bytes(50))])
        store.forget(f"world/{number}")
        store.sync()
    assert store.records() == counted(1)
    assert (tmp_path / NAME).stat().st_size < 1000
    store.close()
    assert found_in(tmp_path) == counted(1)


def test_a_record_is_durable_after_a_sync_and_not_before(tmp_path: Path) -> None:
    store = opened(tmp_path)
    persist(store, counted(1))
    store.append(counted(2))
    assert store.records() == counted(1)
    store.close()
    assert found_in(tmp_path) == counted(1)


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.close()
    store.close()
    with pytest.raises(DiskError, match="records is closed"):
        store.append(counted(1))
    with pytest.raises(DiskError, match="records is closed"):
        store.sync()


def test_records_may_be_appended_while_another_thread_syncs(tmp_path: Path) -> None:
    """Nothing is lost, doubled or reordered, whatever of it comes into which sync."""
    store = opened(tmp_path, least_garbage=SMALL)
    over = threading.Event()

    def sync_all_the_time() -> None:
        while not over.is_set():
            store.sync()

    syncing = threading.Thread(target=sync_all_the_time)
    syncing.start()
    try:
        for number in range(500):
            store.append([*counted(number), Latest("g", "newest", number)])
            assert len(store.records("g")) <= number + 2
    finally:
        over.set()
        syncing.join()
    store.sync()
    store.close()
    assert found_in(tmp_path) == [*counted(*range(500)), Latest("g", "newest", 499)]


# --- making room ---------------------------------------------------------------------------------


def test_a_file_is_rewritten_when_most_of_it_is_garbage(tmp_path: Path) -> None:
    store = opened(tmp_path, least_garbage=SMALL)
    persist(store, counted(*range(5)))
    largest = 0
    for number in range(200):
        persist(store, [Latest("g", "a", number)])
        largest = max(largest, store.path.stat().st_size)
    live = sum(HEAD.size + len(CODEC.encode(record)) for record in store.records())
    assert SMALL < largest < HEADER.size + live + SMALL + 100
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    store.close()
    assert found_in(tmp_path) == [*counted(*range(5)), Latest("g", "a", 199)]


def test_a_large_file_is_not_rewritten_for_little_garbage(tmp_path: Path) -> None:
    """Each time all that counts is written, so as much garbage has to be worth it."""
    store = opened(tmp_path, least_garbage=SMALL)
    persist(store, [Counted("g", 0, b"x" * 10_000)])
    before = store.path.stat().st_ino
    for number in range(100):
        persist(store, [Latest("g", "a", number)])
    assert store.path.stat().st_size > 10_000 + 10 * SMALL
    assert store.path.stat().st_ino == before
    store.close()


def test_a_rewritten_file_may_be_larger_than_one_write(tmp_path: Path) -> None:
    store = opened(tmp_path, least_garbage=SMALL)
    large: list[Packet] = [Counted("g", number, bytes([number]) * 300_000) for number in range(9)]
    persist(store, large)
    before = store.path.stat().st_ino
    for number in range(2):
        persist(store, [Latest("g", "x" * 2_000_000, number)])
    assert store.path.stat().st_ino == before
    persist(store, [Latest("g", "x" * 2_000_000, 2), Latest("g", "x" * 2_000_000, 3)])
    assert store.path.stat().st_ino != before
    store.close()
    assert found_in(tmp_path) == [*large, Latest("g", "x" * 2_000_000, 3)]


Batches = list[list[Packet] | None]


@settings(max_examples=60)
@given(
    st.lists(st.none() | st.lists(RECORDS, max_size=6), max_size=20),
    st.sampled_from([0, 100, 1 << 20]),
)
def test_a_file_and_a_simulated_disk_persist_the_same_records(
    batches: Batches, least_garbage: int
) -> None:
    """Against a plain list of all that was ever kept; None is a crash and a new process."""
    every: list[Packet] = []
    disk = SimulatedDisk(1000)
    with tempfile.TemporaryDirectory() as name:
        store = opened(Path(name), least_garbage=least_garbage)
        for batch in batches:
            if batch is None:
                store.append(counted(99))
                store.close()
                disk.append(counted(99))
                disk.crash()
                store = opened(Path(name), least_garbage=least_garbage)
            else:
                persist(store, batch)
                disk.append(batch)
                disk.sync()
                every += batch
            assert store.records() == disk.records() == newest(every)
        store.close()


# --- limits --------------------------------------------------------------------------------------


def test_a_full_store_rejects_a_batch_and_persists_others(tmp_path: Path) -> None:
    """Nothing was written, so another group's small record is still welcome."""
    store = opened(tmp_path, largest=1000)
    persist(store, [Counted("g", 1, b"x" * 500)])
    with pytest.raises(DiskError, match=r"records is full: \d+ bytes of records, \d+ more, and"):
        store.append([*counted(2), Counted("g", 3, b"x" * 500)])
    persist(store, counted(4))
    store.close()
    assert found_in(tmp_path) == [Counted("g", 1, b"x" * 500), *counted(4)]


def test_records_that_are_not_synced_count_towards_the_limit(tmp_path: Path) -> None:
    store = opened(tmp_path, largest=1000)
    store.append([Latest("g", "x" * 600, 1)])
    with pytest.raises(DiskError, match="is full"):
        store.append([Latest("g", "x" * 600, 2)])
    store.sync()
    store.append([Latest("g", "x" * 300, 3)])
    store.close()


def test_a_record_that_is_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    persist(store, [Counted("g", 1, b"x" * 200)])
    monkeypatch.setattr(file, "RECORDS", file.RECORDS._replace(largest=100))
    with pytest.raises(DiskError, match=r"a record of \d+ bytes; the limit is 100"):
        store.append([Counted("g", 2, b"x" * 200)])
    store.close()
    with pytest.raises(DiskError, match=r"damaged at byte 64: .* \d+ bytes, and the limit is 100"):
        opened(tmp_path)


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    opened(tmp_path).close()
    os.truncate(tmp_path / NAME, 1 << 40)
    with pytest.raises(DiskError, match=r"has 1099511627776 bytes: the limit is \d+"):
        opened(tmp_path)


# --- a process that dies -------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 20, 60, 150])
def test_acknowledged_records_outlive_a_kill(tmp_path: Path, after: int) -> None:
    """Whatever it was doing, writing anew included: at most its last step is found in part."""
    command = [sys.executable, "-m", "tests.store.stored", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for _ in range(after):
                process.stdout.readline()
            process.kill()
            said = int((process.stdout.read().split() or [str(after)])[-1])
        finally:
            process.kill()
    found = found_in(tmp_path)
    newest_of = {one.name: one.number for one in found if isinstance(one, Latest)}
    assert newest_of["all"] in (said, said + 1)
    for number in range(max(1, said - 2), said + 1):
        assert newest_of[f"n{number % 3}"] in (number, said + 1)
    every = [one.number for one in found if isinstance(one, Counted)]
    tens = list(range(10, said + 1, 10))
    assert every in (tens, [*tens, said + 1])


def test_an_unfinished_file_is_deleted(tmp_path: Path) -> None:
    store = opened(tmp_path)
    persist(store, counted(1))
    store.close()
    (tmp_path / (NAME + TEMPORARY)).write_bytes(b"half")
    assert found_in(tmp_path) == counted(1)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]

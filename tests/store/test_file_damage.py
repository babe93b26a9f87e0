"""The file of records when things go wrong: torn tails, damage, a disk that fails."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
from tests.store.stored import (
    COMMIT_SIZE,
    SMALL,
    Breaking,
    Counted,
    Foreign,
    Latest,
    codec_of,
    counted,
    found_in,
    opened,
    persist,
    persist_newer_and_newer,
)

from ordercast.errors import DiskError
from ordercast.kernel.packet import Packet
from ordercast.store.file import NAME, RECORDS, FileStore
from ordercast.store.log import COMMIT, HEAD, HEADER

MAGIC = RECORDS.magic


def written(folder: Path, *batches: list[Packet]) -> tuple[Path, list[int]]:
    """A store that was closed, and where it ended before the first and after each batch."""
    store = opened(folder)
    ends = [store.path.stat().st_size]
    for batch in batches:
        persist(store, batch)
        ends.append(store.path.stat().st_size)
    store.close()
    return store.path, ends


# --- torn tails ----------------------------------------------------------------------------------


def test_a_tail_torn_at_any_byte_is_truncated_and_nothing_before_it_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, ends = written(tmp_path, counted(1), counted(2), counted(3))
    whole = path.read_bytes()
    last = ends[3] - COMMIT_SIZE  # where the record ends, and the mark that it is synced begins
    for cut in range(ends[2], ends[3] + 1):
        path.write_bytes(whole[:cut])
        caplog.clear()
        store = opened(tmp_path)
        assert store.records() == (counted(1, 2, 3) if cut >= last else counted(1, 2))
        assert path.stat().st_size == (
            ends[3] if cut >= last else ends[2] + (COMMIT_SIZE if cut > ends[2] else 0)
        )
        torn = cut - (last if cut >= last else ends[2])
        says = f"a torn tail of {torn} bytes is cut off"
        assert (says in caplog.text) == (cut not in (ends[2], last, ends[3]))
        persist(store, counted(4))
        store.close()
        assert found_in(tmp_path)[-2:] == (counted(3, 4) if cut >= last else counted(2, 4))


def test_the_whole_records_of_a_torn_step_are_found(tmp_path: Path) -> None:
    path, ends = written(tmp_path, counted(1), counted(2, 3, 4))
    size = (ends[2] - ends[1] - COMMIT_SIZE) // 3
    path.write_bytes(path.read_bytes()[: ends[1] + 2 * size + 5])
    assert found_in(tmp_path) == counted(1, 2, 3)


def test_blocks_of_an_unsynced_step_may_reach_the_disk_in_any_order(tmp_path: Path) -> None:
    """A hole of zeros with whole records behind it is torn too: nobody was told of any of them."""
    path, ends = written(tmp_path, counted(1), counted(2, 3, 4))
    data = bytearray(path.read_bytes()[: ends[2] - COMMIT_SIZE])
    data[ends[1] : ends[1] + 20] = bytes(20)
    path.write_bytes(data)
    assert found_in(tmp_path) == counted(1)


def test_a_record_cannot_make_a_torn_tail_look_synced(tmp_path: Path) -> None:
    """It holds marks of another file, and the beginning of its own: checksums are salted."""
    (tmp_path / "other").mkdir()
    other, _ = written(tmp_path / "other", counted(1))
    mark = other.read_bytes()[-COMMIT_SIZE:]
    assert mark.startswith(COMMIT)
    path, ends = written(tmp_path, counted(1), [Counted("g", 2, (mark + mark[:8]) * 9)])
    data = bytearray(path.read_bytes()[:-COMMIT_SIZE])
    data[ends[1] + 5] ^= 1
    path.write_bytes(data)
    assert found_in(tmp_path) == counted(1)


def test_records_found_when_a_file_is_opened_are_synced(tmp_path: Path) -> None:
    """A record without its mark may not be on the disk; once it was read it has to be."""
    path, ends = written(tmp_path, counted(1), counted(2))
    whole = path.read_bytes()
    path.write_bytes(whole[: ends[2] - COMMIT_SIZE])
    assert found_in(tmp_path) == counted(1, 2)
    assert path.read_bytes() == whole
    data = bytearray(whole)
    data[ends[1] + HEAD.size] ^= 1
    path.write_bytes(data)
    with pytest.raises(DiskError, match=f"damaged at byte {ends[1]}"):
        opened(tmp_path)


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [0x01, 0x80, 0xFF])
def test_a_byte_that_changed_anywhere_in_what_was_synced_is_an_error(
    tmp_path: Path, change: int
) -> None:
    """But in the last mark, behind which there is nothing: then nothing is lost either."""
    path, ends = written(tmp_path, counted(1), [Counted("g", 2, b"x" * 90)], counted(3, 4))
    whole = path.read_bytes()
    every = found_in(tmp_path)
    assert len(every) == 4
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= change
        path.write_bytes(data)
        if place >= ends[-1] - COMMIT_SIZE:
            assert found_in(tmp_path) == every
            continue
        with pytest.raises(DiskError, match=r"damaged|not a store of records|of version") as raised:
            opened(tmp_path)
        assert str(path) in str(raised.value)
        assert path.read_bytes() == data  # for whoever looks into it


def test_a_missing_repeated_or_moved_piece_is_an_error(tmp_path: Path) -> None:
    path, ends = written(tmp_path, counted(1), counted(2), counted(3))
    whole = path.read_bytes()
    head, one, two, three = (whole[begin:end] for begin, end in zip([0, *ends], ends, strict=False))
    for pieces, place in [
        ((head, two, three), ends[0]),
        ((head, one, three), ends[1]),
        ((head, one, one, two, three), ends[1]),
        ((head, one, three, two), ends[1]),
        ((head, one, two[:5], three), ends[1]),
        ((head, one, bytes(len(two)), three), ends[1]),
    ]:
        path.write_bytes(b"".join(pieces))
        with pytest.raises(DiskError, match=f"damaged at byte {place}: the checksum is wrong"):
            opened(tmp_path)


def test_a_huge_length_is_damage_in_the_middle_and_torn_at_the_end(tmp_path: Path) -> None:
    path, ends = written(tmp_path, counted(1), counted(2))
    whole = path.read_bytes()
    huge = whole[ends[1] : ends[1] + 4] + b"\xff" * 4
    path.write_bytes(whole[: ends[1]] + huge + whole[ends[1] + 8 :])
    with pytest.raises(DiskError, match=f"damaged at byte {ends[1]}"):
        opened(tmp_path)
    path.write_bytes(whole + huge + bytes(100))
    assert found_in(tmp_path) == counted(1, 2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a store of records: something else is in its place"),
        (b"dear diary, today", "is not a store of records"),
        (MAGIC, "is damaged: it is cut off in its header"),
        (MAGIC + bytes(11), "is damaged: it is cut off in its header"),
        (MAGIC + b"\0\0\0\1", "is damaged: it is cut off in its header"),
        (HEADER.pack(MAGIC, 3, 0, 0, 0, 0), "version 3, and this ordercast reads versions 1 and 2"),
        (HEADER.pack(MAGIC, 2, 7, 7, 0, 7), "damaged at byte 0: the checksum of its header"),
        (HEADER.pack(MAGIC, 1, 7, 7, 0, 7), "damaged at byte 0: the checksum of its header"),
    ],
)
def test_a_file_that_is_no_store_is_rejected(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(DiskError, match=said):
        opened(tmp_path)
    assert (tmp_path / NAME).read_bytes() == content


def test_a_record_of_an_unknown_type_is_an_error(tmp_path: Path) -> None:
    store = FileStore(tmp_path, codec_of(Counted, Foreign))
    persist(store, [*counted(1), Foreign("g"), *counted(2)])
    store.close()
    with pytest.raises(DiskError, match=r"has at byte \d+ a record that this ordercast"):
        opened(tmp_path)


def test_a_folder_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="nowhere/records cannot be used: No such file"):
        opened(tmp_path / "nowhere")
    (tmp_path / NAME).mkdir()
    with pytest.raises(DiskError, match="records cannot be used: Is a directory"):
        opened(tmp_path)


# --- a disk that fails ---------------------------------------------------------------------------


def test_a_full_disk_ends_the_store_and_loses_no_durable_record(tmp_path: Path) -> None:
    store = opened(tmp_path)
    persist(store, counted(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (store.path.stat().st_size + 50, hard))
    try:
        store.append([Counted("g", 2, b"x" * 500)])
        with pytest.raises(DiskError, match="records cannot be used: File too large"):
            store.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.path.stat().st_size > 50  # half a frame is there
    said = "records takes no more records since an error: File too large"
    with pytest.raises(DiskError, match=said):
        store.append(counted(3))
    with pytest.raises(DiskError, match=said):
        store.sync()
    store.close()
    assert found_in(tmp_path) == counted(1)


def test_a_failed_sync_is_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system forgets what it could not write: the next sync would be a lie."""
    store = opened(tmp_path)
    persist(store, counted(1))
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", Breaking(os.fsync, 0, errno.EIO))
        store.append(counted(2))
        with pytest.raises(DiskError, match="records cannot be used: Input/output error"):
            store.sync()
        for call in (store.sync, lambda: store.append(counted(3))):
            with pytest.raises(DiskError, match="no more records since an error: Input/output"):
                call()
    assert store.records() == counted(1)
    store.close()
    assert store.path.read_bytes().count(COMMIT) == 2  # when it was made, and the first
    # Nobody was told about the second one: that it is found is as good as that it is not.
    assert found_in(tmp_path) == counted(1, 2)


CALLS = {"write": 30, "fsync": 20, "rename": 3}
"""So often each is called until the file was written anew two times, at the least."""
FAILURES = [(call, at) for call, count in CALLS.items() for at in range(count)]


@pytest.mark.parametrize(("call", "at"), FAILURES)
def test_a_failure_of_any_system_call_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, at: int
) -> None:
    """The step in which it fails is found or not; all before it is, and it goes on from there."""
    store = opened(tmp_path, least_garbage=SMALL)
    kept = [0]
    persist(store, [Latest("g", "a", 0)])
    with monkeypatch.context() as broken:
        broken.setattr(os, call, Breaking(getattr(os, call), at, errno.ENOSPC))
        with pytest.raises(DiskError, match="cannot be used: No space left on device"):
            persist_newer_and_newer(store, kept)
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    (found,) = found_in(tmp_path)
    assert isinstance(found, Latest)
    assert found.number in (kept[-1], kept[-1] + 1)
    again = opened(tmp_path)
    persist(again, [Latest("g", "a", 1000)])
    again.close()
    assert found_in(tmp_path) == [Latest("g", "a", 1000)]


def test_a_failure_while_a_store_is_opened_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, counted(1))
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", Breaking(os.fsync, 0, errno.EIO))
        with pytest.raises(DiskError, match="records cannot be used: Input/output error"):
            opened(tmp_path)
    assert found_in(tmp_path) == counted(1)

"""The form of logs under its three policies: prefixes, flipped bits, limits, who may read them.

Files of both versions: those of version 1 were written by the ordercast that had no other, and are
in tests/version1.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.store.stored import (
    COMMIT_SIZE,
    Counted,
    Foreign,
    Latest,
    codec_of,
    counted,
    found_in,
    opened,
    persist,
)

from ordercast.errors import DiskError, OrdercastError, TraceError
from ordercast.kernel.packet import Packet
from ordercast.net.identity import Identity
from ordercast.store import file
from ordercast.store.file import NAME, FileStore
from ordercast.store.log import HEADER, LogKind, SegmentWalk, begin_segment, new_header
from ordercast.trace import log as rows
from ordercast.trace import record_log
from ordercast.trace.log import RowLog, read_log
from ordercast.trace.record_log import RecordLog
from ordercast.trace.recording import RECORDING, Follower, Record, find_segments, read_records
from ordercast.trace.schema import Row

VERSION_1 = Path(__file__).resolve().parents[1] / "version1"


class Policy(NamedTuple):
    """A way to use the form: a log of it, and what is found when it is opened or only read."""

    path: str  # of the file that is spoiled, in a folder of its own
    write: Callable[[Path], None]
    read: Callable[[Path], list[object]]
    carry_on: Callable[[Path], None]  # opens it to append one more
    kind: LogKind


def put(path: Path, data: bytes) -> None:
    """In a new file: a file system may take the time to sync one that is written over."""
    path.unlink()
    path.write_bytes(data)


# --- the three policies --------------------------------------------------------------------------


def write_records(folder: Path) -> None:
    store = opened(folder)
    persist(store, [*counted(1), Latest("g", "a", 1), Counted("h", 2, b"\x00\xff" * 20)])
    persist(store, [Latest("g", "a", 2), *counted(3)])
    store.forget("h")
    persist(store, [Counted("h", 4, b"again")])
    store.close()


RECORDS_WRITTEN: list[object] = [
    Counted("g", 1), Latest("g", "a", 2), Counted("g", 3), Counted("h", 4, b"again")
]  # fmt: skip


def records_in(folder: Path) -> list[object]:
    """As it was: a store that is only read is opened too, and so repaired."""
    before = (folder / NAME).read_bytes()
    try:
        return list(found_in(folder))
    finally:
        put(folder / NAME, before)


def persist_one_more(folder: Path) -> None:
    store = opened(folder)
    persist(store, counted(99))
    store.close()


def record(number: int, origin: str = "n1", data: bytes = b"data") -> Record:
    return Record(0, "deliver", 5, "r", 1, "g", origin, 0, number, size=len(data), payloads=[data])


def write_recording(folder: Path) -> None:
    log = RecordLog(folder)
    for number in range(1, 4):
        log.append([record(number), record(number, "n2")])
    log.close()


def recorded_in(folder: Path) -> list[object]:
    follower = Follower(folder)
    return [
        (each.origin, each.number) for each in read_records(folder, follower.first, follower.latest)
    ]


def record_one_more(folder: Path) -> None:
    log = RecordLog(folder)
    log.append([record(99)])
    log.close()


def row(step: int) -> Row:
    return Row("n1", 0, step, step * 10, "deliver", "g", "n2", step, stamp=(1, step))


def write_rows(folder: Path) -> None:
    log = RowLog(folder / "n1.rows")
    for step in range(1, 6):
        log.write(row(step))
        if step != 2:  # the second and the third are one block
            log.flush()
    log.close()


def rows_in(folder: Path) -> list[object]:
    return list(read_log(folder / "n1.rows"))


def write_one_more_row(folder: Path) -> None:
    log = RowLog(folder / "n1.rows")
    log.write(row(99))
    log.close()


POLICIES = {
    "records": Policy(NAME, write_records, records_in, persist_one_more, file.RECORDS),
    "recording": Policy(
        f"{0:020}.segment", write_recording, recorded_in, record_one_more, RECORDING
    ),
    "rows": Policy("n1.rows", write_rows, rows_in, write_one_more_row, rows.ROWS),
}


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> Policy:
    return POLICIES[request.param]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says at once that it has everything."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def is_prefix(some: list[object], every: list[object]) -> bool:
    return some == every[: len(some)]


# --- prefixes and flipped bits -------------------------------------------------------------------


@pytest.mark.usefixtures("quick_disk")
def test_every_prefix_of_a_log_gives_its_whole_records_and_can_be_continued(
    policy: Policy, folder: Path
) -> None:
    """Records replace each other, so of those only all that there were can be compared."""
    policy.write(folder)
    path = folder / policy.path
    whole, every = path.read_bytes(), policy.read(folder)
    last = [frame.place for frame in SegmentWalk(path, policy.kind)][-1]
    found: list[list[object]] = []
    for size in range(len(whole) + 1):
        put(path, whole[:size])
        try:
            before = policy.read(folder)
        except OrdercastError:
            assert size < HEADER.size, "only a header that is cut off is refused"
            continue
        found.append(before)
        policy.carry_on(folder)
        after = policy.read(folder)
        assert is_prefix(before, after[:-1])
        assert after[-1] not in before
        if policy.path != NAME:
            assert is_prefix(before, every)
        elif size >= last:
            assert before == every, "all but the last commit is there"
    assert found[0] == []
    assert found[-1] == every


def flipped(data: bytes) -> Iterator[tuple[int, bytes]]:
    for place in range(len(data)):
        for bit in range(8):
            yield place, data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


@pytest.mark.usefixtures("quick_disk")
def test_every_flipped_bit_is_rejected_by_readers_and_writers_and_nothing_truncated(
    policy: Policy, folder: Path
) -> None:
    """But in the last frame, behind which there is nothing: that looks torn.

    It is a commit, and what it speaks of is whole; or a row, and a log without commits promises
    nothing about its last.
    """
    policy.write(folder)
    path = folder / policy.path
    whole, every = path.read_bytes(), policy.read(folder)
    last = [frame.place for frame in SegmentWalk(path, policy.kind)][-1]
    for place, data in flipped(whole):
        put(path, data)
        if place >= last:
            assert is_prefix(policy.read(folder), every)
            assert not policy.kind.synced or carried_on(policy, folder)[:-1] == every
            continue
        with pytest.raises(policy.kind.error, match=path.name):
            policy.read(folder)
        if place % 16 == 0:
            with pytest.raises(policy.kind.error, match=path.name):
                policy.carry_on(folder)
            assert path.read_bytes() == data


def carried_on(policy: Policy, folder: Path) -> list[object]:
    policy.carry_on(folder)
    return policy.read(folder)


def test_a_commit_in_the_wrong_place_is_damage(folder: Path) -> None:
    """All frames are whole, and still some are missing: commits count them."""
    write_recording(folder)
    path = find_segments(folder)[0][1]
    segment = begin_segment(path, RECORDING, new_header(7, 5), [])
    segment.position += 1
    segment.commit()
    segment.close()
    walk = SegmentWalk(path, RECORDING)
    with pytest.raises(TraceError, match="a commit of position 6 is where 5 should be"):
        list(walk)


# --- version 1 -----------------------------------------------------------------------------------


def version_1_in(folder: Path, name: str) -> None:
    source = VERSION_1 / "recording" if name == "recording" else VERSION_1
    for path in source.iterdir():
        if path.is_file() and path.name.endswith((POLICIES[name].path, ".segment")):
            shutil.copy(path, folder / path.name)


FOUND_IN_VERSION_1: dict[str, list[object]] = {
    "records": RECORDS_WRITTEN,
    "recording": [
        *((origin, number) for number in range(1, 5) for origin in ("n1", "n2")),
        (None, None),
        *(("n1", number) for number in range(5, 9)),
    ],
    "rows": [
        *map(row, range(1, 6)),
        Row("n1", 0, 6, 60, "view", "g", view=3, members=("n1", "n2")),
    ],
}
LAST_OF_VERSION_1 = {"records": NAME, "recording": f"{10:020}.segment", "rows": "n1.rows"}


@pytest.mark.parametrize("name", POLICIES)
def test_files_of_version_1_are_read_and_continued(name: str, folder: Path) -> None:
    version_1_in(folder, name)
    policy = POLICIES[name]
    assert policy.read(folder) == FOUND_IN_VERSION_1[name]
    for _ in range(3):
        before = policy.read(folder)
        policy.carry_on(folder)
        after = policy.read(folder)
        assert is_prefix(before, after)
        assert len(after) == len(before) + 1


def test_a_recording_of_version_1_continues_in_version_2(folder: Path) -> None:
    """In its own version to the end of its last segment, which a reader need not know."""
    version_1_in(folder, "recording")
    log = RecordLog(folder, segment_bytes=1 << 12)
    assert log.next_offset == 13
    assert 4 in log.recorded["g", "n2"], "what earlier segments hold is remembered"
    identity = Follower(folder).identity
    for number in range(9, 40):
        log.append([record(number, data=b"x" * 400)])
    log.close()
    versions = [SegmentWalk(path, RECORDING).header.version for _, path in find_segments(folder)]
    assert versions[:2] == [1, 1]
    assert set(versions[2:]) == {2}
    assert Follower(folder).identity == identity
    numbers = [each.number for each in read_records(folder, 13, Follower(folder).latest)]
    assert numbers == list(range(9, 40))


def test_a_store_of_version_1_is_rewritten_and_loses_nothing(folder: Path) -> None:
    version_1_in(folder, "records")
    opened(folder).close()
    assert SegmentWalk(folder / NAME, file.RECORDS).header.version == 2
    assert records_in(folder) == RECORDS_WRITTEN


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.usefixtures("quick_disk")
def test_every_prefix_of_a_version_1_log_can_be_continued(name: str, folder: Path) -> None:
    version_1_in(folder, name)
    policy, path = POLICIES[name], folder / LAST_OF_VERSION_1[name]
    whole = path.read_bytes()
    longest = 0
    for size in range(len(whole) + 1):
        put(path, whole[:size])
        try:
            before = policy.read(folder)
        except OrdercastError:
            assert size < 44
            continue
        longest = max(longest, len(before))
        policy.carry_on(folder)
        assert is_prefix(before, policy.read(folder)[:-1])
    assert longest == len(FOUND_IN_VERSION_1[name])


@pytest.mark.parametrize("name", ["records", "recording"])
@pytest.mark.usefixtures("quick_disk")
def test_flipped_bits_of_version_1_are_refused(name: str, folder: Path) -> None:
    """Rows of version 1 have no checksums: nothing can be said of theirs."""
    version_1_in(folder, name)
    policy, path = POLICIES[name], folder / LAST_OF_VERSION_1[name]
    whole, every = path.read_bytes(), FOUND_IN_VERSION_1[name]
    for place, data in flipped(whole):
        put(path, data)
        try:
            found = policy.read(folder)
        except OrdercastError:
            continue
        assert is_prefix(found, every)
        assert len(every) - len(found) <= 1
        assert place >= len(whole) - COMMIT_SIZE
    path.write_bytes(whole)


# --- nothing is written that cannot be read back -------------------------------------------------


@pytest.mark.parametrize(
    ("module", "kind", "write"),
    [
        (file, "RECORDS", lambda folder: persist(opened(folder), [Counted("g", 1, bytes(200))])),
        (record_log, "RECORDING", lambda folder: RecordLog(folder).append([record(1, "n" * 200)])),
        (
            rows,
            "ROWS",
            lambda folder: RowLog(folder / "n1.rows").write(Row("n" * 200, 0, 1, 1, "")),
        ),
    ],
)
def test_a_writer_rejects_what_a_reader_would(
    module: object,
    kind: str,
    write: Callable[[Path], None],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small: LogKind = getattr(module, kind)._replace(largest=100)
    monkeypatch.setattr(module, kind, small)
    with pytest.raises(small.error, match=r"a record of \d+ bytes; the limit is 100"):
        write(folder)


def test_a_record_that_is_too_long_costs_a_recording_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_log, "RECORDING", RECORDING._replace(largest=100))
    log = RecordLog(folder)
    log.append([record(1)])
    with pytest.raises(TraceError, match="the limit is 100"):
        log.append([record(2), record(3, data=bytes(200))])
    assert log.append([record(4)]) == 2
    log.close()
    assert recorded_in(folder) == [("n1", 1), ("n1", 4)]
    again = RecordLog(folder)
    assert 2 not in again.recorded["g", "n1"]
    again.close()


def test_a_packet_that_the_next_process_could_not_read_is_refused(folder: Path) -> None:
    store = opened(folder)
    mixed: list[Packet] = [*counted(1), Foreign("g")]
    with pytest.raises(DiskError, match="was given a record that this ordercast does not know"):
        store.append(mixed)
    persist(store, counted(2))
    store.close()
    assert records_in(folder) == counted(2)
    FileStore(folder, codec_of(Counted)).close()


# --- who may read it -----------------------------------------------------------------------------


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def begin_and_release(folder: Path) -> None:
    identity = Identity(folder, "n1", "shop")
    identity.begin(0, reborn=False)
    identity.release()


@pytest.mark.usefixtures("open_umask")
def test_files_and_folders_are_private_to_their_owner(policy: Policy, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "log"
    begin_and_release(folder)
    assert {path.name for path in folder.iterdir()} == {"lock", "incarnation", "original", "owner"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    shutil.rmtree(folder)
    if policy.path.endswith(".segment"):
        policy.write(folder)
    else:
        folder.mkdir(0o700)
        policy.write(folder)
    begin_and_release(tmp_path / "node")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in [*folder.iterdir(), *(tmp_path / "node").iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.usefixtures("open_umask")
def test_a_rewritten_file_is_private_to_its_owner(folder: Path) -> None:
    version_1_in(folder, "records")
    version_1_in(folder, "rows")
    (folder / "n1.rows").chmod(0o644)
    opened(folder).close()
    RowLog(folder / "n1.rows").close()
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_half_rewritten_file_of_a_killed_process_is_no_obstacle(folder: Path) -> None:
    version_1_in(folder, "rows")
    (folder / "n1.rows.tmp").write_bytes(b"half")
    write_one_more_row(folder)
    assert rows_in(folder) == [*FOUND_IN_VERSION_1["rows"], row(99)]
    assert [path.name for path in folder.iterdir()] == ["n1.rows"]

"""A group's log: what is given to it, what is read from it, and what it refuses."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from tests.store.group_log.logged import (
    SMALL,
    Origins,
    everything,
    filled,
    made,
    opened,
    persist,
    spoil,
)
from tests.store.stored import CODEC, Breaking, Foreign, Latest, counted

from ordercast.errors import DiskError
from ordercast.kernel.log import (
    Appended,
    At,
    Bad,
    Entry,
    Knowledge,
    Opened,
    Reference,
    Repaired,
    Trimmed,
    key_of,
)
from ordercast.store.group_log.form import (
    FLOOR,
    FLOOR_COPY,
    FORGOTTEN,
    INDEX,
    LOGGED,
    RECEIVED,
    SEGMENT,
    file_of,
    find_files,
)
from ordercast.store.group_log.log import GroupLog
from ordercast.store.log import HEADER, SegmentHeader, pack_header
from ordercast.trace.record_log import RecordLog

# --- what is given -------------------------------------------------------------------------------


def test_nothing_is_read_that_is_not_on_the_disk(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    entry = next(made(1))
    log.append([Appended("g", entry)])
    assert (log.tail, log.read(At(0), 1).entries) == (0, ())
    log.sync()
    assert (log.tail, log.read(At(0), 1).entries) == (1, (entry,))
    log.append([Appended("g", entry)])
    log.close()
    assert opened(tmp_path / "log").tail == 1


def test_entries_and_states_are_in_the_order_of_their_steps_and_found_again(
    quick_folder: Path,
) -> None:
    log = opened(quick_folder / "log")
    entries = list(made(50))
    for at, entry in enumerate(entries):
        persist(log, entry, Latest("g", f"s{at % 3}", at))
    persist(log, *counted(1, 2))
    log.close()
    again = opened(quick_folder / "log")
    assert everything(again) == entries
    latest = [Latest("g", "s2", 47), Latest("g", "s0", 48), Latest("g", "s1", 49)]
    assert again.records() == [*latest, *counted(1, 2)]
    found = again.opened(clock=5)
    assert (found.identity, found.tail, found.floor, found.clock) == (log.identity, 50, 0, 5)
    assert dict(found.received) == {entry.stream: entry.number for entry in entries}


def test_states_alone_do_not_fill_the_disk(quick_folder: Path) -> None:
    """A segment without entries is replaced by one that has the states that count."""
    log = opened(quick_folder / "log")
    for number in range(600):
        persist(log, Latest("g", "a", number))
    assert len(find_files(quick_folder / "log", SEGMENT)) == 1
    assert log.extents()[0].size < 2 * SMALL.segment
    assert log.records() == [Latest("g", "a", 599)]


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "node" / "log"
    filled(folder)
    log = opened(folder)
    persist(log, Trimmed("g", 200))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


REFUSED = {
    "is the log of the group g, not of h": Appended("h", next(made(1))),
    "not written to it": Opened("g", 1, 0, 0, {}),
    "does not know": Foreign("g"),
    "number 3 after 3": Appended("g", Entry("n", 1, 3, 3)),
    "could not be read back": Appended("g", Entry("n" * 101, 1, 3, 2)),
    "the limit is 67108864": Appended("g", Entry("n", 1, 3, 2, payloads=[bytes(64 << 20)])),
    "bytes of states": Latest("g", "a" * 5000, 1),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_could_not_be_read_back_is_not_taken(tmp_path: Path, why: str) -> None:
    log = opened(tmp_path / "log", SMALL._replace(states=4000))
    entry = next(made(1))
    with pytest.raises(DiskError, match=why):
        log.append([Appended("g", entry), REFUSED[why]])
    log.sync()
    assert log.tail == 0
    persist(log, entry)
    assert everything(log) == [entry]


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "open"])
def test_after_a_failure_of_the_disk_nothing_is_written_and_nothing_lost(
    quick_folder: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    for at in range(0, 12, 2):
        folder = quick_folder / str(at)
        log, acknowledged = opened(folder), 0
        entries = list(made(400, payload=b"p" * 200))
        with monkeypatch.context() as broken:
            broken.setattr(os, call, Breaking(getattr(os, call), at, errno.EIO))
            with suppress(DiskError):
                for entry in entries:
                    persist(log, entry)
                    acknowledged += 1
            if acknowledged < len(entries):
                with pytest.raises(DiskError, match="since an error: Input/output error"):
                    log.sync()
            else:
                assert call in ("open", "rename")  # a cache could not be written
        log.close()
        again = opened(folder)
        assert again.tail in (acknowledged, acknowledged + 1)
        assert everything(again) == entries[: again.tail]
        again.close()


# --- reading -------------------------------------------------------------------------------------


def test_reading_ends_after_so_many_bytes(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    persist(log, *made(20, payload=b"p" * 1000))
    assert len(log.read(At(0), 1).entries) == 1
    assert len(log.read(At(0), 5000).entries) == 5
    assert len(log.read(At(18), 5000).entries) == 2
    assert log.read(At(30), 5000) == (20, (), ())


def test_one_event_is_found_by_its_name(quick_folder: Path) -> None:
    entries = filled(quick_folder / "log")
    log = opened(quick_folder / "log")
    for position in (0, 123, 299):
        entry = entries[position]
        wanted = Reference(entry.origin, entry.birth, entry.number)
        assert log.read(wanted, 1) == (position, (entry,), ())
    assert log.read(Reference("n0", 8, 1), 1).entries == ()
    assert log.read(Reference("n0", 7, 10**6), 1).entries == ()


def test_an_event_of_which_nothing_is_known_is_lacking_everywhere(quick_folder: Path) -> None:
    """Its frame and its commit are bad, so it may be what the other needs next."""
    entries = filled(quick_folder / "log")
    path = file_of(quick_folder / "log", 0, SEGMENT)
    data = bytearray(path.read_bytes())
    place = data.index(entries[7].payloads[0])  # the last one before its commit
    data[place : place + 200] = bytes(200)
    path.write_bytes(data)
    file_of(quick_folder / "log", 0, INDEX).unlink()
    log = opened(quick_folder / "log")
    found = everything(log)
    lost = [at for at, each in enumerate(found) if isinstance(each, Bad)]
    assert 7 in lost
    assert found[7] == Bad(("", 0), 0, 0)
    knows = {key_of(entry.stream): entry.number for entry in entries}
    assert log.read(Knowledge(knows), 1).first == lost[0]
    persist(log, *(Repaired("g", at, entries[at]) for at in lost))
    for _ in range(2):
        assert everything(log) == entries
        assert log.read(Knowledge(knows), 1) == (300, (), ())
        log.close()
        file_of(quick_folder / "log", 0, INDEX).unlink()
        log = opened(quick_folder / "log")


def test_a_repair_that_is_another_event_is_not_put_back(quick_folder: Path) -> None:
    entries = filled(quick_folder / "log")
    spoil(quick_folder / "log", entries[9])
    log = opened(quick_folder / "log")
    persist(log, Repaired("g", 9, entries[10]))
    assert isinstance(everything(log)[9], Bad)
    persist(log, Repaired("g", 8, entries[9]), Repaired("g", 9, entries[9]))
    assert everything(log) == entries
    log.close()
    assert everything(opened(quick_folder / "log")) == entries


# --- what goes -----------------------------------------------------------------------------------


def test_a_trim_removes_whole_segments_and_their_numbers_stay_known(quick_folder: Path) -> None:
    entries = filled(quick_folder / "log")
    log = opened(quick_folder / "log")
    second = log.extents()[1]
    persist(log, Trimmed("g", second.end - 1))
    assert log.floor == second.first
    assert everything(log) == entries[second.first :]
    persist(log, Trimmed("g", 10**9))
    assert log.floor == log.extents()[-1].first
    received = {entry.stream: entry.number for entry in entries}
    for _ in range(2):
        assert dict(log.opened().received) == received
        gaps = log.read(Knowledge({}), 1).gaps
        assert {gap.stream for gap in gaps} == set(received)
        assert all(gap.is_gap and gap.prev == 0 for gap in gaps)
        log.close()
        log = opened(quick_folder / "log")


@pytest.mark.parametrize("suffix", [FLOOR, RECEIVED])
def test_a_vector_with_a_hole_is_not_taken_for_a_shorter_one(
    quick_folder: Path, suffix: str
) -> None:
    once = Entry("once", 9, 1, 0)
    log = opened(quick_folder / "log")
    persist(log, once)
    log.close()
    entries = [once, *filled(quick_folder / "log")]
    log = opened(quick_folder / "log")
    if suffix == FLOOR:
        persist(log, Trimmed("g", log.extents()[1].end))
    log.close()
    path = next(quick_folder.glob(f"log/*{suffix}"))
    whole = path.read_bytes()
    for begin in range(0, len(whole), 4):
        path.write_bytes(
            whole[:begin] + bytes(len(whole[begin : begin + 64])) + whole[begin + 64 :]
        )
        log = opened(quick_folder / "log")
        assert dict(log.opened().received) == {entry.stream: entry.number for entry in entries}
        log.close()


def test_a_state_that_is_damaged_is_as_it_was_before(quick_folder: Path) -> None:
    """In the newest segment that is the one before it, or the one of an older segment."""
    log = opened(quick_folder / "log")
    persist(log, Latest("g", "a", 1001), Latest("g", "b", 2001))
    while len(log.extents()) == 1:
        persist(log, *made(1, payload=b"p" * 500))
    persist(log, Latest("g", "b", 2002), Latest("g", "b", 2003))
    log.close()
    path = list(find_files(quick_folder / "log", SEGMENT).values())[-1]
    data = path.read_bytes()
    for state, found in (
        (Latest("g", "a", 1001), {"a": 1001, "b": 2003}),
        (Latest("g", "b", 2003), {"a": 1001, "b": 2002}),
    ):
        place = data.index(CODEC.encode(state))
        path.write_bytes(data[:place] + b"?" + data[place + 1 :])
        log = opened(quick_folder / "log")
        states = [each for each in log.records() if isinstance(each, Latest)]
        assert {each.name: each.number for each in states} == found
        log.close()


def test_a_trim_that_was_interrupted_is_completed(quick_folder: Path) -> None:
    entries = filled(quick_folder / "log")
    log = opened(quick_folder / "log")
    first = log.extents()[0]
    kept = {path: path.read_bytes() for path in find_files(quick_folder / "log", SEGMENT).values()}
    persist(log, Trimmed("g", first.end))
    log.close()
    path = file_of(quick_folder / "log", 0, SEGMENT)
    path.write_bytes(kept[path])
    log = opened(quick_folder / "log")
    assert (log.floor, path.exists()) == (first.end, False)
    assert everything(log) == entries[first.end :]


@pytest.mark.parametrize("suffix", [FLOOR, FLOOR_COPY])
def test_one_vector_of_the_floor_is_enough_and_without_it_the_log_stays_closed(
    quick_folder: Path, suffix: str
) -> None:
    filled(quick_folder / "log")
    log = opened(quick_folder / "log")
    persist(log, Trimmed("g", log.extents()[0].end))
    log.close()
    file_of(quick_folder / "log", log.floor, suffix).write_bytes(b"")
    opened(quick_folder / "log").close()
    for path in quick_folder.glob("log/*.floor*"):
        path.unlink()
    with pytest.raises(DiskError, match="is missing: put it back"):
        opened(quick_folder / "log")


def test_sizes_and_ages_are_known_by_segment(quick_folder: Path) -> None:
    clock = [1000]

    def now() -> int:
        clock[0] += 1
        return clock[0]

    limits = SMALL._replace(keep=30_000)
    log = GroupLog(quick_folder / "log", "g", CODEC, limits=limits, now=now)
    for entry in made(300, payload=b"p" * 100):
        persist(log, entry)
    for _ in range(2):
        extents = log.extents()
        assert [extent.begun for extent in extents] == [1001 + at for at in range(len(extents))]
        assert log.written_before(1000) == 0
        assert log.written_before(1002) == extents[1].first
        assert log.written_before(10**9) == extents[-1].first
        assert 20_000 < log.bytes_from(log.surplus()) <= 30_000
        assert log.bytes_from(0) == sum(extent.size for extent in extents) == log.opened().size
        log.close()
        log = GroupLog(quick_folder / "log", "g", CODEC, limits=limits, now=now)
    persist(log, Trimmed("g", log.surplus()))
    assert sum(extent.size for extent in log.extents()) <= 30_000


def test_a_log_that_is_forgotten_begins_again_as_another(quick_folder: Path) -> None:
    filled(quick_folder / "log")
    log = opened(quick_folder / "log")
    before = log.identity
    entry = next(made(1))
    persist(log, Latest("g", "a", 1))
    log.append([Appended("g", next(made(1)))])
    log.forget("g")
    log.append([Appended("g", entry)])
    log.sync()
    for _ in range(2):
        assert log.identity != before
        assert (everything(log), log.records()) == ([entry], [])
        log.close()
        log = opened(quick_folder / "log")
    log.close()
    (quick_folder / "log" / FORGOTTEN).touch()  # killed while it forgot
    log = opened(quick_folder / "log")
    assert (log.tail, log.records()) == (0, [])


# --- folders that are something else -------------------------------------------------------------


def test_a_folder_that_is_in_use_or_of_another_group_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    with pytest.raises(DiskError, match="is in use"):
        opened(tmp_path / "log")
    log.close()
    with pytest.raises(DiskError, match="is the log of the group g, and not of h"):
        opened(tmp_path / "log", group="h")


def test_a_foreign_file_or_another_kind_of_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(DiskError, match=r"holds notes\.txt, which is no file of a group's log"):
        opened(tmp_path / "log")
    RecordLog(tmp_path / "recording").close()
    with pytest.raises(DiskError, match="is not a segment of a group's log: something else"):
        opened(tmp_path / "recording")
    assert (tmp_path / "log" / "notes.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("version", [1, 3])
def test_a_log_of_another_version_is_refused(quick_folder: Path, version: int) -> None:
    filled(quick_folder / "log")
    for path in find_files(quick_folder / "log", SEGMENT).values():
        data = path.read_bytes()
        _, _, salt, identity, first, _ = HEADER.unpack(data[: HEADER.size])
        header = pack_header(LOGGED, SegmentHeader(version, salt, identity, first))
        path.write_bytes(header + data[HEADER.size :])
        with pytest.raises(DiskError, match=f"version {version}"):
            opened(quick_folder / "log")
        path.write_bytes(data)
    opened(quick_folder / "log").close()


def test_a_segment_of_another_log_is_refused(quick_folder: Path) -> None:
    filled(quick_folder / "log")
    filled(quick_folder / "other")
    path = sorted(find_files(quick_folder / "log", SEGMENT).values())[1]
    other = quick_folder / "other" / path.name
    whole = path.read_bytes()
    path.write_bytes(other.read_bytes())
    with pytest.raises(DiskError, match="is of another log, or was renamed"):
        opened(quick_folder / "log")
    path.write_bytes(whole)
    opened(quick_folder / "log").close()


@pytest.mark.parametrize("indexed", [True, False])
def test_a_truncated_segment_loses_what_was_cut_and_keeps_every_position(
    quick_folder: Path, indexed: bool
) -> None:
    entries = filled(quick_folder / "log")
    log = opened(quick_folder / "log")
    first, second = log.extents()[:2]
    log.close()
    path = file_of(quick_folder / "log", second.first, SEGMENT)
    os.truncate(path, path.stat().st_size // 2)
    if not indexed:
        file_of(quick_folder / "log", second.first, INDEX).unlink()
    log = opened(quick_folder / "log")
    found = everything(log)
    lost = [at for at, each in enumerate(found) if isinstance(each, Bad)]
    assert lost == list(range(lost[0], second.end))
    assert first.end < lost[0] < second.end - 5
    for at, each in enumerate(found):
        if isinstance(each, Bad):
            entry = entries[at]
            known = Bad(entry.stream, entry.number, entry.prev)
            assert each == (known if indexed else Bad(("", 0), 0, 0))
        else:
            assert each == entries[at]


def test_a_missing_segment_is_lost_with_its_index_and_an_error_without(quick_folder: Path) -> None:
    entries = filled(quick_folder / "log")
    log = opened(quick_folder / "log")
    _, second, *_, newest = log.extents()
    log.close()
    path = file_of(quick_folder / "log", second.first, SEGMENT)
    path.unlink()
    log = opened(quick_folder / "log")
    found = everything(log)
    for at in range(second.first, second.end):
        assert found[at] == Bad(entries[at].stream, entries[at].number, entries[at].prev)
    persist(log, *(Repaired("g", at, entries[at]) for at in range(second.first, second.end)))
    assert everything(log) == entries
    log.close()
    file_of(quick_folder / "log", second.first, INDEX).unlink()
    with pytest.raises(DiskError, match=f"{path.name} is missing: put it back"):
        opened(quick_folder / "log")
    file_of(quick_folder / "log", newest.first, SEGMENT).unlink()
    with pytest.raises(DiskError, match="it was the newest segment; put it back"):
        opened(quick_folder / "log")


def test_streams_without_end_are_in_vectors_of_blocks(quick_folder: Path) -> None:
    """More than fit into a block, and into a dictionary."""
    limits = SMALL._replace(segment=1 << 18, reserve=1 << 16, checkpoint=1 << 19)
    log = opened(quick_folder / "log", limits)
    origins = Origins()
    entries = [origins.entry(f"node{at % 21_000}", b"") for at in range(25_000)]
    for begin in range(0, len(entries), 1000):
        persist(log, *entries[begin : begin + 1000])
    received = {entry.stream: entry.number for entry in entries}
    assert dict(log.opened().received) == received
    persist(log, Trimmed("g", 12_000))
    floor = log.floor
    assert floor > 5000
    knows = {key_of(entry.stream): entry.number for entry in entries[floor + 100 :]}
    found = log.read(Knowledge(knows), 1)
    assert found.first == floor
    assert {gap.stream for gap in found.gaps} == {
        entry.stream
        for entry in entries[:floor]
        if entry.number > knows.get(key_of(entry.stream), 0)
    }
    log.close()
    log = opened(quick_folder / "log", limits)
    assert dict(log.opened().received) == received
    assert log.opened().received["node7", 7] == 2
    assert ("node7", 8) not in log.opened().received

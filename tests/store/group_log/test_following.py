"""Reading a group's log beside the process that writes it: by positions that were committed."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
from tests.store.group_log.logged import (
    SMALL,
    everything,
    filled,
    made,
    opened,
    persist,
    spoil,
    started,
)
from tests.store.stored import Latest

from ordercast.errors import DiskError
from ordercast.kernel.log import Appended, Bad, Entry, Repaired, Trimmed
from ordercast.store.group_log.following import Found, Gone, LogFollower, read_range
from ordercast.store.group_log.form import INDEX, RECORD, SEGMENT, file_of, find_files
from ordercast.store.group_log.inspection import found_to_read
from ordercast.store.log import COMMIT, HEADER


def read(follower: LogFollower, begin: int, end: int) -> list[Found]:
    place = follower.place_of(begin)
    return list(read_range(follower.folder, follower.identity, begin, end, place))


# --- what counts ---------------------------------------------------------------------------------


def test_a_follower_sees_each_commit_and_reads_each_entry_once(quick_folder: Path) -> None:
    folder, entries = quick_folder / "log", list(made(400, payload=b"p" * 60))
    with closing(opened(folder)) as log:
        follower, position, random = LogFollower(folder), 0, Random(1)
        begin = 0
        while begin < len(entries):
            end = begin + random.randrange(1, 12)
            persist(log, *entries[begin:end], Latest("g", f"s{begin % 3}", begin))
            begin = end
            follower.look()
            assert (follower.floor, follower.tail, follower.identity) == (0, log.tail, log.identity)
            found = read(follower, position, follower.tail)
            assert found == list(enumerate(entries[position : follower.tail], position))
            position = follower.tail
    assert len(find_files(folder, SEGMENT)) > 5
    for begin in range(0, 400, 7):
        assert read(follower, begin, 400) == list(enumerate(entries[begin:], begin))


def test_what_is_written_and_not_committed_does_not_count_yet(quick_folder: Path) -> None:
    """The rest of the newest segment is as a power failure may leave it, or not."""
    folder = quick_folder / "log"
    entries = filled(folder, 20)
    (path,) = find_files(folder, SEGMENT).values()
    data = path.read_bytes()
    last = data.rindex(COMMIT)
    path.write_bytes(data[:last])
    follower = LogFollower(folder)
    assert (follower.tail, follower.written) == (16, 20)
    path.write_bytes(data[:last] + bytes(1000) + b"torn")
    follower.look()
    assert (follower.tail, follower.written) == (16, 20)
    path.write_bytes(data)
    follower.look()
    assert (follower.tail, follower.written) == (20, 20)
    assert read(follower, 16, 20) == list(enumerate(entries[16:], 16))


def test_a_segment_that_is_replaced_before_it_has_an_entry_is_followed(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    with closing(opened(folder)) as log:
        follower = LogFollower(folder)
        for number in range(300):  # more than a segment of states
            persist(log, Latest("g", "a", number))
            follower.look()
        entry = next(made(1))
        persist(log, entry)
        follower.look()
        assert read(follower, 0, follower.tail) == [(0, entry)]


def test_a_long_segment_is_read_from_a_place_near_the_position(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    entries = list(made(9000))
    with closing(opened(folder, SMALL._replace(segment=1 << 24))) as log:
        persist(log, *entries)
        follower = LogFollower(folder)  # it did not see the commits one by one
        for number in range(50):
            persist(log, *entries[number * 100 : (number + 1) * 100])
            follower.look()
    for position in (0, 1, 4444, 8999, 9000, 9001, 13_950, 13_999):
        place = follower.place_of(position)
        assert place is not None
        assert position - 101 < place.position <= position
        ((at, entry),) = read(follower, position, position + 1)
        assert (at, entry) == (position, entries[position % 9000])


# --- what is not whole ---------------------------------------------------------------------------


@pytest.mark.parametrize("with_index", [True, False])
def test_lost_entries_are_bad_and_the_others_are_read(quick_folder: Path, with_index: bool) -> None:
    folder = quick_folder / "log"
    entries = filled(folder, 300)
    lost = (3, 4, 150, 297)
    spoil(folder, *(entries[at] for at in lost))
    if not with_index:
        for path in find_files(folder, INDEX).values():
            path.unlink()
    expected: list[Found] = [
        (at, Bad(entry.stream, entry.number, entry.prev) if at in lost else entry)
        for at, entry in enumerate(entries)
    ]
    follower = LogFollower(folder)
    assert follower.tail == 300
    assert read(follower, 0, 300) == expected
    assert read(follower, 4, 151) == expected[4:151]
    with closing(opened(folder)) as log:
        persist(log, Repaired("g", 4, entries[4]), Repaired("g", 297, entries[297]))
    for at in (4, 297):
        expected[at] = at, entries[at]
    assert read(follower, 0, 300) == expected


def test_a_follower_goes_on_behind_damage_in_the_newest_segment(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    entries = list(made(40))
    with closing(opened(folder)) as log:
        persist(log, *entries[:20])
        follower = LogFollower(folder)
        persist(log, *entries[20:30])
        spoil(folder, entries[25])
        follower.look()
        assert follower.tail == 30
        persist(log, *entries[30:])
        follower.look()
    assert follower.tail == 40
    bad = Bad(entries[25].stream, entries[25].number, entries[25].prev)
    assert [found for _, found in read(follower, 20, 40)] == [*entries[20:25], bad, *entries[26:]]


def test_a_wrong_index_misleads_nobody(quick_folder: Path) -> None:
    """Each of its records names the place of the entry behind its own."""
    folder = quick_folder / "log"
    entries = filled(folder, 300)
    follower = LogFollower(folder)
    for part in found_to_read(folder).view.parts.sealed:
        right = part.records(part.first, part.end)
        fields = list(RECORD.iter_unpack(right))
        wrong = [(*one[:3], *other[3:]) for one, other in pairwise([*fields, fields[0]])]
        path = file_of(folder, part.first, INDEX)
        data = path.read_bytes().replace(right, b"".join(RECORD.pack(*one) for one in wrong))
        path.write_bytes(data)
    for begin in range(0, 300, 11):
        found = read_range(folder, follower.identity, begin, 300)
        assert list(found) == list(enumerate(entries[begin:], begin))


def test_a_damaged_header_is_no_matter_while_there_is_a_copy(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    entries = filled(folder, 20)
    (path,) = find_files(folder, SEGMENT).values()
    data = bytearray(path.read_bytes())
    data[HEADER.size - 1] ^= 1
    path.write_bytes(data)
    follower = LogFollower(folder)
    follower.look()
    assert read(follower, 0, follower.tail) == list(enumerate(entries))


# --- what is gone --------------------------------------------------------------------------------


def test_what_was_trimmed_is_gone_and_the_rest_is_read(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    entries = filled(folder, 300)
    follower = LogFollower(folder)
    with closing(opened(folder)) as log:
        persist(log, Trimmed("g", 200))
        floor = log.floor
    assert 0 < floor <= 200
    (first, gone), *rest = read(follower, 10, 300)
    assert (first, gone) == (10, Gone(floor, f"{folder} was trimmed up to position {floor}"))
    assert rest == list(enumerate(entries[floor:], floor))
    assert [(at, found.end) for at, found in read(follower, 3, 8) if isinstance(found, Gone)] == [
        (3, 8)
    ]
    follower.look()
    assert (follower.floor, follower.tail) == (floor, 300)


def test_a_log_that_began_again_has_nothing_of_the_one_before(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    filled(folder, 30)
    follower = LogFollower(folder)
    old = follower.identity
    with closing(opened(folder)) as log:
        log.forget("g")
        log.sync()
        persist(log, *made(3))
        follower.look()
        assert (follower.identity, follower.tail) == (log.identity, 3)
        ((at, gone),) = read_range(folder, old, 1, 30)
        assert (at, gone) == (1, Gone(30, f"{folder} has another log now, {log.identity:016x}"))


def test_a_log_that_is_shorter_than_it_was_is_refused(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    filled(folder, 30)
    follower = LogFollower(folder)
    with pytest.raises(DiskError, match=r"it ends at position 30, and had entries up to 39 before"):
        read(follower, 25, 40)


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="does not exist"):
        LogFollower(tmp_path / "nowhere")
    with pytest.raises(DiskError, match="is no log of a group"):
        LogFollower(tmp_path)
    filled(tmp_path / "log", 30)
    follower = LogFollower(tmp_path / "log")
    for path in find_files(tmp_path / "log", SEGMENT).values():
        path.unlink()
    with pytest.raises(DiskError, match="the segments of the log are gone"):
        follower.look()
    with pytest.raises(DiskError, match="the segments of the log are gone"):
        read(follower, 0, 30)


# --- beside a writer -----------------------------------------------------------------------------


def test_a_reader_beside_a_writer_that_trims_sees_nothing_wrong(quick_folder: Path) -> None:
    """It finds each entry that was not trimmed, and says of the others that they are gone."""
    folder, over = quick_folder / "log", Event()
    entries = list(made(6000, payload=b"p" * 200))
    log = opened(folder)

    def write() -> None:
        for begin in range(0, len(entries), 5):
            records = [Appended("g", entry) for entry in entries[begin : begin + 5]]
            trims = [Trimmed("g", begin - 80)] if begin % 40 == 0 and begin > 80 else []
            log.append([*records, *trims])
            log.sync()
        over.set()

    writer = Thread(target=write)
    writer.start()
    follower, position, gone, seen = LogFollower(folder), 0, 0, 0
    try:
        while position < len(entries):
            is_over = over.is_set()
            follower.look()
            for at, found in read(follower, position, follower.tail):
                assert at == position
                if isinstance(found, Gone):
                    position, gone = found.end, gone + found.end - at
                else:
                    assert found == entries[at]
                    position, seen = at + 1, seen + 1
            assert position == follower.tail
            assert position == len(entries) or not is_over
    finally:
        writer.join()
        log.close()
    assert seen + gone == len(entries)


@pytest.mark.slow(6)
def test_positions_mean_the_same_however_often_the_writer_is_killed(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    found: list[Found] = []
    for lines in (3, 20, 1, 30):
        with started(folder) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            follower = LogFollower(folder)
            for _ in range(lines):
                writer.stdout.readline()
                follower.look()
                found += read(follower, len(found), follower.tail)
            writer.kill()
        path = list(find_files(folder, SEGMENT).values())[-1]
        with path.open("r+b") as file:
            file.seek(len(file.read().rstrip(b"\0")))
            file.write(b"oREC\x00\x00\x01\x00torn")
        follower.look()
        found += read(follower, len(found), follower.tail)
    with closing(opened(folder)) as log:
        follower.look()
        found += read(follower, len(found), log.tail)
        assert found == list(enumerate(everything(log)))
    for position, entry in found:
        assert isinstance(entry, Entry)
        assert entry.payloads == [b"%d" % position]

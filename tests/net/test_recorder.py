"""Recordings: what is committed stays, what is torn is truncated, what is damaged is reported."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.net.nodes import QUICK, Cluster, live, place_of, run, until
from tests.store.stored import COMMIT_SIZE

from ordercast import Event, GroupClosed, View
from ordercast.errors import DiskError, TraceError, UsageError
from ordercast.net.identity import number_from_zero
from ordercast.net.recorder import Recorder, run_recorder
from ordercast.store.log import COMMIT, ENTRY, HEAD, HEADER, POSITION, SegmentWalk
from ordercast.trace.record_log import RecordLog
from ordercast.trace.recording import (
    RECORDING,
    SPANS,
    Follower,
    Numbers,
    Record,
    find_segments,
    read_records,
)
from ordercast.types import NodeId

ME = NodeId("r", 1)
SMALL = 1 << 12


def record(number: int, origin: str = "n1", data: bytes = b"data") -> Record:
    return Record(0, "deliver", 5, "r", 1, "g", origin, 0, number, size=len(data), payloads=[data])


def written(folder: Path, count: int = 10, **limits: int) -> Path:
    """A recording of so many records, a commit for each, whose writer has closed it."""
    log = RecordLog(folder, **limits)
    for number in range(1, count + 1):
        log.append([record(number)])
    log.close()
    return find_segments(folder)[-1][1]


def numbers_in(folder: Path) -> list[int | None]:
    end = Follower(folder).latest
    return [each.number for each in read_records(folder, Follower(folder).first, end)]


def packed(mark: bytes, body: bytes, salt: int, place: int) -> bytes:
    """A frame, as the form of logs is described."""
    return HEAD.pack(mark, len(body), crc32(body, crc32(mark, salt) ^ place)) + body


def frames_of(path: Path) -> Iterator[tuple[bytes, int, int]]:
    for frame in SegmentWalk(path, RECORDING):
        yield frame.mark, frame.place, frame.end


# --- the log -----------------------------------------------------------------------------------


def test_appended_records_are_read_back_with_offsets_without_gaps(tmp_path: Path) -> None:
    log = RecordLog(tmp_path)
    assert Follower(tmp_path).latest == 0
    view = Record(0, "view", 6, "r", 1, "g", view=77, members=("n1", "r"))
    stamped = Record(
        0, "deliver", 7, "r", 1, "g", "n2", 3, 3 << 40 | 1, 4, (1, 2, 3), 9, 2, size=0, payloads=[]
    )
    assert log.append([record(1), view]) == 2
    assert log.append([stamped]) == 3
    found = list(read_records(tmp_path, 0, 3))  # while the writer has it open
    assert [each.offset for each in found] == [0, 1, 2]
    assert (found[0].origin, found[0].payloads) == ("n1", [b"data"])
    assert (found[1].view, found[1].members) == (77, ("n1", "r"))
    assert (found[2].index, found[2].stamp, found[2].order, found[2].hops) == (4, (1, 2, 3), 9, 2)
    log.close()
    with pytest.raises(DiskError, match="is closed"):
        log.append([record(2)])


def test_segments_are_bounded_and_a_range_may_cross_them(tmp_path: Path) -> None:
    log = RecordLog(tmp_path, segment_bytes=SMALL)
    for number in range(1, 201):
        log.append([record(number, data=b"x" * 100)])
    segments = find_segments(tmp_path)
    assert len(segments) > 5
    assert all(path.stat().st_size < 2 * SMALL for _, path in segments)
    assert numbers_in(tmp_path) == list(range(1, 201))
    for start, end in [(0, 1), (37, 161), (199, 200), (50, 50)]:
        assert [each.offset for each in read_records(tmp_path, start, end)] == [*range(start, end)]
    log.close()


def test_the_oldest_segments_are_deleted_and_reading_them_is_an_error(tmp_path: Path) -> None:
    log = RecordLog(tmp_path, segment_bytes=SMALL, keep_bytes=4 * SMALL)
    for number in range(1, 401):
        log.append([record(number, data=b"x" * 100)])
    log.close()
    follower = Follower(tmp_path)
    assert 0 < follower.first < follower.latest == 400
    assert sum(path.stat().st_size for _, path in find_segments(tmp_path)) < 6 * SMALL
    with pytest.raises(TraceError, match=r"begins at offset \d+: offset 0 was removed"):
        list(read_records(tmp_path, 0, 5))
    # What was removed is remembered: it is not recorded again.
    again = RecordLog(tmp_path, segment_bytes=SMALL, keep_bytes=4 * SMALL)
    assert 1 in again.recorded[("g", "n1")] and 400 in again.recorded[("g", "n1")]
    again.close()


def test_a_follower_sees_commits_as_they_come_and_finds_every_offset(tmp_path: Path) -> None:
    log = RecordLog(tmp_path, segment_bytes=SMALL)
    follower = Follower(tmp_path)
    for number in range(1, 101):
        log.append([record(number, data=b"x" * 100)])
        assert follower.look() == number
    for offset in range(100):
        place = follower.place_of(offset)
        assert next(read_records(tmp_path, offset, offset + 1, place)).offset == offset
    log.close()


def test_records_without_a_commit_are_not_read(tmp_path: Path) -> None:
    path = written(tmp_path, 3)
    walk = SegmentWalk(path, RECORDING)
    assert [frame.mark for frame in walk][-1] == COMMIT
    with path.open("ab") as file:  # on its way to the disk, and whole
        file.write(packed(ENTRY, b"body", walk.header.salt, walk.place))
    follower = Follower(tmp_path)
    assert follower.latest == 3
    assert numbers_in(tmp_path) == [1, 2, 3]


# --- torn and damaged --------------------------------------------------------------------------


def test_a_torn_tail_is_truncated_wherever_it_was_torn(tmp_path: Path) -> None:
    """Cut at every byte of the last record and its commit: what was committed before is there."""
    path = written(tmp_path, 4)
    whole = path.read_bytes()
    records = [(place, end) for mark, place, end in frames_of(path) if mark == ENTRY]
    last, last_end = records[-1]
    for size in range(last, len(whole)):
        path.write_bytes(whole[:size])
        assert Follower(tmp_path).latest == 3
        log = RecordLog(tmp_path)
        kept = 4 if size >= last_end else 3  # a whole record counts once somebody vouches for it
        assert log.next_offset == kept
        log.append([record(9)])
        log.close()
        assert numbers_in(tmp_path) == [*[1, 2, 3, 4][:kept], 9]


def test_noise_at_the_end_is_truncated(tmp_path: Path) -> None:
    path = written(tmp_path, 4)
    with path.open("ab") as file:
        file.write(ENTRY + b"\x00\x00\x00\x10" + b"noise" * 9)
    assert Follower(tmp_path).latest == 4
    log = RecordLog(tmp_path)
    log.append([record(5)])
    log.close()
    assert numbers_in(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("part", ["mark", "length", "checksum", "body"])
def test_damage_in_the_middle_is_refused_with_its_place(tmp_path: Path, part: str) -> None:
    """By the writer that would go on with it, by who follows it and by who reads it."""
    path = written(tmp_path, 6)
    known = Follower(tmp_path).place_of(0)
    place = [place for mark, place, _ in frames_of(path) if mark == ENTRY][3]
    data = bytearray(path.read_bytes())
    data[place + {"mark": 0, "length": 5, "checksum": 9, "body": HEAD.size + 2}[part]] ^= 0x41
    path.write_bytes(data)
    told = rf"{path.name} is damaged at byte {place}: the checksum is wrong"
    with pytest.raises(TraceError, match=told):
        Follower(tmp_path)
    with pytest.raises(TraceError, match=told):
        RecordLog(tmp_path)
    with pytest.raises(TraceError, match=told):
        list(read_records(tmp_path, 0, 6, known))
    assert bytes(data) == path.read_bytes()  # nobody cut anything


def test_damage_in_an_earlier_segment_is_refused_when_it_is_read(tmp_path: Path) -> None:
    written(tmp_path, 100, segment_bytes=SMALL)
    first = find_segments(tmp_path)[0][1]
    places = [place for mark, place, _ in frames_of(first) if mark == ENTRY]
    first.write_bytes(first.read_bytes()[: places[-1] + 3])
    with pytest.raises(TraceError, match=rf"damaged at byte {places[-1]}"):
        list(read_records(tmp_path, 0, 100))


def test_a_payload_cannot_feign_a_commit(tmp_path: Path) -> None:
    """A torn record whose payload looks like a commit stays a torn record."""
    path = written(tmp_path, 2)
    feigned = b"".join(packed(COMMIT, POSITION.pack(9), salt, 0) for salt in range(50))
    log = RecordLog(tmp_path)
    log.append([record(3, data=feigned + b"." * 50)])
    log.close()
    last, end = [(place, end) for mark, place, end in frames_of(path) if mark == ENTRY][-1]
    path.write_bytes(path.read_bytes()[: end - 20])
    RecordLog(tmp_path).close()
    assert path.stat().st_size == last + COMMIT_SIZE  # a fresh commit follows
    assert numbers_in(tmp_path) == [1, 2]


def test_a_disk_that_is_full_ends_the_writer_and_costs_nothing_committed(tmp_path: Path) -> None:
    log = RecordLog(tmp_path)
    log.append([record(1)])
    path = find_segments(tmp_path)[-1][1]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, hard))
    try:
        with pytest.raises(DiskError, match="cannot be written: File too large"):
            log.append([record(2, data=b"x" * 500)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(DiskError, match="is closed"):
        log.append([record(3)])
    log.close()
    assert numbers_in(tmp_path) == [1]
    again = RecordLog(tmp_path)
    again.append([record(2)])
    again.close()
    assert numbers_in(tmp_path) == [1, 2]


# --- what is no recording ----------------------------------------------------------------------


def test_a_folder_that_is_no_recording_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nowhere does not exist, or is no folder"):
        Follower(tmp_path / "nowhere")
    with pytest.raises(TraceError, match=r"is no recording: there is no \*\.segment file"):
        Follower(tmp_path)
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(UsageError, match=r"holds letter\.txt, and is no recording"):
        RecordLog(tmp_path)
    (tmp_path / f"{0:020}.segment").write_bytes(b"something else")
    with pytest.raises(TraceError, match="is not a segment of a recording"):
        Follower(tmp_path)


def test_other_versions_and_truncated_or_damaged_headers_are_rejected(tmp_path: Path) -> None:
    path = written(tmp_path, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:16] + (9).to_bytes(4) + whole[20:])
    with pytest.raises(TraceError, match=r"recording of version 9, and this ordercast reads"):
        Follower(tmp_path)
    path.write_bytes(whole[: HEADER.size - 1])
    with pytest.raises(TraceError, match="is cut off in its header"):
        RecordLog(tmp_path)
    path.write_bytes(whole[:22] + b"!" + whole[23:])
    with pytest.raises(TraceError, match="damaged at byte 0"):
        RecordLog(tmp_path)


def test_a_second_writer_of_a_folder_is_rejected(tmp_path: Path) -> None:
    log = RecordLog(tmp_path)
    with pytest.raises(UsageError, match="is in use: another recorder writes there"):
        RecordLog(tmp_path)
    log.close()
    RecordLog(tmp_path).close()


# --- numbers -----------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 60)))
def test_recorded_numbers_agree_with_a_set(values: list[int]) -> None:
    numbers = Numbers()
    for value in values:
        numbers.add(value)
    assert [value for value in range(1, 62) if value in numbers] == sorted(set(values))


def test_numbers_forget_the_oldest_gaps_only() -> None:
    numbers = Numbers()
    for value in range(2, 1000, 2):
        numbers.add(value)
    assert len(numbers.spans) <= 2 * SPANS
    assert all(value in numbers for value in range(2, 1000, 2))
    assert 997 not in numbers and 3 in numbers


# --- recorders ---------------------------------------------------------------------------------


class Items:
    """A feed of what is given, and then of the end."""

    def __init__(self, *items: Event | View) -> None:
        self._items = list(items)

    async def next_batch(self) -> Event | View:
        if not self._items:
            raise GroupClosed("all was handed over")
        return self._items.pop(0)


def event(number: int) -> Event:
    return Event("g", NodeId("n1"), number, [b"%d" % number], size=1)


def test_a_new_incarnation_records_nothing_that_an_earlier_one_has(tmp_path: Path) -> None:
    """Also out of order; and what one incarnation is handed twice it records twice, as it was."""

    async def lives() -> None:
        with Recorder(tmp_path, NodeId("r", 0)) as recorder:
            await recorder.record(Items(event(1), event(2), event(4), event(4)))
        with Recorder(tmp_path, NodeId("r", 1)) as recorder:
            await recorder.record(Items(event(2), event(3), event(4), event(5)))
            assert recorder.skipped == 2

    asyncio.run(lives())
    found = list(read_records(tmp_path, 0, 6))
    assert [each.number for each in found] == [1, 2, 4, 4, 3, 5]
    assert [each.incarnation for each in found] == [0, 0, 0, 0, 1, 1]


@live
async def test_a_recorder_writes_what_its_member_delivers(cluster: Cluster) -> None:
    """The events and views of another member's stream, in the same order for each origin."""
    nodes = await cluster.nodes("n1", "n2", "r")
    first, second, watched = await cluster.join(*nodes)
    folder = cluster.folder / "recording"
    with Recorder(folder, nodes[2].me) as recorder:
        recording = asyncio.create_task(recorder.record(watched))
        for number in range(200):
            await first.send(b"a%d" % number)
            await second.send(b"b%d" % number, until="delivered")
        await (await first.send(b"end")).wait("stable")
        await until(lambda: any(b"end" in each.payloads for each in records_in(folder)))
        await watched.leave()
        await recording
        found = records_in(folder)
    assert [each.offset for each in found] == list(range(len(found)))
    for origin, letter in (("n1", b"a"), ("n2", b"b")):
        data = [each for one in found if one.origin == origin for each in one.payloads]
        assert data[:200] == [b"%s%d" % (letter, number) for number in range(200)]
    assert {each.process for each in found} == {"r"}


def records_in(folder: Path) -> list[Record]:
    return list(read_records(folder, 0, Follower(folder).latest))


def test_a_recorder_that_is_killed_goes_on_where_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Processes, and SIGKILL in the middle of a stream: nothing twice, and nothing torn."""
    folder = tmp_path / "recording"

    async def story(cluster: Cluster) -> None:
        node = await cluster.open("n1")
        number_from_zero(tmp_path / "r")
        settings = tmp_path / "r.toml"
        settings.write_text(
            f'name = "r"\ndata = "{tmp_path / "r"}"\n[peers]\nn1 = "{place_of(node)}"\n'
            '[group.orders]\nmembers = ["n1", "r"]\n'
            'options = { heartbeat = "10ms", suspicion_limit = "400ms" }\n',
            encoding="utf-8",
        )
        group = node.join("orders", QUICK, ["n1", "r"])
        async with asyncio.TaskGroup() as tasks:
            at_work = [tasks.create_task(each) for each in (read_all(group), send_for_ever(group))]
            for _ in range(2):
                async with recorder_of(settings, folder) as process:
                    await until_recorded(folder, Follower(folder).latest + 100)
                    process.kill()
            async with recorder_of(settings, folder) as process:
                await until_recorded(folder, Follower(folder).latest + 100)
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
            for task in at_work:
                task.cancel()

    async def staged() -> None:
        cluster = Cluster(tmp_path, caplog)
        try:
            await story(cluster)
        finally:
            await cluster.close()

    run("asyncio", staged)
    found = records_in(folder)
    numbers = [each.number for each in found if each.kind == "deliver"]
    assert len(numbers) >= 300
    assert len(set(numbers)) == len(numbers)
    assert sorted({each.incarnation for each in found}) == [0, 1, 2]
    assert {each.kind for each in found} == {"deliver", "view"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[group.others]\n", "describes no group 'orders'"),
        ('[group.orders]\nfamily = "fofi"\n', "unknown family 'fofi': did you mean 'fifo'"),
        ("[group.orders]\noptions = { window = -1 }\n", r"group 'orders': options\.window"),
    ],
)
def test_settings_without_the_group_are_rejected(tmp_path: Path, table: str, said: str) -> None:
    settings = tmp_path / "r.toml"
    settings.write_text(f'name = "r"\ndata = "{tmp_path / "r"}"\n{table}', encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        asyncio.run(run_recorder(settings, "orders", tmp_path / "recording"))
    assert not (tmp_path / "recording").exists()


@asynccontextmanager
async def recorder_of(settings: Path, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that records; killed, if it still runs, and waited for."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ordercast.net.recorder", str(settings), "orders", str(folder),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        assert line.startswith(b"recording orders from offset "), line
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until_recorded(folder: Path, offset: int) -> None:
    follower = Follower(folder)
    await until(lambda: follower.look() >= offset)


async def read_all(group: object) -> None:
    async for _ in group:  # type: ignore[attr-defined]
        pass


async def send_for_ever(group: object) -> None:
    number = 0
    while True:
        number += 1
        await group.send(b"%d" % number, until="delivered")  # type: ignore[attr-defined]

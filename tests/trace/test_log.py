"""A log of rows survives the death of its process at any moment."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ordercast.errors import TraceError
from ordercast.store.log import ENTRY, SegmentWalk
from ordercast.trace import log as log_module
from ordercast.trace.log import RowLog, read_log
from ordercast.trace.schema import Row

OPTIONAL = {
    "group": st.text(max_size=5),
    "number": st.integers(0, (1 << 62) - 1),
    "stamp": st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple),
    "members": st.lists(st.text(max_size=4), max_size=3).map(tuple),
    "cause": st.sampled_from(["overflow", "obsolete"]),
}
ROWS = st.lists(
    st.builds(
        lambda step, more: Row("n1", 2, step, step * 10, "deliver", **more),
        st.integers(1, 1 << 40),
        st.fixed_dictionaries({}, optional=OPTIONAL),
    ),
    max_size=10,
)
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, rows: list[Row]) -> None:
    log = RowLog(path)
    for row in rows:
        log.write(row)
    log.close()


def row(step: int, **more: object) -> Row:
    return Row("n1", 0, step, step, "deliver", **more)


@SAME_FOLDER
@given(ROWS, ROWS)
def test_rows_of_two_incarnations_are_read_back_as_written(
    tmp_path: Path, first: list[Row], second: list[Row]
) -> None:
    path = tmp_path / "n1.rows"
    path.unlink(missing_ok=True)
    write(path, first)
    write(path, second)
    assert list(read_log(path)) == first + second


@SAME_FOLDER
@given(ROWS, st.integers(0, 1000))
def test_a_log_truncated_anywhere_gives_all_whole_rows(
    tmp_path: Path, rows: list[Row], size: int
) -> None:
    path = tmp_path / "n1.rows"
    path.unlink(missing_ok=True)
    log, ends = RowLog(path), [0]  # where each row ends, as the size of the file shows
    for each in rows:
        log.write(each)
        log.flush()
        ends.append(path.stat().st_size)
    log.close()
    path.write_bytes(path.read_bytes()[:size])
    whole = [count for count, end in enumerate(ends) if end <= size]
    assert list(read_log(path)) == rows[: whole[-1]]


@SAME_FOLDER
@given(ROWS, st.integers(0, 1000), ROWS)
def test_a_new_incarnation_continues_after_the_last_whole_row(
    tmp_path: Path, old: list[Row], size: int, new: list[Row]
) -> None:
    path = tmp_path / "n1.rows"
    path.unlink(missing_ok=True)
    write(path, old)
    path.write_bytes(path.read_bytes()[:size])
    whole = list(read_log(path))
    write(path, new)
    assert list(read_log(path)) == whole + new


def test_flushed_rows_are_in_the_file_without_a_close(tmp_path: Path) -> None:
    path = tmp_path / "n1.rows"
    log = RowLog(path)
    log.write(row(1))
    assert list(read_log(path)) == []
    log.flush()
    log.write(row(2))
    assert list(read_log(path)) == [row(1)]
    log.close()
    assert list(read_log(path)) == [row(1), row(2)]


def test_the_rows_of_a_flush_are_whole_or_torn_together(tmp_path: Path) -> None:
    path = tmp_path / "n1.rows"
    log = RowLog(path)
    for steps in ((1,), (2, 3, 4)):
        for step in steps:
            log.write(row(step))
        log.flush()
    log.close()
    path.write_bytes(path.read_bytes()[:-1])
    assert list(read_log(path)) == [row(1)]
    write(path, [row(5)])
    assert list(read_log(path)) == [row(1), row(5)]


def test_a_row_that_is_too_long_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "n1.rows"
    log = RowLog(path)
    log.write(row(1))
    log.write(row(2, cause="x" * (log_module.ROWS.largest - 100)))
    with pytest.raises(TraceError, match=r"a record of 16777\d+ bytes; the limit is 16777216"):
        log.write(row(3, cause="x" * log_module.ROWS.largest))
    log.write(row(4))
    log.close()
    assert [each.step for each in read_log(path)] == [1, 2, 4]


def test_a_row_with_columns_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "n1.rows"
    write(path, [row(1)])
    columns = [*msgspec.structs.astuple(row(2)), 7]
    walk = SegmentWalk(path, log_module.ROWS)
    assert len(list(walk)) == 1
    segment = walk.carry_on()
    segment.add(ENTRY, msgspec.msgpack.encode(columns))
    segment.write()
    segment.close()
    with pytest.raises(TraceError, match="is not a log of rows"):
        list(read_log(path))


def test_many_rows_do_not_wait_for_a_flush(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "n1.rows")
    for step in range(1, 10_001):
        log.write(row(step))
    assert len(list(read_log(tmp_path / "n1.rows"))) > 1000
    log.close()
    assert list(read_log(tmp_path / "n1.rows")) == [row(step) for step in range(1, 10_001)]


def test_a_disk_that_is_full_for_a_while_repeats_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "n1.rows"
    log = RowLog(path)
    for step in range(1, 4):
        log.write(row(step))
    real, room = os.write, [10, 7, 0]

    def short(file: int, data: bytes) -> int:
        most = room.pop(0)
        if not most:
            raise OSError(28, "No space left on device")
        return real(file, bytes(data)[:most])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(TraceError, match="cannot be written: No space"):
            log.flush()
    log.close()
    assert list(read_log(path)) == [row(1), row(2), row(3)]


@SAME_FOLDER
@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda b: len(b).to_bytes(4) + b))
def test_garbage_is_an_error_or_ignored_but_never_a_row(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(data)
    try:
        assert list(read_log(path)) == []
    except TraceError as error:
        assert "garbage is not a log of rows" in str(error)


@pytest.mark.parametrize(
    "body",
    [b"", b"\x91" * 5000 + b"\x01", b"\xc0", b"\xa3abc", b"\x95\x01\x02\x03\x04\x05"],
    ids=["nothing", "deep", "nil", "text", "five numbers"],
)
def test_frames_that_are_no_rows_are_rejected(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(len(body).to_bytes(4) + body)
    with pytest.raises(TraceError, match="is not a log of rows"):
        list(read_log(path))


def test_a_row_from_before_the_last_column_was_added_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old"
    body = msgspec.msgpack.encode(["n1", 0, 1, 5, "deliver", "g", "n2", 7])
    path.write_bytes(len(body).to_bytes(4) + body)
    assert list(read_log(path)) == [Row("n1", 0, 1, 5, "deliver", "g", "n2", 7)]


def test_files_that_cannot_be_read_or_written_are_reported(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nowhere cannot be read: No such file"):
        list(read_log(tmp_path / "nowhere"))
    with pytest.raises(TraceError, match="cannot be written: Is a directory"):
        RowLog(tmp_path)
    (tmp_path / "notes.txt").write_text("not a log, but somebody's notes")
    with pytest.raises(TraceError, match="is not a log of rows"):
        RowLog(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "not a log, but somebody's notes"

"""The format "ordercast": offsets that mean one record for ever, tables, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ordercast.errors import TraceError, UsageError
from ordercast.spark.recording import (
    RECORD_COLUMNS,
    RECORDS_AT_ONCE,
    record_batches,
)
from ordercast.spark.stream import (
    RecordingStream,
    SourceOptions,
    columns_of,
    read_options,
    read_piece,
    register,
    sentence_of,
    table_pieces,
)
from ordercast.spark.tables import TRACE_COLUMNS
from ordercast.trace.lake import read_lake
from ordercast.trace.parquet import write_trace
from ordercast.trace.record_log import RecordLog
from ordercast.trace.recording import Follower, Record, find_segments
from ordercast.trace.schema import COLUMNS
from ordercast.trace.text import parse_history

HISTORY = """run one family=fifo ending=finished
n1 join
n1 submit n1:1
n1 deliver n1:1
n2 view 7 n1,n2
n2 deliver n1:1 hops=2
"""


def record(number: int, data: bytes = b"data") -> Record:
    return Record(0, "deliver", 1, "r", 0, "g", "n1", 0, number, size=len(data), payloads=[data])


def recording(folder: Path, count: int) -> RecordLog:
    log = RecordLog(folder, segment_bytes=1 << 19)
    for begin in range(0, count, 500):
        log.append([record(number + 1) for number in range(begin, min(begin + 500, count))])
    return log


def offsets_of(pieces: list[Any]) -> list[int]:
    batches = [batch for piece in pieces for batch in read_piece(piece)]
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


# --- without Spark -----------------------------------------------------------------------------


def test_a_range_of_offsets_comes_as_arrow_batches_of_the_columns(tmp_path: Path) -> None:
    log = recording(tmp_path, 2 * RECORDS_AT_ONCE + 10)
    assert Follower(tmp_path).latest == 2 * RECORDS_AT_ONCE + 10
    batches = list(record_batches(tmp_path, 5, 2 * RECORDS_AT_ONCE + 10))
    assert [batch.num_rows for batch in batches] == [RECORDS_AT_ONCE, RECORDS_AT_ONCE, 5]
    assert tuple(batches[0].schema.names) == tuple(RECORD_COLUMNS) == Record.__struct_fields__
    first = batches[0].slice(0, 1).to_pylist()[0]
    assert (first["offset"], first["number"], first["payloads"]) == (5, 6, [b"data"])
    log.close()


def test_a_micro_batch_takes_at_most_the_limit_of_records(tmp_path: Path) -> None:
    log = recording(tmp_path, 1000)
    stream = RecordingStream(SourceOptions(tmp_path))
    start = stream.initial()
    end = stream.latest(start, 300)
    assert (start["next"], end["next"]) == (0, 300)
    assert offsets_of(stream.pieces(start, end)) == list(range(300))
    assert stream.latest(end, None)["next"] == 1000
    log.append([record(1001)])
    assert stream.latest(end, None)["next"] == 1001
    assert stream.pieces(end, end) == []
    log.close()


def test_available_now_reads_what_exists_and_no_more(tmp_path: Path) -> None:
    log = recording(tmp_path, 10)
    stream = RecordingStream(SourceOptions(tmp_path))
    stream.end_here()
    log.append([record(11)])
    assert stream.latest(stream.initial(), None)["next"] == 10
    assert RecordingStream(SourceOptions(tmp_path, start_at="latest")).initial()["next"] == 11
    log.close()


def test_many_records_are_divided_among_tasks_and_each_is_read_once(tmp_path: Path) -> None:
    log = recording(tmp_path, 45_000)
    stream = RecordingStream(SourceOptions(tmp_path, partitions=3))
    start = stream.initial()
    pieces = stream.pieces(start, stream.latest(start, None))
    assert len(pieces) == 3
    assert offsets_of(pieces[::-1]) != list(range(45_000))
    assert offsets_of(pieces) == list(range(45_000))
    log.close()


def test_another_recording_in_the_same_place_is_refused(tmp_path: Path) -> None:
    recording(tmp_path / "a", 10).close()
    recording(tmp_path / "b", 10).close()
    start = RecordingStream(SourceOptions(tmp_path / "a")).initial()
    with pytest.raises(TraceError, match="is not the recording with which this query began"):
        RecordingStream(SourceOptions(tmp_path / "b")).latest(start, None)


def test_a_recording_that_lost_records_already_read_is_rejected(tmp_path: Path) -> None:
    recording(tmp_path, 10).close()
    stream = RecordingStream(SourceOptions(tmp_path))
    start = stream.initial()
    with pytest.raises(TraceError, match="committed up to offset 10, and the query had seen 20"):
        stream.pieces(start, {**start, "next": 20})
    # Until its recorder is there again it may also be waited for.
    assert stream.latest({**start, "next": 20}, None)["next"] == 20


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "which folder"),
        ({"path": "x", "maxRow": "1"}, "unknown option 'maxRow': did you mean 'maxRows'"),
        ({"path": "x", "maxRows": "0"}, "maxRows is '0': it must be a whole number from 1 on"),
        ({"path": "x", "maxRows": "many"}, "maxRows is 'many'"),
        ({"path": "x", "partitions": "-1"}, "partitions is '-1'"),
        ({"path": "x", "startAt": "ealiest"}, "did you mean 'earliest'"),
    ],
)
def test_invalid_options_are_rejected(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_options(given)


def test_options_come_in_any_case(tmp_path: Path) -> None:
    assert read_options({"PATH": "/x", "maxrows": "7"}) == SourceOptions(Path("/x"), max_rows=7)


def test_a_lake_is_read_as_the_plain_reader_reads_it(tmp_path: Path) -> None:
    write_trace(tmp_path, parse_history(HISTORY, "x"))
    pieces = table_pieces(read_options({"path": str(tmp_path)}))
    rows = [row for piece in pieces for batch in read_piece(piece) for row in batch.to_pylist()]
    (trace,) = read_lake(tmp_path)
    assert [row["run"] for row in rows] == ["one"] * len(trace.rows)
    for row, plain in zip(rows, trace.rows, strict=True):
        for name in COLUMNS:
            value = getattr(plain, name)
            assert row[name] == (list(value) if isinstance(value, tuple) else value)
    assert columns_of(tmp_path) == TRACE_COLUMNS


def test_a_folder_that_is_neither_lake_nor_recording_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="does not exist: give a lake"):
        columns_of(tmp_path / "nowhere")
    with pytest.raises(TraceError, match="holds no trace"):
        columns_of(tmp_path)
    folder = tmp_path / "lake" / "run=x"
    folder.mkdir(parents=True)
    with pytest.raises(TraceError, match=r"holds no part-\*\.parquet file"):
        table_pieces(SourceOptions(tmp_path / "lake"))
    (folder / "part-00000.parquet").write_bytes(b"not Parquet")
    with pytest.raises(TraceError, match="cannot be read as a trace"):
        list(read_piece(table_pieces(SourceOptions(tmp_path / "lake"))[0]))
    with pytest.raises(TraceError, match="is no recording"):
        RecordingStream(SourceOptions(tmp_path / "lake")).initial()


# --- on Spark ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_spark_reads_lakes_and_recordings_and_passes_errors_on(spark: Any, tmp_path: Path) -> None:
    register(spark)
    write_trace(tmp_path / "lake", parse_history(HISTORY, "x"))
    log = recording(tmp_path / "recording", 25_000)
    RecordLog(tmp_path / "empty").close()

    def load(name: str, **options: str) -> Any:
        return spark.read.format("ordercast").options(**options).load(str(tmp_path / name))

    rows = load("lake").orderBy("process", "step").collect()
    assert [(row["process"], row["kind"]) for row in rows][-1] == ("n2", "deliver")
    (total,) = load("recording").selectExpr("count(*)", "sum(offset)").collect()
    assert tuple(total) == (25_000, 25_000 * 24_999 // 2)
    assert load("empty").collect() == []
    for name, options, said in (
        ("nowhere", {}, "nowhere does not exist: give a lake folder"),
        ("lake", {"maxrow": "1"}, "unknown option 'maxrow': did you mean 'maxRows'?"),
    ):
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
            load(name, **options)
        assert said in sentence_of(caught.value)
    log.close()


PROGRAM = """
import os, signal, sys
from pathlib import Path
from ordercast.spark.session import open_session
from ordercast.spark.stream import register

folder, deadly = Path(sys.argv[1]), 2_500

def die_once(batches):
    for batch in batches:
        if deadly in batch.column("offset").to_pylist():
            try:
                (folder / "died").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        yield batch

with open_session("local[2,4]", light=True, **{"spark.sql.shuffle.partitions": "2"}) as spark:
    register(spark)
    live = spark.readStream.format("ordercast").option("maxRows", 500)
    query = (
        live.load(str(folder / "recording"))
        .select("offset", "number")
        .mapInArrow(die_once, "`offset` bigint, `number` bigint")
        .writeStream.format("parquet")
        .option("path", str(folder / "sink"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    told = -1
    while not query.awaitTermination(0.02):
        batch = query.lastProgress["batchId"] if query.lastProgress else -1
        if batch > told:
            told = batch
            print("batch", batch, flush=True)
print("done", flush=True)
"""


@pytest.mark.slow(40)
def test_each_offset_reaches_the_sink_once_whoever_is_killed(spark: Any, tmp_path: Path) -> None:
    """The driver and its JVM, a Python worker, and the recorder with a torn tail, by SIGKILL.

    The first query is killed in the middle. A worker of the query kills itself at some offset, and
    the task is tried again. Between the two the recorder's last record is torn, and its next
    incarnation goes on. The sink is read through Spark, for a folder may hold files of batches that
    never counted.
    """
    recording(tmp_path / "recording", 4000).close()
    last = find_segments(tmp_path / "recording")[-1][1]
    with start_query(tmp_path) as query:
        assert query.stdout is not None
        assert "batch 2\n" in iter(query.stdout.readline, "")  # reads no further
        os.killpg(query.pid, signal.SIGKILL)
        assert query.wait() == -signal.SIGKILL
    with last.open("ab") as file:
        file.write(b"oREC\x00\x00\x01\x00torn")
    log = RecordLog(tmp_path / "recording")
    log.append([record(number) for number in range(4001, 5001)])
    with start_query(tmp_path) as query:
        output, _ = query.communicate()
        assert output.endswith("done\n")
    assert (tmp_path / "died").exists()
    sink = spark.read.parquet(str(tmp_path / "sink"))
    rows = sorted((row["offset"], row["number"]) for row in sink.collect())
    assert rows == [(offset, offset + 1) for offset in range(5000)]
    log.close()


def start_query(folder: Path) -> subprocess.Popen[str]:
    """In a session of its own, so that all of it can be killed at once."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )

"""The log of a group as a table and a stream: offsets, gaps, and each message exactly once."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.applications.driven import EXAMPLES
from tests.store.group_log.logged import Origins, filled, made, opened, persist, spoil
from tests.store.stored import Latest

import ordercast
from ordercast.errors import DiskError, UsageError
from ordercast.kernel.log import Entry, Reference, Trimmed
from ordercast.net.marks import Post
from ordercast.spark.log_rows import LOG_COLUMNS, LogRow, log_batches, rows_of
from ordercast.spark.log_stream import LogOptions, LogStream, read_log_options
from ordercast.spark.recording import RECORDS_AT_ONCE
from ordercast.spark.stream import columns_of, options_for, register, sentence_of, source
from ordercast.store.group_log.form import SEGMENT, find_files
from ordercast.store.group_log.log import GroupLog

BORN = 1_700_000_000_000_000_000


class Feed:
    """Entries of several messages each, and which of them were written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.origins = Origins()
        self.messages: list[bytes] = []

    def entries(self, count: int) -> Iterator[Entry]:
        for _ in range(count):
            at = len(self.messages)
            entry = self.origins.entry(f"n{at % 3}")
            payloads = [b"%d" % number for number in range(at, at + 1 + at % 4)]
            self.messages += payloads
            size = sum(map(len, payloads))
            yield with_fields(entry, payloads=payloads, size=size, at=BORN + at)

    def write(self, log: GroupLog, count: int) -> None:
        for entry in self.entries(count):
            persist(log, entry, Latest("g", "tail", log.tail))


def with_fields(entry: Entry, **changed: Any) -> Entry:
    return msgspec.structs.replace(entry, **changed)


def stream_of(folder: Path, **options: Any) -> LogStream:
    return LogStream(LogOptions(folder, **options))


def rows_between(stream: LogStream, start: dict[str, Any], end: dict[str, Any]) -> list[LogRow]:
    return [row for piece in stream.pieces(start, end) for row in rows_of(piece)]


def rows_of_table(folder: Path, **options: Any) -> list[LogRow]:
    return [row for piece in stream_of(folder, **options).table() for row in rows_of(piece)]


# --- rows ----------------------------------------------------------------------------------------


def test_a_message_is_a_row_and_what_is_missing_has_a_row_of_its_own(quick_folder: Path) -> None:
    folder, origins = quick_folder / "log", Origins()
    one = with_fields(origins.entry("a"), payloads=[b"x", b"y"], at=BORN + 1999, size=2)
    answer = with_fields(origins.entry("b"), reply=Reference("a", 7, 1, 1))
    gap = Entry("c", 7, 9, 4, is_gap=True)
    late = with_fields(origins.entry("a"), is_late=True)
    lost, last = origins.entry("b", b"lost"), origins.entry("b", b"last")
    with closing(opened(folder)) as log:
        persist(log, one, answer, gap, late)
        persist(log, lost)
        persist(log, last)
        identity = log.identity
    spoil(folder, lost)
    about = {"group": "g", "log": identity}
    of_a = {"origin": "a", "birth": 7, "number": 1, "at": BORN // 1000 + 1}
    of_b = {"origin": "b", "birth": 7, "at": 0, "message": 0}
    reply = {"reply_origin": "a", "reply_birth": 7, "reply_number": 1, "reply_index": 1}
    assert rows_of_table(folder) == [
        LogRow("message", **about, position=0, message=0, **of_a, data=b"x"),
        LogRow("message", **about, position=0, message=1, **of_a, data=b"y"),
        LogRow("message", **about, position=1, number=1, **of_b, **reply, data=b"payload"),
        LogRow("gap", **about, position=2, origin="c", birth=7, after=4, up_to=9),
        LogRow("bad", **about, position=4, origin="b", birth=7, number=2, after=1, up_to=2),
        LogRow("message", **about, position=5, number=3, **of_b, data=b"last"),
    ]
    (batch,) = [batch for piece in stream_of(folder).table() for batch in log_batches(piece)]
    assert tuple(batch.schema.names) == tuple(LOG_COLUMNS)
    first, *_ = batch.to_pylist()
    assert (first["index"], first["data"], first["reply_origin"]) == (0, b"x", None)
    assert first["at"] == datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=1)


def test_many_positions_are_divided_among_tasks_and_come_in_arrow_batches(
    quick_folder: Path,
) -> None:
    folder = quick_folder / "log"
    entries = list(made(25_000))
    with closing(opened(folder)) as log:
        persist(log, *entries)
    pieces = stream_of(folder, partitions=2).table()
    assert [(piece.begin, piece.end) for piece in pieces] == [(0, 12_500), (12_500, 25_000)]
    batches = [batch for piece in pieces for batch in log_batches(piece)]
    assert max(batch.num_rows for batch in batches) == RECORDS_AT_ONCE
    data = [data for batch in batches for data in batch.column("data").to_pylist()]
    assert data == [entry.payloads[0] for entry in entries]


# --- offsets -------------------------------------------------------------------------------------


def test_a_batch_has_at_most_so_many_positions_and_an_offset_means_the_same_for_ever(
    quick_folder: Path,
) -> None:
    feed = Feed(quick_folder / "log")
    with closing(opened(feed.folder)) as log:
        feed.write(log, 50)
        stream = stream_of(feed.folder)
        start = stream.initial()
        assert start == {"log": f"{log.identity:016x}", "position": 0}
        end = stream.latest(start, 30)
        before = rows_between(stream, start, end)
        assert end["position"] == 30
        feed.write(log, 400)
        assert stream.latest(end, None)["position"] == 450
        assert stream.report()["position"] == 450
        assert rows_between(stream_of(feed.folder), start, end) == before
        rest = rows_between(stream, end, stream.latest(end, None))
        assert [row.data for row in before + rest] == feed.messages
        last = stream.report()
        assert stream.latest(last, None) == last
        assert stream.pieces(last, last) == []


def test_available_now_reads_what_exists_and_no_more(quick_folder: Path) -> None:
    feed = Feed(quick_folder / "log")
    with closing(opened(feed.folder)) as log:
        feed.write(log, 5)
        stream = stream_of(feed.folder)
        stream.end_here()
        feed.write(log, 5)
        assert stream.latest(stream.initial(), None)["position"] == 5
        assert stream_of(feed.folder, start="latest").initial()["position"] == 10


def test_a_query_begins_with_the_message_of_a_mark(quick_folder: Path) -> None:
    feed = Feed(quick_folder / "log")
    with closing(opened(feed.folder)) as log:
        feed.write(log, 20)
        rows = rows_of_table(feed.folder)
        for number, row in enumerate(rows):
            mark = f"{log.identity:016x}:{row.position}:{row.message}"
            assert rows_of_table(feed.folder, start=mark) == rows[number:]
        stream = stream_of(feed.folder, start=f"{log.identity:x}:{rows[-1].position}:1")
        assert stream.initial()["index"] == 1
        assert stream.latest(stream.initial(), None)["position"] == 20
        with pytest.raises(UsageError, match="a mark is for the log that gave it"):
            stream_of(feed.folder, start="ab:3:0").initial()
        with pytest.raises(DiskError, match="ends at position 20, and the mark is of position 21"):
            stream_of(feed.folder, start=f"{log.identity:x}:21:0").initial()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxRows": "1"}, "unknown option 'maxRows'"),
        ({"maxPositionsPerBatch": "0"}, "maxPositionsPerBatch is '0': it must be a whole number"),
        ({"startingPosition": "earlyest"}, "did you mean 'earliest'.*the text of a mark"),
        ({"onGap": "ignore"}, "unknown value for onGap 'ignore'"),
    ],
)
def test_invalid_options_are_rejected(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_log_options({"path": "x", **given})


def test_the_folder_says_which_options_it_has(quick_folder: Path) -> None:
    filled(quick_folder / "log", 5)
    given = {"path": str(quick_folder / "log"), "maxpositionsperbatch": "7", "ONGAP": "report"}
    wanted = LogOptions(quick_folder / "log", max_rows=7, reports_gaps=True)
    assert options_for(given) == wanted
    assert columns_of(quick_folder / "log") == LOG_COLUMNS
    with pytest.raises(UsageError, match="unknown option 'onGap'"):
        options_for({"path": "elsewhere", "onGap": "report"})
    with pytest.raises(UsageError, match="that begins at the latest position has no rows"):
        stream_of(quick_folder / "log", start="latest").table()


def test_a_feed_is_read_beside_its_node_as_its_subscribers_read_it(tmp_path: Path) -> None:
    async def post() -> None:
        data = str(tmp_path / "data")
        node = ordercast.open(name="n1", listen="127.0.0.1:0", data=data)
        async with node, node.join("news/today", ordercast.Feed()) as feed:
            marks = await feed.post_many([b"one", b"two", b"three"])
            await feed.post(b"answer", reply_to=marks[1].reference)
            subscription = feed.since("earliest")
            posts = [await anext(subscription) for _ in range(4)]
            folder = Path(feed.status()["log"]["folder"])
            wanted = [row_of(post) for post in posts]
            assert rows_of_table(folder) == wanted
            for number, post in enumerate(posts, 1):
                assert rows_of_table(folder, start=str(post.mark)) == wanted[number:]
            end = await feed.post(b"behind")
            assert rows_of_table(folder, start=str(marks[2])) == rows_of_table(folder)[3:]
            assert rows_of_table(folder, start=str(end)) == []

    asyncio.run(post())


def row_of(post: Post) -> LogRow:
    reply = post.reply_to
    return LogRow(
        "message",
        post.group,
        post.log,
        post.position,
        post.index,
        post.sender.name,
        post.birth,
        post.number,
        post.at // 1000,
        *((reply.origin, reply.birth, reply.number, reply.index) if reply else (None,) * 4),
        data=post.data,
    )


# --- gaps ----------------------------------------------------------------------------------------


def test_a_query_that_finds_its_position_trimmed_fails_or_reports_it(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    entries = filled(folder, 300)
    start = stream_of(folder).latest(stream_of(folder).initial(), 20)
    planned = stream_of(folder, partitions=1).pieces(start, stream_of(folder).report())
    reported = [piece._replace(reports_gaps=True) for piece in planned]
    with closing(opened(folder)) as log:
        persist(log, Trimmed("g", 200))
        floor = log.floor
        about = {"group": "g", "log": log.identity}
    said = f"trimmed up to position {floor}: what it had from position 20 to {floor - 1} was not"
    stream = stream_of(folder)
    for ask in (lambda: stream.latest(start, None), lambda: stream.pieces(start, stream.report())):
        with pytest.raises(DiskError, match=said):
            ask()
    with pytest.raises(DiskError, match=said):  # in a task, when it was planned before the trim
        list(rows_of(planned[0]))
    stream = stream_of(folder, reports_gaps=True)
    end = stream.latest(start, 50)
    assert end["position"] == floor + 50
    gap, *rows = rows_between(stream, start, end)
    assert gap == LogRow("gap", **about, position=20, next_position=floor)
    assert [row.data for row in rows] == [entry.payloads[0] for entry in entries[floor:][:50]]
    assert list(rows_of(reported[0]))[: len(rows) + 1] == [gap, *rows]
    assert rows_of_table(folder)[0].position == floor


def test_a_query_that_finds_another_log_fails_or_reports_it(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    entries = filled(folder, 30)
    old = stream_of(folder)
    start, middle = old.latest(old.initial(), 10), old.latest(old.initial(), 20)
    was = int(start["log"], 16)
    with closing(opened(folder)) as log:
        log.forget("g")
        log.sync()
        persist(log, *entries[:3])
        identity = log.identity
    stream = stream_of(folder)
    said = f"has another log now, {identity:016x}: what it had from position 10 "
    for ask in (lambda: stream.latest(start, None), lambda: stream.pieces(start, middle)):
        with pytest.raises(DiskError, match=said):
            ask()
    stream = stream_of(folder, reports_gaps=True)
    end = stream.latest(start, None)
    assert end == {"log": f"{identity:016x}", "position": 3}
    rows = rows_between(stream, start, end)
    assert rows[0] == LogRow("gap", "g", was, 10)
    assert [(row.log, row.position) for row in rows[1:]] == [(identity, at) for at in range(3)]
    # A batch of the old log that is repeated has one row for all of it.
    assert rows_between(stream, start, middle) == [LogRow("gap", "g", was, 10, next_position=20)]
    assert stream.latest(end, None) == end


def test_a_log_that_is_shorter_than_a_query_had_read_is_refused(quick_folder: Path) -> None:
    folder = quick_folder / "log"
    filled(folder, 30)
    stream = stream_of(folder, reports_gaps=True)
    start, end = stream.initial(), {**stream.initial(), "position": 40}
    said = "ends at position 30, and the query had read up to position 40: it is an older copy"
    for ask in (lambda: stream.latest(end, None), lambda: stream.pieces(start, end)):
        with pytest.raises(DiskError, match=said):
            ask()
    with pytest.raises(UsageError, match="which is none of a group's log"):
        stream.latest({"recording": "1", "next": 4}, None)


def test_a_position_whose_commit_was_lost_again_is_waited_for(quick_folder: Path) -> None:
    """A power failure may take the last commit; its entries are on the disk."""
    folder = quick_folder / "log"
    entries = filled(folder, 30, batch=3)
    start, end = stream_of(folder).initial(), stream_of(folder).report()
    (path,) = find_files(folder, SEGMENT).values()
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"oCOM")])
    stream = stream_of(folder)
    assert stream.report()["position"] == 27
    assert stream.latest(end, None) == end
    assert [row.position for row in rows_between(stream, start, end)] == list(range(30))
    with closing(opened(folder)) as log:
        persist(log, *entries[:2])
        assert stream.latest(end, None)["position"] == 32


# --- on Spark ------------------------------------------------------------------------------------


@pytest.mark.slow(5)
def test_spark_reads_a_log_and_passes_errors_on(quick: Any, tmp_path: Path) -> None:
    quick.dataSource.register(source())  # as on anybody's session
    feed = Feed(tmp_path / "log")
    with closing(opened(feed.folder)) as log:
        feed.write(log, 100)

        def load(**options: str) -> Any:
            return quick.read.format("ordercast").options(**options).load(str(feed.folder))

        table = load()
        assert dict(table.dtypes) == LOG_COLUMNS
        rows = table.orderBy("position", "index").collect()
        assert [bytes(row["data"]) for row in rows] == feed.messages
        assert {row["log"] for row in rows} == {log.identity}
        (first,) = table.selectExpr("min(unix_micros(at))").collect()
        assert first[0] == BORN // 1000
        for options, said in (
            ({"maxRows": "1"}, "unknown option"),
            ({"startingPosition": "1:0:0"}, "a mark is for the log that gave it"),
        ):
            with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
                load(**options).collect()
            assert said in sentence_of(caught.value)


def counts(spark: Any, folder: Path) -> Counter[bytes]:
    """How often each message is in the sink."""
    rows = spark.read.parquet(str(folder / "sink")).select("data").collect()
    return Counter(bytes(row["data"]) for row in rows)


def once(messages: list[bytes]) -> Counter[bytes]:
    return Counter(dict.fromkeys(messages, 1))


@contextmanager
def query_of(spark: Any, folder: Path, **options: str) -> Iterator[Any]:
    live = spark.readStream.format("ordercast").option("maxPositionsPerBatch", 100)
    query = (
        live.options(**options)
        .load(str(folder / "log"))
        .writeStream.format("parquet")
        .option("path", str(folder / "sink"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


@pytest.mark.slow(15)
def test_each_message_counts_once_while_the_log_is_written_trimmed_and_torn(
    quick: Any, tmp_path: Path
) -> None:
    """The query is stopped twice. The second time its node dies too, with a torn tail."""
    register(quick)
    feed = Feed(tmp_path / "log")
    with closing(opened(feed.folder)) as log:
        feed.write(log, 30)
        with query_of(quick, tmp_path) as query:
            query.processAllAvailable()
            feed.write(log, 150)
            query.processAllAvailable()
            persist(log, Trimmed("g", 120))  # what was read may go
            assert log.floor > 30
            feed.write(log, 50)
        feed.write(log, 60)
    path = list(find_files(feed.folder, SEGMENT).values())[-1]
    with path.open("r+b") as file:
        file.seek(len(file.read().rstrip(b"\0")))
        file.write(b"oREC\x00\x00\x01\x00torn")
    with query_of(quick, tmp_path) as query:
        query.processAllAvailable()
        assert counts(quick, tmp_path) == once(feed.messages)
        with closing(opened(feed.folder)) as log:
            feed.write(log, 20)
            query.processAllAvailable()
    assert counts(quick, tmp_path) == once(feed.messages)
    with closing(opened(feed.folder)) as log:
        feed.write(log, 300)
        persist(log, Trimmed("g", 550))
    with query_of(quick, tmp_path) as query:
        with pytest.raises(Exception, match="STREAM_FAILED") as caught:
            query.processAllAvailable()
        assert "was trimmed up to position" in sentence_of(caught.value)


@pytest.mark.slow(5)
def test_the_example_adds_what_is_new(quick: Any, tmp_path: Path) -> None:
    take_new = runpy.run_path(str(EXAMPLES / "read_feed.py"))["take_new"]
    folder, table = tmp_path / "log", tmp_path / "table"
    with closing(opened(folder)) as log:
        persist(log, *made(30))
        assert take_new(quick, folder, table) == {("message", "n0"): 10, ("message", "n1"): 20}
        persist(log, Entry("n0", 8, 5, 2, is_gap=True), *made(3))
        assert take_new(quick, folder, table) == {
            ("message", "n0"): 11,
            ("message", "n1"): 22,
            ("gap", "n0"): 1,
        }


PROGRAM = """
import sys
from pathlib import Path
from tests.spark.conftest import QUICK
from tests.spark.test_log_stream import query_of
from ordercast.spark.session import open_session
from ordercast.spark.stream import register

folder = Path(sys.argv[1])
with open_session("local[2,4]", light=True, **QUICK) as spark:
    register(spark)
    with query_of(spark, folder) as query:
        told = -1
        while not query.awaitTermination(0.02):
            batch = query.lastProgress["batchId"] if query.lastProgress else -1
            if batch > told:
                told = batch
                print("batch", batch, flush=True)
"""


@pytest.mark.long
def test_each_message_counts_once_when_a_query_is_killed(quick: Any, tmp_path: Path) -> None:
    """The driver with its JVM, in the middle of its micro-batches; another session goes on."""
    register(quick)
    feed = Feed(tmp_path / "log")
    with closing(opened(feed.folder)) as log:
        feed.write(log, 500)
        root = Path(__file__).resolve().parents[2]
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        ) as killed:
            assert killed.stdout is not None
            assert "batch 1\n" in iter(killed.stdout.readline, "")  # reads no further
            os.killpg(killed.pid, signal.SIGKILL)
        assert killed.returncode == -signal.SIGKILL
        feed.write(log, 50)
        with query_of(quick, tmp_path) as query:
            query.processAllAvailable()
    assert counts(quick, tmp_path) == once(feed.messages)

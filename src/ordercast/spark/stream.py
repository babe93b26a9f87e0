"""`format("ordercast")`: recordings and logs of groups as streams and tables; lakes as tables.

    register(spark)
    live = spark.readStream.format("ordercast").load("recording")
    rows = spark.read.format("ordercast").load("lake")

The folder says what it is. The log of a group is in log_stream.py, with its options.

An offset of a recording's stream is an offset of the recording, so each record is read exactly once
however often driver, tasks and recorder die: what a batch was is told by two numbers in the
checkpoint, and a number means the same record for ever. The recording has a name of its own, which
is in the checkpoint too: a query never goes on with another one.

Options of recordings and lakes, of which any other is refused:

  path        the folder: what `load` is given
  maxRows     the most records of one micro-batch (100,000)
  startAt     `earliest` (of what is kept) or `latest`, for a query without a checkpoint
  partitions  the most tasks that read one micro-batch (8); none reads less than 10,000 records

pyspark's classes are made when they are first asked for: nothing of it is imported before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ordercast.errors import TraceError
from ordercast.spark.log_rows import LOG_COLUMNS, LogPiece, log_batches
from ordercast.spark.log_stream import LogOptions, LogStream, holds_log, read_log_options
from ordercast.spark.recording import RECORD_COLUMNS, arrow_columns, ddl, record_batches
from ordercast.spark.source_options import (
    PARTITIONS,
    count_of,
    folder_of,
    given_options,
    shares,
    word_of,
)
from ordercast.spark.tables import TRACE_COLUMNS
from ordercast.trace.lake import find_runs, read_header
from ordercast.trace.parquet import PARTS
from ordercast.trace.recording import Follower, RecordPlace, find_segments, is_recording
from ordercast.trace.schema import READABLE_TRACES, REQUIRED

FORMAT = "ordercast"
BATCH_ROWS = 100_000
START_POINTS = ("earliest", "latest")


class SourceOptions(NamedTuple):
    folder: Path
    max_rows: int = BATCH_ROWS
    start_at: str = "earliest"
    partitions: int = PARTITIONS


class Piece(NamedTuple):
    """What one task reads: records from `start` to `end`, to be found from `place` on."""

    folder: str
    start: int
    end: int
    place: RecordPlace


def register(spark: Any) -> None:
    """Makes the format known to a session."""
    spark.dataSource.register(source())


def sentence_of(error: BaseException) -> str:
    """What went wrong in one sentence: ours, if Spark has wrapped an error of this package."""
    found = re.findall(r"ordercast\.errors\.\w+: (.+)", str(error))
    return str(found[-1]).strip() if found else (str(error).strip().splitlines() or ["?"])[0]


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Of a recording or a lake. Checks all of them."""
    found = given_options(given, ("maxRows", "startAt", "partitions"))
    return SourceOptions(
        folder_of(given),
        count_of(found, "maxRows", BATCH_ROWS),
        word_of(found, "startAt", START_POINTS),
        count_of(found, "partitions", PARTITIONS),
    )


def options_for(given: Mapping[str, str]) -> SourceOptions | LogOptions:
    """Of whatever the folder holds."""
    return read_log_options(given) if holds_log(folder_of(given)) else read_options(given)


# --- a recording as a stream -----------------------------------------------------------------


class RecordingStream:
    """What the stream's reader does, in plain values: offsets are {"recording": id, "next": n}."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._follower: Follower | None = None
        self._last: int | None = None  # where a query ends that takes only what is there

    def follower(self) -> Follower:
        if self._follower is None:
            self._follower = Follower(self._options.folder)
        return self._follower

    def initial(self) -> dict[str, Any]:
        follower = self.follower()
        at = follower.look() if self._options.start_at == "latest" else follower.first
        return self._offset(at)

    def latest(self, start: dict[str, Any], most: int | None) -> dict[str, Any]:
        begin = self._checked(start)
        end = self.follower().look() if self._last is None else self._last
        if most is not None:
            end = min(end, begin + most)
        return self._offset(max(begin, end))

    def end_here(self) -> None:
        self._last = self.follower().look()

    def report(self) -> dict[str, Any]:
        return self._offset(self.follower().look())

    def pieces(self, start: dict[str, Any], end: dict[str, Any]) -> list[Piece]:
        follower = self.follower()
        first, last = self._checked(start), self._checked(end)
        if last > follower.look():
            raise TraceError(
                f"{follower.folder} is committed up to offset {follower.latest}, and the query had "
                f"seen {last}: start its recorder again, or the query with another checkpoint."
            )
        return split_range(follower, first, last, self._options.partitions)

    def _offset(self, number: int) -> dict[str, Any]:
        return {"recording": f"{self.follower().identity:x}", "next": number}

    def _checked(self, offset: dict[str, Any]) -> int:
        follower = self.follower()
        if offset.get("recording") != f"{follower.identity:x}":
            raise TraceError(
                f"{follower.folder} is not the recording with which this query began: give it "
                "another checkpoint."
            )
        return int(offset["next"])


def split_range(follower: Follower, first: int, last: int, most: int) -> list[Piece]:
    """A range of offsets as pieces of about the same number of records."""
    return [
        Piece(str(follower.folder), begin, end, follower.place_of(begin))
        for begin, end in shares(first, last, most)
    ]


# --- tables ----------------------------------------------------------------------------------


def columns_of(folder: Path) -> dict[str, str]:
    """Of the log of a group, a recording, or a trace. TraceError: the folder is none of them."""
    if holds_log(folder):
        return LOG_COLUMNS
    if folder.is_dir() and is_recording(folder):
        find_segments(folder)
        return RECORD_COLUMNS
    find_runs(folder)
    return TRACE_COLUMNS


def table_pieces(options: SourceOptions | LogOptions) -> list[LogPiece | Piece | Path]:
    """What the tasks of a table read: parts of a log or a recording, or files of a lake."""
    if isinstance(options, LogOptions):
        return list(LogStream(options).table())
    if is_recording(options.folder):
        follower = Follower(options.folder)
        return list(split_range(follower, follower.first, follower.latest, options.partitions))
    parts: list[LogPiece | Piece | Path] = []
    for run in find_runs(options.folder):
        read_header(run)  # one of another version is refused before anything is read
        found = sorted(run.glob(PARTS))
        if not found:
            raise TraceError(f"{run} holds no {PARTS} file, and a run has at least one.")
        parts += found
    return parts


def read_piece(piece: LogPiece | Piece | Path | None) -> Iterator[Any]:
    if piece is None:
        return iter(())  # Spark has one task for a table in which there is nothing
    if isinstance(piece, LogPiece):
        return log_batches(piece)
    if isinstance(piece, Piece):
        return record_batches(Path(piece.folder), piece.start, piece.end, piece.place)
    return _trace_batches(piece)


def _trace_batches(part: Path) -> Iterator[Any]:
    """The rows of one file of a lake; columns that it does not have are null."""
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    schema = arrow_columns(pyarrow, TRACE_COLUMNS)
    try:
        with parquet.ParquetFile(str(part), page_checksum_verification=True) as file:
            present = _present(part, file)
            for batch in file.iter_batches(
                columns=[name for name in schema.names if name in present]
            ):
                yield pyarrow.RecordBatch.from_arrays(
                    [_column(pyarrow, part, batch, field) for field in schema], schema=schema
                )
    except (pyarrow.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise TraceError(f"{part} cannot be read as a trace: {reason[:300]}") from error


def _present(part: Path, file: Any) -> Sequence[str]:
    version = (file.metadata.metadata or {}).get(b"schema_version")
    if version is not None and version not in (b"%d" % one for one in READABLE_TRACES):
        raise TraceError(
            f"{part} follows version {version[:20].decode(errors='replace')} of the trace contract,"
            f" and this ordercast reads versions {READABLE_TRACES[0]} to {READABLE_TRACES[-1]}."
        )
    names: list[str] = file.schema_arrow.names
    for name in REQUIRED:
        if name not in names and not (name == "run" and part.parent.name.startswith("run=")):
            raise TraceError(f"{part} lacks the column {name!r}, which every trace must fill.")
    return names


def _column(pyarrow: Any, part: Path, batch: Any, field: Any) -> Any:
    if field.name in batch.schema.names:
        return batch.column(field.name).cast(field.type)
    if field.name == "run":
        return pyarrow.repeat(part.parent.name.removeprefix("run="), batch.num_rows)
    return pyarrow.nulls(batch.num_rows, field.type)


# --- what Spark asks for ---------------------------------------------------------------------


@cache
def stream_reader() -> Any:
    """A stream's reader as a class of pyspark's."""
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import (
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    class OrdercastStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, options: SourceOptions | LogOptions) -> None:
            self._most = options.max_rows
            self._stream = (
                LogStream(options) if isinstance(options, LogOptions) else RecordingStream(options)
            )

        def initialOffset(self) -> dict[str, Any]:
            return self._stream.initial()

        def getDefaultReadLimit(self) -> ReadLimit:
            return ReadMaxRows(self._most)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            return self._stream.latest(start, most)

        def reportLatestOffset(self) -> dict[str, Any]:
            return self._stream.report()

        def prepareForTriggerAvailableNow(self) -> None:
            self._stream.end_here()

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            return [InputPartition(piece) for piece in self._stream.pieces(start, end)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            return read_piece(partition.value)

    return OrdercastStreamReader


@cache
def source() -> Any:
    """The data source as a class of pyspark's, to be registered."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class OrdercastReader(DataSourceReader):
        def __init__(self, options: SourceOptions | LogOptions) -> None:
            self._options = options

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(piece) for piece in table_pieces(self._options)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            return read_piece(partition.value)

    class OrdercastSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return ddl(columns_of(options_for(self.options).folder))

        def reader(self, schema: Any) -> DataSourceReader:
            return OrdercastReader(options_for(self.options))

        def streamReader(self, schema: Any) -> Any:
            return stream_reader()(options_for(self.options))

    return OrdercastSource

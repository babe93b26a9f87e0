"""The log of a group as columns: a range of positions as Arrow batches, read while a node writes.

One message is one row. What is missing has a row of its own: a `gap` is events that are given up or
positions that are gone, and `bad` is an entry that the disk has lost. Entries that the node did not
deliver have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ordercast.errors import DiskError
from ordercast.kernel.log import Bad, Entry
from ordercast.spark.recording import BYTES_AT_ONCE, RECORDS_AT_ONCE, arrow_columns
from ordercast.store.group_log.following import LogPlace, read_range

LOG_COLUMNS: dict[str, str] = {
    "kind": "string",
    "group": "string",
    "log": "bigint",
    "position": "bigint",
    "index": "int",
    "origin": "string",
    "birth": "bigint",
    "number": "bigint",
    "at": "timestamp",
    "reply_origin": "string",
    "reply_birth": "bigint",
    "reply_number": "bigint",
    "reply_index": "int",
    "data": "binary",
    "after": "bigint",
    "up_to": "bigint",
    "next_position": "bigint",
}
"""The columns of a row and their types in Spark, in the order of the fields of a `LogRow`."""
MESSAGE, GAP, BAD = "message", "gap", "bad"


class LogRow(NamedTuple):
    kind: str
    group: str
    log: int  # its identity
    position: int
    message: int | None = None  # its index in the entry
    origin: str | None = None
    birth: int | None = None
    number: int | None = None
    at: int | None = None  # microseconds of Unix time, when its origin submitted it
    reply_origin: str | None = None
    reply_birth: int | None = None
    reply_number: int | None = None
    reply_index: int | None = None
    data: bytes | None = None
    after: int | None = None  # of events that are missing: the number before the first of them
    up_to: int | None = None  # and the number of the last
    next_position: int | None = None  # of positions that are gone: the one behind them


class LogPiece(NamedTuple):
    """What one task reads: positions from `begin` to `end`."""

    folder: str
    group: str
    log: int
    begin: int
    end: int | None  # None: the log is gone, and nobody knows what else it had
    skips: int = 0  # messages of the first entry that are not wanted
    place: LogPlace | None = None
    reports_gaps: bool = False


def log_batches(piece: LogPiece) -> Iterator[Any]:
    """Its rows as Arrow batches. DiskError: something is gone, and gaps are not reported."""
    pyarrow = import_module("pyarrow")
    schema = arrow_columns(pyarrow, LOG_COLUMNS)
    rows: list[LogRow] = []
    size = 0
    for row in rows_of(piece):
        rows.append(row)
        size += len(row.data or b"")
        if len(rows) >= RECORDS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield _batch(pyarrow, schema, rows)
            rows, size = [], 0
    if rows:
        yield _batch(pyarrow, schema, rows)


def rows_of(piece: LogPiece) -> Iterator[LogRow]:
    about = piece.group, piece.log
    if piece.end is None:
        yield LogRow(GAP, *about, piece.begin)
        return
    folder = Path(piece.folder)
    for position, found in read_range(folder, piece.log, piece.begin, piece.end, piece.place):
        if isinstance(found, Entry):
            if found.is_gap:
                yield _missing(GAP, about, position, found)
            elif not found.is_late:
                skipped = piece.skips if position == piece.begin else 0
                yield from _messages(about, position, found, skipped)
        elif isinstance(found, Bad):
            yield _missing(BAD, about, position, found)
        elif piece.reports_gaps:
            yield LogRow(GAP, *about, position, next_position=found.end)
        else:
            raise gone(found.why, position, found.end)


def gone(why: str, begin: int, end: int | None = None) -> DiskError:
    """What is said of positions that cannot be read any more."""
    last = f"to {end - 1} " if end is not None else "on "
    return DiskError(
        f"{why}: what it had from position {begin} {last}was not read and is not there any more. "
        "Start the query with another checkpoint, or with onGap=report, which gives a row for what "
        "is missing and goes on"
    )


def _messages(
    about: tuple[str, int], position: int, entry: Entry, skipped: int
) -> Iterator[LogRow]:
    row = LogRow(
        MESSAGE,
        *about,
        position,
        origin=entry.origin,
        birth=entry.birth,
        number=entry.number,
        at=entry.at // 1000,
    )
    if reply := entry.reply:
        row = row._replace(
            reply_origin=reply.origin,
            reply_birth=reply.birth,
            reply_number=reply.number,
            reply_index=reply.index,
        )
    for index, data in enumerate(entry.payloads[skipped:], skipped):
        yield row._replace(message=index, data=data)


def _missing(kind: str, about: tuple[str, int], position: int, found: Entry | Bad) -> LogRow:
    if not found.number:  # nobody knows what was there
        return LogRow(kind, *about, position)
    name, birth = found.stream
    row = LogRow(kind, *about, position, after=found.prev, up_to=found.number)
    if not name:  # the index knows an event of an unknown stream
        return row
    number = found.number if kind == BAD else None
    return row._replace(origin=name, birth=birth, number=number)


def _batch(pyarrow: Any, schema: Any, rows: list[LogRow]) -> Any:
    columns = zip(*rows, strict=True)
    arrays = [
        pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)

"""A recording as columns: a range of offsets as Arrow batches, read while its recorder writes.

Reads the files alone (ordercast.trace.recording), so it works wherever they can be seen: in the
driver to ask how far the recording goes, and in every task to read its part of it. One record is
one row, and its payloads are a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ordercast.trace.recording import Record, RecordPlace, read_records

RECORD_COLUMNS: dict[str, str] = {
    "offset": "bigint",
    "kind": "string",
    "at": "bigint",
    "process": "string",
    "incarnation": "int",
    "group": "string",
    "origin": "string",
    "origin_incarnation": "int",
    "number": "bigint",
    "index": "int",
    "stamp": "array<bigint>",
    "order": "bigint",
    "hops": "int",
    "view": "bigint",
    "members": "array<string>",
    "size": "bigint",
    "payloads": "array<binary>",
    "cause": "string",
}
"""The columns of a record and their types in Spark, in the order of its fields."""

RECORDS_AT_ONCE = 8192
BYTES_AT_ONCE = 16 << 20
"""A batch ends with the row that reaches either."""


def ddl(columns: dict[str, str]) -> str:
    """Columns and their types as Spark reads them from a string."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def record_batches(
    folder: Path, start: int, end: int, place: RecordPlace | None = None
) -> Iterator[Any]:
    """The records from `start` up to `end` as Arrow batches."""
    pyarrow = import_module("pyarrow")
    schema = arrow_columns(pyarrow, RECORD_COLUMNS)
    rows: list[Record] = []
    size = 0
    for record in read_records(folder, start, end, place):
        rows.append(record)
        size += record.size or 0
        if len(rows) >= RECORDS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield _batch(pyarrow, schema, rows)
            rows, size = [], 0
    if rows:
        yield _batch(pyarrow, schema, rows)


def _batch(pyarrow: Any, schema: Any, rows: list[Record]) -> Any:
    arrays = [
        pyarrow.array([getattr(row, field.name) for row in rows], field.type) for field in schema
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def arrow_columns(pyarrow: Any, columns: dict[str, str]) -> Any:
    """The Arrow schema of columns that are given with their types in Spark."""
    types = {
        "bigint": pyarrow.int64(),
        "double": pyarrow.float64(),
        "int": pyarrow.int32(),
        "string": pyarrow.string(),
        "binary": pyarrow.binary(),
        "timestamp": pyarrow.timestamp("us", "UTC"),
        "array<bigint>": pyarrow.list_(pyarrow.int64()),
        "array<string>": pyarrow.list_(pyarrow.string()),
        "array<binary>": pyarrow.list_(pyarrow.binary()),
    }
    return pyarrow.schema([pyarrow.field(name, types[kind]) for name, kind in columns.items()])

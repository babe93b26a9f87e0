"""A lake of traces as DataFrames: rows, and runs.

`lake_frame` has a row for each row of the traces, with the columns of the trace contract
(docs/trace.md) and `run`. `runs_frame` has a row for each run, from its run.json. Only runs that
were completed are in either: a folder without run.json is a run that was cut off while it was
written, and damaged ones are told by `ordercast check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ordercast.errors import TraceError, UsageError
from ordercast.trace.lake import find_runs
from ordercast.trace.parquet import HEADER_FILE, PARTS
from ordercast.trace.schema import COLUMN_TYPES, Header
from ordercast.types import GroupTimes
from ordercast.units import Duration

MOST_FILES = 100_000

_SPARK_TYPES = {
    "string": "string",
    "int32": "int",
    "int64": "bigint",
    "list<int64>": "array<bigint>",
    "list<string>": "array<string>",
}
SCHEMA = ", ".join(f"`{name}` {_SPARK_TYPES[kind]}" for name, kind in COLUMN_TYPES.items())
"""The columns of a trace as Spark writes them: those of the contract, in its order."""

_TIMES = ", ".join(f"`{name}` bigint" for name in GroupTimes._fields)
RUNS_SCHEMA = (
    "run string, family string, seed bigint, ending string, level string, start bigint, "
    f"`end` bigint, processes int, {_TIMES}, parameters string"
)


def lake_frame(spark: Any, lake: Path) -> Any:
    """All rows of all complete runs of a lake (or of one run's folder)."""
    parts = [
        str(part) for folder in _complete(lake) for part in sorted(folder.resolve().glob(PARTS))
    ]
    if not parts:
        raise UsageError(f"{lake}: no complete runs there")
    if len(parts) > MOST_FILES:
        raise UsageError(f"{lake}: {len(parts)} files; at most {MOST_FILES} are read at once")
    # Named one by one, files bring no partitions with them: `run` is a column of the files.
    return spark.read.schema(SCHEMA).parquet(*parts)


def trace_frame(spark: Any, run: str, rows: Sequence[Any]) -> Any:
    """Rows in memory as the same kind of DataFrame: for a look at a run that is not in a lake."""
    names = [name for name in COLUMN_TYPES if name != "run"]
    values = [(run, *(_plain(getattr(row, name)) for name in names)) for row in rows]
    return spark.createDataFrame(values, SCHEMA)


def runs_frame(spark: Any, lake: Path) -> Any:
    """One row a run: what produced it. The fields of `GroupTimes` are read from the options of the
    same names; null: the run has none."""
    rows = [_header_row(_read_header(folder)) for folder in _complete(lake)]
    return spark.createDataFrame(rows, RUNS_SCHEMA)


def _complete(lake: Path) -> list[Path]:
    return [folder for folder in find_runs(lake) if (folder / HEADER_FILE).exists()]


def _read_header(folder: Path) -> Header:
    try:
        return msgspec.json.decode((folder / HEADER_FILE).read_bytes(), type=Header)
    except (OSError, msgspec.MsgspecError) as error:
        raise TraceError(f"{folder / HEADER_FILE} cannot be read: {error}") from error


def _header_row(header: Header) -> tuple[Any, ...]:
    parameters = header.parameters
    return (
        header.run,
        header.family,
        header.seed,
        str(header.ending),
        str(header.level),
        header.start,
        header.end,
        parameters.get("processes"),
        *(_time_of(parameters, name) for name in GroupTimes._fields),
        msgspec.json.encode(parameters, order="deterministic").decode(),
    )


def _time_of(parameters: dict[str, Any], name: str) -> int | None:
    options = parameters.get("options")
    given = options.get(name) if isinstance(options, dict) else None
    if isinstance(given, int):
        return given
    return int(Duration.parse(given)) if isinstance(given, str) else None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value

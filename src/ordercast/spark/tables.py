"""A lake of traces as DataFrames: rows, and runs.

`lake_frame` has a row for each row of the traces, with the columns of the trace contract
(docs/trace.md) and `run`. `runs_frame` has a row for each run, from its run.json. Only runs that
were completed are in either: a folder without run.json is a run that was cut off while it was
written, and damaged ones are told by `ordercast check`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ordercast.errors import UsageError
from ordercast.spark.recording import ddl
from ordercast.trace.lake import find_runs, read_header
from ordercast.trace.parquet import HEADER_FILE, PARTS
from ordercast.trace.schema import COLUMN_TYPES, Header
from ordercast.types import GroupTimes
from ordercast.units import Duration

MOST_FILES = 100_000

TRACE_COLUMNS = {
    name: {"int64": "bigint", "int32": "int", "list<int64>": "array<bigint>"}.get(
        kind, kind.replace("list", "array")
    )
    for name, kind in COLUMN_TYPES.items()
}
"""The columns of the trace contract and their types in Spark."""

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
    return spark.read.schema(ddl(TRACE_COLUMNS)).parquet(*parts)


def runs_frame(spark: Any, lake: Path) -> Any:
    """One row a run: what produced it. The fields of `GroupTimes` are read from the options of the
    same names; null: the scenario does not name it, or has none."""
    rows = [_header_row(read_header(folder)) for folder in _complete(lake)]
    return spark.createDataFrame(rows, RUNS_SCHEMA)


def _complete(lake: Path) -> list[Path]:
    return [folder for folder in find_runs(lake) if (folder / HEADER_FILE).exists()]


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

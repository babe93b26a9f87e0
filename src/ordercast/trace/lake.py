"""Reads traces back: a lake of runs, or the folder of a single run, one run at a time.

Traces of other systems are read too, as long as they fill the columns that REQUIRED names.
What cannot be read is refused with a TraceError of one sentence that names the file. Nothing is
repaired but this: rows are put into local order if they are not, and a run without run.json
counts as cut, as nothing proves that it finished.

This is the plain reader, which takes a whole run into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from ordercast.errors import TraceError
from ordercast.store.log import TEMPORARY
from ordercast.trace.columns import rows_of_columns, to_lists
from ordercast.trace.parquet import HEADER_FILE, PARTS, Pyarrow, load_pyarrow
from ordercast.trace.schema import (
    COLUMN_TYPES,
    COLUMNS,
    KINDS,
    READABLE_TRACES,
    REQUIRED,
    SCHEMA_VERSION,
    Header,
    Row,
    Trace,
)

ROWS_LIMIT = 50_000_000
"""The most rows of one run that the plain reader takes into memory."""

HEADER_LIMIT = 1 << 20
"""The largest run.json that is read, in bytes."""

_PREFIX = "run="
_MAGIC = b"PAR1"  # the first and the last bytes of every Parquet file
_ROWS_AT_ONCE = 1 << 16


class _Version(msgspec.Struct):
    """What is read of run.json first: the rest means something only if this is ours."""

    schema_version: int = SCHEMA_VERSION


def find_runs(path: Path) -> list[Path]:
    """The run folders in a lake, sorted; or the path itself if it is a run folder."""
    try:
        if not path.is_dir():
            raise TraceError(
                f"{path} {'is not a folder' if path.exists() else 'does not exist'}: give a lake "
                "folder, which holds run=... folders, one of these, or a .history file."
            )
        runs = [folder for folder in path.glob(_PREFIX + "*") if folder.is_dir()]
        runs.sort(key=_in_order_of_seeds)
        if runs:
            return runs
        if _named_run(path) is not None or _holds_a_run(path):
            return [path]
    except OSError as error:
        raise _unreadable(path, error) from error
    raise TraceError(
        f"{path} holds no trace: a lake folder holds run=RUN_ID/part-*.parquet for every run."
    )


def read_lake(path: Path, rows_limit: int = ROWS_LIMIT) -> Iterator[Trace]:
    """The traces of all runs in a lake, or of one run folder, read one by one as asked for."""
    return (read_run(folder, rows_limit) for folder in find_runs(path))


def read_run(folder: Path, rows_limit: int = ROWS_LIMIT) -> Trace:
    """One run as a whole, its rows in each process's local order."""
    parts = _find_parts(folder)
    header = read_header(folder)
    pyarrow = load_pyarrow()
    footers = [_read_footer(pyarrow, part) for part in parts]
    count = sum(footer.num_rows for footer in footers)
    if count > rows_limit:
        raise TraceError(
            f"{folder} has {count:,} rows, more than the {rows_limit:,} that are read into "
            "memory: use a smaller trace."
        )
    rows: list[Row] = []
    last: dict[str, tuple[int, int]] = {}
    ordered = True
    for part, footer in zip(parts, footers, strict=True):
        for lists in _read_part(pyarrow, part, footer, header.run):
            rows.extend(rows_of_columns(lists))
            ordered = ordered and _in_local_order(lists, last)
    if not ordered:
        _sort(folder, rows)
    return Trace(header, rows)


def read_header(folder: Path) -> Header:
    """What produced a run. Without run.json: the run's name, and that it counts as cut."""
    path = folder / HEADER_FILE
    named = _named_run(folder)
    try:
        with path.open("rb") as file:
            data = file.read(HEADER_LIMIT + 1)
    except FileNotFoundError:
        return Header(named or folder.resolve().name)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > HEADER_LIMIT:
        raise TraceError(f"{path} is larger than the {HEADER_LIMIT:,} bytes that it may have.")
    try:
        _check_version(path, str(msgspec.json.decode(data, type=_Version).schema_version))
        header = msgspec.json.decode(data, type=Header)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise TraceError(
            f"{path} is not the header of a run ({error}): remove it to have the run taken as "
            "one of unknown origin that was cut."
        ) from error
    if named is not None and header.run != named:
        raise TraceError(
            f"{path} belongs to the run {header.run!r}, but lies in the folder of {named!r}."
        )
    return header


def _in_order_of_seeds(folder: Path) -> tuple[str, int]:
    """chaos-2 comes before chaos-10."""
    stem, _, last = folder.name.rpartition("-")
    return (stem, int(last)) if last.isdecimal() and len(last) < 20 else (folder.name, 0)


def _named_run(folder: Path) -> str | None:
    """The run that a folder's name tells, if it does."""
    name = folder.resolve().name  # the path may be '.', or a link to the latest run
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def _holds_a_run(folder: Path) -> bool:
    return any(
        True for pattern in (PARTS, HEADER_FILE, "*" + TEMPORARY) for _ in folder.glob(pattern)
    )


def _find_parts(folder: Path) -> list[Path]:
    try:
        parts = sorted(folder.glob(PARTS))
        cut = any(True for _ in folder.glob("*" + TEMPORARY))
    except OSError as error:
        raise _unreadable(folder, error) from error
    if parts:
        return parts
    if cut:
        raise TraceError(
            f"{folder} was cut while it was being written, as only {TEMPORARY} files are there: "
            "run it again."
        )
    raise TraceError(f"{folder} holds no {PARTS} file, and a run has at least one.")


def _check_version(path: Path, version: str) -> None:
    if version not in map(str, READABLE_TRACES):
        raise TraceError(
            f"{path} follows version {version} of the trace contract, and this ordercast reads "
            f"versions {READABLE_TRACES[0]} to {SCHEMA_VERSION}."
        )


def _unreadable(path: Path, error: OSError) -> TraceError:
    return TraceError(f"{path} cannot be read: {error.strerror or error}.")


def _read_footer(pyarrow: Pyarrow, part: Path) -> Any:
    _check_ends(part)
    with _reading(pyarrow, part):
        return pyarrow.parquet.read_metadata(str(part))


def _read_part(pyarrow: Pyarrow, part: Path, footer: Any, run: str) -> Iterator[list[list[Any]]]:
    """The columns of one file, some rows at a time, in the order of COLUMNS."""
    leaves = map(footer.schema.column, range(footer.num_columns))
    strings = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    missing = footer.num_rows
    with (
        _reading(pyarrow, part),
        pyarrow.parquet.ParquetFile(
            str(part),
            metadata=footer,
            read_dictionary=[name for name in strings if COLUMN_TYPES.get(name) == "string"],
            page_checksum_verification=True,
        ) as file,
    ):
        present = _check_schema(part, file)
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=present):
            batch.validate(full=True)  # pyarrow trusts a file's offsets and indices otherwise
            lists = [
                to_lists(pyarrow, part, name, batch.column(name))
                if name in present
                else [None] * batch.num_rows
                for name in ("run", *COLUMNS)
            ]
            _check_values(part, lists, run if "run" in present else None)
            missing -= batch.num_rows
            if missing < 0:
                break
            yield lists[1:]
    if missing:  # damage can make a page look like one of those that are skipped
        raise TraceError(
            f"{part} is damaged: it does not hold the {footer.num_rows} rows promised."
        )


@contextmanager
def _reading(pyarrow: Pyarrow, part: Path) -> Iterator[None]:
    """Around all that pyarrow does with a file: what it finds wrong is the file's fault."""
    try:
        yield
    except (pyarrow.core.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise TraceError(f"{part} is damaged: {reason[:300]}") from error


def _check_ends(part: Path) -> None:
    """Tells the common mishaps apart, which pyarrow would name in its own words."""
    try:
        with part.open("rb") as file:
            start = file.read(len(_MAGIC))
            size = file.seek(0, 2)
            file.seek(max(0, size - len(_MAGIC)))
            end = file.read(len(_MAGIC))
    except OSError as error:
        raise _unreadable(part, error) from error
    if not size:
        raise TraceError(f"{part} is empty: even a Parquet file without rows has a footer.")
    if start != _MAGIC:
        raise TraceError(f"{part} is not a Parquet file, as these begin with {_MAGIC.decode()}.")
    if end != _MAGIC or size < 3 * len(_MAGIC):
        raise TraceError(f"{part} is cut off: a complete Parquet file ends with {_MAGIC.decode()}.")


def _check_schema(part: Path, file: Any) -> list[str]:
    """Which of our columns a file has, once its version and its columns are found right."""
    metadata = file.metadata.metadata or {}
    version = metadata.get(b"schema_version")
    if version is not None:  # other systems know nothing of it
        _check_version(part, version[:20].decode(errors="replace"))
    names = file.schema_arrow.names
    # A column that the folder's name holds is often left out of the files: Spark does so.
    for name in REQUIRED:
        if name not in names and not (name == "run" and _named_run(part.parent)):
            raise TraceError(f"{part} lacks the column {name!r}, which every trace must fill.")
    for name in COLUMN_TYPES:
        if names.count(name) > 1:
            raise TraceError(f"{part} has the column {name!r} more than once.")
    return [name for name in COLUMN_TYPES if name in names]


def _check_values(part: Path, lists: list[list[Any]], run: str | None) -> None:
    runs, kinds = lists[0], lists[COLUMNS.index("kind") + 1]
    if run is not None and runs.count(run) != len(runs):
        other = next(value for value in runs if value != run)
        raise TraceError(f"{part} holds rows of the run {other[:200]!r}, but belongs to {run!r}.")
    unknown = sorted(set(kinds) - KINDS)
    if unknown:
        raise TraceError(
            f"{part} holds rows of the kind {unknown[0][:50]!r}, which is not one of "
            f"{', '.join(sorted(KINDS))}."
        )


def _in_local_order(lists: list[list[Any]], last: dict[str, tuple[int, int]]) -> bool:
    """Whether each process's rows go on from its last position, which is kept up to date."""
    nowhere = (-1, -1)
    for process, incarnation, step in zip(*lists[:3], strict=True):
        position = (incarnation, step)
        if position <= last.get(process, nowhere):
            return False
        last[process] = position
    return True


def _sort(folder: Path, rows: list[Row]) -> None:
    def position(row: Row) -> tuple[str, int, int]:
        return row.process, row.incarnation, row.step

    rows.sort(key=position)
    for row, following in pairwise(rows):
        if position(row) == position(following):
            raise TraceError(
                f"{folder} has two rows with step {row.step} of incarnation {row.incarnation} of "
                f"the process {row.process!r}: steps must increase strictly."
            )

"""Writes a run into a lake: LAKE/run=RUN_ID/part-00000.parquet and so on, then run.json.

Rules:

  1. A file has its final name only when it is complete, and run.json comes last. Until `close`
     everything is named *.tmp; a run that was killed leaves such files and nothing else.
  2. The same rows give the same bytes, so that a repeated task can be compared with the first.
  3. Memory is bounded: rows become columns at once, and columns a row group on disk.

pyarrow is imported when the first sink is made: the core installs without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ordercast.errors import UsageError
from ordercast.store.log import TEMPORARY
from ordercast.trace.schema import (
    COLUMN_TYPES,
    COLUMNS,
    REQUIRED,
    SCHEMA_VERSION,
    Header,
    Row,
    Trace,
)
from ordercast.trace.sinks import check_run_id

HEADER_FILE = "run.json"
PARTS = "part-*.parquet"

# Numbers mostly grow by little from row to row, names repeat. It takes a fraction of the space
# and of the time of the defaults.
_LEAVES = {
    f"{name}.list.element" if kind.startswith("list") else name: kind
    for name, kind in COLUMN_TYPES.items()
}
_ENCODED_BY_DICTIONARY = [name for name, kind in _LEAVES.items() if "string" in kind]
_ENCODED_BY_DIFFERENCE = {
    name: "DELTA_BINARY_PACKED" for name, kind in _LEAVES.items() if "int" in kind
}

_ROWS_AT_ONCE = 2048  # few enough to be in the processor's cache when they become columns


class Pyarrow(NamedTuple):
    """pyarrow as far as we use it. It ships no types."""

    core: Any
    parquet: Any
    compute: Any


def load_pyarrow() -> Pyarrow:
    """Imports pyarrow, or says what to install."""
    try:
        return Pyarrow(
            import_module("pyarrow"),
            import_module("pyarrow.parquet"),
            import_module("pyarrow.compute"),
        )
    except ImportError as error:
        raise UsageError(
            'Trace files need pyarrow, which is not installed: pip install "ordercast[cli]"'
        ) from error


def run_folder(lake: Path, run: str) -> Path:
    return lake / f"run={run}"


def arrow_schema(pyarrow: Pyarrow) -> Any:
    """The schema of the files that we write, with the version of the contract as metadata."""
    pa = pyarrow.core
    types = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "list<int64>": pa.list_(pa.int64()),
        "list<string>": pa.list_(pa.string()),
    }
    return pa.schema(
        [
            pa.field(name, types[kind], nullable=name not in REQUIRED)
            for name, kind in COLUMN_TYPES.items()
        ],
        metadata={"schema_version": str(SCHEMA_VERSION)},
    )


def encode_header(header: Header) -> bytes:
    """The content of run.json. Defaults are written out, for those who read it without us."""
    fields = {
        name: value for name, value in msgspec.structs.asdict(header).items() if value is not None
    }
    return msgspec.json.format(msgspec.json.encode(fields, order="deterministic")) + b"\n"


class ParquetSink:
    """Streams the rows of one run into its folder of a lake.

    As a context manager it aborts unless it was closed. An error while writing aborts too.
    """

    def __init__(
        self,
        lake: Path,
        run: str,
        *,
        replace: bool = False,
        rows_per_group: int = 1 << 16,
        rows_per_part: int = 1 << 22,
    ) -> None:
        assert 0 < rows_per_group <= rows_per_part
        self._pyarrow = load_pyarrow()
        self._schema = arrow_schema(self._pyarrow)
        self._run = check_run_id(run)
        self._folder = run_folder(lake, run)
        self._rows_per_group = rows_per_group
        self._rows_per_part = rows_per_part
        self._rows: list[Row] = []
        self._rows_at_once = min(_ROWS_AT_ONCE, rows_per_group)
        self._columns: list[list[Any]] = [[] for _ in COLUMNS]
        self._writer: Any = None  # of the last part; None between parts
        self._rows_in_part = 0
        self._parts: list[Path] = []  # under the final names that they get in `close`
        self._named: list[Path] = []  # those that have got it
        self._open = True
        self._prepare(replace)

    def write(self, row: Row) -> None:
        rows = self._rows
        rows.append(row)
        if len(rows) >= self._rows_at_once:
            self._to_columns()

    def close(self, header: Header) -> None:
        """Completes the files, then gives the parts their names, and last run.json."""
        assert self._open, "a sink is closed once"
        assert header.run == self._run, "the header is of this run"
        self._to_columns()
        with self._writing():
            self._flush()
            if not self._parts:
                self._begin_part()  # a run without rows has a part too: it was not cut
            self._end_part()
            header_file = self._folder / HEADER_FILE
            _temporary(header_file).write_bytes(encode_header(header))
            # What we replace goes now and not earlier, its header first: at no time does a
            # header stand beside parts that are not its own.
            header_file.unlink(missing_ok=True)
            _unlink(self._folder.glob(PARTS))
            for part in self._parts:
                _temporary(part).rename(part)
                self._named.append(part)
            _temporary(header_file).rename(header_file)
        self._end()

    def abort(self) -> None:
        """Leaves nothing of this run. An earlier one that it was to replace stays."""
        if not self._open:
            return
        self._end()
        if self._writer is not None:
            with suppress(Exception):  # a full disk may be why we abort; the file goes anyway
                self._writer.close()
            self._writer = None
        _unlink(self._folder.glob("*" + TEMPORARY))
        _unlink(self._named)
        with suppress(OSError):  # not empty: there is something that is not ours
            self._folder.rmdir()

    def __enter__(self) -> ParquetSink:
        return self

    def __exit__(self, *exception: object) -> None:
        self.abort()

    def _prepare(self, replace: bool) -> None:
        with self._writing():
            self._folder.mkdir(parents=True, exist_ok=True)
            if replace:
                _unlink(self._folder.glob("*" + TEMPORARY))
            elif any(self._folder.iterdir()):
                self._open = False  # nothing there is ours, so nothing is to be removed
                raise UsageError(
                    f"{self._folder} exists already: choose another run id, or say that it is "
                    "to be replaced."
                )

    def _end(self) -> None:
        self._open = False
        self._rows_at_once = 0  # so that a write after the end meets the assertion
        self._rows = []
        self._columns = []

    def _to_columns(self) -> None:
        assert self._open, "a row after the end of its run"
        if not self._rows:
            return
        values = zip(*map(msgspec.structs.astuple, self._rows), strict=True)
        for column, more in zip(self._columns, values, strict=True):
            column.extend(more)
        self._rows.clear()
        if len(self._columns[0]) >= self._rows_per_group:
            with self._writing():
                self._flush()

    def _flush(self) -> None:
        """Writes the columns as one row group."""
        count = len(self._columns[0])
        if not count:
            return
        if self._writer is None:
            self._begin_part()
        pa = self._pyarrow.core
        arrays = [pa.repeat(pa.scalar(self._run, pa.string()), count)]
        for name, column in zip(COLUMNS, self._columns, strict=True):
            arrays.append(pa.array(column, self._schema.field(name).type))
            column.clear()
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=count)
        self._rows_in_part += count
        if self._rows_in_part >= self._rows_per_part:
            self._end_part()

    def _begin_part(self) -> None:
        part = self._folder / f"part-{len(self._parts):05}.parquet"
        self._parts.append(part)
        self._rows_in_part = 0
        self._writer = self._pyarrow.parquet.ParquetWriter(
            str(_temporary(part)),
            self._schema,
            compression="zstd",
            compression_level=3,
            use_dictionary=_ENCODED_BY_DICTIONARY,
            column_encoding=_ENCODED_BY_DIFFERENCE,
            write_page_checksum=True,  # so that no damage reads as other values
        )

    def _end_part(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Around all that touches the disk: an error leaves nothing, and says why."""
        try:
            yield
        except BaseException as error:
            self.abort()
            if isinstance(error, OSError):
                raise UsageError(
                    f"The trace cannot be written to {self._folder}: {error.strerror or error}."
                ) from error
            raise


def write_trace(lake: Path, trace: Trace, *, replace: bool = False) -> None:
    """A whole trace as one run of a lake."""
    with ParquetSink(lake, trace.header.run, replace=replace) as sink:
        for row in trace.rows:
            sink.write(row)
        sink.close(trace.header)


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + TEMPORARY)


def _unlink(paths: Iterable[Path]) -> None:
    for path in sorted(paths):
        path.unlink(missing_ok=True)

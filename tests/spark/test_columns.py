"""Runs as columns: what is read, from whoever wrote it, and what is refused, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.test_vector_laws import ALL, sound

from ordercast.check.laws import check
from ordercast.errors import TraceError
from ordercast.spark.columns import count_rows, read_columns
from ordercast.spark.laws import judge
from ordercast.trace.lake import read_run
from ordercast.trace.parquet import arrow_schema, load_pyarrow, run_folder, write_trace
from ordercast.trace.schema import COLUMNS, KINDS, Trace


def lake_of_one(tmp_path: Path, seed: int = 3) -> tuple[Path, Trace]:
    trace = sound(seed)
    write_trace(tmp_path, trace)
    return run_folder(tmp_path, trace.header.run), trace


def test_a_file_is_read_as_the_plain_reader_reads_it(tmp_path: Path) -> None:
    folder, trace = lake_of_one(tmp_path)
    run = read_columns(folder)
    assert run.count == count_rows(folder) == len(trace.rows)
    assert run.header == trace.header
    rows = run.rows(np.arange(run.count))
    assert sorted(rows, key=trace.rows.index) == trace.rows
    assert judge(folder, None).verdicts == check(trace)
    some = run.rows(np.array([3, 1]))
    assert len(some) == 2
    assert set(some) < set(trace.rows)


def rewritten(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    part = next(folder.glob("part-*.parquet"))
    pq.write_table(change(pq.read_table(part, partitioning=None)), part)


def as_type(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        return table.set_column(at, name, table.column(name).cast(kind))

    return change


def with_value(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at, column = table.schema.get_field_index(name), table.column(name)
        values = [value, *column.to_pylist()[1:]]
        field = pa.field(name, column.type)
        return table.set_column(at, field, pa.array(values, column.type))

    return change


def twice_the_first_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 1), table])


FOREIGN: dict[str, Callable[[pa.Table], pa.Table]] = {
    "large strings": as_type("process", pa.large_string()),
    "views of strings": as_type("origin", pa.string_view()),
    "dictionaries": lambda table: as_type("kind", pa.dictionary(pa.int8(), pa.string()))(table),
    "wide integers": as_type("incarnation", pa.int64()),
    "unsigned integers": as_type("step", pa.uint64()),
    "large lists": as_type("members", pa.large_list(pa.large_string())),
    "no hops": lambda table: table.drop_columns(["hops"]),
    "no run": lambda table: table.drop_columns(["run"]),
    "a column of its own": lambda table: table.append_column("extra", table.column("at")),
    "backwards": lambda table: table.take(pa.array(range(len(table) - 1, -1, -1))),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_other_writers_are_read(tmp_path: Path, name: str) -> None:
    folder, trace = lake_of_one(tmp_path)
    rewritten(folder, FOREIGN[name])
    assert judge(folder, ALL).verdicts == check(read_run(folder), ALL) == check(trace, ALL)


def cut_off(folder: Path) -> None:
    part = next(folder.glob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])


def begin_wrongly(folder: Path) -> None:
    part = next(folder.glob("part-*.parquet"))
    part.write_bytes(b"XXXX" + part.read_bytes()[4:])


def flip_a_byte(folder: Path) -> None:
    part = next(folder.glob("part-*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 4] ^= 255
    part.write_bytes(bytes(data))


def header_of_another(folder: Path) -> None:
    header = folder / "run.json"
    header.write_text(header.read_text().replace("sound", "unsound"), encoding="utf-8")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "cut off": cut_off,
    "begins wrongly": begin_wrongly,
    "flipped": flip_a_byte,
    "header": header_of_another,
    "no parts": lambda folder: next(folder.glob("part-*.parquet")).unlink(),
    "float": lambda folder: rewritten(folder, as_type("at", pa.float64())),
    "kind": lambda folder: rewritten(folder, with_value("kind", "dance")),
    "run": lambda folder: rewritten(folder, with_value("run", "other")),
    "no step": lambda folder: rewritten(folder, with_value("step", None)),
    "column": lambda folder: rewritten(folder, lambda table: table.drop_columns(["kind"])),
    "entry": lambda folder: rewritten(folder, with_value("members", [None])),
    "step twice": lambda folder: rewritten(folder, twice_the_first_row),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_rejected_in_the_words_of_the_plain_reader(
    tmp_path: Path, name: str
) -> None:
    folder, _ = lake_of_one(tmp_path)
    DAMAGE[name](folder)
    with pytest.raises(TraceError) as plain:
        read_run(folder)
    assert judge(folder, ALL).error == str(plain.value)


def test_too_many_rows_are_refused(tmp_path: Path) -> None:
    folder, trace = lake_of_one(tmp_path)
    with pytest.raises(TraceError, match="more than the 5 that are read"):
        read_columns(folder, 5)
    assert read_columns(folder, len(trace.rows)).count == len(trace.rows)


def test_the_contract_is_the_one_that_is_read() -> None:
    """A new column or kind has to be thought of here too."""
    schema = arrow_schema(load_pyarrow())
    assert set(schema.names) == {"run", *COLUMNS}
    assert len(KINDS) == 20

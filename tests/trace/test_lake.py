"""Reading traces back: ours, those of other systems, and what is wrong with broken ones."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from ordercast.errors import TraceError, UsageError
from ordercast.trace.lake import HEADER_LIMIT, find_runs, read_header, read_lake, read_run
from ordercast.trace.parquet import ParquetSink
from ordercast.trace.schema import SCHEMA_VERSION, Ending, Header, Row

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = [
    Row("a", 0, 1, 10, "submit", "g", "a", 1, stamp=(1, 0)),
    Row("b", 0, 1, 12, "view", "g", view=5, members=("a", "b")),
    Row("b", 0, 2, 15, "deliver", "g", "a", 1, count=3),
    Row("b", 1, 1, 20, "start"),
]


def write(lake: Path, run: str = "r", rows: list[Row] | None = None, **options: Any) -> Path:
    with ParquetSink(lake, run, **options) as sink:
        for row in ROWS if rows is None else rows:
            sink.write(row)
        sink.close(Header(run, family="fifo", ending=Ending.FINISHED))
    return lake / f"run={run}"


def foreign(lake: Path, run: str = "r", /, drop: tuple[str, ...] = (), **columns: Any) -> Path:
    """A run as another system may have written it: two rows of the required columns."""
    table = {
        "run": [run, run],
        "process": ["a", "b"],
        "incarnation": [0, 0],
        "step": [1, 1],
        "at": [10, 11],
        "kind": ["start", "start"],
        **columns,
    }
    folder = lake / f"run={run}"
    folder.mkdir(parents=True)
    kept = {name: values for name, values in table.items() if name not in drop}
    pq.write_table(pa.table(kept), folder / "part-0.parquet")
    return folder


def complaint(folder: Path, **options: Any) -> str:
    """The one sentence that reading a run ends with."""
    with pytest.raises(TraceError) as caught:
        read_run(folder, **options)
    return str(caught.value)


def test_a_lake_is_read_run_by_run_in_order(tmp_path: Path) -> None:
    for run in ("b", "a", "c"):
        write(tmp_path, run)
    (tmp_path / "notes.txt").touch()
    (tmp_path / "run=file").touch()
    traces = read_lake(tmp_path)
    (tmp_path / "run=c" / "part-00000.parquet").write_bytes(b"")
    first, second = next(traces), next(traces)
    assert [first.header.run, second.header.run] == ["a", "b"]
    assert first.rows == second.rows == ROWS
    assert first.header == Header("a", family="fifo", ending=Ending.FINISHED)
    with pytest.raises(TraceError, match="is empty"):
        next(traces)  # lazily: the broken run did not keep us from the others


def test_a_single_run_folder_will_do_and_its_name_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path)
    assert [trace.rows for trace in read_lake(folder)] == [ROWS]
    (tmp_path / "latest").symlink_to(folder)
    assert [trace.rows for trace in read_lake(tmp_path / "latest")] == [ROWS]
    monkeypatch.chdir(folder)
    assert [trace.rows for trace in read_lake(Path())] == [ROWS]
    moved = folder.rename(tmp_path / "elsewhere")
    assert find_runs(moved) == [moved]
    assert read_run(moved).header.run == "r"


def test_leftovers_beside_a_whole_run_are_ignored(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "part-00001.parquet.tmp").write_bytes(b"half")
    assert read_run(folder).rows == ROWS


def test_a_folder_without_a_trace_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere does not exist: give a lake folder"):
        find_runs(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match=r"file is not a folder: give a lake folder"):
        read_lake(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match=r"empty holds no trace: a lake folder holds run=RUN_ID"):
        read_lake(tmp_path / "empty")
    (tmp_path / "run=r").mkdir()
    assert "run=r holds no part-*.parquet file" in complaint(tmp_path / "run=r")
    (tmp_path / "run=r" / "part-00000.parquet.tmp").touch()
    assert "run=r was cut while it was being written" in complaint(tmp_path / "run=r")


def test_incomplete_files_are_rejected(tmp_path: Path) -> None:
    part = write(tmp_path) / "part-00000.parquet"
    whole = part.read_bytes()
    for data, said in (
        (b"", "part-00000.parquet is empty"),
        (b"PK\x03\x04 something else", "part-00000.parquet is not a Parquet file"),
        (whole[:-9], "part-00000.parquet is cut off"),
        (b"PAR1", "part-00000.parquet is cut off"),
        (b"PAR1" + whole[-12:], "part-00000.parquet is damaged"),
        (whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :], "is damaged"),
    ):
        part.write_bytes(data)
        assert said in complaint(part.parent)
    part.unlink()
    part.mkdir()
    assert "part-00000.parquet cannot be read: Is a directory." in complaint(part.parent)


@pytest.mark.parametrize("ours", [True, False])
def test_damage_anywhere_is_reported_in_a_sentence_or_harmless(tmp_path: Path, ours: bool) -> None:
    # Five names, so that a damaged index into them can point to a sixth.
    written = [Row(f"p{i}", 0, i, i, "submit", "g", f"p{i}", stamp=(i,)) for i in range(5)]
    part = write(tmp_path, rows=written) / "part-00000.parquet"
    if not ours:  # bare pages, in which damage reaches the values
        pq.write_table(pq.ParquetFile(part).read(), part, compression="none")
    whole = part.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    chance = random.Random(1)
    for _ in range(300):
        place = chance.randrange(chance.choice([footer, len(whole)]))
        data = bytearray(whole)
        data[place] ^= 1 << chance.randrange(8)
        part.write_bytes(data)
        try:
            rows = read_run(part.parent).rows
        except TraceError as error:
            assert str(part.parent) in str(error)
        else:
            # Our pages have checksums. No footer has: it may name other columns unnoticed.
            assert rows == written or place >= footer or not ours


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "run.json is not the header of a run"),
        (b"{", "run.json is not the header of a run"),
        (b"\xff\xfe", "run.json is not the header of a run"),
        (b"[" * 100_000, "run.json is not the header of a run"),
        (b"{}", "missing required field `run`"),
        (b'{"run": 7}', "Expected `str`, got `int` - at `$.run`"),
        (b'{"run": "r", "ending": "well"}', "Invalid enum value 'well'"),
        (b'{"run": "other"}', "belongs to the run 'other', but lies in the folder of 'r'"),
        (b'{"new": 1, "schema_version": 5}', "follows version 5 of the trace contract"),
        (b" " * (HEADER_LIMIT + 1), "run.json is larger than the 1,048,576 bytes"),
    ],
    ids=range(10),
)
def test_wrong_headers_are_rejected(tmp_path: Path, data: bytes, said: str) -> None:
    folder = write(tmp_path)
    (folder / "run.json").write_bytes(data)
    assert said in complaint(folder)


def test_without_a_header_nothing_proves_that_the_run_finished(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "run.json").unlink()
    assert read_header(folder) == Header("r", family=None, ending=Ending.CUT)
    assert read_run(folder).rows == ROWS


def test_a_foreign_trace_needs_no_more_than_the_required_columns(tmp_path: Path) -> None:
    trace = read_run(foreign(tmp_path, colour=["red", "blue"]))
    assert trace.rows == [Row("a", 0, 1, 10, "start"), Row("b", 0, 1, 11, "start")]
    assert trace.header == Header("r")
    # Writers of partitioned data leave out the column that the folder's name holds.
    assert read_run(foreign(tmp_path, "s", drop=("run",))).rows == trace.rows


def test_other_column_types_for_the_same_values_are_accepted(tmp_path: Path) -> None:
    folder = foreign(
        tmp_path,
        process=pa.array(["a", "b"], pa.large_string()),
        kind=pa.array(["view", "view"]).dictionary_encode(),
        incarnation=pa.array([0, 0], pa.uint8()),
        step=pa.array([1, 1], pa.uint64()),
        number=pa.array([None, 1 << 40], pa.int64()).dictionary_encode(),
        count=pa.array([None, 2], pa.int64()),
        origin=pa.array(["a", None], pa.string_view()),
        group=pa.nulls(2),
        stamp=pa.array([[1], None], pa.large_list(pa.int32())),
        members=pa.array([None, ["a", "b"]], pa.list_(pa.large_string())),
    )
    assert read_run(folder).rows == [
        Row("a", 0, 1, 10, "view", origin="a", stamp=(1,)),
        Row("b", 0, 1, 11, "view", number=1 << 40, count=2, members=("a", "b")),
    ]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"at": [1.0, 2.0]}, "has the column 'at' as double, where int64 is right"),
        ({"number": ["1", "2"]}, "has the column 'number' as string, where int64 is right"),
        ({"process": [1, 2]}, "has the column 'process' as int64, where string is right"),
        ({"stamp": [1, 2]}, "has the column 'stamp' as int64, where list<int64> is right"),
        ({"members": [[1], [2]]}, "where list<string> is right"),
        ({"group": [["g"], ["g"]]}, "has the column 'group' as list"),
        ({"stamp": [[1, None], [2]]}, "has a 'stamp' with an entry that is null"),
        ({"at": pa.array([1, 1 << 63], pa.uint64())}, "has a value of 'at' too large for int64"),
        ({"kind": ["start", None]}, "has rows without a value for 'kind'"),
        ({"at": pa.nulls(2)}, "has rows without a value for 'at'"),
        ({"kind": ["start", "explode"]}, "rows of the kind 'explode', which is not one of"),
        ({"run": ["r", "x"]}, "holds rows of the run 'x', but belongs to 'r'"),
        ({"process": ["a", "a"]}, "two rows with step 1 of incarnation 0 of the process 'a'"),
    ],
    ids=range(13),
)
def test_values_that_break_the_contract_are_rejected(
    tmp_path: Path, columns: Any, said: str
) -> None:
    assert said in complaint(foreign(tmp_path, **columns))


def test_columns_that_break_the_contract_are_rejected(tmp_path: Path) -> None:
    for name in ("process", "incarnation", "step", "at", "kind"):
        folder = foreign(tmp_path, f"no-{name}", drop=(name,))
        assert f"part-0.parquet lacks the column {name!r}" in complaint(folder)
    moved = foreign(tmp_path, drop=("run",)).rename(tmp_path / "moved")
    assert "lacks the column 'run'" in complaint(moved)
    folder = foreign(tmp_path, "twice")
    table = pq.ParquetFile(folder / "part-0.parquet").read()
    twice = pa.Table.from_arrays([*table.columns, table.column(1)], [*table.column_names, "kind"])
    pq.write_table(twice, folder / "part-0.parquet")
    assert "has the column 'kind' more than once" in complaint(folder)


def test_a_newer_version_of_the_contract_is_rejected(tmp_path: Path) -> None:
    folder = foreign(tmp_path)
    table = pq.ParquetFile(folder / "part-0.parquet").read()
    table = table.replace_schema_metadata({"schema_version": "5"})
    pq.write_table(table, folder / "part-0.parquet")
    assert "part-0.parquet follows version 5 of the trace contract" in complaint(folder)


def test_an_older_version_of_the_contract_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path)
    part = next(folder.glob("part-*.parquet"))
    table = pq.ParquetFile(part).read().replace_schema_metadata({"schema_version": "1"})
    pq.write_table(table, part)
    header = folder / "run.json"
    told = header.read_text()
    assert f'"schema_version": {SCHEMA_VERSION}' in told
    header.write_text(told.replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 1'))
    assert read_run(folder).rows == ROWS


def test_rows_are_put_into_local_order(tmp_path: Path) -> None:
    shuffled = [ROWS[3], ROWS[2], ROWS[0], ROWS[1]]
    assert read_run(write(tmp_path, rows=shuffled)).rows == ROWS
    # Across processes any order is a local order, and stays.
    interleaved = [ROWS[1], ROWS[0], ROWS[2], ROWS[3]]
    assert read_run(write(tmp_path, "s", rows=interleaved)).rows == interleaved
    assert "two rows with step 1" in complaint(write(tmp_path, "t", rows=[*ROWS, ROWS[0]]))


def test_order_is_checked_across_parts(tmp_path: Path) -> None:
    rows = [Row("a", 0, step, step, "start") for step in (3, 4, 1, 2)]
    folder = write(tmp_path, rows=rows, rows_per_group=2, rows_per_part=2)
    assert len(list(folder.glob("part-*.parquet"))) == 2
    assert [row.step for row in read_run(folder).rows] == [1, 2, 3, 4]


def test_equal_names_are_one_object(tmp_path: Path) -> None:
    rows = read_run(write(tmp_path)).rows
    assert rows[1].process is rows[2].process


def test_too_many_rows_for_memory_are_rejected_at_once(tmp_path: Path) -> None:
    folder = write(tmp_path, rows_per_group=1, rows_per_part=1)
    assert read_run(folder, rows_limit=4).rows == ROWS
    said = complaint(folder, rows_limit=3)
    assert "run=r has 4 rows, more than the 3 that are read into memory: use a smaller" in said


def test_without_pyarrow_reading_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r'pip install "ordercast\[cli\]"'):
        read_run(folder)

"""What the Parquet sink leaves on disk: when it goes well, and when it does not."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ordercast.errors import UsageError
from ordercast.trace.lake import read_run
from ordercast.trace.parquet import ParquetSink
from ordercast.trace.schema import (
    COLUMN_TYPES,
    COLUMNS,
    KINDS,
    REQUIRED,
    SCHEMA_VERSION,
    Ending,
    Header,
    Row,
    RowKind,
)

pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROOT = Path(__file__).resolve().parents[2]
HEADER = Header("r", family="fifo", parameters={"b": 1, "a": [2]}, seed=7, ending=Ending.FINISHED)


def some_rows(count: int) -> list[Row]:
    return [
        Row(f"p{i % 3}", 0, i // 3, 5 * i, "deliver", "g", "p0", i + 1, view=9, count=10)
        for i in range(count)
    ]


def write(lake: Path, rows: list[Row], header: Header = HEADER, **options: int) -> Path:
    sink = ParquetSink(lake, header.run, **options)
    for row in rows:
        sink.write(row)
    sink.close(header)
    return lake / f"run={header.run}"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
VALUES = {
    "string": names,
    "int32": int32,
    "int64": int64,
    "list<int64>": st.lists(int64, max_size=3).map(tuple),
    "list<string>": st.lists(names, max_size=3).map(tuple),
}
contents = st.fixed_dictionaries(
    {},
    optional={
        name: VALUES[COLUMN_TYPES[name]] for name in COLUMNS if name not in ("step", *REQUIRED)
    },
)


@given(st.lists(st.tuples(names, st.sampled_from(sorted(KINDS)), contents), max_size=30))
@settings(deadline=None, max_examples=50)
def test_rows_are_read_back_as_written(drawn: list) -> None:
    rows = [
        Row(process, 0, step, -step, kind, **columns)
        for step, (process, kind, columns) in enumerate(drawn)
    ]
    with tempfile.TemporaryDirectory() as folder:
        trace = read_run(write(Path(folder), rows, rows_per_group=4, rows_per_part=12))
    assert trace.rows == rows
    assert trace.header == HEADER


def test_the_table_in_the_docs_has_every_column() -> None:
    text = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
    lines = text.partition("| column | type |")[2].partition("\n\n")[0].splitlines()[2:]
    told = [line.split(" | ")[:2] for line in lines]
    assert told == [
        [f"| {name}{' *' if name in REQUIRED else ''}", kind] for name, kind in COLUMN_TYPES.items()
    ]


def columns_of(metadata: Any) -> list[Any]:
    return [metadata.row_group(0).column(place) for place in range(metadata.num_columns)]


def test_the_schema_is_the_contract(tmp_path: Path) -> None:
    folder = write(tmp_path, some_rows(5))
    schema = pq.read_schema(folder / "part-00000.parquet")
    types = {field.name: str(field.type).replace("element: ", "") for field in schema}
    assert list(types) == ["run", *COLUMNS] == list(COLUMN_TYPES)
    assert types == COLUMN_TYPES
    assert tuple(field.name for field in schema if not field.nullable) == REQUIRED
    metadata = pq.read_metadata(folder / "part-00000.parquet")
    assert metadata.metadata[b"schema_version"] == str(SCHEMA_VERSION).encode()
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    columns = {column.path_in_schema: column.encodings for column in columns_of(metadata)}
    assert "DELTA_BINARY_PACKED" in columns["step"]
    assert "RLE_DICTIONARY" in columns["process"]
    table = pq.ParquetFile(folder / "part-00000.parquet").read(columns=["run"])
    assert table.column("run").to_pylist() == ["r"] * 5


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    rows = some_rows(5000)
    once = files(write(tmp_path / "one", rows, rows_per_group=1000, rows_per_part=3000))
    again = files(write(tmp_path / "two", rows, rows_per_group=1000, rows_per_part=3000))
    assert sorted(once) == ["part-00000.parquet", "part-00001.parquet", "run.json"]
    assert once == again


def test_row_groups_and_parts_are_bounded(tmp_path: Path) -> None:
    folder = write(tmp_path, some_rows(10_000), rows_per_group=1000, rows_per_part=4000)
    counts = []
    for part in sorted(folder.glob("*.parquet")):
        metadata = pq.read_metadata(part)
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        assert groups == [1000] * len(groups)
        counts.append(metadata.num_rows)
    assert counts == [4000, 4000, 2000]
    assert read_run(folder).rows == some_rows(10_000)


def test_kinds_may_be_written_as_members_of_the_enumeration(tmp_path: Path) -> None:
    folder = write(tmp_path, [Row("a", 0, 1, 1, RowKind.START)])
    assert read_run(folder).rows == [Row("a", 0, 1, 1, "start")]


def test_run_json_describes_the_run_in_plain_values(tmp_path: Path) -> None:
    folder = write(tmp_path, [])
    assert json.loads((folder / "run.json").read_bytes()) == {
        "run": "r",
        "family": "fifo",
        "parameters": {"a": [2], "b": 1},
        "seed": 7,
        "schema_version": SCHEMA_VERSION,
        "level": "app",
        "ending": "finished",
        "services": {},
    }
    assert read_run(folder).rows == [], "a run without rows is a whole run all the same"


def test_nothing_has_its_final_name_before_the_end(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, "r", rows_per_group=10, rows_per_part=20)
    for row in some_rows(50):
        sink.write(row)
    folder = tmp_path / "run=r"
    assert {path.suffix for path in folder.iterdir()} == {".tmp"}
    sink.close(HEADER)
    assert len(list(folder.glob("part-*.parquet"))) == 3
    assert list(folder.glob("*.tmp")) == []


def test_an_aborted_run_leaves_nothing(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, "r", rows_per_group=10, rows_per_part=20)
    for row in some_rows(55):
        sink.write(row)
    sink.abort()
    sink.abort()
    assert list(tmp_path.iterdir()) == []


def test_an_error_inside_the_block_aborts(tmp_path: Path) -> None:
    def fail() -> None:
        with ParquetSink(tmp_path, "r") as sink:
            sink.write(some_rows(1)[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []
    with ParquetSink(tmp_path, "r") as sink:
        sink.close(HEADER)
    assert read_run(tmp_path / "run=r").rows == []


def test_an_existing_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = write(tmp_path, some_rows(3))
    before = files(folder)
    with pytest.raises(UsageError, match=r"run=r exists already"):
        ParquetSink(tmp_path, "r")
    assert files(folder) == before


def test_a_run_is_replaced_only_when_the_new_one_is_complete(tmp_path: Path) -> None:
    folder = write(tmp_path, some_rows(50), rows_per_group=10, rows_per_part=10)
    before = files(folder)
    for give_up in (True, False):
        (folder / "part-00009.parquet.tmp").touch()  # somebody was killed here
        sink = ParquetSink(tmp_path, "r", replace=True, rows_per_group=1)
        sink.write(some_rows(1)[0])
        assert before.items() <= files(folder).items()
        if give_up:
            sink.abort()
            assert files(folder) == before
    sink.close(HEADER)
    assert sorted(files(folder)) == ["part-00000.parquet", "run.json"]
    assert read_run(folder).rows == some_rows(1)


def test_at_no_time_does_a_header_stand_beside_parts_that_are_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed while a run is replaced leaves the old one, the new one, or a cut one."""
    folder = write(tmp_path, some_rows(30), rows_per_group=10, rows_per_part=10)
    seen: list[dict[str, bytes]] = []

    def watched(act: Callable[..., Any]) -> Callable[..., Any]:
        def and_look(self: Path, *arguments: Any, **options: Any) -> Any:
            result = act(self, *arguments, **options)
            seen.append({name: data for name, data in files(folder).items() if ".tmp" not in name})
            return result

        return and_look

    before = files(folder)
    sink = ParquetSink(tmp_path, "r", replace=True, rows_per_group=10, rows_per_part=10)
    for row in some_rows(20):
        sink.write(row)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", watched(Path.unlink))
        patch.setattr(Path, "rename", watched(Path.rename))
        sink.close(HEADER)
    assert len(seen) > 5
    assert all("run.json" not in state or state in (before, files(folder)) for state in seen)
    assert seen[-1] == files(folder) != before


def test_a_row_after_the_end_is_an_assertion_error(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, "r")
    sink.close(HEADER)
    with pytest.raises(AssertionError, match="after the end"):
        sink.write(some_rows(1)[0])
    with pytest.raises(AssertionError, match="once"):
        sink.close(HEADER)


def test_a_value_that_does_not_fit_its_column_aborts_the_run(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, "r")
    sink.write(Row("a", 0, 1, 1, "send", size=1 << 31))
    with pytest.raises(ValueError, match="2147483648"):
        sink.close(HEADER)
    assert list(tmp_path.iterdir()) == []


def test_a_lake_that_cannot_be_created_is_reported_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written to .*run=r: Not a directory\."):
        ParquetSink(tmp_path / "file", "r")


def test_a_disk_that_fails_at_the_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ParquetSink(tmp_path, "r", rows_per_group=10, rows_per_part=10)
    for row in some_rows(30):
        sink.write(row)
    rename = Path.rename

    def fails_at_the_header(self: Path, target: Path) -> Path:
        if target.name == "run.json":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_at_the_header)
    with pytest.raises(UsageError, match="No space left"):
        sink.close(HEADER)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk always full")
def test_a_full_disk_while_writing_leaves_nothing(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, "r", rows_per_group=1)
    (tmp_path / "run=r" / "part-00000.parquet.tmp").symlink_to("/dev/full")

    def fill() -> None:
        for row in some_rows(10_000):
            sink.write(row)
        sink.close(HEADER)

    with pytest.raises(UsageError, match="No space left"):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_writing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r'pip install "ordercast\[cli\]"'):
        ParquetSink(tmp_path, "r")
    assert list(tmp_path.iterdir()) == []

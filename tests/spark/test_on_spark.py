"""What runs on Spark itself: sweeps, and laws on a lake, embedded in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.check.laws import check
from ordercast.errors import UnreachableError, UsageError
from ordercast.spark.cells import manifest_path
from ordercast.spark.experiment import load_experiment
from ordercast.spark.laws import judge_lake
from ordercast.spark.results import write_results
from ordercast.spark.session import open_session
from ordercast.spark.sweep import sweep
from ordercast.trace.lake import find_runs
from ordercast.trace.parquet import write_trace
from ordercast.trace.text import parse_history

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = sorted((ROOT / "tests" / "histories").glob("*.history"))


def experiment(folder: Path) -> Path:
    (folder / "base.toml").write_text(
        'name = "base"\nfamily = "causal"\nprocesses = 4\nduration = "1s"\nquiet = "1s"\n'
        'options = { tickets = 2, join_wait = "50ms" }\n',
        encoding="utf-8",
    )
    path = folder / "e.toml"
    path.write_text(
        'name = "e"\nscenario = "base.toml"\nseeds = 3\n[grid]\n"network.loss" = [0.0, 0.1]\n',
        encoding="utf-8",
    )
    return path


@pytest.mark.slow
def test_a_sweep_goes_on_where_it_was_and_gives_the_same_figures(
    spark: Any, tmp_path: Path
) -> None:
    _, cells = load_experiment(experiment(tmp_path))
    told: list[int] = []
    first = sweep(spark, cells, tmp_path / "one", "none", told.append)
    assert [one.id for one in first] == [cell.id for cell in cells]
    assert all(one.error is None and not one.broken for one in first)
    assert told[-1] == len(cells)
    before = {cell.id: manifest_path(tmp_path / "one", cell.id).stat() for cell in cells}
    manifest_path(tmp_path / "one", cells[0].id).unlink()  # as if it had been killed in the middle
    again = sweep(spark, cells, tmp_path / "one", "none")
    assert again == first
    for cell in cells[1:]:
        now = manifest_path(tmp_path / "one", cell.id).stat()
        assert now.st_mtime_ns == before[cell.id].st_mtime_ns
    other = sweep(spark, cells[::-1], tmp_path / "two", "none")[::-1]
    results = [
        write_results(tmp_path / name, runs) for name, runs in (("one", again), ("two", other))
    ]
    assert results[0].read_bytes() == results[1].read_bytes()


@pytest.mark.slow
def test_spark_and_the_plain_reference_agree_on_broken_and_sound_runs(
    spark: Any, tmp_path: Path
) -> None:
    traces = {}
    for path in HISTORIES:
        trace = parse_history(path.read_text(encoding="utf-8"), path.name)
        if trace.header.run not in traces:
            traces[trace.header.run] = trace
            write_trace(tmp_path, trace)
    folders = find_runs(tmp_path)
    (tmp_path / "run=damaged").mkdir()
    (tmp_path / "run=damaged" / "part-00000.parquet").write_bytes(b"not Parquet")
    judged = judge_lake(spark, [*folders, tmp_path / "run=damaged"], None)
    assert len(judged) == len(traces) + 1
    for one in judged[:-1]:
        assert one.verdicts == check(traces[one.run])
    assert "is not a Parquet file" in (judged[-1].error or "")


@pytest.mark.parametrize("url", ["nowhere", "http://x", "spark:/x"])
def test_a_url_that_makes_no_sense_is_told(url: str) -> None:
    with pytest.raises((UsageError, UnreachableError)), open_session(url):
        pass


@pytest.mark.parametrize("url", ["spark://127.0.0.1:1", "sc://127.0.0.1:1"])
def test_a_cluster_that_is_not_there_is_told_at_once(url: str) -> None:
    with pytest.raises(UnreachableError, match=r"no Spark at 127\.0\.0\.1:1"), open_session(url):
        pass

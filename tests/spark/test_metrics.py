"""Metrics over a lake: Spark maps the plain functions, and neither loses nor mixes up runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.check.measured_runs import SCENARIOS, simulated

from ordercast.check.metric import MeasuredRun, Metric
from ordercast.check.metrics import BREAKDOWNS, load, measure, recovery
from ordercast.errors import UsageError
from ordercast.spark.metrics import broken_down, measured
from ordercast.spark.tables import lake_frame, runs_frame
from ordercast.trace.parquet import write_trace
from ordercast.trace.schema import COLUMN_TYPES, Trace
from ordercast.trace.text import parse_history
from ordercast.types import GroupTimes
from ordercast.units import MILLISECOND

HISTORIES = Path(__file__).resolve().parents[1] / "histories"
ROUNDS = {"causal": 50 * MILLISECOND, "gossip": 50 * MILLISECOND, "tickets": 50 * MILLISECOND}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Trace]]:
    """Runs of three families with every packet, and all written histories."""
    folder = tmp_path_factory.mktemp("lake")
    traces = {name: simulated(name) for name in SCENARIOS}
    for path in sorted(HISTORIES.glob("*.history")):
        trace = parse_history(path.read_text(encoding="utf-8"), path.name)
        traces.setdefault(trace.header.run, trace)
    nowhere = [msgspec.structs.replace(row, group=None) for row in traces["gossip"].rows]
    header = msgspec.structs.replace(traces["gossip"].header, run="without-groups")
    traces["without-groups"] = Trace(header, nowhere)
    for trace in traces.values():
        write_trace(folder, trace)
    (folder / "run=unfinished").mkdir()
    (folder / "run=unfinished" / "part-00000.parquet.tmp").write_bytes(b"cut off")
    return folder, traces


def times_of(run: str) -> GroupTimes:
    told = "gossip" if run == "without-groups" else run
    return GroupTimes(ROUNDS.get(told), 400 * MILLISECOND if told == "tickets" else None)


@pytest.mark.slow(20)
def test_spark_measures_every_run_as_the_plain_functions_do(
    quick: Any, lake: tuple[Path, dict[str, Trace]]
) -> None:
    folder, traces = lake
    rows = lake_frame(quick, folder).cache()
    assert rows.columns == list(COLUMN_TYPES)
    assert rows.count() == sum(len(trace.rows) for trace in traces.values())
    runs = {run: MeasuredRun(trace.rows, times_of(run)) for run, trace in traces.items()}
    plain = {run: measure(one) for run, one in runs.items()}
    assert plain["causal"]["recover_asked"] > 0
    assert plain["causal"]["delivery_bytes"] > 100
    assert plain["causal"]["rounds_mean"] > 0
    assert plain["gossip"]["disordered_share"] > 0
    assert plain["gossip"]["missing_share"] > 0
    assert plain["fifo"]["blocked_time"] > 0
    assert plain["tickets"]["ticket_access"] > 0
    table = [row.asDict() for row in measured(rows, runs_frame(quick, folder)).collect()]
    found = {
        row.pop("run"): {name: value for name, value in row.items() if value is not None}
        for row in table
    }
    assert found == plain
    for breakdown in BREAKDOWNS:
        records = sorted(map(tuple, broken_down(rows, breakdown).collect()), key=str)
        expected = [(run, *record) for run, one in runs.items() for record in breakdown.of(one)]
        assert records == sorted(expected, key=str), breakdown.name
    rows.unpersist()


@pytest.mark.slow
def test_a_metric_from_elsewhere_goes_to_the_tasks_by_value(quick: Any, tmp_path: Path) -> None:
    crashes = Metric(
        "crashes", "rows", "Crashes", lambda run: sum(r.kind == "crash" for r in run.rows)
    )
    write_trace(tmp_path, parse_history("run r ending=finished\nn1 start\nn1 crash\n", "here"))
    found = measured(lake_frame(quick, tmp_path), metrics=[crashes]).collect()
    assert [tuple(row) for row in found] == [("r", 1.0)]


@pytest.mark.slow
def test_a_breakdown_has_one_row_per_record(
    quick: Any, lake: tuple[Path, dict[str, Trace]]
) -> None:
    folder, traces = lake
    rows = lake_frame(quick, folder / "run=causal").cache()
    loads = broken_down(rows, load.LOAD).collect()
    assert {row["process"] for row in loads} == {"n1", "n2", "n3", "n4"}
    sent = sum(row.kind == "send" for row in traces["causal"].rows)
    assert sum(row["sent"] for row in loads) == sent
    messages = broken_down(rows, load.MESSAGES).collect()
    assert sum(row["packets"] for row in messages) == sent
    assert sum(row["share"] for row in messages) == pytest.approx(1)
    outcomes = {
        row["outcome"]: row["events"] for row in broken_down(rows, recovery.OUTCOMES).collect()
    }
    asked = {
        (row.process, row.incarnation, row.group, row.origin, row.number)
        for row in traces["causal"].rows
        if row.kind == "recover"
    }
    assert sum(outcomes.values()) == len(asked)
    assert outcomes["answered"] > 0
    rows.unpersist()


def test_a_lake_without_complete_runs_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "run=x").mkdir()
    (tmp_path / "run=x" / "part-00000.parquet.tmp").write_bytes(b"")
    with pytest.raises(UsageError, match="no complete runs"):
        lake_frame(None, tmp_path)

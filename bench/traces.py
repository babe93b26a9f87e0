"""Rows a second: into Parquet, back out of it, and through the laws."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.table import Table, timed
from ordercast.check.history import PROMISES
from ordercast.check.laws import check
from ordercast.scenario.schema import Scenario, WorkloadSettings
from ordercast.testing.simulation import simulate
from ordercast.trace.lake import read_run
from ordercast.trace.parquet import ParquetSink, run_folder
from ordercast.trace.schema import Trace
from ordercast.units import SECOND, Duration


def measure() -> list[Table]:
    scenario = Scenario(
        name="bench",
        processes=10,
        duration=Duration(30 * SECOND),
        workload=WorkloadSettings(rate=100.0),
    )
    trace = simulate(scenario, 1).trace
    return [_files(trace), _laws(trace)]


def _files(trace: Trace) -> Table:
    count = len(trace.rows)
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder)

        def write() -> None:
            with ParquetSink(lake, trace.header.run, replace=True) as sink:
                for row in trace.rows:
                    sink.write(row)
                sink.close(trace.header)

        written = timed(write)
        size = sum(part.stat().st_size for part in run_folder(lake, trace.header.run).iterdir())
        read = timed(lambda: read_run(run_folder(lake, trace.header.run)))
    rows = [
        ("written to Parquet", written.rate(count), written.shown_spread, f"{size / count:.1f}"),
        ("read from Parquet", read.rate(count), read.shown_spread, ""),
    ]
    return Table("Trace files", ("", "rows/s", "spread", "bytes a row"), rows, f"{count:,} rows.")


def _laws(trace: Trace) -> Table:
    count = len(trace.rows)
    rows = []
    laws = PROMISES["fifo"].laws
    together = timed(lambda: check(trace, laws), 3)
    rows.append(("all that fifo promises", together.rate(count), together.shown_spread))
    for law in (*laws, "optimistic-causal", "causal", "view-agreement", "ticket-uniqueness"):
        timing = timed(lambda law=law: check(trace, [law]), 3)
        rows.append((law, timing.rate(count), timing.shown_spread))
    note = "Each law by itself indexes the run anew; together they share the index."
    return Table("Laws, plain Python", ("law", "rows/s", "spread"), rows, note)

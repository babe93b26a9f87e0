"""Metrics of many runs as DataFrames: the plain functions of `check/metrics`, mapped over a lake.

    measured(rows, runs)            a row a run, a column a metric: null where a run has it not
    broken_down(rows, load.LOAD)    a row for each record, here for each process of each run

`rows` are those of a lake (`tables.lake_frame`), `runs` what is known of the runs
(`tables.runs_frame`): without it metrics that need a time of the group, such as the length of its
rounds, are null. Nothing is computed before somebody asks for it. A run is measured by one
task, which holds all of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from ordercast.check.metric import Breakdown, MeasuredRun, Metric
from ordercast.check.metrics import METRICS, measure
from ordercast.spark.recording import arrow_columns
from ordercast.trace.schema import COLUMNS, Row
from ordercast.types import GroupTimes

_LOCAL_ORDER = attrgetter("process", "incarnation", "step")
_SPARK_TYPES = {str: "string", int: "bigint", float: "double"}


def measured(rows: Any, runs: Any | None = None, metrics: Sequence[Metric] = METRICS) -> Any:
    """run, and a column for each of the metrics."""
    names = [metric.name for metric in metrics]

    def record(run: MeasuredRun) -> list[tuple[float | None, ...]]:
        found = measure(run, metrics)
        return [tuple(None if name not in found else float(found[name]) for name in names)]

    return _mapped(rows, runs, record, dict.fromkeys(names, "double"))


def broken_down(rows: Any, breakdown: Breakdown, runs: Any | None = None) -> Any:
    """run, and the fields of the breakdown's records."""
    fields = {}
    for name, hint in get_type_hints(breakdown.record).items():
        [kind] = {*(get_args(hint) or (hint,))} - {type(None)}
        fields[name] = _SPARK_TYPES[kind]
    return _mapped(rows, runs, breakdown.of, fields)


def _mapped(
    rows: Any,
    runs: Any | None,
    records: Callable[[MeasuredRun], Iterable[tuple[Any, ...]]],
    fields: dict[str, str],
) -> Any:
    """A function of one run, over all of them."""
    schema = ", ".join(["run string", *(f"`{name}` {kind}" for name, kind in fields.items())])

    def of_rows(table: Any) -> Any:
        return _table(table, GroupTimes(), records, fields)

    def of_rows_and_run(table: Any, about: Any) -> Any:
        [known] = about.to_pylist() or [{}]
        times = GroupTimes(*map(known.get, GroupTimes._fields))
        return _table(table, times, records, fields)

    grouped = rows.select("run", *COLUMNS).groupBy("run")
    if runs is None:
        return grouped.applyInArrow(of_rows, schema)
    return grouped.cogroup(runs.groupBy("run")).applyInArrow(of_rows_and_run, schema)


def _table(
    table: Any,
    times: GroupTimes,
    records: Callable[[MeasuredRun], Iterable[tuple[Any, ...]]],
    fields: dict[str, str],
) -> Any:
    """What the function says about the run in a table, as another table."""
    import pyarrow

    found: list[tuple[Any, ...]] = []
    if table.num_rows:
        columns = {name: table.column(name).to_pylist() for name in COLUMNS}
        for name in ("stamp", "members"):
            columns[name] = [values and tuple(values) for values in columns[name]]
        rows = [Row(*values) for values in zip(*columns.values(), strict=True)]
        rows.sort(key=_LOCAL_ORDER)  # a shuffle keeps no order
        run = table.column("run")[0].as_py()
        found = [(run, *record) for record in records(MeasuredRun(rows, times))]
    schema = arrow_columns(pyarrow, {"run": "string", **fields})
    values = zip(*found, strict=True) if found else [()] * len(schema)
    arrays = [
        pyarrow.array(list(column), field.type)
        for column, field in zip(values, schema, strict=True)
    ]
    return pyarrow.Table.from_arrays(arrays, schema=schema)

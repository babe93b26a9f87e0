"""Laws at scale: rows a second through Spark tasks, the same numpy without Spark, and DuckDB.

The lake is made here: runs of eight processes that submit at random times, in one group, with
views, tickets and stamps of five entries. In an *ordered* run everybody delivers in one order, and
all laws are asked. In a *causal* run an event takes as long as its way through a plane is,
which keeps causal order (no detour is shorter) but no total order; it is asked what the family
causal promises. Half of the runs are of either sort, and those of one sort are alike.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from bench.table import Table
from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer
from ordercast.spark.laws import JudgedRun, judge, judge_lake
from ordercast.spark.session import open_session
from ordercast.spark.sliced_run import settle
from ordercast.trace.lake import find_runs, read_run
from ordercast.trace.parquet import arrow_schema, encode_header, load_pyarrow, run_folder
from ordercast.trace.schema import COLUMN_TYPES, Ending, Header

RUNS = 8
EVENTS = 278_000  # a run: submitted once and delivered by all, that is 2.5 million rows
PROCESSES = 8
ENTRIES = 5
VIEWS = 50
PLAIN_EVENTS = 11_000
CORES = 2
MILLISECOND = 1_000_000


def measure() -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        write_lake(lake)
        write_lake(Path(folder) / "small", 2, PLAIN_EVENTS)
        return [_many_runs(lake), _plain(Path(folder) / "small"), _one_run(lake), _duckdb(lake)]


class Cost:
    """Wall and CPU seconds of a piece of work, with all processes that it started."""

    def __init__(self, work: Callable[[], object]) -> None:
        wall, cpu = time.perf_counter(), _tree_seconds()
        work()
        self.wall = time.perf_counter() - wall
        self.cpu = _tree_seconds() - cpu

    def row(self, name: str, rows: int) -> tuple[str, ...]:
        shown = f"{self.wall:.1f}", f"{self.cpu:.1f}"
        rates = f"{rows / self.wall:,.0f}", f"{CORES * rows / self.cpu:,.0f}"
        return name, *shown, *rates


COLUMNS = ("", "wall s", "CPU s", "rows/s", f"rows/s if {CORES} cores were ours")


def _tree_seconds() -> float:
    """CPU time of this process and its descendants, those that ended included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks[pid] for pid in mine) / os.sysconf("SC_CLK_TCK")


# --- the tables ---


def _asked(folder: Path) -> list[str] | None:
    return list(LAWS) if "ordered" in folder.name else None


def _judge(folder: Path) -> JudgedRun:
    return judge(folder, _asked(folder))


def _many_runs(lake: Path) -> Table:
    """Spark warm: a session takes some seconds to start, whatever it is for."""
    folders = find_runs(lake)
    rows = 0

    def on_spark(spark: Any) -> None:
        nonlocal rows
        sorts = [
            [one for one in folders if _asked(one)],
            [one for one in folders if not _asked(one)],
        ]
        judged = [one for sort in sorts for one in judge_lake(spark, sort, _asked(sort[0]))]
        answers = {verdict.answer for one in judged for verdict in one.verdicts}
        assert answers == {Answer.HOLDS}, answers
        rows = sum(one.rows for one in judged)

    def in_pool() -> None:
        with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:
            assert not any(one.error for one in pool.map(_judge, folders))

    pool = Cost(in_pool)
    with open_session(f"local[{CORES},4]") as spark:
        judge_lake(spark, folders[:1], ["fifo"])
        cost = Cost(lambda: on_spark(spark))
    ratio = f"{cost.cpu / pool.cpu:.2f} times the CPU of the pool. "
    ratio += f"{rows:,} rows in {len(folders)} runs."
    shown = [cost.row("Spark, a task a run", rows), pool.row("the same in a process pool", rows)]
    return Table("Laws on many runs, by vectors", COLUMNS, shown, ratio)


def _plain(lake: Path) -> Table:
    folders, rows = find_runs(lake), 0

    def work() -> None:
        nonlocal rows
        for folder in folders:
            trace = read_run(folder)
            check(trace, _asked(folder))
            rows += len(trace.rows)

    cost = Cost(work)
    note = "One process, on smaller runs of the same sort."
    return Table("The plain reference", COLUMNS, [cost.row("read and judged", rows)], note)


def _one_run(lake: Path) -> Table:
    folder = next(one for one in find_runs(lake) if _asked(one))
    settled = []
    with open_session(f"local[{CORES},4]") as spark:
        judge_lake(spark, [folder], ["fifo"])
        cost = Cost(lambda: settled.append(settle(spark, folder, list(LAWS.values()))))
    found = settled[0]
    assert found is not None
    note = f"{len(found.verdicts)} of {len(found.laws)} laws settled without a task."
    name = f"all laws on {found.rows:,} rows"
    return Table("One run in slices", COLUMNS, [cost.row(name, found.rows)], note)


DUCKDB = {
    "fifo and duplicates": """
        select count(*) from (select number - lag(number) over (
            partition by run, process, origin order by step) as change
            from told where kind = 'deliver') where change <= 0""",
    "total, by certificate": """
        select count(*) from (select first - lag(first) over (
            partition by run, process order by step) as change from (
            select run, process, step, min("at") over (partition by run, origin, number) as first
            from told where kind = 'deliver')) where change <= 0""",
    "virtual synchrony": """
        select count(*) from (select 1 from (
            select run, process, span, count(*) as events, bit_xor(hash(origin, number)) as digest
            from (select *, sum((kind = 'view')::int) over (
                partition by run, process order by step) as span
                from told where kind in ('deliver', 'view')) where kind = 'deliver'
            group by run, process, span) group by run, span
            having count(distinct (events, digest)) > 1)""",
    "strangers": """
        select count(*) from (select * from told where kind = 'deliver') anti join (
            select run, origin, number from told where kind = 'submit')
            using (run, origin, number)""",
}


def _duckdb(lake: Path) -> Table:
    """Fewer questions than we ask, in another's engine: an outside measure."""
    wanted = str(lake / "run=ordered-*" / "*.parquet")
    shown = []
    with duckdb.connect() as connection:
        connection.execute(f"set threads = {CORES}; set memory_limit = '4GB'")
        connection.execute(
            'create view told as select run, process, step, "at", kind, origin, number '
            f"from read_parquet('{wanted}', hive_partitioning = false)"
        )
        rows = connection.execute("select count(*) from told").fetchall()[0][0]
        for name, question in DUCKDB.items():
            cost = Cost(lambda question=question: _expect_none(connection, question))
            shown.append(cost.row(name, rows))
    return Table("DuckDB, single questions", COLUMNS, shown, f"{rows:,} rows: the ordered runs.")


def _expect_none(connection: Any, question: str) -> None:
    ((count,),) = connection.execute(question).fetchall()
    assert count == 0, question


# --- a lake ---


def write_lake(lake: Path, runs: int = RUNS, events: int = EVENTS) -> None:
    for sort in ("ordered", "causal"):
        columns, step = _run(np.random.default_rng(len(sort)), events, ordered=sort == "ordered")
        family = "causal" if sort == "causal" else None
        for number in range(1, runs // 2 + 1):
            header = Header(f"{sort}-{number}", family=family, ending=Ending.FINISHED)
            _write(lake, header, columns, step)


def _run(chance: Any, events: int, *, ordered: bool) -> tuple[dict[str, Any], Any]:
    """The columns of one run in the order of time, and the steps."""
    columns = _events(chance, events, ordered=ordered)
    _append(columns, _views_and_tickets(columns, events))
    order = np.lexsort((columns["rank"], columns["at"]))
    columns = {name: values[order] for name, values in columns.items()}
    step = np.empty(len(order), np.int64)
    for process in range(PROCESSES):
        inside = columns["process"] == process
        step[inside] = np.arange(1, np.count_nonzero(inside) + 1)
    return columns, step


def _events(chance: Any, events: int, *, ordered: bool) -> dict[str, Any]:
    submitted = np.cumsum(chance.integers(2, 20_000, events)) + 10 * MILLISECOND
    origin = chance.integers(0, PROCESSES, events)
    number = np.empty(events, np.int64)
    entry = np.zeros((events, ENTRIES), np.int64)
    for process in range(PROCESSES):
        inside = origin == process
        number[inside] = np.arange(1, np.count_nonzero(inside) + 1)
    for ticket in range(ENTRIES):
        entry[:, ticket] = np.cumsum(origin % ENTRIES == ticket)
    places = chance.random((PROCESSES, 2)) * 5 * MILLISECOND
    apart = np.hypot(*(places[:, None] - places[None, :]).transpose(2, 0, 1)).astype(np.int64) + 1
    kinds, rows = [np.zeros(events, np.int64)], [np.arange(events)]
    process, at = [origin], [submitted]
    for receiver in range(PROCESSES):
        kinds.append(np.ones(events, np.int64))
        rows.append(np.arange(events))
        process.append(np.full(events, receiver))
        at.append(submitted + (10 * MILLISECOND + receiver if ordered else apart[origin, receiver]))
    event = np.concatenate(rows)
    return {
        "kind": np.concatenate(kinds),
        "process": np.concatenate(process),
        "at": np.concatenate(at),
        "rank": event,
        "origin": origin[event],
        "number": number[event],
        "index": (origin % ENTRIES)[event],
        "event": event,
        "view": np.zeros(len(event), np.int64),
    } | {f"entry{n}": entry[event, n] for n in range(ENTRIES)}


def _views_and_tickets(columns: dict[str, Any], events: int) -> dict[str, Any]:
    """All install every view between the same two deliveries, and take one ticket at first."""
    delivered = columns["kind"] == 1
    number, process, at = [], [], []
    for view in range(VIEWS):
        event = view * (events // VIEWS)
        inside = delivered & (columns["event"] == event)
        process.append(columns["process"][inside])
        at.append(columns["at"][inside] - 1 if view else np.zeros(PROCESSES, np.int64))
        number.append(np.full(PROCESSES, view + 1))
    count = VIEWS * PROCESSES
    zeros = np.zeros(count + ENTRIES, np.int64)
    added = dict.fromkeys(columns, zeros)
    added["kind"] = np.concatenate([np.full(count, 2), np.full(ENTRIES, 3)])
    added["process"] = np.concatenate([*process, np.arange(ENTRIES)])
    added["at"] = np.concatenate([*at, np.zeros(ENTRIES, np.int64)])
    added["rank"] = np.where(added["at"] > 0, -1, added["kind"] - 10)
    added["view"] = np.concatenate([*number, np.zeros(ENTRIES, np.int64)])
    added["index"] = np.concatenate([np.zeros(count, np.int64), np.arange(ENTRIES)])
    return added


def _append(columns: dict[str, Any], added: dict[str, Any]) -> None:
    for name in columns:
        columns[name] = np.concatenate([columns[name], added[name]])


def _write(lake: Path, header: Header, columns: dict[str, Any], step: Any) -> None:
    pyarrow = load_pyarrow()
    pa, schema = pyarrow.core, arrow_schema(pyarrow)
    kind, count = columns["kind"], len(step)
    about = kind <= 1

    def names(values: Any, words: list[str], there: Any) -> Any:
        indices = pa.array(values.astype(np.int32), mask=~there)
        return pa.DictionaryArray.from_arrays(indices, pa.array(words))

    everywhere = np.ones(count, bool)
    processes = [f"n{number}" for number in range(1, PROCESSES + 1)]
    lengths = np.where(kind == 0, ENTRIES, 0)
    stamps = np.stack([columns[f"entry{n}"][kind == 0] for n in range(ENTRIES)], axis=1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    views = kind == 2
    ends = pa.array(np.concatenate([[0], np.cumsum(views * PROCESSES)]).astype(np.int32))
    names_there = pa.array(processes * int(np.count_nonzero(views)))
    members = pa.ListArray.from_arrays(ends, names_there, mask=pa.array(~views))
    filled = {
        "run": names(np.zeros(count), [header.run], everywhere),
        "process": names(columns["process"], processes, everywhere),
        "incarnation": pa.array(np.zeros(count, np.int32)),
        "step": pa.array(step),
        "at": pa.array(columns["at"]),
        "kind": names(kind, ["submit", "deliver", "view", "ticket"], everywhere),
        "group": names(np.zeros(count), ["g"], everywhere),
        "origin": names(columns["origin"], processes, about),
        "number": pa.array(columns["number"], mask=~about),
        "index": pa.array(columns["index"].astype(np.int32), mask=(kind == 1) | (kind == 2)),
        "stamp": pa.ListArray.from_arrays(
            offsets, pa.array(stamps.ravel()), mask=pa.array(kind != 0)
        ),
        "view": pa.array(columns["view"], mask=kind != 2),
        "members": members,
        "cause": names(np.zeros(count), ["acquired"], kind == 3),
    }
    arrays = [
        filled[field.name].cast(field.type) if field.name in filled else pa.nulls(count, field.type)
        for field in schema
    ]
    folder = run_folder(lake, header.run)
    folder.mkdir(parents=True)
    table = pa.Table.from_arrays(arrays, schema=schema)
    pyarrow.parquet.write_table(
        table,
        str(folder / "part-00000.parquet"),
        compression="zstd",
        row_group_size=1 << 16,
        use_dictionary=[name for name, kind in COLUMN_TYPES.items() if kind == "string"],
        column_encoding={
            name: "DELTA_BINARY_PACKED" for name, kind in COLUMN_TYPES.items() if "int" in kind[:3]
        },
        write_page_checksum=True,
    )
    (folder / "run.json").write_bytes(encode_header(header))

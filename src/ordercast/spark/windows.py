"""One huge run, for which a task has no memory, judged in slices by many.

What is proved here is that a law holds; where one is broken is not said. So `settle` answers for
the laws that it proved, and leaves the others to the vectors. For the laws about views and tickets
the few rows that they read are collected, and the reference judges these. There are two passes
(walks.py): tasks look at slices of the processes (slices.py, lines.py), and what only all slices
together show is looked at by tasks that get it from them. What is proved, and how:

  fifo, no-duplication  numbers increase along the deliveries of each line and sender
  no-creation           every delivered event has its submission, and time is a clock: it never
                        falls within a process and grows from a submission to its deliveries
                        elsewhere
  optimistic-causal,    (if time is a clock) see walks.py
  causal
  total                 the time of an event's first delivery increases along every line
  total-in-view         the same: what is in one order everywhere is so in every view
  agreement,            every life with rows in a group delivered all that anybody delivered, and
  completeness          all that was submitted, in it
  virtual-synchrony     the events between two views have the same number and the same two 64-bit
                        digests in all lives that install both; two different sets would have to
                        collide in both
  ticket-uniqueness     no ticket is shared by its rows, and no two submissions have one entry

A file that is not beyond doubt (a column of another type, a value that is missing, a step twice)
settles nothing, so that the reader of columns.py can say what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ordercast.check.history import History
from ordercast.check.laws import JUDGES, check, families_of, promised
from ordercast.check.verdict import Answer, Verdict, holds
from ordercast.errors import TraceError
from ordercast.spark.columns import Doubt, codes_of, read_part
from ordercast.spark.slices import COLLECTED_LIMIT, Ask, Stream
from ordercast.spark.walks import DRIVER, FEW, SAID, SCHEMA, Message, Said, Walked, look, walk
from ordercast.trace.lake import read_header
from ordercast.trace.parquet import PARTS, load_pyarrow
from ordercast.trace.schema import Ending, Header, Level, Row, Trace

SLICE_ROWS = 10_000_000
"""The most rows of a slice, as far as whole processes allow it."""

ROWS_LIMIT = 2_000_000_000
"""The most rows of a run: events are numbered with 32 bits."""

MESSAGES_AT_ONCE = 16
"""So many messages go from Java to Python together: up to 16 MB."""

_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Settled(NamedTuple):
    """The laws that are asked for, and the verdicts that are known."""

    header: Header
    rows: int
    laws: list[str]
    verdicts: dict[str, Verdict]


def settle(spark: Any, folder: Path, laws: Sequence[str] | None) -> Settled | None:
    """What slices can say of one run; None if they cannot even read it."""
    try:
        header = read_header(folder)
        if header.level == Level.OFF or (laws is None and families_of(header)):
            return None
        ask = prepare(folder, header, laws, _cores(spark))
    except (TraceError, Doubt, OSError, UnicodeDecodeError, load_pyarrow().core.ArrowException):
        return None
    failures = (
        import_module("pyspark.errors").PySparkException,
        import_module("py4j.protocol").Py4JError,
    )
    try:
        run = _ask(spark, ask, header)
    except failures:
        return None
    if run is None:
        return None
    wanted = list(laws) if laws is not None else promised(History(Trace(header, run.few)))
    return Settled(header, sum(ask.counts), wanted, run.settle(wanted))


def prepare(folder: Path, header: Header, laws: Sequence[str] | None, cores: int) -> Ask:
    """Who is in the run, and who of them in which slice. Doubt if it is not as it should be."""
    pyarrow = load_pyarrow()
    names: tuple[dict[str, int], ...] = ({}, {}, {})
    rows: Counter[int] = Counter()
    columns = ("run", "kind", "process", "group", "origin")
    for part in sorted(folder.glob(PARTS)):
        promises = pyarrow.parquet.read_metadata(str(part)).num_rows
        for batch in read_part(pyarrow, part, header.run, columns):
            promises -= batch.num_rows
            for name, known in zip(columns[2:], names, strict=True):
                if batch.num_rows and name in batch.schema.names:
                    codes = codes_of(batch.column(name), known)
                    if name == "process":
                        rows.update(dict(enumerate(np.bincount(codes).tolist())))
        if promises:
            raise Doubt
    if not 0 < rows.total() < ROWS_LIMIT:
        raise Doubt
    processes = sorted(names[0])
    counts = [rows[names[0][name]] for name in processes]
    slices = min(len(processes), max(cores, -(-rows.total() // SLICE_ROWS)))
    asked = set(JUDGES) if laws is None else set(laws)
    return Ask(
        folder=str(folder),
        run=header.run,
        durable=History(Trace(header, [])).durable,
        processes=tuple(processes),
        groups=tuple(sorted(names[1])),
        origins=(*processes, *sorted(names[2].keys() - names[0].keys())),
        counts=tuple(counts),
        slice_of=tuple(_share(counts, slices)),
        slices=slices,
        walkers=cores,
        causal=bool(asked & {"causal", "optimistic-causal"}),
        order=bool(asked & {"total", "total-in-view", "agreement"}),
        tickets="ticket-uniqueness" in asked,
    )


def _share(counts: list[int], slices: int) -> list[int]:
    """Processes, those with many rows first, each to the slice that has fewest."""
    loads = [0] * slices
    found = [0] * len(counts)
    for process in sorted(range(len(counts)), key=lambda one: -counts[one]):
        found[process] = loads.index(min(loads))
        loads[found[process]] += counts[process]
    return found


def _cores(spark: Any) -> int:
    """How many tasks run at once; over Connect nobody says."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:
        return 8


def _ask(spark: Any, ask: Ask, header: Header) -> Slices | None:
    """Both passes."""
    level = import_module("pyspark").StorageLevel.DISK_ONLY
    f = import_module("pyspark.sql").functions
    tasks = spark.range(0, ask.slices, 1, ask.slices)
    told = tasks.mapInArrow(_looking(ask), SCHEMA).persist(level)
    try:
        with _few_at_once(spark):
            mine = told.filter(f.col("kind").isin(SAID, FEW)).select("kind", "data").collect()
            said = [
                msgspec.msgpack.decode(bytes(one["data"]), type=Said)
                for one in mine
                if one["kind"] == SAID
            ]
            if len(said) != ask.slices or any(one.doubt or not one.kept["steps"] for one in said):
                return None
            few = [
                row
                for one in mine
                if one["kind"] == FEW
                for row in msgspec.msgpack.decode(bytes(one["data"]), type=list[Row])
            ]
            if len(few) > COLLECTED_LIMIT:
                return None
            streams = [Stream(*one) for one in said[0].streams]
            sent = told.select(f.explode("tasks").alias("task"), "*").drop("tasks")
            sent = sent.filter(f.col("task") != DRIVER).repartitionById(ask.walkers + 2, "task")
            rows = sent.mapInArrow(_walking(streams, ask.walkers), "walked binary").collect()
    finally:
        told.unpersist()
    walked = [msgspec.msgpack.decode(bytes(one["walked"]), type=Walked) for one in rows]
    return Slices(ask, header, list(dict.fromkeys(few)), said, walked)


@contextmanager
def _few_at_once(spark: Any) -> Iterator[None]:
    """Messages are large, and Spark would take ten thousand of them together."""
    before = spark.conf.get(_BATCH)
    spark.conf.set(_BATCH, str(MESSAGES_AT_ONCE))
    try:
        yield
    finally:
        spark.conf.set(_BATCH, before)


def _looking(ask: Ask) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        types = [pyarrow.list_(pyarrow.int32()), *[pyarrow.int32()] * 5, pyarrow.binary()]
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for message in look(ask, number):
                    columns = [
                        pyarrow.array([value], kind)
                        for value, kind in zip(message, types, strict=True)
                    ]
                    yield pyarrow.RecordBatch.from_arrays(columns, list(Message._fields))

    return run


def _walking(streams: list[Stream], walkers: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        rows = (row for batch in batches for row in batch.to_pylist())
        first = next(rows, None)
        if first is None:
            return
        walked = walk(streams, walkers, first["task"], _again(first, rows))
        told = pyarrow.array([msgspec.msgpack.encode(walked)], pyarrow.binary())
        yield pyarrow.RecordBatch.from_arrays([told], ["walked"])

    return run


def _again(first: dict[str, Any], rest: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield first
    yield from rest


class Slices:
    """What all slices together show of a run."""

    def __init__(
        self, ask: Ask, header: Header, few: list[Row], said: list[Said], walked: list[Walked]
    ) -> None:
        self.header, self.few = header, few
        kept: dict[str, bool] = {}
        for told in [*(one.kept for one in said), *(one.kept for one in walked)]:
            for name, good in told.items():
                kept[name] = kept.get(name, True) and good
        unique = kept["no-duplication"]
        created = kept["submitted-once"] and kept["known"] and kept["created"] and kept["clock"]
        walkers = sum("causal" in one.kept for one in walked)
        walks = created and walkers == ask.walkers and all(one.walks for one in said)
        total = unique and kept["submitted-once"] and kept["known"] and kept.get("total")
        self.kept = {
            "submitted-once": kept["submitted-once"],
            "fifo": kept["fifo"],
            "no-duplication": unique,
            "no-creation": created,
            "total": total,
            "total-in-view": total and self._has_views(),
            "optimistic-causal": walks and kept.get("optimistic-causal"),
            "causal": walks and kept.get("causal"),
            "virtual-synchrony": unique and kept["virtual-synchrony"] and self._same_spans(said),
            "ticket-uniqueness": kept.get("ticket-uniqueness")
            and all(one.stamped for one in said)
            and self._tickets_hold({ask.groups[group] for group, _, _ in said[0].streams}),
        }
        self.kept |= self._everybody(said, walked, proved=unique and created)

    def settle(self, laws: list[str]) -> dict[str, Verdict]:
        finished = self.header.ending == Ending.FINISHED
        history = History(Trace(self.header, self.few))
        found: dict[str, Verdict] = {}
        for law in laws:
            reads = JUDGES[law].reads
            if "submit" in reads and not self.kept["submitted-once"]:
                continue
            unfinished = law in ("agreement", "completeness") and not finished
            if law in BY_FEW_ROWS or unfinished or history.flaw(reads) is not None:
                found[law] = check(Trace(self.header, self.few), [law])[0]
            elif self.kept[law]:
                found[law] = holds(law)
        return found

    def _same_spans(self, said: list[Said]) -> bool:
        """Whether lives in different slices agree too; without views nothing is proved."""
        known: dict[tuple[int, ...], tuple[int, ...]] = {}
        same = all(
            known.setdefault(span[:3], span[3:]) == span[3:] for one in said for span in one.spans
        )
        return same and self._has_views()

    def _has_views(self) -> bool:
        return any(row.kind == "view" for row in self.few)

    def _everybody(
        self, said: list[Said], walked: list[Walked], *, proved: bool
    ) -> dict[str, bool]:
        if not proved:
            return {"agreement": False, "completeness": False}
        submitted: Counter[int] = Counter()
        for group, first, last in said[0].streams:
            submitted[group] += last - first
        events = next((one.events for one in walked if "total" in one.kept), None)
        counts = [(group, count) for one in said for group, _, _, count in one.delivered]
        return {
            "agreement": events is not None
            and all(count == events.get(group, 0) for group, count in counts),
            "completeness": all(count == submitted[group] for group, count in counts),
        }

    def _tickets_hold(self, groups: set[str]) -> bool:
        """By the ticket rows nothing is shared, and what is submitted is in groups with tickets."""
        rows = [row for row in self.few if row.kind != "submit"]
        if check(Trace(self.header, rows), ["ticket-uniqueness"])[0].answer is not Answer.HOLDS:
            return False
        return groups <= {row.group for row in self.few if row.kind == "ticket"}


BY_FEW_ROWS = ("view-agreement", "disjoint-views")

"""One huge run, for which a task has no memory, judged in slices by many.

What is proved here is that a law holds; where one is broken is not said. A law's proof (`prove`)
asks for facts that slices can show, and `settle` answers for the laws that it proved. The others,
and those without a proof, are left to the vectors. For the laws that the skeleton rows decide these
few rows are collected, and the plain judge sees them. There are two passes (walks.py): tasks look
at slices of the processes (slices.py, process_history.py), and what only all slices together show
is looked at by tasks that get it from them. What the facts are: `SliceFacts` in check/facts.py.

A file that is not beyond doubt (a column of another type, a value that is missing, a step twice)
settles nothing, so that the reader of columns.py can say what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ordercast.check.folders import FolderStart, numbered_folders
from ordercast.check.history import PROMISES, FamilyPromises, History
from ordercast.check.law import Law
from ordercast.check.laws import LAWS, judge, not_asked, wanted_of
from ordercast.check.log import EMPTY
from ordercast.check.promise import NotAsked, families_of
from ordercast.check.verdict import Verdict, holds
from ordercast.errors import TraceError
from ordercast.spark.columns import Doubt, codes_of, read_part
from ordercast.spark.session import cores_of
from ordercast.spark.slices import COLLECTED_LIMIT, EventStream, SlicePlan
from ordercast.spark.walks import (
    DISTINCT,
    DRIVER,
    FEW,
    IN_ORDER,
    MESSAGE_SCHEMA,
    ONCE,
    ONE_ORDER,
    REPORT,
    WITHOUT_GAPS,
    SliceReport,
    TaskMessage,
    WalkReport,
    look,
    walk,
)
from ordercast.trace.lake import read_header
from ordercast.trace.parquet import PARTS, load_pyarrow
from ordercast.trace.schema import Header, Row, Trace, TraceLevel

SLICE_ROWS = 10_000_000
"""The most rows of a slice, as far as whole processes allow it."""

SLICED_ROWS_LIMIT = 2_000_000_000
"""The most rows of a run: events are numbered with 32 bits."""

MESSAGES_AT_ONCE = 16
"""So many messages go from Java to Python together: up to 16 MB."""

_REPLY_COLUMNS = ("reply_origin", "reply_number")
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Settled(NamedTuple):
    """The laws that are asked for, and the verdicts that are known."""

    header: Header
    rows: int
    laws: Sequence[Law]
    verdicts: dict[str, Verdict]
    not_asked: list[NotAsked]


def settle(
    spark: Any,
    folder: Path,
    laws: Sequence[Law] | None,
    promises: FamilyPromises = PROMISES,
) -> Settled | None:
    """What slices can say of one run; None if they cannot even read it."""
    try:
        header = read_header(folder)
        if header.level == TraceLevel.OFF or (laws is None and families_of(header)):
            return None
        plan = prepare(folder, header, laws, cores_of(spark), promises)
    except (TraceError, Doubt, OSError, UnicodeDecodeError, load_pyarrow().core.ArrowException):
        return None
    failures = (
        import_module("pyspark.errors").PySparkException,
        import_module("py4j.protocol").Py4JError,
    )
    try:
        run = _run_passes(spark, plan, header, promises)
    except failures:
        return None
    if run is None:
        return None
    wanted = wanted_of(run.history, laws)
    left_out = not_asked(run.history) if laws is None else []
    return Settled(header, sum(plan.counts), wanted, run.settle(wanted), left_out)


def prepare(
    folder: Path,
    header: Header,
    laws: Iterable[Law] | None,
    cores: int,
    promises: FamilyPromises = PROMISES,
) -> SlicePlan:
    """Who is in the run, and who of them in which slice. Doubt if it is not as it should be."""
    pyarrow = load_pyarrow()
    names: tuple[dict[str, int], ...] = ({}, {}, {}, {})
    rows: Counter[int] = Counter()
    columns = ["run", "kind", "process", "group", "origin", "cause", *_REPLY_COLUMNS]
    starts: list[dict[str, Any]] | None = None
    if History(Trace(header, []), promises).durable:
        columns += ["incarnation", "step", "at"]
        starts = []
    has_replies = False
    for part in sorted(folder.glob(PARTS)):
        missing = pyarrow.parquet.read_metadata(str(part)).num_rows
        for batch in read_part(pyarrow, part, header.run, columns):
            missing -= batch.num_rows
            has_replies = has_replies or not set(_REPLY_COLUMNS).isdisjoint(batch.schema.names)
            if starts is not None and batch.num_rows:
                starts += _starts(batch)
            for name, known in zip(columns[2:6], names, strict=True):
                if batch.num_rows and name in batch.schema.names:
                    codes = codes_of(batch.column(name), known)
                    if name == "process":
                        rows.update(dict(enumerate(np.bincount(codes).tolist())))
        if missing:
            raise Doubt
    if not 0 < rows.total() < SLICED_ROWS_LIMIT:
        raise Doubt
    processes = sorted(names[0])
    counts = [rows[names[0][name]] for name in processes]
    slices = min(len(processes), max(cores, -(-rows.total() // SLICE_ROWS)))
    proofs = [law.prove for law in (LAWS.values() if laws is None else laws) if law.prove]
    return SlicePlan(
        folder=str(folder),
        run=header.run,
        durable=starts is not None,
        processes=tuple(processes),
        groups=tuple(sorted(names[1])),
        origins=(*processes, *sorted(names[2].keys() - names[0].keys())),
        counts=tuple(counts),
        slice_of=tuple(_share(counts, slices)),
        slices=slices,
        walkers=cores,
        passes=tuple(sorted({name for proof in proofs for name in proof.needs})),
        services=tuple(sorted({*map(header.guarantee, names[3])} - {""})),
        folders=_folders(processes, starts or []),
        has_replies=has_replies,
    )


def _starts(batch: Any) -> list[dict[str, Any]]:
    kinds: dict[str, int] = {"start": 0}
    rows = np.flatnonzero(codes_of(batch.column("kind"), kinds) == 0)
    if len(rows) > COLLECTED_LIMIT:
        raise Doubt
    found: list[dict[str, Any]] = batch.take(rows).to_pylist() if len(rows) else []
    return found


def _folders(processes: list[str], starts: list[dict[str, Any]]) -> tuple[tuple[int, ...], ...]:
    """By process: the incarnations with which another data folder begins. Empty if none does."""
    if all(row.get("cause") != EMPTY for row in starts):
        return ()
    first: dict[tuple[str, int], dict[str, Any]] = {}
    for row in sorted(starts, key=lambda row: (row["process"], row["incarnation"], row["step"])):
        first.setdefault((row["process"], row["incarnation"]), row)
    numbers = numbered_folders(
        FolderStart(process, row["at"], row.get("cause") == EMPTY)
        for (process, _), row in first.items()
    )
    found: dict[str, list[int]] = {name: [] for name in processes}
    before = ("", -1)
    for (process, incarnation), number in zip(first, numbers, strict=True):
        is_first = before[0] != process and first[process, incarnation].get("cause") != EMPTY
        if number != before[1] and not is_first:
            found[process].append(incarnation)
        before = process, number
    return tuple(tuple(found[name]) for name in processes)


def _share(counts: list[int], slices: int) -> list[int]:
    """Processes, those with many rows first, each to the slice that has fewest."""
    loads = [0] * slices
    found = [0] * len(counts)
    for process in sorted(range(len(counts)), key=lambda one: -counts[one]):
        found[process] = loads.index(min(loads))
        loads[found[process]] += counts[process]
    return found


def _run_passes(
    spark: Any, plan: SlicePlan, header: Header, promises: FamilyPromises
) -> Slices | None:
    """Both passes; None if they are in doubt about the files."""
    level = import_module("pyspark").StorageLevel.DISK_ONLY
    f = import_module("pyspark.sql").functions
    tasks = spark.range(0, plan.slices, 1, plan.slices)
    told = tasks.mapInArrow(_looking(plan), MESSAGE_SCHEMA).persist(level)
    try:
        with _few_at_once(spark):
            mine = told.filter(f.col("kind").isin(REPORT, FEW)).select("kind", "data").collect()
            said = [
                msgspec.msgpack.decode(bytes(one["data"]), type=SliceReport)
                for one in mine
                if one["kind"] == REPORT
            ]
            if len(said) != plan.slices or any(one.doubt or not one.facts["steps"] for one in said):
                return None
            few = [
                row
                for one in mine
                if one["kind"] == FEW
                for row in msgspec.msgpack.decode(bytes(one["data"]), type=list[Row])
            ]
            if len(few) > COLLECTED_LIMIT:
                return None
            streams = [EventStream(*one) for one in said[0].streams]
            sent = told.select(f.explode("tasks").alias("task"), "*").drop("tasks")
            sent = sent.filter(f.col("task") != DRIVER).repartitionById(plan.walkers + 2, "task")
            rows = sent.mapInArrow(_walking(streams, plan.walkers), "walked binary").collect()
    finally:
        told.unpersist()
    walked = [msgspec.msgpack.decode(bytes(one["walked"]), type=WalkReport) for one in rows]
    return Slices(plan, header, list(dict.fromkeys(few)), said, walked, promises)


@contextmanager
def _few_at_once(spark: Any) -> Iterator[None]:
    """Messages are large, and Spark would take ten thousand of them together."""
    before = spark.conf.get(_BATCH)
    spark.conf.set(_BATCH, str(MESSAGES_AT_ONCE))
    try:
        yield
    finally:
        spark.conf.set(_BATCH, before)


def _looking(plan: SlicePlan) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        types = [pyarrow.list_(pyarrow.int32()), *[pyarrow.int32()] * 5, pyarrow.binary()]
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for message in look(plan, number):
                    columns = [
                        pyarrow.array([value], kind)
                        for value, kind in zip(message, types, strict=True)
                    ]
                    yield pyarrow.RecordBatch.from_arrays(columns, list(TaskMessage._fields))

    return run


def _walking(streams: list[EventStream], walkers: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
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
    """What all slices together show of a run: `SliceFacts` of check/facts.py."""

    def __init__(
        self,
        plan: SlicePlan,
        header: Header,
        few: list[Row],
        said: list[SliceReport],
        walked: list[WalkReport],
        promises: FamilyPromises = PROMISES,
    ) -> None:
        self._plan, self._said, self._walked = plan, said, walked
        self._few, self._promises = few, promises
        self.history = History(Trace(header, few), promises)
        self._shown: dict[str, bool] = {}
        for told in [*(one.facts for one in said), *(one.facts for one in walked)]:
            for name, good in told.items():
                self._shown[name] = self._shown.get(name, True) and good
        walkers = sum(IN_ORDER in one.facts for one in walked)
        self._all_walked = walkers == plan.walkers and all(one.walks for one in said)
        self.has_views = "view" in self.history.kinds
        self.services = frozenset(plan.services)
        self.has_replies = plan.has_replies

    def settle(self, laws: Iterable[Law]) -> dict[str, Verdict]:
        """The verdicts that are sure. A law that reads little is judged on the skeleton rows."""
        found: dict[str, Verdict] = {}
        for law in laws:
            if "submit" in law.reads and not self._shown[ONCE]:
                continue
            unfinished = law.finished_only and not self.history.finished
            if law.skeleton_only or unfinished or self.history.flaw(law.reads) is not None:
                found[law.name] = judge(law, self.history)
            elif law.prove is not None and law.prove.holds(self):
                found[law.name] = holds(law.name)
        return found

    # --- the facts ---

    @property
    def never_falling(self) -> bool:
        return self._shown["never-falling"]

    @property
    def increasing(self) -> bool:
        return self._shown["increasing"]

    @property
    def known(self) -> bool:
        return self._shown[ONCE] and self._shown["known"]

    @property
    def created(self) -> bool:
        return self.known and self._shown["created"] and self._shown["clock"]

    @property
    def in_causal_order(self) -> bool:
        return self._all_walked and self._shown[IN_ORDER]

    @property
    def without_gaps(self) -> bool:
        return self._all_walked and self._shown[WITHOUT_GAPS]

    @property
    def one_order(self) -> bool:
        return self._shown.get(ONE_ORDER, False)

    @property
    def equal_spans(self) -> bool:
        """Whether incarnations in different slices agree too."""
        known: dict[tuple[int, ...], tuple[int, ...]] = {}
        return self._shown["equal-spans"] and all(
            known.setdefault(span[:3], span[3:]) == span[3:]
            for one in self._said
            for span in one.spans
        )

    @property
    def distinct_entries(self) -> bool:
        groups = {self._plan.groups[group] for group, _, _ in self._said[0].streams}
        return (
            self._shown.get(DISTINCT, False)
            and all(one.stamped for one in self._said)
            and groups <= {row.group for row in self._few if row.kind == "ticket"}
        )

    def skeleton_without(self, kind: str) -> History:
        rows = [row for row in self._few if row.kind != kind]
        return History(Trace(self.history.header, rows), self._promises)

    def all_have_what_was_submitted(self) -> bool:
        submitted: Counter[int] = Counter()
        for group, first, last in self._said[0].streams:
            submitted[group] += last - first
        return self._all_have(submitted)

    def all_have_what_was_delivered(self) -> bool:
        events = next((one.events for one in self._walked if ONE_ORDER in one.facts), None)
        return events is not None and self._all_have(events)

    def _all_have(self, events: Mapping[int, int]) -> bool:
        return all(
            count == events.get(group, 0)
            for one in self._said
            for group, _, _, count in one.delivered
        )

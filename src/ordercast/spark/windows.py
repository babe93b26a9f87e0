"""One huge run, judged by windows of Spark SQL: for runs that are too large for one task.

A window can prove that a law holds; it does not say where one is broken. So `settle` answers for
the laws that it proved, and leaves the others to the vectors. For the laws about views and tickets
the few rows that they read are collected, and the reference judges these. What is proved, and how:

  fifo, no-duplication  numbers increase along the deliveries of each line and sender
  no-creation           every delivered event has its submission, and time is a clock: it never
                        falls within a process and grows from a submission to its deliveries
                        elsewhere
  optimistic-causal,    (if time is a clock) pasts are what their line had delivered before, a
  causal                column a stream; the running maximum of the pasts of a line's deliveries
                        stays below the event delivered, within what was delivered (causal), and
                        within the past of what the line submits, or else these are not the pasts
  total                 the time of an event's first delivery increases along every line
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

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ordercast.check.history import History
from ordercast.check.laws import JUDGES, check, families_of, promised
from ordercast.check.verdict import Answer, Verdict, holds
from ordercast.errors import TraceError
from ordercast.spark.columns import is_beyond_doubt
from ordercast.spark.vector_events import MEMBERSHIP_KINDS
from ordercast.trace.lake import read_header
from ordercast.trace.parquet import COLUMN_TYPES, PARTS
from ordercast.trace.schema import COLUMNS, Ending, Header, Level, Row, Trace

STREAMS_LIMIT = 64
"""The most streams of a group whose pasts are columns."""

COLLECTED_LIMIT = 1_000_000
"""The most rows about members, views and tickets that are brought here."""

_EVENT = ("group", "origin", "number")


class Settled(NamedTuple):
    """The laws that are asked for, and the verdicts that are known."""

    header: Header
    rows: int
    laws: list[str]
    verdicts: dict[str, Verdict]


def settle(spark: Any, folder: Path, laws: Sequence[str] | None) -> Settled | None:
    """What windows can say of one run; None if they cannot even read it."""
    try:
        header = read_header(folder)
    except TraceError:
        return None
    if header.level == Level.OFF or (laws is None and len(families_of(header)) > 1):
        return None
    sql = import_module("pyspark.sql")
    failures = (
        TraceError,
        import_module("pyspark.errors").PySparkException,
        import_module("py4j.protocol").Py4JError,
    )
    try:
        run = Windows(spark, sql, folder, header)
        if not run.beyond_doubt(spark):
            return None
        few = run.few_rows()
        if few is None:
            return None
        wanted = list(laws) if laws is not None else promised(History(Trace(header, few)))
        return Settled(header, run.rows, wanted, run.settle(wanted, few))
    except failures:
        return None


class Windows:
    """The rows of one run as a table, and what is asked of it."""

    def __init__(self, spark: Any, sql: Any, folder: Path, header: Header) -> None:
        self.header = header
        self.f = sql.functions
        self.window = sql.Window
        self.durable = History(Trace(header, [])).durable
        types = {"int32": "int", "int64": "bigint", "list<int64>": "array<bigint>"}
        types |= {"string": "string", "list<string>": "array<string>"}
        schema = ", ".join(f"`{name}` {types[kind]}" for name, kind in COLUMN_TYPES.items())
        self.parts = sorted(folder.glob(PARTS))
        self.table = spark.read.schema(schema).parquet(*map(str, self.parts))
        self.line = ("process",) if self.durable else ("process", "incarnation")
        self.life = ("process", "incarnation")
        self.local = ("incarnation", "step")
        self.rows = 0
        self._answers: dict[str, bool] = {}

    # --- reading ---

    def beyond_doubt(self, spark: Any) -> bool:
        """Whether the files can be read, all columns of them, and events and steps are whole."""
        parts = spark.createDataFrame([(str(part),) for part in self.parts], "part string")
        read = parts.repartition(len(self.parts)).mapInArrow(
            _reader(self.header.run), "sound boolean"
        )
        if not all(row["sound"] for row in read.collect()):
            return False
        f = self.f
        wrong = f.lit(False)
        for name in _EVENT:
            wrong |= f.col("kind").isin("submit", "deliver", "lose") & f.col(name).isNull()
        steps = self.window.partitionBy(*self.life).orderBy("step")
        found = (
            self.table.select(
                wrong.alias("wrong"), (f.col("step") == f.lag("step").over(steps)).alias("twice")
            )
            .agg(
                f.count("*").alias("rows"),
                f.max("wrong").alias("wrong"),
                f.max("twice").alias("twice"),
            )
            .first()
        )
        self.rows = found["rows"]
        return not found["wrong"] and not found["twice"]

    def few_rows(self) -> list[Row] | None:
        """Rows about members, views and tickets, and the first of every life, event and loss."""
        f = self.f
        first = self.table.groupBy(*self.life).agg(f.min("step").alias("step"))
        by_kind = self.table.filter(f.col("kind").isin(*MEMBERSHIP_KINDS))
        found = by_kind.unionByName(self.table.join(first, [*self.life, "step"], "left_semi"))
        for kind in ("deliver", "submit", "lose"):
            found = found.unionByName(self.table.filter(f.col("kind") == kind).limit(1))
        collected = found.select(*COLUMNS).limit(COLLECTED_LIMIT + 1).collect()
        if len(collected) > COLLECTED_LIMIT:
            return None
        return list(dict.fromkeys(_row(one.asDict()) for one in collected))

    # --- settling ---

    def settle(self, laws: list[str], few: list[Row]) -> dict[str, Verdict]:
        finished = self.header.ending == Ending.FINISHED
        history = History(Trace(self.header, few))
        found: dict[str, Verdict] = {}
        for law in laws:
            reads = JUDGES[law].reads
            if "submit" in reads and not self.proves("submitted-once"):
                continue
            unfinished = law in ("agreement", "completeness") and not finished
            if law in BY_FEW_ROWS or unfinished or history.flaw(reads) is not None:
                found[law] = check(Trace(self.header, few), [law])[0]
            elif law == "ticket-uniqueness":
                if self._tickets_hold(few):
                    found[law] = holds(law)
            elif self.proves(law):
                found[law] = holds(law)
        return found

    def proves(self, law: str) -> bool:
        """Whether windows show that the law holds."""
        proof = _PROOFS[law]
        if proof not in self._answers:
            # A flag a law: several laws may come from one window.
            for name, kept in getattr(self, proof)().items():
                self._answers[name] = kept
            self._answers[proof] = True
        return self._answers[law]

    def flags(self, frame: Any, **broken: Any) -> dict[str, bool]:
        """For each law whether nothing in the frame breaks it."""
        f = self.f
        columns = [f.max(flag.cast("int")).alias(law) for law, flag in broken.items()]
        found = frame.agg(*columns).first()
        return {law.replace("_", "-"): not found[law] for law in broken}

    @property
    def deliveries(self) -> Any:
        return self.table.filter(self.f.col("kind") == "deliver").drop("stamp", "members")

    @property
    def submissions(self) -> Any:
        f = self.f
        own = (f.col("kind") == "submit") & (f.col("origin") == f.col("process"))
        return self.table.filter(own).drop("members")

    def sequences(self) -> dict[str, bool]:
        f = self.f
        along = self.window.partitionBy(*self.line, "group", "origin").orderBy(*self.local)
        step = f.col("number") - f.lag("number").over(along)
        frame = self.deliveries.select(step.alias("change"))
        return self.flags(frame, fifo=f.col("change") < 0, no_duplication=f.col("change") <= 0)

    def creation(self) -> dict[str, bool]:
        """no-creation, and with it that time is a clock."""
        f = self.f
        along = self.window.partitionBy("process").orderBy(*self.local)
        back = self.table.select((f.lag("at").over(along) > f.col("at")).alias("back"))
        if not self.flags(back, back=f.col("back"))["back"] or not self.proves("submitted-once"):
            return {"no-creation": False}
        source = self.submissions.select(
            *_EVENT,
            f.col("at").alias("from_at"),
            f.struct(*self.local).alias("from_place"),
        )
        frame = self.deliveries.join(source, list(_EVENT), "left")
        near = f.col("origin") == f.col("process")
        early = f.when(near, f.col("from_place") >= f.struct(*self.local)).otherwise(
            f.col("from_at") >= f.col("at")
        )
        return self.flags(frame, no_creation=f.col("from_at").isNull() | early)

    def once(self) -> dict[str, bool]:
        f = self.f
        counted = self.submissions.groupBy(*_EVENT).agg(f.count("*").alias("times"))
        return self.flags(counted, submitted_once=f.col("times") > 1)

    def one_order(self) -> dict[str, bool]:
        if not self.proves("no-duplication"):
            return {"total": False}
        f = self.f
        everywhere = self.window.partitionBy(*_EVENT)
        along = self.window.partitionBy(*self.line).orderBy(*self.local)
        timed = self.deliveries.withColumn("first", f.min("at").over(everywhere))
        frame = timed.select((f.col("first") - f.lag("first").over(along)).alias("change"))
        return self.flags(frame, total=f.col("change") <= 0)

    def everybody(self) -> dict[str, bool]:
        if not (self.proves("no-duplication") and self.proves("no-creation")):
            return {"agreement": False, "completeness": False}
        f = self.f
        read = f.col("kind").isin("join", "view", "submit", "deliver", "lose")
        delivers = f.when(f.col("kind") == "deliver", 1).otherwise(0)
        lives = self.table.filter(read).groupBy("group", *self.life)
        counts = lives.agg(f.sum(delivers).alias("delivered"))
        different = self.deliveries.select(*_EVENT).distinct().groupBy("group")
        events = different.agg(f.count("*").alias("events"))
        submitted = self.submissions.groupBy("group").agg(f.count("*").alias("submitted"))
        frame = counts.join(events, "group", "left").join(submitted, "group", "left").na.fill(0)
        return self.flags(
            frame,
            agreement=f.col("delivered") != f.col("events"),
            completeness=f.col("delivered") != f.col("submitted"),
        )

    def spans(self) -> dict[str, bool]:
        if not self.proves("no-duplication"):
            return {"virtual-synchrony": False}
        f = self.f
        is_view = f.col("kind") == "view"
        table = self.table.filter(f.col("kind").isin("view", "deliver"))
        if not table.filter(is_view).limit(1).collect():
            return {"virtual-synchrony": False}
        along = self.window.partitionBy(*self.life, "group").orderBy("step")
        numbered = table.withColumn("span", f.sum(is_view.cast("int")).over(along))
        mixed = [f.xxhash64(f.lit(seed), "origin", "number") for seed in (1, 2)]
        digest = [
            f.bit_xor(f.when(~is_view, one)).alias(f"digest{n}") for n, one in enumerate(mixed)
        ]
        spans = numbered.groupBy(*self.life, "group", "span").agg(
            f.max(f.when(is_view, f.col("view"))).alias("view"),
            f.sum((~is_view).cast("int")).alias("events"),
            *digest,
        )
        following = self.window.partitionBy(*self.life, "group").orderBy("span")
        closed = spans.withColumn("then", f.lead("view").over(following)).filter("span > 0")
        closed = closed.filter(f.col("then").isNotNull()).na.fill(0)
        said = [f.countDistinct("events", "digest0", "digest1").alias("kinds")]
        return self.flags(
            closed.groupBy("group", "view", "then").agg(*said), virtual_synchrony=f.col("kinds") > 1
        )

    def _tickets_hold(self, few: list[Row]) -> bool:
        """By the ticket rows nothing is shared, and every submission has an entry of its own."""
        rows = [row for row in few if row.kind != "submit"]
        if check(Trace(self.header, rows), ["ticket-uniqueness"])[0].answer is not Answer.HOLDS:
            return False
        f = self.f
        tickets = sorted({row.group or "" for row in few if row.kind == "ticket"})
        entry = f.get(f.col("stamp"), f.col("index"))
        stamped = self.submissions.select("group", "index", entry.alias("entry"))
        wrong = f.col("entry").isNull() | f.col("index").isNull() | ~f.col("group").isin(tickets)
        counted = stamped.groupBy("group", "index", "entry").agg(f.count("*").alias("times"))
        return self.flags(counted, unique=wrong | (f.col("times") > 1))["unique"]

    # --- causal order ---

    def pasts(self) -> dict[str, bool]:
        nothing = {"optimistic-causal": False, "causal": False}
        if not self.proves("no-creation"):
            return nothing
        streams = self.submissions.select("group", *self.line).distinct()
        found = streams.limit(STREAMS_LIMIT + 1).collect()
        if len(found) > STREAMS_LIMIT:
            return nothing
        proved = [self._group_pasts(group) for group in sorted({one["group"] for one in found})]
        return {law: all(one[law] for one in proved) for law in nothing}

    def _group_pasts(self, group: str) -> dict[str, bool]:
        """One group: pasts first, then every line's way along them."""
        f = self.f
        mine = f.col("group") == group
        along = self.window.partitionBy(*self.line).orderBy(*self.local)
        before = along.rowsBetween(self.window.unboundedPreceding, -1)
        ordered = self.submissions.filter(mine).withColumn("place", f.row_number().over(along))
        names = [f.col(name) for name in self.line]
        stream = f.concat_ws("#", *(one.cast("string") for one in names))
        events = ordered.select(*_EVENT, "place", stream.alias("stream"))
        every = sorted(row["stream"] for row in events.select("stream").distinct().collect())
        told = self.table.filter(mine & f.col("kind").isin("submit", "deliver"))
        told = told.filter((f.col("kind") == "deliver") | (f.col("origin") == f.col("process")))
        told = told.select("process", *self.local, "kind", *_EVENT).join(events, list(_EVENT))
        delivers = f.col("kind") == "deliver"

        latest = [
            f.max(f.when(delivers & (f.col("stream") == name), f.col("place"))).over(before)
            for name in every
        ]
        own = f.max(f.when(~delivers, f.col("place"))).over(before)
        known = told.select(
            "*",
            own.alias("own"),
            *(f.coalesce(one, f.lit(0)).alias(f"had{n}") for n, one in enumerate(latest)),
        )
        # A submitter knows its own events by submitting them.
        past = [
            f.when(stream == name, f.coalesce(f.col("own"), f.lit(0))).otherwise(f.col(f"had{n}"))
            for n, name in enumerate(every)
        ]
        pasts = known.filter(~delivers).select(
            *_EVENT, *(one.alias(f"past{n}") for n, one in enumerate(past))
        )
        walked = known.join(pasts, list(_EVENT))
        reach = [
            f.coalesce(f.max(f.when(delivers, f.col(f"past{n}"))).over(before), f.lit(0))
            for n in range(len(every))
        ]
        walked = walked.select("*", *(one.alias(f"reach{n}") for n, one in enumerate(reach)))
        return self.flags(walked, **self._causal_breaks(every, delivers))

    def _causal_breaks(self, every: list[str], delivers: Any) -> dict[str, Any]:
        """What must not be: too late; not the whole past; or (causal) more than was delivered."""
        f = self.f
        late, open_past, missing = f.lit(False), f.lit(False), f.lit(False)
        for number, name in enumerate(every):
            reach, past = f.col(f"reach{number}"), f.col(f"past{number}")
            late |= delivers & (f.col("stream") == name) & (reach >= f.col("place"))
            open_past |= ~delivers & (reach > past)
            missing |= delivers & (past > f.col(f"had{number}"))
        return {"optimistic_causal": late | open_past, "causal": late | open_past | missing}


def _reader(run: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            sound = [is_beyond_doubt(Path(row["part"]), run) for row in batch.to_pylist()]
            yield pyarrow.RecordBatch.from_arrays(
                [pyarrow.array(sound, pyarrow.bool_())], ["sound"]
            )

    return read


def _row(columns: dict[str, Any]) -> Row:
    for name in ("stamp", "members"):
        if columns[name] is not None:
            columns[name] = tuple(columns[name])
    return Row(**columns)


_PROOFS: dict[str, str] = {
    "submitted-once": "once",
    "fifo": "sequences",
    "no-duplication": "sequences",
    "no-creation": "creation",
    "total": "one_order",
    "agreement": "everybody",
    "completeness": "everybody",
    "virtual-synchrony": "spans",
    "optimistic-causal": "pasts",
    "causal": "pasts",
}
"""By law: the method that answers for it, and maybe for others too."""

BY_FEW_ROWS = ("view-agreement", "disjoint-views")

"""The figures of many runs as DataFrames: functions from a lake to a table.

Each takes the rows of a lake (`tables.lake_frame`) and returns a DataFrame with documented columns;
nothing is computed before somebody asks for it. Times are seconds, sizes bytes. What a run does not
have is null, or the run is not in the table.

| function | a row for each | asks for |
|---|---|---|
| `latency` | run | |
| `throughput` | run | |
| `loss` | run | |
| `recovery` | run | |
| `recovery_by_cause` | run and outcome | |
| `sizes` | run | |
| `messages` | run and type of message | trace level `wire` |
| `load` | run and process | trace level `wire` for packets and bytes |
| `evenness` | run | trace level `wire` |
| `overhead` | run | trace level `wire` for all but duplicates |
| `view_changes` | run, group and view | a family with views |
| `blocked` | run, process and cause | |

`measure.py` computes the same figures of one run inside a task, without Spark: the names are the
same, and so are the definitions. Which deliveries came too late for causal order is asked of that
one, run by run, for it follows the logs side by side.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ordercast.spark.measure import CHANGES, too_late
from ordercast.trace.schema import COLUMNS, Row
from ordercast.units import SECOND

EVENT = ("run", "group", "origin", "number")
LIFE = ("run", "process", "incarnation")
LATE = "run string, process string, incarnation int, `group` string, origin string, number bigint"


def latency(rows: Any, runs: Any | None = None) -> Any:
    """From submission to delivery at another process.

    run, deliveries, latency_mean, latency_p50, latency_p99, hops_mean; with `runs`
    (`tables.runs_frame`) also rounds_mean, rounds_p50, rounds_p99, null where there is no round.
    """
    f = _functions()
    rows = _joinable(rows)
    waits = _deliveries(rows).where("origin != process").join(_made(rows), list(EVENT))
    wait = f.col("at") - f.col("made_at")
    found = waits.groupBy("run").agg(
        f.count("*").alias("deliveries"),
        (f.avg(wait) / SECOND).alias("latency_mean"),
        (f.percentile(wait, f.lit(0.5)) / SECOND).alias("latency_p50"),
        (f.percentile(wait, f.lit(0.99)) / SECOND).alias("latency_p99"),
    )
    hops = _deliveries(rows).where("hops > 0").groupBy("run").agg(f.avg("hops").alias("hops_mean"))
    found = found.join(hops, "run", "left")
    if runs is None:
        return found
    seconds = f.col("round") / SECOND
    in_rounds = {
        f"rounds_{name}": f.col(f"latency_{name}") / seconds for name in ("mean", "p50", "p99")
    }
    return found.join(runs.select("run", "round"), "run").withColumns(in_rounds).drop("round")


def throughput(rows: Any) -> Any:
    """run, submitted (events), delivered, throughput: deliveries a second and process that
    delivers, from the first submission to the last."""
    f = _functions()
    made = (
        _made(rows)
        .groupBy("run")
        .agg(
            f.count("*").alias("submitted"),
            (f.max("made_at") - f.min("made_at")).alias("span"),
        )
    )
    done = (
        _deliveries(rows)
        .groupBy("run")
        .agg(f.count("*").alias("delivered"), f.countDistinct("process").alias("processes"))
    )
    rate = f.col("delivered") / f.col("processes") / (f.col("span") / SECOND)
    return (
        made.join(done, "run", "outer")
        .fillna(0, ["submitted", "delivered"])
        .withColumn("throughput", f.when(f.col("span") > 0, rate))
        .drop("span", "processes")
    )


def loss(rows: Any) -> Any:
    """Of the pairs of an event and a process that came before it and stayed in one life.

    run, expected (pairs), missing (not delivered), disordered (delivered when something that
    follows had been), missing_share, disordered_share, lost_share: the two together.
    """
    f = _functions()
    rows = _joinable(rows)
    gone = rows.where("kind in ('crash', 'leave') or incarnation > 0")
    there = (
        rows.where("kind = 'join'")
        .join(gone.select("run", "process").distinct(), ["run", "process"], "left_anti")
        .groupBy("run", "group", "process")
        .agg(f.min("at").alias("came_at"))
    )
    pairs = _made(rows).join(there, ["run", "group"]).where("came_at <= made_at")
    pair = ["run", "group", "origin", "number", "process"]
    got = _deliveries(rows).where("incarnation = 0").select(*pair).distinct()
    late = _too_late(rows).select(*pair).distinct().withColumn("late", f.lit(1))
    counted = (
        pairs.join(got.withColumn("got", f.lit(1)), pair, "left")
        .join(late, pair, "left")
        .groupBy("run")
        .agg(
            f.count("*").alias("expected"),
            (f.count("*") - f.count("got")).alias("missing"),
            f.count(f.when(f.col("got") == 1, f.col("late"))).alias("disordered"),
        )
    )
    both = f.col("missing") + f.col("disordered")
    return counted.withColumns(
        {
            "missing_share": f.col("missing") / f.col("expected"),
            "disordered_share": f.col("disordered") / f.col("expected"),
            "lost_share": both / f.col("expected"),
        }
    )


def recovery(rows: Any) -> Any:
    """run, recover_asked, recover_answered, recover_failed, recover_success (answered of asked),
    given_up (rows that say that an event was lost)."""
    f = _functions()

    def count(condition: str) -> Any:
        return f.count_if(f.expr(condition))

    found = rows.groupBy("run").agg(
        count("kind = 'recover' and cause = 'asked'").alias("recover_asked"),
        count("kind = 'recover' and cause = 'answered'").alias("recover_answered"),
        count("kind = 'recover' and cause = 'failed'").alias("recover_failed"),
        count("kind = 'lose'").alias("given_up"),
    )
    share = f.least(f.lit(1.0), f.try_divide("recover_answered", "recover_asked"))
    return found.withColumn("recover_success", f.when(f.col("recover_asked") > 0, share))


def recovery_by_cause(rows: Any) -> Any:
    """What became of each event that a process asked for.

    run, outcome, events, share. Outcomes: `answered` in time; `late`, it came after all, though
    too late for who had asked; `given up`, told as lost; `open`, neither by the end.
    """
    f = _functions()
    wanted = rows.where("kind in ('recover', 'lose', 'deliver')")
    each = (*LIFE, "group", "origin", "number")
    fates = (
        wanted.groupBy(*each)
        .agg(
            f.max(f.expr("kind = 'recover' and cause = 'asked'")).alias("asked"),
            f.max(f.expr("kind = 'recover' and cause = 'answered'")).alias("answered"),
            f.max(f.expr("kind = 'deliver'")).alias("delivered"),
            f.max(f.expr("kind = 'lose'")).alias("lost"),
        )
        .where("asked")
    )
    outcome = (
        f.when(f.expr("answered and not lost"), "answered")
        .when(f.col("lost"), f.when(f.col("answered"), "late").otherwise("given up"))
        .when(f.expr("delivered"), "late")
        .otherwise("open")
    )
    total = import_module("pyspark.sql.window").Window.partitionBy("run")
    return (
        fates.withColumn("outcome", outcome)
        .groupBy("run", "outcome")
        .agg(f.count("*").alias("events"))
        .withColumn("share", f.col("events") / f.sum("events").over(total))
    )


def sizes(rows: Any) -> Any:
    """run, stamp_entries, stamp_bytes (of a stamp that travels alone, in MessagePack): means over
    what was submitted. Sizes of messages are in `messages`."""
    f = _functions()
    packed = f.expr(
        "aggregate(stamp, 0L, (sum, entry) -> sum + case when entry < 128 then 1 "
        "when entry < 256 then 2 when entry < 65536 then 3 when entry < 4294967296 then 5 "
        "else 9 end)"
    )
    stamped = f.expr("size(stamp) > 0")
    return (
        rows.where("kind = 'submit'")
        .groupBy("run")
        .agg(
            f.avg(f.when(stamped, f.size("stamp"))).alias("stamp_entries"),
            f.avg(f.when(stamped, packed)).alias("stamp_bytes"),
        )
    )


def messages(rows: Any) -> Any:
    """run, message (its type), packets, bytes, bytes_mean, bytes_p99, bytes_max, share (of all
    bytes that were sent in the run): what carries events, and what the protocol needs beside."""
    f = _functions()
    total = import_module("pyspark.sql.window").Window.partitionBy("run")
    return (
        rows.where("kind = 'send'")
        .groupBy("run", "message")
        .agg(
            f.count("*").alias("packets"),
            f.sum("size").alias("bytes"),
            f.avg("size").alias("bytes_mean"),
            f.percentile("size", f.lit(0.99)).alias("bytes_p99"),
            f.max("size").alias("bytes_max"),
        )
        .withColumn("share", f.try_divide("bytes", f.sum("bytes").over(total)))
    )


def load(rows: Any) -> Any:
    """run, process, submitted, delivered, sent, received (packets), sent_bytes, received_bytes,
    load (both together): a row for everybody, for who does nothing counts too."""
    f = _functions()
    kinds = {"submitted": "submit", "delivered": "deliver", "sent": "send", "received": "receive"}
    counts = [f.count_if(f.col("kind") == kind).alias(name) for name, kind in kinds.items()]
    weighed = [
        f.coalesce(f.sum(f.when(f.col("kind") == kind, f.col("size"))), f.lit(0)).alias(name)
        for name, kind in (("sent_bytes", "send"), ("received_bytes", "receive"))
    ]
    return (
        rows.groupBy("run", "process")
        .agg(*counts, *weighed)
        .withColumn("load", f.col("sent_bytes") + f.col("received_bytes"))
    )


def evenness(rows: Any) -> Any:
    """run, processes, load_mean (bytes), load_max_mean, load_cv: how far the load of the
    processes lies apart; 1 and 0 where all have the same."""
    f = _functions()
    return (
        load(rows)
        .groupBy("run")
        .agg(
            f.count("*").alias("processes"),
            f.avg("load").alias("load_mean"),
            f.try_divide(f.max("load"), f.avg("load")).alias("load_max_mean"),
            f.try_divide(f.stddev_pop("load"), f.avg("load")).alias("load_cv"),
        )
        .where("load_mean > 0")
    )


def overhead(rows: Any) -> Any:
    """run, duplicates (deliveries of an event beyond the first in one life), received_bytes,
    deliveries (at others than the makers), delivery_bytes: bytes received for each of these.
    Gossip receives most events several times, which is in here; `messages` tells what for."""
    f = _functions()
    delivered = _deliveries(rows)
    again = (
        delivered.groupBy(*LIFE, "group", "origin", "number")
        .count()
        .groupBy("run")
        .agg(f.sum(f.col("count") - 1).alias("duplicates"))
    )
    elsewhere = (
        delivered.where("origin != process").groupBy("run").agg(f.count("*").alias("deliveries"))
    )
    received = (
        rows.where("kind = 'receive'").groupBy("run").agg(f.sum("size").alias("received_bytes"))
    )
    each = f.col("received_bytes") / f.col("deliveries")
    return (
        again.join(received, "run", "left")
        .join(elsewhere, "run", "left")
        .withColumn("delivery_bytes", f.when(f.col("received_bytes") > 0, each))
    )


def view_changes(rows: Any) -> Any:
    """run, group, view, installed (at how many), changed (at how many of them after a sign),
    change_mean, change_max: from the first sign of a change at a process (suspicion, coming,
    leaving) to its new view; spread: between the first and the last who installed it."""
    f = _functions()
    window = import_module("pyspark.sql.window").Window
    life = window.partitionBy(*LIFE, "group").orderBy("step")
    seen = rows.where(f.col("kind").isin("view", *CHANGES))
    is_view = f.col("kind") == "view"
    earlier = f.sum(is_view.cast("int")).over(life.rowsBetween(window.unboundedPreceding, -1))
    numbered = seen.withColumn("before", f.coalesce(earlier, f.lit(0)))
    stretch = window.partitionBy(*LIFE, "group", "before")
    sign = f.min_by(f.when(~is_view, f.col("at")), f.when(~is_view, f.col("step"))).over(stretch)
    took = (f.col("at") - f.col("sign")) / SECOND
    return (
        numbered.withColumn("sign", sign)
        .where(is_view)
        .groupBy("run", "group", "view")
        .agg(
            f.count("*").alias("installed"),
            f.count("sign").alias("changed"),
            f.avg(took).alias("change_mean"),
            f.max(took).alias("change_max"),
            ((f.max("at") - f.min("at")) / SECOND).alias("spread"),
        )
    )


def blocked(rows: Any) -> Any:
    """run, process, cause, times, blocked_time: until the next submission of that process in that
    group, whichever formation; a wait that none ended counts in `times` alone."""
    f = _functions()
    window = import_module("pyspark.sql.window").Window
    seen = rows.where("kind in ('blocked', 'submit')")
    seen = seen.withColumn("group", f.substring_index("group", "+", 1))
    later = (
        window.partitionBy(*LIFE, "group").orderBy("step").rowsBetween(1, window.unboundedFollowing)
    )
    order = window.partitionBy(*LIFE, "group").orderBy("step")
    submits = f.when(f.col("kind") == "submit", f.col("at"))
    # Of several waits in a row the first one lasts until the submission, the rest lie inside it.
    first = f.coalesce(f.lag("kind").over(order), f.lit("submit")) != "blocked"
    until = f.first(submits, ignorenulls=True).over(later)
    return (
        seen.withColumns({"until_at": until, "is_first": first})
        .where("kind = 'blocked'")
        .groupBy("run", "process", "cause")
        .agg(
            f.count("*").alias("times"),
            (f.sum(f.when(f.col("is_first"), f.col("until_at") - f.col("at"))) / SECOND).alias(
                "blocked_time"
            ),
        )
        .fillna(0.0, ["blocked_time"])
    )


# --- parts -----------------------------------------------------------------------------------


def _functions() -> Any:
    return import_module("pyspark.sql.functions")


def _joinable(rows: Any) -> Any:
    """Traces of other systems may have no groups, and null equals nothing in a join."""
    return rows.fillna("", ["group"])


def _made(rows: Any) -> Any:
    """When each event was submitted: the last such row, as a run has one."""
    f = _functions()
    submits = rows.where("kind = 'submit'")
    return submits.groupBy(*EVENT).agg(f.max_by("at", "step").alias("made_at"))


def _deliveries(rows: Any) -> Any:
    return rows.where("kind = 'deliver'")


def _too_late(rows: Any) -> Any:
    """Deliveries that break optimistic causal order, found run by run in tasks."""
    columns = [name for name in COLUMNS if name not in ("stamp", "members")]
    wanted = rows.where("kind in ('submit', 'deliver')").select("run", *columns)
    return wanted.groupBy("run").applyInArrow(_late_in_run, LATE)


def _late_in_run(table: Any) -> Any:
    import pyarrow

    records = table.to_pylist()
    run = records[0]["run"]
    rows = [Row(**{name: record[name] for name in record if name != "run"}) for record in records]
    found = [
        (run, process, incarnation, *event)
        for process, incarnation, event in sorted(too_late(rows), key=str)
    ]
    text, number = pyarrow.string(), pyarrow.int64()
    types = [text, text, pyarrow.int32(), text, text, number]
    names = ("run", "process", "incarnation", "group", "origin", "number")
    columns = [
        pyarrow.array([one[place] for one in found], kind) for place, kind in enumerate(types)
    ]
    return pyarrow.Table.from_arrays(columns, names)

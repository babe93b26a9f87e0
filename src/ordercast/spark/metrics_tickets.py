"""What became of tickets in many runs, as DataFrames: functions from a lake to a table.

Each takes the rows of a lake (`tables.lake_frame`), as the functions of metrics.py do. Times are
seconds.

| function | a row for each |
|---|---|
| `grants` | ticket that was granted |
| `tickets` | run |

`check/tenures.py` counts the same in plain Python, and measure_tickets.py says what access and use
are: the definitions are theirs.

How it is done. Along the rows of each process and group, a row that begins or ends a tenure (a
grant, a release, a loss, a death) is a turn. Between two turns there is at most one wish. Along the
rows of each ticket, what orphaned it (a death or a loss) is looked for since the last grant.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ordercast.units import SECOND

MEMBER = ("run", "group", "process")
TICKET = ("run", "group", "index")
ORDER = ("at", "process", "incarnation", "step")
_DIED = "died"


def grants(rows: Any) -> Any:
    """run, group, process, index, at (nanoseconds), wait (since it was wanted, or an earlier ticket
    was lost; null if nobody said so), reclaim (since its last owner died with it or lost it; null
    if it was free)."""
    f = _functions()
    followed = _followed(rows)
    orphans = followed.where(
        "cause = 'disconnected' or (cause = 'died' and before.cause = 'acquired')"
    ).withColumn("index", f.expr("if(cause = 'died', before.index, index)"))
    granted = followed.where("granted")
    own = ["run", "group", "process", "index", *ORDER[2:], "at"]
    both = granted.select(*own, "wait", f.lit(True).alias("granted")).unionByName(
        orphans.select(
            *own, f.lit(None).cast("double").alias("wait"), f.lit(False).alias("granted")
        )
    )
    window = _window()
    along = window.partitionBy(*TICKET).orderBy(*ORDER)
    grant = f.col("granted").cast("int")
    tenure = f.coalesce(f.sum(grant).over(_before(along)), f.lit(0))
    since = f.min(f.when(~f.col("granted"), f.col("at"))).over(
        window.partitionBy(*TICKET, "tenure")
    )
    return (
        both.withColumn("tenure", tenure)
        .withColumn("reclaim", (f.col("at") - since) / SECOND)
        .where("granted")
        .select("run", "group", "process", "index", "at", "wait", "reclaim")
    )


def tickets(rows: Any, runs: Any | None = None) -> Any:
    """run, ticket_granted, ticket_refused, ticket_given_back, ticket_lost, ticket_reclaimed;
    ticket_wait_mean, _p50, _p99 and ticket_reclaim_mean, _p50, _p99; ticket_use; with `runs`
    (`tables.runs_frame`) also ticket_access, null where no lease is told."""
    f = _functions()
    causes = {"refused": "refused", "given_back": "released", "lost": "disconnected"}
    counted = (
        rows.where("kind = 'ticket'")
        .groupBy("run")
        .agg(
            *(
                f.count_if(f.col("cause") == cause).alias(f"ticket_{name}")
                for name, cause in causes.items()
            )
        )
    )
    times = [
        made.alias(f"ticket_{name}_{figure}")
        for name in ("wait", "reclaim")
        for figure, made in (
            ("mean", f.avg(name)),
            ("p50", f.percentile(name, f.lit(0.5))),
            ("p99", f.percentile(name, f.lit(0.99))),
        )
    ]
    found = (
        grants(rows)
        .groupBy("run")
        .agg(
            f.count("*").alias("ticket_granted"),
            f.count("reclaim").alias("ticket_reclaimed"),
            *times,
        )
    )
    table = (
        counted.join(found, "run", "left")
        .fillna(0, ["ticket_granted", "ticket_reclaimed"])
        .join(_use(rows), "run", "left")
    )
    return table if runs is None else table.join(_access(rows, runs), "run", "left")


def _use(rows: Any) -> Any:
    """run, ticket_use."""
    f = _functions()
    along = _window().partitionBy(*MEMBER).orderBy(*ORDER)
    held = (
        _followed(rows)
        .where("turn")
        .withColumn("end", f.lead("at").over(along))
        .where("granted")
        .join(_ends(rows), "run")
    )
    time = f.sum(f.coalesce("end", "last") - f.col("at"))
    return held.groupBy("run").agg(
        f.try_divide(time.cast("double"), f.max("last") - f.min("at")).alias("ticket_use")
    )


def _access(rows: Any, runs: Any) -> Any:
    """run, ticket_access."""
    f = _functions()
    followed = _followed(rows)
    first = followed.where("granted").groupBy("run").agg(f.min("at").alias("first"))
    along = _window().partitionBy(*MEMBER).orderBy(*ORDER)
    turns = followed.where("turn").withColumns(
        {"end": f.lead("at").over(along), "then": f.lead("granted").over(along)}
    )
    after_a_loss = turns.where("cause = 'disconnected'").selectExpr(
        "run", "at as begin", "end", "coalesce(then, false) as granted"
    )
    wished = f.expr("if(cause = 'wanted' and not before.cause <=> 'acquired', at, null)")
    by_wish = (
        followed.where("lost_at is null")
        .groupBy(*MEMBER, "stretch")
        .agg(
            f.min(wished).alias("begin"),
            f.max(f.when(f.col("turn"), f.col("at"))).alias("end"),
            f.max("granted").alias("granted"),
        )
        .select("run", "begin", "end", "granted")
    )
    wishes = (
        by_wish.unionByName(after_a_loss)
        .join(_ends(rows), "run")
        .join(first, "run")
        .join(runs.select("run", "lease").where("lease > 0"), "run")
        .where("begin >= first")
    )
    # What no turn ended lasts until the last row.
    took = f.coalesce("end", "last") - f.col("begin")
    granted = f.count_if(f.col("granted") & (took <= f.col("lease")))
    waited = f.count_if(took > f.col("lease"))
    return wishes.groupBy("run").agg(f.try_divide(granted, granted + waited).alias("ticket_access"))


def _followed(rows: Any) -> Any:
    """All rows about tickets and deaths, of each process in each group where it has tickets.

    cause    that of the ticket row, or `died`
    before   cause and index of the row before it that says whether a ticket is held
    granted  whether the row grants a ticket, that is, not the same to the same owner again
    turn     whether it is a turn, and `stretch`, how many turns there were before it
    lost_at  when the turn before it was, if that was a loss
    wait     of grants
    """
    f = _functions()
    rows = rows.fillna("", ["group"]).fillna(0, ["index"])
    told = rows.where("kind = 'ticket'").select(*MEMBER, *ORDER[2:], "at", "index", "cause")
    where = told.select(*MEMBER).distinct()
    deaths = rows.where("kind in ('crash', 'start')").select(
        "run", "process", *ORDER[2:], "at", "index", f.lit(_DIED).alias("cause")
    )
    found = told.unionByName(deaths.join(where, ["run", "process"]))
    along = _window().partitionBy(*MEMBER).orderBy(*ORDER)
    states = f.col("cause").isin("acquired", "released", "disconnected", _DIED)
    state = f.when(states, f.struct("cause", "index"))
    found = found.withColumn("before", f.last(state, ignorenulls=True).over(_before(along)))
    found = found.withColumn(
        "granted",
        f.expr("cause = 'acquired' and not (before.cause, before.index) <=> (cause, index)"),
    )
    found = found.withColumn("turn", states & (f.col("granted") | (f.col("cause") != "acquired")))
    turned = f.when(f.col("turn"), f.struct("cause", "at"))
    latest = f.last(turned, ignorenulls=True).over(_before(along))
    found = found.withColumns(
        {
            "stretch": f.coalesce(f.sum(f.col("turn").cast("int")).over(_before(along)), f.lit(0)),
            "lost_at": f.when(latest["cause"] == "disconnected", latest["at"]),
        }
    )
    stretch = _window().partitionBy(*MEMBER, "stretch")
    wanted = f.min(f.when(f.col("cause") == "wanted", f.col("at"))).over(stretch)
    wait = (f.col("at") - f.coalesce(f.col("lost_at"), wanted)) / SECOND
    return found.withColumn("wait", f.when(f.col("granted"), wait))


def _ends(rows: Any) -> Any:
    """run, last: when its last row was written."""
    return rows.groupBy("run").agg(_functions().max("at").alias("last"))


def _before(along: Any) -> Any:
    return along.rowsBetween(_window().unboundedPreceding, -1)


def _functions() -> Any:
    return import_module("pyspark.sql.functions")


def _window() -> Any:
    return import_module("pyspark.sql.window").Window

"""Figures of runs: what they mean, and that Spark and the plain functions agree on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.errors import UsageError
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import World
from ordercast.spark import metrics
from ordercast.spark.measure import FIGURES, measure
from ordercast.spark.tables import lake_frame, runs_frame, trace_frame
from ordercast.trace.parquet import COLUMN_TYPES, write_trace
from ordercast.trace.schema import Level, Trace
from ordercast.trace.sinks import MemorySink
from ordercast.trace.text import parse_history

ROUND = 50_000_000
HISTORIES = Path(__file__).resolve().parents[1] / "histories"
CALM = {"name": "calm", "processes": 4, "duration": "1s", "quiet": "1s"}
SCENARIOS: dict[str, dict[str, Any]] = {
    "causal": {
        **CALM,
        "family": "causal",
        "options": {"tickets": 3, "join_wait": "50ms", "round": "50ms", "hops": 1, "fan_out": 1}
        | {"ownership": "fixed"},
        "network": {"loss": 0.2},
    },
    "gossip": {
        **CALM,
        "family": "gossip",
        "options": {"round": "50ms", "fan_out": 1, "hops": 2, "events_per_message": 2},
        "workload": {"per_round": 2},
    },
    "fifo": {
        **CALM,
        "family": "fifo",
        "options": {"window": 4},
        "workload": {"rate": 200},
        "fault": [{"at": "300ms", "kind": "restart", "nodes": ["n2"], "for": "200ms"}],
    },
}
LEASED: dict[str, Any] = {
    **CALM,
    "family": "causal",
    "duration": "5s",
    "options": {"tickets": 2, "round": "50ms", "lease": "400ms", "join_wait": "50ms"},
    "chaos": {"faults": ["restart"], "every": "300ms", "longest": "200ms", "disks": "kept"},
}


def figures_of(text: str, round_ns: int | None = None) -> dict[str, float]:
    return measure(parse_history(text, "here"), 0, 0, round_ns)


def simulated(name: str, level: Level) -> Trace:
    sink = MemorySink()
    scenario = {**SCENARIOS, "tickets": LEASED}[name]
    outcome = World(parse_scenario(scenario), 1, sink=sink, level=level).run()
    assert outcome.error is None
    return Trace(msgspec.structs.replace(outcome.header, run=name), sink.rows)


# --- what they mean --------------------------------------------------------------------------


def test_an_event_that_comes_after_what_follows_it_is_lost_though_it_came() -> None:
    """The papers' loss: not received, or not deliverable without breaking optimistic order."""
    text = """run r family=gossip ending=finished
        n1 join
        n2 join
        n3 join
        n1 submit n1:1
        n1 deliver n1:1
        n2 deliver n1:1
        n2 submit n2:1
        n2 deliver n2:1
        n3 deliver n2:1
        n3 deliver n1:1
    """
    figures = figures_of(text)
    # Six pairs: n1 never got n2:1, and n3 got n1:1 after its answer.
    assert figures["missing_share"] == pytest.approx(1 / 6)
    assert figures["disordered_share"] == pytest.approx(1 / 6)
    assert figures["lost_share"] == pytest.approx(2 / 6)


def test_an_event_that_comes_late_does_not_make_others_late() -> None:
    """n3 got n1:2 first; n1:1 is too late, n1:3 is not."""
    text = """run r
        n1 join
        n3 join
        n1 submit n1:1
        n1 submit n1:2
        n1 submit n1:3
        n3 deliver n1:2
        n3 deliver n1:1
        n3 deliver n1:3
    """
    assert figures_of(text)["disordered_share"] == pytest.approx(1 / 6)


def test_nothing_is_expected_of_who_crashed_or_came_later() -> None:
    text = """run r
        n1 join
        n2 join
        n1 submit n1:1
        n1 deliver n1:1
        n3 join
        n2 crash
    """
    assert figures_of(text)["lost_share"] == 0


def test_latency_is_counted_at_others_in_seconds_and_rounds() -> None:
    text = """run r
        n1 submit n1:1 at=1s
        n1 deliver n1:1 at=1s
        n2 deliver n1:1 at=1100ms hops=1
        n3 deliver n1:1 at=1300ms hops=3
    """
    figures = figures_of(text, ROUND)
    assert figures["latency_mean"] == pytest.approx(0.2)
    assert figures["latency_p50"] == pytest.approx(0.2)
    assert figures["latency_p99"] == pytest.approx(0.298)
    assert figures["rounds_mean"] == pytest.approx(4)
    assert figures["rounds_p99"] == pytest.approx(5.96)
    assert figures["hops_mean"] == 2
    assert figures["round"] == pytest.approx(0.05)


def test_a_wait_lasts_until_the_next_submission() -> None:
    text = """run r
        n1 submit n1:1 at=1s
        n1 blocked group=g cause=window at=2s
        n1 submit n1:2 at=2500ms
        n1 blocked group=g cause=window at=3s
    """
    figures = figures_of(text)
    assert figures["blocked"] == 2
    assert figures["blocked_time"] == pytest.approx(0.5)
    formed = text.replace("n1:2 at", "n1:2 group=g+n1.0.1 at")
    assert figures_of(formed)["blocked_time"] == pytest.approx(0.5), "in whichever formation"


def test_a_view_changes_from_its_first_sign() -> None:
    text = """run r
        n1 view 1 n1,n2,n3 at=1s
        n1 suspect peer=n2 group=g at=2s
        n1 confirm peer=n2 group=g at=2100ms
        n1 view 2 n1,n3 at=2300ms
        n3 view 2 n1,n3 at=2400ms
    """
    figures = figures_of(text)
    assert figures["view_changes"] == 1
    assert figures["view_change_mean"] == pytest.approx(0.3)


def test_the_load_of_who_does_nothing_counts() -> None:
    text = """run r
        n1 send peer=n2 size=300
        n2 receive peer=n1 size=300
        n3 start
    """
    figures = figures_of(text)
    assert figures["load_max_mean"] == pytest.approx(1.5)
    assert figures["load_cv"] == pytest.approx(0.5**0.5)


def test_every_figure_has_a_place() -> None:
    """And each comes up in a run of one of the families."""
    told: set[str] = set()
    for name in (*SCENARIOS, "tickets"):
        told |= set(measure(simulated(name, Level.WIRE), 10, 100, ROUND, 0.1, 8 * ROUND))
    assert told == set(FIGURES)


# --- Spark and the plain functions -----------------------------------------------------------


def by_run(frame: Any) -> dict[str, dict[str, Any]]:
    return {row["run"]: row.asDict() for row in frame.collect()}


SAME = {
    "latency": ("latency_mean", "latency_p50", "latency_p99", "hops_mean"),
    "throughput": ("submitted", "delivered", "throughput"),
    "loss": ("lost_share", "missing_share", "disordered_share"),
    "recovery": ("recover_asked", "recover_failed", "recover_success", "given_up"),
    "sizes": ("stamp_entries", "stamp_bytes"),
    "evenness": ("load_max_mean", "load_cv"),
    "overhead": ("duplicates", "delivery_bytes"),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Trace]]:
    """Runs of three families with every packet, and all written histories."""
    folder = tmp_path_factory.mktemp("lake")
    traces = {name: simulated(name, Level.WIRE) for name in SCENARIOS}
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


@pytest.mark.slow
def test_spark_and_the_plain_functions_agree(
    quick: Any, lake: tuple[Path, dict[str, Trace]]
) -> None:
    folder, traces = lake
    plain = {run: measure(trace, 0, 0, None) for run, trace in traces.items()}
    assert plain["causal"]["recover_asked"] > 0
    assert plain["causal"]["delivery_bytes"] > 100
    assert plain["gossip"]["disordered_share"] > 0
    assert plain["gossip"]["missing_share"] > 0
    assert plain["fifo"]["blocked_time"] > 0
    rows = lake_frame(quick, folder).cache()
    assert rows.columns == list(COLUMN_TYPES)
    assert rows.count() == sum(len(trace.rows) for trace in traces.values())
    for function, names in SAME.items():
        table = by_run(getattr(metrics, function)(rows))
        for run, figures in plain.items():
            for name in names:
                found = table.get(run, {}).get(name)
                expected = figures.get(name)
                if not expected:  # absent, or nothing to count
                    assert not found, (function, run, name)
                else:
                    assert found == pytest.approx(expected), (function, run, name)
    waits = metrics.blocked(rows).groupBy("run").sum("times", "blocked_time")
    changes = metrics.view_changes(rows).where("changed > 0").groupBy("run").count()
    waited, changed = by_run(waits), by_run(changes)
    for run, figures in plain.items():
        assert waited.get(run, {}).get("sum(times)", 0) == figures["blocked"]
        found = waited.get(run, {}).get("sum(blocked_time)", 0.0)
        assert found == pytest.approx(figures["blocked_time"])
        assert changed.get(run, {}).get("count", 0) == figures.get("view_changes", 0)
    rows.unpersist()


@pytest.mark.slow
def test_tables_have_a_row_for_what_they_say(
    quick: Any, lake: tuple[Path, dict[str, Trace]]
) -> None:
    folder, traces = lake
    rows = lake_frame(quick, folder / "run=causal").cache()
    runs = runs_frame(quick, folder).where("run = 'causal'")
    [latency] = metrics.latency(rows, runs).collect()
    assert latency["rounds_mean"] == pytest.approx(latency["latency_mean"] / 0.05)
    load = metrics.load(rows).collect()
    assert {row["process"] for row in load} == {"n1", "n2", "n3", "n4"}
    sent = sum(row.kind == "send" for row in traces["causal"].rows)
    assert sum(row["sent"] for row in load) == sent
    messages = metrics.messages(rows).collect()
    assert sum(row["packets"] for row in messages) == sent
    assert sum(row["share"] for row in messages) == pytest.approx(1)
    outcomes = {row["outcome"]: row["events"] for row in metrics.recovery_by_cause(rows).collect()}
    asked = {
        (row.process, row.incarnation, row.group, row.origin, row.number)
        for row in traces["causal"].rows
        if row.kind == "recover"
    }
    assert sum(outcomes.values()) == len(asked)
    assert outcomes["answered"] > 0
    rows.unpersist()


@pytest.mark.slow
def test_what_became_of_events_that_were_asked_for(quick: Any) -> None:
    text = """run r
        n1 recover n2:1 cause=asked
        n1 recover n2:1 cause=answered
        n1 deliver n2:1
        n1 recover n2:2 cause=asked
        n1 recover n2:2 cause=failed
        n1 deliver n2:2
        n1 recover n2:3 cause=asked
        n1 lose n2:3 cause=unrecovered
        n1 recover n2:4 cause=asked
        n1 recover n2:5 cause=asked
        n1 lose n2:5 cause=unrecovered
        n1 recover n2:5 cause=answered
    """
    rows = trace_frame(quick, "r", parse_history(text, "here").rows)
    found = {row["outcome"]: row["events"] for row in metrics.recovery_by_cause(rows).collect()}
    assert found == {"answered": 1, "late": 2, "given up": 1, "open": 1}


def test_a_lake_without_complete_runs_is_told(tmp_path: Path) -> None:
    (tmp_path / "run=x").mkdir()
    (tmp_path / "run=x" / "part-00000.parquet.tmp").write_bytes(b"")
    with pytest.raises(UsageError, match="no complete runs"):
        lake_frame(None, tmp_path)

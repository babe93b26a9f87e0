"""Figures of tickets: what they mean, and that Spark and the plain functions agree on them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from ordercast.check.tenures import tenures_of
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import World
from ordercast.spark.cells import run_cell
from ordercast.spark.experiment import load_experiment
from ordercast.spark.measure import measure
from ordercast.spark.measure_tickets import TICKET_FIGURES, measure_tickets
from ordercast.spark.metrics_tickets import grants, tickets
from ordercast.spark.tables import SCHEMA, lake_frame, runs_frame
from ordercast.trace.parquet import COLUMN_TYPES, write_trace
from ordercast.trace.schema import Ending, Header, Row, Trace
from ordercast.trace.sinks import MemorySink
from ordercast.trace.text import parse_history
from ordercast.units import SECOND

EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "tickets.toml"
LEASE = 40
BAD = {
    "name": "bad",
    "family": "causal",
    "processes": 5,
    "duration": "6s",
    "quiet": "2s",
    "options": {"tickets": 2, "round": "100ms", "lease": "600ms", "join_wait": "50ms"},
    "workload": {"rate": 2},
    "chaos": {"faults": ["restart"], "every": "400ms", "longest": "300ms", "disks": "kept"},
}


def figures_of(text: str) -> dict[str, float]:
    return measure_tickets(parse_history(text, "here").rows, SECOND)


def ticket(who: str, cause: str, at: str, index: int | None = None) -> str:
    more = "" if index is None else f" index={index}"
    return f"{who} ticket group=g cause={cause} at={at}{more}\n"


# --- what they mean --------------------------------------------------------------------------


def test_access_is_a_grant_within_a_lease_of_the_wish() -> None:
    """n1 founds the cluster. n2 is quick, n3 waits too long, n4 dies before its time was over and
    n5 has hardly begun when the run ends: of two that count one had access."""
    text = "run r\n" + ticket("n1", "wanted", "0s") + ticket("n1", "acquired", "5s", 0)
    text += ticket("n2", "wanted", "6s") + ticket("n3", "wanted", "6s")
    text += ticket("n4", "wanted", "6s") + ticket("n2", "acquired", "6500ms", 1)
    text += "n4 crash at=6800ms\n" + ticket("n3", "acquired", "8s", 2)
    text += ticket("n5", "wanted", "8s") + "n1 stop at=8500ms\n"
    figures = figures_of(text)
    assert figures["ticket_access"] == pytest.approx(1 / 2)
    assert figures["ticket_granted"] == 3
    assert figures["ticket_wait_mean"] == pytest.approx((5 + 0.5 + 2) / 3)


def test_use_is_what_the_living_hold_over_time() -> None:
    """n1 holds a ticket for four seconds of four, n2 one for two, until it dies."""
    text = "run r\n" + ticket("n1", "acquired", "1s", 0) + ticket("n2", "acquired", "1s", 1)
    text += "n2 crash at=3s\n" + ticket("n1", "renewed", "5s", 0)
    assert figures_of(text)["ticket_use"] == pytest.approx(1.5)


def test_a_reclaim_lasts_from_the_death_to_the_next_owner() -> None:
    text = "run r\n" + ticket("n1", "acquired", "1s", 0) + ticket("n2", "acquired", "1s", 1)
    text += "n1 crash at=2s\n" + ticket("n2", "disconnected", "3s", 1)
    text += ticket("n3", "acquired", "3500ms", 0) + ticket("n3", "acquired", "3600ms", 0)
    text += ticket("n4", "acquired", "4500ms", 1)
    figures = figures_of(text)
    assert figures["ticket_reclaimed"] == 2
    assert figures["ticket_reclaim_mean"] == pytest.approx(1.5)
    assert figures["ticket_granted"] == 4  # the same to the same again is none
    assert figures["ticket_lost"] == 1


def test_a_run_without_tickets_has_none_of_these() -> None:
    text = "run r\nn1 submit n1:1\nn1 deliver n1:1\n"
    assert not set(TICKET_FIGURES) & set(measure(parse_history(text, "r"), 0, 0, None, None, 1))


def test_the_experiment_gives_the_figures_that_it_draws(tmp_path: Path) -> None:
    """A shorter run of one of its cells: half of the tickets in use, far below the bound."""
    experiment, cells = load_experiment(EXPERIMENT)
    wanted = {"workload.senders": 10, "label.p_f": 0.1}
    cell = next(one for one in cells if wanted.items() <= one.settings.items())
    document = {**cell.document, "duration": "6s", "quiet": "2s"}
    manifest = run_cell(cell._replace(document=document), tmp_path, "none")
    assert manifest.error is None
    assert not manifest.broken
    assert {figure.y for figure in experiment.figure} <= manifest.figures.keys()
    assert manifest.figures["ticket_access"] > 0.9
    assert 9 < manifest.figures["ticket_use"] <= 10


# --- Spark and the plain functions -----------------------------------------------------------


def random_tickets(seed: int) -> list[Row]:
    """Few processes, groups, tickets and instants, so that whatever can coincide does."""
    chance = Random(seed)
    causes = ["wanted", "wanted", "acquired", "acquired", "acquired", "released", "disconnected"]
    rows: list[Row] = []
    lives = dict.fromkeys(("n1", "n2", "n3", "n4"), 0)
    at = 0
    for step in range(chance.randint(1, 70)):
        at += chance.choice([0, 0, 1, 7, 30])
        process = chance.choice(sorted(lives))
        kind = chance.choice(["ticket"] * 8 + ["crash", "start", "stop"])
        lives[process] += kind == "start"
        life = lives[process]
        if kind != "ticket":
            rows.append(Row(process, life, step, at, kind))
            continue
        cause = chance.choice([*causes, "renewed", "refused"])
        index = None if cause in ("wanted", "refused") else chance.randint(0, 2)
        group = chance.choice(["g", "h", None]) if seed % 3 == 0 else "g"
        row = Row(process, life, step, at, kind, group=group, index=index, cause=cause)
        rows.append(row)
    chance.shuffle(rows)
    return rows


@pytest.mark.slow
def test_spark_and_the_plain_functions_agree(quick: Any) -> None:
    runs = {f"r{seed}": random_tickets(seed) for seed in range(150)}
    names = [name for name in COLUMN_TYPES if name != "run"]
    values = [(run, *(getattr(row, name) for name in names)) for run in runs for row in runs[run]]
    frame = quick.createDataFrame(values, SCHEMA).cache()
    leases = quick.createDataFrame([(run, LEASE) for run in runs], "run string, lease bigint")
    found: dict[str, tuple[list[float], list[float]]] = {run: ([], []) for run in runs}
    for row in grants(frame).collect():
        for times, value in zip(found[row["run"]], (row["wait"], row["reclaim"]), strict=True):
            if value is not None:
                times.append(value)
    table = {row["run"]: row.asDict() for row in tickets(frame, leases).collect()}
    seen = set()
    for run, rows in runs.items():
        plain = tenures_of(rows)
        for times, expected in zip(found[run], (plain.waits, plain.reclaims), strict=True):
            assert sorted(times) == pytest.approx(sorted(one / SECOND for one in expected)), run
        figures = measure_tickets(rows, LEASE)
        told = {name: value for name, value in table.get(run, {}).items() if name != "run"}
        assert {name for name, value in told.items() if value is not None} == figures.keys(), run
        assert {name: told[name] for name in figures} == pytest.approx(figures), run
        seen |= {name for name, value in figures.items() if value}
    assert seen == set(TICKET_FIGURES)
    assert 0 < sum(one.get("ticket_access") == 0 for one in table.values()) < len(runs) / 2
    frame.unpersist()


@pytest.mark.slow
def test_a_lake_tells_its_leases(quick: Any, tmp_path: Path) -> None:
    sink = MemorySink()
    scenario = parse_scenario(BAD)
    outcome = World(scenario, 1, sink=sink).run()
    assert outcome.error is None
    header = Header("bad", family="causal", ending=Ending.FINISHED, parameters=BAD)
    write_trace(tmp_path, Trace(header, sink.rows))
    frame, runs = lake_frame(quick, tmp_path), runs_frame(quick, tmp_path)
    [found] = tickets(frame, runs).collect()
    expected = measure_tickets(sink.rows, 600_000_000)
    assert expected["ticket_reclaimed"] > 3
    assert {name: found[name] for name in expected} == pytest.approx(expected)

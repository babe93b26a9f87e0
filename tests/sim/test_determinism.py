"""One seed is the whole run; and what draws from its own stream is not shifted by the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.scenario import chance
from ordercast.scenario.chaos import draw_chaos
from ordercast.scenario.faults import FAULTS
from ordercast.scenario.faults.hardware import Rot
from ordercast.scenario.faults.members import OfMembers
from ordercast.scenario.file import parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Row, TraceLevel
from ordercast.trace.sinks import MemorySink
from ordercast.units import SECOND

NOT_HERE = (OfMembers, Rot)  # groups of this family have no logs
KINDS = [kind for kind, fault in FAULTS.items() if not issubclass(fault, NOT_HERE)]
CHAOS: dict[str, Any] = {
    "name": "all at once",
    "processes": 5,
    "duration": "6s",
    "quiet": "3s",
    "workload": {"rate": 30},
    "network": {
        "spread": 0.3,
        "loss": 0.02,
        "duplicate": 0.02,
        "reorder": 0.05,
        "bandwidth": "1MB/s",
    },
    "chaos": {"faults": KINDS, "every": "500ms"},
}
CALM: dict[str, Any] = {"name": "calm", "duration": "5s", "quiet": "1s"}


def rows_of(document: dict[str, Any], seed: int = 1, **settings: Any) -> list[Row]:
    sink = MemorySink()
    outcome = Simulation(parse_scenario(document), seed, sink=sink, **settings).run()
    assert outcome.error is None
    return sink.rows


def before(rows: list[Row], at: int) -> list[Row]:
    return [row for row in rows if row.at < at]


def submits(rows: list[Row], process: str) -> list[int]:
    """When a process submitted. At the start it waits for the group to form, so not that."""
    times = [row.at for row in rows if row.kind == "submit" and row.process == process]
    return [at for at in times if at > SECOND]


# --- the same seed ---------------------------------------------------------------------------

RUN = """
import json, pathlib, sys
from ordercast.scenario.file import parse_scenario
from ordercast.sim.world import Simulation
from ordercast.trace.parquet import ParquetSink
from ordercast.trace.schema import TraceLevel
scenario = parse_scenario(json.loads(sys.argv[1]))
with ParquetSink(pathlib.Path(sys.argv[2]), scenario.run_name(3)) as sink:
    sink.close(Simulation(scenario, 3, sink=sink, level=TraceLevel.WIRE).run().header)
"""


def files_written(lake: Path, document: str, hash_seed: str, *options: str) -> dict[str, bytes]:
    subprocess.run(
        [sys.executable, *options, "-c", RUN, document, str(lake)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
    )
    files = sorted(path for path in lake.rglob("*") if path.is_file())
    return {str(path.relative_to(lake)): path.read_bytes() for path in files}


def test_two_python_processes_write_the_same_bytes(tmp_path: Path) -> None:
    document = json.dumps(CHAOS)
    one, two = (files_written(tmp_path / seed, document, seed) for seed in ("1", "2"))
    assert list(one) == ["run=all-at-once-3/part-00000.parquet", "run=all-at-once-3/run.json"]
    assert one == two
    assert len(one["run=all-at-once-3/part-00000.parquet"]) > 10_000
    assert files_written(tmp_path / "no assertions", document, "1", "-O") == one


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_run_twice_gives_the_same_rows(seed: int) -> None:
    assert rows_of(CHAOS, seed) == rows_of(CHAOS, seed)


def test_another_seed_gives_other_rows() -> None:
    assert rows_of(CHAOS, 1) != rows_of(CHAOS, 2)


@pytest.mark.parametrize("level", [TraceLevel.APP, TraceLevel.WIRE])
@pytest.mark.parametrize("document", [CALM, CHAOS], ids=["calm", "chaos"])
def test_packets_that_go_through_the_codec_change_nothing(
    document: dict[str, Any], level: TraceLevel
) -> None:
    plain = rows_of(document, level=level)
    assert rows_of(document, level=level, round_trip=True) == plain


def test_the_level_of_the_trace_changes_nothing_but_the_trace() -> None:
    wire = [
        row for row in rows_of(CHAOS, level=TraceLevel.WIRE) if row.kind not in ("send", "receive")
    ]
    app = rows_of(CHAOS, level=TraceLevel.APP)
    assert [without_step(row) for row in wire] == [without_step(row) for row in app]


def without_step(row: Row) -> Row:
    return msgspec.structs.replace(row, step=0)


# --- streams of their own --------------------------------------------------------------------


def test_a_stream_is_the_same_whenever_it_is_asked_for() -> None:
    assert chance.stream(1, "a", "b").random() == chance.stream(1, "a", "b").random()


def test_streams_of_other_names_or_seeds_are_others() -> None:
    names = [(1,), (2,), (1, "a"), (1, "b"), (1, "a", 1), (1, "a", 11), (11, "a", 1)]
    assert len({chance.stream(*name).random() for name in names}) == len(names)


def test_drawing_from_one_stream_does_not_shift_another() -> None:
    alone = chance.stream(1, "b")
    one, other = chance.stream(1, "a"), chance.stream(1, "b")
    for _ in range(3):
        drawn = one.random()
        assert other.random() == alone.random() != drawn


def test_one_more_sender_does_not_change_when_the_first_one_submits() -> None:
    one = rows_of({**CALM, "workload": {"senders": 1}})
    two = rows_of({**CALM, "workload": {"senders": 2}})
    assert submits(one, "n1") == submits(two, "n1") != []
    assert submits(one, "n2") == []
    assert submits(two, "n2") != submits(two, "n1")


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_changes_nothing_before_it_begins(kind: str) -> None:
    fault = {"at": "3s", "kind": kind, "nodes": ["n2"]}
    if kind == "skew":
        fault["by"] = "1s"
    calm, struck = (
        rows_of(CALM, level=TraceLevel.WIRE),
        rows_of({**CALM, "fault": [fault]}, level=TraceLevel.WIRE),
    )
    assert before(calm, 3 * SECOND) == before(struck, 3 * SECOND) != []


def test_a_fault_does_not_shift_the_load_of_those_it_spares() -> None:
    fault = {"at": "3s", "kind": "crash", "nodes": ["n2"]}
    assert submits(rows_of(CALM), "n1") == submits(rows_of({**CALM, "fault": [fault]}), "n1")


def test_other_chaos_changes_nothing_before_its_first_fault() -> None:
    documents = [
        {**CALM, "chaos": {"faults": faults, "every": every}}
        for faults, every in ((["crash", "pause"], "1s"), (["loss"], "3s"))
    ]
    first = min(first_fault(parse_scenario(document)) for document in documents)
    assert first > 100_000_000
    one, two = (rows_of(document) for document in documents)
    assert before(one, first) == before(two, first) != []
    assert one != two


def first_fault(scenario: Scenario) -> int:
    return draw_chaos(scenario, 1)[0].at

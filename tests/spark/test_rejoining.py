"""Laws by vectors and by slices where members leave and rejoin: the verdicts of the reference."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.check.mutations import renumbered
from tests.sim.test_memberships import OPTIONS, ran
from tests.spark.test_sliced_run import passed, written

from ordercast.check.laws import LAWS, check
from ordercast.spark.columns import columns_of
from ordercast.spark.vector import Vectors, judge_columns
from ordercast.trace.schema import Row, Trace

ALL = list(LAWS)
EVERY = list(LAWS.values())
KINDS = ("deliver", "submit", "view", "leave", "join")


def rejoining(family: str) -> Trace:
    """n2 leaves twice and comes back in the same incarnation, n3 once in between."""
    return ran(
        {"kind": "leave", "for": "500ms"},
        {"kind": "leave", "at": "2s", "for": "500ms", "nodes": ["n3"]},
        {"kind": "leave", "at": "3s", "for": "500ms"},
        family=family,
        duration="4s",
        workload={"rate": 10},
    ).trace


def spoil(rows: list[Row], draw: Random) -> None:
    """Takes away, doubles or moves one row of a kind that laws read."""
    kind = draw.choice(sorted({row.kind for row in rows} & set(KINDS)))
    at = draw.choice([place for place, row in enumerate(rows) if row.kind == kind])
    way = draw.choice(("drop", "double", "move"))
    row = rows[at] if way == "double" else rows.pop(at)
    if way != "drop":
        rows.insert(draw.randrange(len(rows)), row)


def compare(trace: Trace, lake: Path, name: str) -> tuple[set[str], set[str]]:
    """Asks both engines for every law; returns what slices settled, and what is broken."""
    expected = {one.law: one for one in check(trace, ALL)}
    columns = columns_of(trace)
    vectors = Vectors(columns)
    assert {law.name: vectors.judge(law) for law in EVERY} == expected, name
    assert judge_columns(columns).verdicts == check(trace), name
    folder, _ = written(lake, name, trace)
    run = passed(folder, EVERY, cores=2)
    assert run is not None
    found = run.settle(EVERY)
    assert found == {law: expected[law] for law in found}, name
    return {*found}, {law for law, verdict in expected.items() if verdict.witness}


@pytest.mark.parametrize("family", [family for family in OPTIONS if family != "fifo"])
def test_members_that_leave_and_rejoin(family: str, tmp_path: Path) -> None:
    trace = rejoining(family)
    joins = [(row.process, row.incarnation) for row in trace.rows if row.kind == "join"]
    assert joins.count(("n2", 0)) == 3
    assert joins.count(("n3", 0)) == 2
    settled, broken = compare(trace, tmp_path, "sound")
    assert {"fifo", "no-creation", "no-duplication"} <= settled
    assert not broken & {"fifo", "no-creation", "no-duplication"}
    for seed in range(12):
        rows = list(trace.rows)
        spoil(rows, Random(seed))
        broken |= compare(Trace(trace.header, renumbered(rows)), tmp_path, f"spoilt-{seed}")[1]
    assert len(broken) > 1, broken

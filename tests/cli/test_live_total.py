"""`ordercast live` of totally ordered groups: killed, stopped, cut in two and re-formed.

These runs take the seconds of their scenarios. No test sleeps.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.live_runs import run_in_both_worlds, run_live

from ordercast.live.run import plan_of
from ordercast.scenario.faults.members import Reform
from ordercast.scenario.faults.paths import Partition
from ordercast.scenario.file import load_scenario
from ordercast.trace.lake import read_lake
from ordercast.trace.schema import Row
from ordercast.types import name_of
from ordercast.units import SECOND

ROOT = Path(__file__).resolve().parents[2]
PARTITION = "scenarios/total-partition.toml"
EVERYBODY = ("n1", "n2", "n3", "n4", "n5")
SIDES = (("n1", "n2", "n3"), ("n4", "n5"))


def rows_in(folder: Path) -> list[Row]:
    (trace,) = read_lake(folder)
    return trace.rows


@pytest.mark.slow
def test_both_sides_of_a_partition_continue_and_one_re_forms_the_group(
    ordercast, tmp_path: Path
) -> None:
    run_in_both_worlds(ordercast, PARTITION, "--out", tmp_path)
    rows = rows_in(tmp_path)
    for side in SIDES:
        for name in side:
            views = [row for row in rows if row.kind == "view" and row.process == name]
            apart = [place for place, row in enumerate(views) if row.members == side]
            together = [place for place, row in enumerate(views) if row.members == EVERYBODY]
            assert apart, f"{name} was never with its side alone"
            assert together[0] < apart[0] < together[-1]
            anew = views[together[-1]].group or ""
            assert views[together[0]].group != anew
            assert anew.startswith("g+n2.0."), "it may take n2 more than one try"
            sent = [row for row in rows if row.kind == "submit" and row.process == name]
            parted, gathered = views[apart[0]], views[together[-1]]
            assert any(row.view == parted.view for row in sent), f"{name} did not go on alone"
            assert any(row.view == gathered.view for row in sent), f"{name} did not go on with all"
    last = [row for row in rows if row.kind == "submit" and row.group == anew]
    for row in last:
        got = {each.process for each in rows if each.kind == "deliver" and is_of(each, row)}
        assert got == set(EVERYBODY)


def is_of(delivery: Row, submission: Row) -> bool:
    return (delivery.origin, delivery.number) == (submission.origin, submission.number)


@pytest.mark.slow
def test_the_same_holds_where_members_cut_their_own_connections(
    ordercast, tmp_path: Path, no_namespaces: None
) -> None:
    run_live(ordercast, PARTITION, "--seed", 2, "--out", tmp_path)
    views = {row.members for row in rows_in(tmp_path) if row.kind == "view"}
    assert {*SIDES, EVERYBODY} <= views


@pytest.mark.slow
def test_killing_a_member_of_two_groups_breaks_no_law(ordercast, tmp_path: Path) -> None:
    printed = run_live(ordercast, "scenarios/total-crash.toml", "--out", tmp_path)
    assert printed["crashes"] == 1
    rows = rows_in(tmp_path)
    (death,) = [row.at for row in rows if row.kind == "crash"]
    later = {row.group for row in rows if row.kind == "submit" and row.at > death + SECOND}
    assert {name_of(group) for group in later} == {"orders", "prices"}
    assert len(later) == 2, "nobody formed anything anew"


@pytest.mark.slow
def test_a_killed_or_disconnected_member_returns_automatically(ordercast, tmp_path: Path) -> None:
    returning = "scenarios/total-returning.toml"
    assert run_live(ordercast, returning, "--seed", 1, "--out", tmp_path)["crashes"] == 2
    rows = rows_in(tmp_path)
    for group in ("orders", "prices"):
        formations = {
            row.group for row in rows if row.kind == "view" and name_of(row.group) == group
        }
        assert len(formations) > 1, f"{group} was never re-formed"
    returned = {row.process for row in rows if row.kind == "view" and row.incarnation}
    assert returned, "nobody who came again was taken in"


def test_a_reform_is_planned_for_its_group_and_time() -> None:
    plan = plan_of(load_scenario(ROOT / PARTITION), 1)
    cut, reform = plan.faults
    assert isinstance(cut, Partition)
    assert isinstance(reform, Reform)
    assert (plan.groups[0].name, reform.group, reform.nodes) == ("g", "g", ["n2"])
    assert (reform.at, reform.until) == (6 * SECOND, None)


def test_a_reform_in_a_group_that_is_not_formed_is_refused(ordercast, tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    text = 'name = "x"\n[[fault]]\nat = "1s"\nkind = "reform"\nnodes = ["n1"]\n'
    path.write_text(text, encoding="utf-8")
    ran = ordercast("live", path)
    assert ran.code == 2
    assert "groups of fifo do not form" in ran.err

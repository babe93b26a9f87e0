"""How views split and merge, in simulated time: who is in them, when, and at what cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.check.laws import check
from ordercast.scenario.file import load_scenario, parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.testing import Simulated, simulate
from ordercast.trace.schema import Row
from ordercast.types import Merged, View
from ordercast.units import MILLISECOND, SECOND

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"
SUSPICION_LIMIT = SECOND
STAGE_LIMIT = 600 * MILLISECOND


def scenario(processes: int, *faults: dict[str, Any], **settings: Any) -> Scenario:
    given = {"name": "views", "family": "synchrony", "processes": processes, "duration": "9s"}
    given |= {"quiet": "6s", "workload": {"rate": 10}, "fault": list(faults)}
    return parse_scenario(given | settings)


def lawful(run: Simulated) -> Simulated:
    assert run.outcome.error is None
    assert [(one.law, one.why) for one in run.verdicts if one.answer != "holds"] == []
    return run


def views(run: Simulated, name: str, after: int = 0) -> list[Row]:
    """The regular views of a process."""
    return [
        row
        for row in run.trace.rows
        if (row.process, row.kind, row.cause) == (name, "view", None) and row.at >= after
    ]


def cut(at: str, lasts: str, *sides: str, kind: str = "partition") -> dict[str, Any]:
    return {"at": at, "for": lasts, "kind": kind, "sides": [side.split() for side in sides]}


# --- merging ---------------------------------------------------------------------------------


def test_three_sides_merge_in_one_change() -> None:
    split = cut("2s", "3s", "n1 n4", "n2 n5", "n3 n6")
    run = lawful(simulate(scenario(6, split), 1))
    for name in run.heard:
        members = [row.members for row in views(run, name)]
        assert [len(each or ()) for each in members] == [6, 2, 6]
        [merged] = [item for item in run.heard[name] if isinstance(item, Merged)]
        assert [len(side) for side in merged.sides] == [2, 2, 2]
        assert name in [node.name for node in merged.sides[0]]  # our own is the first
        assert merged.view.came_with == merged.sides[0]


@pytest.mark.parametrize("count", [4, 16])
def test_two_halves_merge_within_half_a_second_of_the_heal(count: int) -> None:
    names = [f"n{number}" for number in range(1, count + 1)]
    halves = " ".join(names[: count // 2]), " ".join(names[count // 2 :])
    for seed in range(1, 4):
        load = {"rate": 2}
        run = lawful(simulate(scenario(count, cut("2s", "4s", *halves), workload=load), seed))
        for name in names:
            [back] = views(run, name, 6 * SECOND)
            assert len(back.members or ()) == count
            assert back.at < 6 * SECOND + 500 * MILLISECOND


def test_a_member_moves_from_one_side_to_another() -> None:
    faults = cut("1s", "3s", "n1 n2 n3", "n4 n5"), cut("4s", "3s", "n1 n2", "n3 n4 n5")
    run = lawful(simulate(scenario(5, *faults), 1))
    seen = [row.members for row in views(run, "n3")]
    assert seen[1] == ("n1", "n2", "n3")
    assert ("n3", "n4", "n5") in seen
    assert seen[-1] == ("n1", "n2", "n3", "n4", "n5")
    assert views(run, "n1", 4500 * MILLISECOND)[0].members == ("n1", "n2")


def test_a_member_that_is_heard_by_nobody_for_a_while_comes_back_without_help() -> None:
    silent = cut("2s", "2s", "n3", "n1 n2 n4", kind="one-way")
    run = lawful(simulate(scenario(4, silent), 1))
    for name in ("n1", "n2", "n4"):
        seen = [row.members for row in views(run, name)]
        assert seen[1] == ("n1", "n2", "n4")
        assert seen[-1] == ("n1", "n2", "n3", "n4")


def test_a_pair_that_never_hears_each_other_makes_no_views_for_ever() -> None:
    """Only the path between n1 and n4 is cut: one of them is out, and then nothing happens."""
    pair = cut("1s", "8s", "n1", "n4")
    run = lawful(simulate(scenario(4, pair), 1))
    assert views(run, "n2")[1].members == ("n1", "n2", "n3")
    for name in run.heard:
        assert not [row for row in views(run, name, 3 * SECOND) if row.at < 9 * SECOND]


def test_members_begin_alone_and_merge() -> None:
    group = {"name": "orders", "members": ["n1", "n2", "n3", "n4"], "open": True}
    group |= {"anchors": ["n1"], "expect": 4}
    run = lawful(simulate(scenario(4, group=[group]), 1))
    for name in run.heard:
        [view] = [item for item in run.heard[name] if isinstance(item, View)]
        assert len(view.members) == 4  # the first that is shown
        assert views(run, name)[0].at < SECOND


def test_members_of_an_open_group_find_each_other_again_without_an_anchor() -> None:
    """Each knew n1 alone at first. They have met since, so they merge although n1 is gone."""
    group = {"name": "orders", "members": ["n1", "n2", "n3"], "open": True, "anchors": ["n1"]}
    faults = {"at": "1s", "kind": "crash", "nodes": ["n1"]}, cut("2s", "3s", "n2", "n3")
    run = lawful(simulate(scenario(3, *faults, group=[group]), 1))
    for name in ("n2", "n3"):
        seen = [row.members for row in views(run, name, 2 * SECOND)]
        assert seen[-2:] == [(name,), ("n2", "n3")]


# --- time and cost ---------------------------------------------------------------------------


@pytest.mark.parametrize("dead", ["n1", "n2", "n4"])
@pytest.mark.parametrize("rate", [0.01, 50])
def test_a_view_follows_a_crash_within_the_suspicion_limit(dead: str, rate: float) -> None:
    crash = {"at": "2s", "kind": "crash", "nodes": [dead]}
    run = lawful(simulate(scenario(4, crash, workload={"rate": rate}), 1))
    for name in run.heard:
        if name != dead:
            assert len(views(run, name)) == 2
            assert views(run, name)[-1].at < 2 * SECOND + SUSPICION_LIMIT + 100 * MILLISECOND


def test_a_change_in_which_members_die_one_after_the_other_ends() -> None:
    """Theorem 5.11 with a number: each failure costs a change at most one and a half stage limits,
    if it is noticed by the change alone."""
    faults = [
        {"at": f"{2000 + 700 * place}ms", "kind": "crash", "nodes": [name]}
        for place, name in enumerate(["n6", "n5", "n4"])
    ]
    run = lawful(simulate(scenario(6, *faults), 1))
    last = 3400 * MILLISECOND
    for name in ("n1", "n2", "n3"):
        final = views(run, name)[-1]
        assert final.members == ("n1", "n2", "n3")
        assert final.at < last + SUSPICION_LIMIT + 3 * STAGE_LIMIT * 3 // 2


def test_an_idle_group_is_almost_silent() -> None:
    run = lawful(simulate(scenario(16, workload={"senders": 0}), 1))
    assert run.outcome.packets / 15 < 100  # a second


@pytest.mark.parametrize("count", [4, 8, 12])
def test_a_message_under_load_costs_a_packet_for_each_other_member(count: int) -> None:
    """Where all members send, events acknowledge, and there is little else. When the load ends all
    acknowledgements arrive, also in large groups: else members would be suspected."""
    load = scenario(count, workload={"rate": 1500}, duration="200ms", quiet="2s")
    run = lawful(simulate(load, 1))
    assert run.outcome.packets / run.outcome.submitted < 2.5 * (count - 1)


@pytest.mark.parametrize("count", [4, 5, 8, 12])
def test_a_lone_message_costs_three_packets_for_each_other_member(count: int) -> None:
    """Small groups acknowledge to all, which is as cheap there; large ones to the sender, which
    tells all."""
    lone = {"senders": ["n1"], "rate": 5, "service": "safe"}
    with_load = lawful(simulate(scenario(count, workload=lone), 1)).outcome
    idle = simulate(scenario(count, workload={"senders": 0}), 1).outcome
    cost = (with_load.packets - idle.packets) / with_load.submitted
    assert cost < 3.5 * (count - 1)


# --- one order -------------------------------------------------------------------------------


def test_one_order_suits_all_views_of_all_sides_of_a_group() -> None:
    """Heights begin again in each view, and parts of a view that was split go on apart: still no
    two members deliver two agreed or safe events in different orders."""
    chaos = load_scenario(SCENARIOS / "synchrony-chaos.toml")
    for seed in range(1, 5):
        run = simulate(chaos, seed)
        for group in ("g", "narrow"):
            rows = [row for row in run.trace.rows if row.group in (group, None)]
            trace = type(run.trace)(run.trace.header, rows)
            [verdict] = check(trace, ["total"])
            assert verdict.answer == "holds", f"seed {seed}: {verdict.why}"

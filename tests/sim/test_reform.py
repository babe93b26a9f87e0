"""Groups that form, as scenarios ask for them: what may be said, and when it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.errors import UsageError
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.chaos import draw_chaos
from ordercast.scenario.faults.members import Reform
from ordercast.scenario.file import load_scenario, parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Row
from ordercast.trace.sinks import MemorySink
from ordercast.types import name_of
from ordercast.units import MILLISECOND, SECOND

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def scenario(*faults: dict[str, Any], **given: Any) -> Scenario:
    return parse_scenario(
        {
            "name": "x",
            "family": "total",
            "processes": 3,
            "duration": "3s",
            "quiet": "2s",
            "fault": [{"at": "1s", "kind": "reform", "nodes": ["n1"], **one} for one in faults],
            **given,
        }
    )


def rows_of(scenario: Scenario) -> list[Row]:
    sink = MemorySink()
    assert Simulation(scenario, 1, sink=sink).run().error is None
    return sink.rows


def first_views(rows: list[Row], label: str) -> dict[str, int]:
    return {row.process: row.at for row in rows if row.kind == "view" and row.group == label}


def test_a_group_re_forms_on_request() -> None:
    views = first_views(rows_of(scenario({})), "g+n1.0.1")
    assert set(views) == {"n1", "n2", "n3"}
    assert all(SECOND < at < SECOND + 200 * MILLISECOND for at in views.values())


def test_a_paused_process_asks_when_it_continues() -> None:
    still = {"at": "900ms", "kind": "pause", "for": "500ms"}
    views = first_views(rows_of(scenario(still, {})), "g+n1.0.1")
    assert min(views.values()) > 1400 * MILLISECOND


def test_a_crashed_process_asks_for_nothing() -> None:
    down = {"at": "900ms", "kind": "crash"}
    assert not any("+" in (row.group or "") for row in rows_of(scenario(down, {})))


def test_a_group_that_is_not_formed_forms_first() -> None:
    rows = rows_of(scenario(formed=False))
    assert set(first_views(rows, "g+n1.0.1")) == {"n1", "n2", "n3"}
    assert not first_views(rows, "g")


def test_each_group_may_say_whether_it_is_formed() -> None:
    groups = [
        {"name": "a", "members": ["n1", "n2"]},
        {"name": "b", "members": ["n2", "n3"], "formed": True},
    ]
    rows = rows_of(scenario(formed=False, group=groups))
    assert first_views(rows, "a+n1.0.1")
    assert first_views(rows, "b")


TWO = [{"name": "a", "members": ["n1", "n2"]}, {"name": "b", "members": ["n2", "n3"]}]


@pytest.mark.parametrize(
    ("fault", "given", "what"),
    [
        ({"nodes": []}, {}, "names no process"),
        ({"for": "1s"}, {}, "at a time, not for a while"),
        ({"group": "h"}, {}, "'h'"),
        ({}, {"group": TWO}, "there are several groups"),
        ({"group": "b"}, {"group": TWO}, "n1 is not a member of group 'b'"),
        ({}, {"family": "fifo"}, "groups of fifo do not form"),
        ({"kind": "crash", "group": "g"}, {}, "group belongs to reform"),
    ],
)
def test_impossible_reforms_are_rejected(
    fault: dict[str, Any], given: dict[str, Any], what: str
) -> None:
    with pytest.raises(UsageError, match=what):
        scenario(fault, **given)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"family": "fifo", "formed": False}, "fifo groups do not form"),
        ({"group": [{"name": "a+b", "members": ["n1"]}]}, "'a+b' is no name for a group"),
        (
            {"family": "fifo", "chaos": {"faults": ["reform"]}},
            "not all groups here can be re-formed",
        ),
    ],
)
def test_groups_that_cannot_form_are_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what.replace("+", r"\+")):
        scenario(**given)


def test_chaos_may_re_form_groups() -> None:
    stormy = scenario(group=TWO, chaos={"faults": ["reform", "pause"], "every": "100ms"})
    asked = [fault for fault in draw_chaos(stormy, 1) if isinstance(fault, Reform)]
    members = {group.name: group.members for group in stormy.groups()}
    assert {fault.group for fault in asked} == {"a", "b"}
    assert all(fault.nodes[0] in members[fault.group] for fault in asked)
    assert any("+" in (row.group or "") for row in rows_of(stormy))


def ends_with(rows: list[Row], group: str) -> set[tuple[str, ...] | None]:
    """The last views of the last lives, of whichever formation."""
    last: dict[str, tuple[int, tuple[str, ...] | None]] = {}
    for row in rows:
        if row.kind == "start":
            last[row.process] = row.incarnation, None
        elif row.kind == "view" and name_of(row.group or "") == group:
            assert last[row.process][0] == row.incarnation
            last[row.process] = row.incarnation, row.members
    return {members for _, members in last.values()} - {None}


def test_the_scenarios_show_what_their_comments_say() -> None:
    everybody = tuple(f"n{number}" for number in range(1, 6))
    parted = rows_of(load_scenario(SCENARIOS / "total-reform.toml"))
    assert len({row.members for row in parted if row.kind == "view"}) >= 3
    assert ends_with(parted, "g") == {everybody}
    forming = rows_of(load_scenario(SCENARIOS / "total-forming.toml"))
    assert ends_with(forming, "g") == {everybody[:4]}
    assert {row.incarnation for row in forming if row.process == "n3"} == {0, 1}
    returning = load_scenario(SCENARIOS / "total-returning.toml")
    assert ends_with(rows_of(returning), "orders") == {("n1", "n2", "n3")}


def test_groups_that_share_a_machine_are_built_together() -> None:
    sharing = scenario(
        group=[
            {"name": "a", "members": ["n1"]},
            {"name": "b", "members": ["n1"], "family": "fifo"},
            {"name": "c", "members": ["n1"], "family": "sequenced"},
        ]
    )
    process = Simulation(sharing, 1).processes["n1"]
    process.start()
    a, b, c = (process.host.seats[group] for group in "abc")
    assert a is c
    assert a is not b
    assert process.host.seated == [b, a], "in the order of the families"
    assert FAMILIES["total"].build is FAMILIES["sequenced"].build

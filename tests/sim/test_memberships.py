"""Members that leave, join later or again, and stop reading, in the simulator."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.errors import UsageError
from ordercast.scenario.file import parse_scenario
from ordercast.testing import Simulated, simulate
from ordercast.trace.schema import Row
from ordercast.types import name_of
from ordercast.units import MILLISECOND, SECOND

QUICK = {"reform": "auto", "prompt_after": "10ms", "silence_limit": "100ms"}
OPTIONS: dict[str, dict[str, Any]] = {
    "fifo": {},
    "gossip": {},
    "causal": {"ownership": "fixed", "tickets": 3},
    "total": QUICK,
    "sequenced": QUICK,
    "atomic": QUICK,
}


def ran(*faults: dict[str, Any], family: str = "fifo", **given: Any) -> Simulated:
    document = {
        "name": "x",
        "family": family,
        "processes": 3,
        "duration": "4s",
        "quiet": "4s",
        "options": OPTIONS[family],
        "fault": [{"at": "1s", "nodes": ["n2"], **fault} for fault in faults],
        **given,
    }
    run = simulate(parse_scenario(document), 1)
    assert run.outcome.error is None
    assert not run.broken
    return run


def rows_of(run: Simulated, kind: str, who: str = "n2") -> list[Row]:
    return [row for row in run.trace.rows if row.kind == kind and row.process == who]


def is_silent(run: Simulated, begin: int, end: int) -> bool:
    """Whether n2 makes and delivers nothing between these times."""
    busy = [*rows_of(run, "submit"), *rows_of(run, "deliver")]
    return not any(begin < row.at < end for row in busy)


@pytest.mark.parametrize("family", OPTIONS)
def test_a_member_leaves_after_the_others_have_what_it_sent(family: str) -> None:
    run = ran({"kind": "leave"}, family=family)
    (left,) = rows_of(run, "leave")[-1:]
    assert SECOND <= left.at < 4 * SECOND
    assert is_silent(run, left.at, 8 * SECOND)
    made = {row.number for row in rows_of(run, "submit")}
    assert made
    if family not in ("gossip", "causal"):  # which promise nothing about one that left
        for other in ("n1", "n3"):
            theirs = {row.number for row in rows_of(run, "deliver", other) if row.origin == "n2"}
            assert made <= theirs
    assert len(rows_of(run, "deliver", "n1")) > len(rows_of(run, "deliver"))


@pytest.mark.parametrize("family", [family for family in OPTIONS if family != "fifo"])
def test_a_member_comes_back_in_the_same_incarnation(family: str) -> None:
    run = ran({"kind": "leave", "for": "1s"}, family=family)
    joins = rows_of(run, "join")
    assert [row.incarnation for row in joins] == [0, 0]
    left = next(row for row in rows_of(run, "leave") if row.at >= SECOND)
    assert left.at <= joins[1].at
    assert is_silent(run, left.at, joins[1].at)
    assert any(row.at > joins[1].at for row in rows_of(run, "submit"))
    assert any(row.at > joins[1].at and row.origin == "n1" for row in rows_of(run, "deliver"))


@pytest.mark.parametrize("family", OPTIONS)
def test_a_member_joins_later_than_the_others(family: str) -> None:
    given = {"formed": False} if "reform" in OPTIONS[family] else {}
    run = ran({"kind": "join"}, family=family, **given)
    assert [row.at for row in rows_of(run, "join")] == [SECOND]
    assert is_silent(run, 0, SECOND)
    assert rows_of(run, "submit")
    assert any(row.origin == "n1" for row in rows_of(run, "deliver"))


@pytest.mark.parametrize("family", [family for family in OPTIONS if family != "gossip"])
def test_a_reader_that_stops_blocks_the_senders(family: str) -> None:
    slow = {"kind": "slow-reader", "for": "1s"}
    options = OPTIONS[family] | ({"window": 4} if family not in ("causal",) else {})
    run = ran(slow, family=family, options=options)
    if family not in ("causal",):
        blocked = [row.at for row in run.trace.rows if row.kind == "blocked"]
        assert any(SECOND < at < 2 * SECOND for at in blocked)
    late = [row for row in run.trace.rows if row.kind == "submit" and row.at > 2100 * MILLISECOND]
    assert late  # afterwards it goes on
    if family not in ("causal",):
        for name in ("n1", "n2", "n3"):
            assert {row.number for row in late} <= {
                row.number for row in rows_of(run, "deliver", name)
            }


@pytest.mark.parametrize("family", ["total", "sequenced", "atomic"])
def test_a_reader_that_stops_sends_nothing_that_others_would_have_to_retain(family: str) -> None:
    options = OPTIONS[family] | {"window": 1}
    run = ran({"kind": "slow-reader", "for": "3s"}, family=family, options=options)
    assert len([row for row in rows_of(run, "submit") if SECOND < row.at < 4 * SECOND]) <= 1


def test_no_incarnation_of_a_process_is_in_a_group_that_it_has_left() -> None:
    run = ran({"kind": "leave"}, {"kind": "restart", "at": "2s"})
    assert [row.incarnation for row in rows_of(run, "start")] == [0, 1]
    assert [row.incarnation for row in rows_of(run, "join")] == [0]


def test_a_member_that_leaves_one_group_stays_in_the_others() -> None:
    groups = [{"name": name, "members": ["n1", "n2", "n3"]} for name in ("a", "b")]
    run = ran({"kind": "leave", "group": "a"}, family="total", group=groups)
    late = [row for row in rows_of(run, "deliver") if row.at > 3 * SECOND]
    assert {name_of(row.group or "") for row in late} == {"b"}


def test_a_paused_member_leaves_when_it_continues() -> None:
    still = {"kind": "pause", "at": "900ms", "for": "600ms"}
    (left,) = rows_of(ran(still, {"kind": "leave"}), "leave")
    assert left.at >= 1500 * MILLISECOND


def test_leaves_that_overlap_end_with_the_last() -> None:
    run = ran(
        {"kind": "leave", "for": "1s"},
        {"kind": "leave", "at": "1500ms", "for": "1s"},
        family="causal",
    )
    assert [row.at for row in rows_of(run, "join")] == [0, 2500 * MILLISECOND]


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (
            {"kind": "leave", "for": "1s"},
            "a member of a fifo group returns in a new incarnation",
        ),
        ({"kind": "leave", "group": "h"}, "unknown group 'h'"),
        ({"kind": "join", "for": "1s"}, "a member joins at a time, not for a while"),
        ({"kind": "slow-reader", "nodes": []}, "names no process"),
        ({"kind": "leave", "disk": "lost"}, "disk belongs to crash and restart"),
    ],
)
def test_impossible_faults_are_rejected(fault: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        ran(fault)

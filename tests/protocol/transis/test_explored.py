"""Every schedule of two or three members with a fault and a merge, up to bounds; laws are judged.

A fault here is one that needs no long silence, for each timer multiplies the states: a member
leaves, or crashes and comes back. The incarnation that comes back is a side of its own, so the
others lose a member and merge with a side, in one change or in two. What was reached with the rules
as they were first:

| what may happen | states | searched |
|---|---|---|
| n1 sends, any member leaves | 7,545 | all |
| n3 is back, two timers | 9,456 | all |
| n3 is back, n1 sends, two timers | 52,367 | all (`long`) |
| two lone members meet, n1 sends, four timers | 18,710 | all (`long`) |
| any member crashes and is back, n1 sends, three timers | 2,000,000 at most | a part (`long`) |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ordercast.check.laws import check
from ordercast.check.verdict import Verdict
from ordercast.kernel.family import Family, Plan
from ordercast.kernel.inputs import Leave
from ordercast.protocol.transis import FAMILY
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.sim.explore import Bounds, Report, Setting, explore
from ordercast.testing.mutants import mutant_families
from ordercast.trace.schema import Trace

OPTIONS = SynchronyOptions(
    service="safe",
    window=2,
    prompt_after="10ms",
    silence_limit="100ms",
    suspicion_limit="400ms",
    stage_limit="200ms",
    court_for="10ms",
    propose_every="10ms",
    hello="100ms",
    hello_limit="100ms",
    rest="50ms",
    rest_limit="100ms",
)
IS_BACK = ("n3 crashes", "n3 restarts")
ONE_SENDS = {"n1": 1}
Ways = set[tuple[int, ...]]
"""How many members the views of an incarnation had, one after the other."""


def place(names: str, formed: bool = True, family: Family = FAMILY, **rules: Any) -> Setting:
    who = tuple(names.split())
    plan = Plan("g", who, OPTIONS, formed)
    parts = ((family, (plan,)),)
    return Setting(who, parts, clocks=True, latest_only=True, prelude=False, rounds=40, **rules)


def search(where: Setting, after: Sequence[str] = (), **bounds: Any) -> tuple[Report, Ways]:
    ways: Ways = set()

    def judge(trace: Trace) -> Sequence[Verdict]:
        views: dict[tuple[str, int], list[int]] = {}
        for row in trace.rows:
            if row.kind == "view" and row.cause is None:
                views.setdefault((row.process, row.incarnation), []).append(len(row.members or ()))
        ways.update(map(tuple, views.values()))
        return check(trace)

    report = explore(where, Bounds(**bounds), judge, settle=True, after=after)
    return report, ways


def assert_sound(found: tuple[Report, Ways], states: int, *expected: tuple[int, ...]) -> None:
    report, ways = found
    assert report.broken is None, str(report)
    assert report.complete
    assert report.states > states, "or this shows little"
    assert ways.issuperset(expected)


def test_a_member_leaves_at_every_moment() -> None:
    where = place("n1 n2 n3", inputs=(Leave("g"),))
    found = search(where, submissions=ONE_SENDS, inputs=1)
    assert_sound(found, 5000, (3,), (3, 2))


def test_a_member_is_lost_and_merged_with_in_every_order() -> None:
    found = search(place("n1 n2 n3"), IS_BACK, submissions=0, timers=2)
    assert_sound(found, 5000, (3, 2, 3), (3, 3), (1, 3))


def test_the_search_finds_an_order_that_two_members_do_not_share() -> None:
    """A mutant that orders events of one height as they come: the search shows how."""
    where = place("n1 n2 n3", family=mutant_families("breaks-ties")["synchrony"])
    report, _ = search(where, submissions={"n1": 1, "n2": 1}, max_states=20_000)
    assert "total-in-view is broken" in str(report)


@pytest.mark.long
def test_a_member_is_lost_and_merged_with_while_another_sends() -> None:
    found = search(place("n1 n2 n3"), IS_BACK, submissions=ONE_SENDS, timers=2)
    assert_sound(found, 30_000, (3, 2, 3), (3, 3), (1, 3))


@pytest.mark.long
def test_two_lone_members_meet_in_every_order() -> None:
    found = search(place("n1 n2", formed=False), submissions=ONE_SENDS, timers=4)
    assert_sound(found, 10_000, (1, 2))


@pytest.mark.long
def test_any_member_is_lost_and_merged_with_in_two_million_states() -> None:
    bounds = Bounds(submissions=ONE_SENDS, crashes=1, restarts=1, timers=3, max_states=2_000_000)
    report = explore(place("n1 n2 n3"), bounds, check)
    assert report.broken is None, str(report)
    assert report.complete or report.states == 2_000_000

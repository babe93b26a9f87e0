"""Partitions of every shape: sides that intersect, many sides, cuts that stay, large groups.

`test_views.py` has the plain cases; here what is special about each is counted over several seeds.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import msgspec
import pytest
from tests.protocol.transis.test_views import SCENARIOS, cut, lawful, scenario, views

from ordercast.protocol.transis.announcing import Announcer
from ordercast.protocol.transis.courting import Courting
from ordercast.scenario.file import load_scenario, parse_scenario
from ordercast.testing import Simulated, simulate
from ordercast.types import Merged
from ordercast.units import MILLISECOND, SECOND

ALL_SERVICES = ["basic", "causal", "agreed", "safe"]


def last_views(run: Simulated, before: int) -> dict[str, tuple[str, ...]]:
    """By process: the members of its last regular view up to a time."""
    found: dict[str, tuple[str, ...]] = {}
    for row in run.trace.rows:
        if (row.kind, row.cause) == ("view", None) and row.at < before:
            found[row.process] = row.members or ()
    return found


def merges(run: Simulated, name: str) -> list[int]:
    """Of how many sides its views were made."""
    return [len(item.sides) for item in run.heard[name] if isinstance(item, Merged)]


# --- sides that intersect --------------------------------------------------------------------

INTERSECTING = {
    "n3 reaches both sides": [("n1 n2", "n4 n5")],
    "a chain": [("n1", "n3 n4 n5"), ("n2", "n4 n5"), ("n3", "n5")],
    "a ring": [("n1", "n3 n4"), ("n2", "n4 n5"), ("n3", "n5")],
    "two pairs": [("n1", "n4"), ("n2", "n5")],
    "a star around n3": [("n1", "n2 n4 n5"), ("n2", "n4 n5"), ("n4", "n5")],
}


@pytest.mark.parametrize("shape", INTERSECTING)
def test_sides_that_intersect_become_views_that_do_not(shape: str) -> None:
    """Where the members that reach each other make no clean sides, views are still disjoint: who
    is in my view is in the same view. Nothing flaps while the cuts last, and then all merge."""
    for seed in (1, 2, 3):
        faults = [cut("1s", "7s", *sides) for sides in INTERSECTING[shape]]
        run = lawful(simulate(scenario(5, *faults), seed))
        seen = last_views(run, 8 * SECOND)
        for name, members in seen.items():
            assert name in members
            for other in members:
                assert seen[other] == members, f"seed {seed}: {seen}"
        late = [row for name in seen for row in views(run, name, 5 * SECOND)]
        assert not [row for row in late if row.at < 8 * SECOND], f"seed {seed}"
        assert set(map(len, last_views(run, 14 * SECOND).values())) == {5}


def test_a_cut_between_any_two_members_makes_no_storm_of_views() -> None:
    for one, other in combinations(["n1", "n2", "n3", "n4"], 2):
        for kind in ("partition", "one-way"):
            faults = cut("1s", "8s", one, other, kind=kind)
            run = lawful(simulate(scenario(4, faults), 1))
            late = [row for name in run.heard for row in views(run, name, 4 * SECOND)]
            assert not [row for row in late if row.at < 9 * SECOND], f"{one} {other} {kind}"
            sizes = sorted(map(len, last_views(run, 9 * SECOND).values()))
            assert sizes == [1, 3, 3, 3], f"{one} {other} {kind}"


@pytest.mark.parametrize("rules", ["both", "no echo", "no objections", "neither"])
def test_echo_and_objections_each_keep_a_cut_that_stays_quiet(
    rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n1 and n4 never hear each other. Without these two rules members suspect each other and
    install views for as long as that lasts."""
    if rules in ("no echo", "neither"):
        monkeypatch.setattr(Courting, "_hears_us", lambda *given: True)
    if rules in ("no objections", "neither"):
        monkeypatch.setattr(Announcer, "receive_decline", lambda *given: None)
    pair = cut("1s", "17s", "n1", "n4")
    run = simulate(scenario(4, pair, duration="18s", quiet="4s"), 1)
    assert run.outcome.error is None
    late = [row for name in run.heard for row in views(run, name, 5 * SECOND)]
    seconds = {row.at // SECOND for row in late if row.at < 18 * SECOND}
    assert len(seconds) > 4 if rules == "neither" else not seconds


# --- many sides at once ----------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 5, 8])
def test_lone_sides_that_all_hear_each_other_merge_in_one_change(count: int) -> None:
    names = [f"n{number}" for number in range(1, count + 1)]
    for seed in (1, 2, 3):
        run = lawful(simulate(scenario(count, cut("1s", "4s", *names)), seed))
        for name in names:
            assert [len(row.members or ()) for row in views(run, name)] == [count, 1, count]
            assert merges(run, name) == [count], f"seed {seed}: {name}"


def test_members_that_are_excluded_wrongly_are_back_without_help() -> None:
    """A pause longer than the suspicion limit: it was there all the time."""
    for name in ("n1", "n3", "n4"):
        pause = {"at": "2s", "for": "2500ms", "kind": "pause", "nodes": [name]}
        run = lawful(simulate(scenario(4, pause), 1))
        others = [other for other in run.heard if other != name]
        for other in others:
            sizes = [len(row.members or ()) for row in views(run, other)]
            assert sizes[1] == 3
            assert sizes[-1] == 4
        assert views(run, name)[-1].at < 4500 * MILLISECOND + 3 * SECOND


def test_a_member_that_moves_between_sides_carries_nothing_of_the_one_to_the_other() -> None:
    """n3 is with n1 and n2, then with n4 and n5: each event is delivered in one view only, and
    those of the first side that n3 has are delivered by nobody of the second."""
    faults = cut("1s", "3s", "n1 n2 n3", "n4 n5"), cut("4s", "3s", "n1 n2", "n3 n4 n5")
    for seed in (1, 2, 3):
        run = lawful(simulate(scenario(5, *faults), seed))
        apart = {
            (row.origin, row.number)
            for row in run.trace.rows
            if row.kind == "submit" and 2500 * MILLISECOND < row.at < 3500 * MILLISECOND
        }
        by_n3 = {(event.origin.name, event.number) for event in run.delivered_by("n3")} & apart
        by_n4 = {(event.origin.name, event.number) for event in run.delivered_by("n4")} & apart
        assert by_n3
        assert by_n4
        assert not by_n3 & by_n4


# --- faults in the middle of changes ---------------------------------------------------------


@pytest.mark.parametrize("window", [1, 8])
def test_a_crash_at_any_moment_of_a_change(window: int) -> None:
    """n5 dies, and about when the others notice another one does, or is cut off."""
    load = {"rate": 40, "service": ALL_SERVICES}
    for place, after in enumerate(range(735, 1030, 15)):
        second: dict[str, Any] = {"at": f"{1000 + after}ms", "kind": "crash"}
        second["nodes"] = [f"n{place % 4 + 1}"]
        if place % 3 == 0:
            second = cut(f"{1000 + after}ms", "1s", f"n{place % 4 + 1}", "n1 n2 n3 n4"[place % 2 :])
            second["sides"][1] = [
                name for name in ("n1", "n2", "n3", "n4") if name not in second["sides"][0]
            ]
        first = {"at": "1s", "kind": "crash", "nodes": ["n5"]}
        settings = {"duration": "4s", "quiet": "8s", "options": {"window": window}}
        lawful(simulate(scenario(5, first, second, workload=load, **settings), place))


def test_groups_of_ten_under_chaos() -> None:
    chaos = load_scenario(SCENARIOS / "synchrony-chaos.toml")
    names = [f"n{number}" for number in range(1, 11)]
    ten = msgspec.structs.replace(
        chaos, processes=10, group=[msgspec.structs.replace(chaos.group[0], members=names)]
    )
    for seed in range(10_001, 10_005):
        lawful(simulate(ten, seed))


def test_limits_that_are_too_short_break_no_promise_but_rest() -> None:
    """A stage limit below three trips, which docs/synchrony.md warns of: views come and go for as
    long as there is load, and still whoever is in one has delivered what it should."""
    hasty = {"suspicion_limit": "120ms", "silence_limit": "30ms", "stage_limit": "25ms"}
    hasty |= {"rest": "30ms", "hello": "10ms", "hello_limit": "24ms", "court_for": "5ms"}
    load = {"rate": 20, "service": ALL_SERVICES}
    changes = 0
    for seed in (1, 2, 3):
        settings = {"options": hasty, "workload": load, "network": {"delay": "10ms", "jitter": 0.8}}
        faults = cut("1s", "1s", "n1 n2", "n3 n4 n5"), cut("3s", "1s", "n1", "n2 n3", "n4 n5")
        run = simulate(scenario(5, *faults, duration="5s", quiet="4s", **settings), seed)
        assert run.outcome.error is None
        eventual = ("rest", "disjoint-views", "self-delivery")
        assert {verdict.law for verdict in run.broken} <= set(eventual), f"seed {seed}"
        changes += len(views(run, "n1"))
    assert changes > 12


# --- large groups ----------------------------------------------------------------------------


def halves(count: int, seconds: int = 4) -> dict[str, Any]:
    names = [f"n{number}" for number in range(1, count + 1)]
    split = {"at": "1s", "for": "2s", "kind": "partition"}
    split["sides"] = [names[: count // 2], names[count // 2 :]]
    return {
        "name": "halves",
        "family": "synchrony",
        "processes": count,
        "duration": f"{seconds}s",
        "quiet": "3s",
        "workload": {"rate": 1, "service": ALL_SERVICES},
        "fault": [split],
    }


@pytest.mark.parametrize("count", [20, pytest.param(50, marks=pytest.mark.long)])
def test_a_large_group_splits_in_halves_and_merges(count: int) -> None:
    """The case of the paper's introduction: two halves of 25 that become one group of 50."""
    run = lawful(simulate(parse_scenario(halves(count)), 1))
    sides = parse_scenario(halves(count)).fault[0].sides
    for row in run.trace.rows:
        if row.kind == "suspect":
            assert not any(row.process in side and row.peer in side for side in sides), row
    for name in run.heard:
        assert [len(row.members or ()) for row in views(run, name)] == [count, count // 2, count]
        assert merges(run, name) == [2]
    [back] = views(run, "n1", 3 * SECOND)
    assert back.at < 3 * SECOND + 500 * MILLISECOND

"""An initiator whose application does not read: nobody waits for its state for long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.protocol.newtop.forming_table import (
    known,
    outputs,
    partitioned,
    refusals,
    run,
    stage_of,
    view_of,
)
from tests.protocol.newtop.open_table import FOUNDS, JOINS, founded, open_stage, seen, waits
from tests.protocol.newtop.table import die

from ordercast.kernel.family import Family
from ordercast.protocol.newtop import FAMILIES
from ordercast.testing import simulate
from ordercast.testing.stage import Stage
from ordercast.types import StateGiven, StateWanted, Waiting, name_of
from ordercast.units import MILLISECOND, SECOND

ALL = [pytest.param(family, id=family.name) for family in FAMILIES]
ROOT = Path(__file__).parents[3]
LIMIT = 100 * MILLISECOND


def go(stage: Stage, span: int, *unread: str) -> None:
    """For a time. The applications of these members do not answer."""
    end = stage.now + span
    while stage.now < end:
        stage.settle(ticks=1)
        for name, actor in stage.actors.items():
            asked = [what for who, what in stage.log if who == actor.node]
            count = sum(isinstance(what, StateWanted) for what in asked)
            while name not in unread and actor.alive and actor.answered < count:
                stage.provide(name, " ".join(known(stage, name)).encode())


def asked(stage: Stage) -> list[str]:
    return [who.name for who, what in stage.log if isinstance(what, StateWanted)]


def errors(stage: Stage, name: str) -> list[str]:
    return [what.failure for what in outputs(stage, name) if isinstance(what, StateGiven)]


def until(stage: Stage, found: Callable[[], bool]) -> None:
    for _ in range(200):
        if found():
            return
        stage.settle(ticks=1)
    pytest.fail("that did not happen")


def joining(family: Family = FAMILIES[0]) -> Stage:
    """n1, n2 and n3 are in a group, and n4 wants to join."""
    stage = founded("n1 n2 n3", family, more="n4")
    stage.submit("n2", [b"kept"])
    run(stage, 4)
    stage.enter("n4", "n1")
    return stage


@pytest.mark.parametrize("family", ALL)
def test_the_next_member_gives_the_state_and_the_group_stays_whole(family: Family) -> None:
    stage = joining(family)
    before = len(asked(stage))
    go(stage, 12 * LIMIT, "n1")
    assert asked(stage)[before:] == ["n1", "n2"]
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3 n4"}
    assert known(stage, "n4") == ["kept"]
    assert all("n1 n2 n3" in view for view in seen(stage, "n2")[2:]), "none of them was lost"
    stage.submit("n1", [b"on"])
    go(stage, LIMIT, "n1")
    assert all(known(stage, name) == ["kept", "on"] for name in stage.actors)


def test_nobody_waits_longer_than_three_suspicion_limits() -> None:
    stage = joining()
    before = len(asked(stage))
    until(stage, lambda: len(asked(stage)) > before)
    since = stage.now
    assert not stage.accepts("n2")
    until(stage, lambda: stage.accepts("n2"))
    assert 2 * LIMIT < stage.now - since < 4 * LIMIT


def test_who_waits_is_told_for_whom_and_since_when_and_that_it_is_over() -> None:
    stage = joining()
    go(stage, 3 * LIMIT, "n1")
    why = "n1 re-forms the group, and has not given the state of its application"
    for name in ("n2", "n3", "n4"):
        assert waits(stage, name)[-1] == (("n1",), why)
    told = [what for _, what in stage.log if isinstance(what, Waiting) and what.why == why]
    assert all(0 <= stage.now - what.since <= 4 * LIMIT for what in told)
    views = len(seen(stage, "n2"))
    go(stage, 3 * LIMIT, "n1")
    assert len(seen(stage, "n2")) > views, "a view ends the wait"


def test_a_formation_that_fails_tells_that_the_wait_is_over() -> None:
    stage = joining()
    go(stage, 3 * LIMIT, "n1")
    assert waits(stage, "n2")[-1][0] == ("n1",)
    die(stage, "n1")
    go(stage, 6 * LIMIT)
    assert waits(stage, "n2")[-1] == ((), "")
    assert stage.accepts("n2")


def test_if_nobody_gives_a_state_the_newcomer_is_told_and_the_group_goes_on() -> None:
    stage = joining()
    go(stage, 20 * LIMIT, "n1", "n2", "n3")
    assert {view_of(stage, name)[1] for name in ("n1", "n2", "n3")} == {"n1 n2 n3"}
    why = "no member can give its state: the application of n3 was asked for it, and has not read"
    assert errors(stage, "n4")
    assert all(one.startswith(why) for one in errors(stage, "n4"))
    assert view_of(stage, "n4") == ("", "")
    count, formation = len(asked(stage)), view_of(stage, "n1")[0]
    go(stage, 40 * LIMIT, "n1", "n2", "n3")
    assert len(asked(stage)) == count, "nobody stops the group for it again"
    assert view_of(stage, "n1")[0] == formation
    assert stage.accepts("n1")


def test_an_application_that_reads_again_is_asked_again() -> None:
    stage = joining()
    go(stage, 20 * LIMIT, "n1", "n2", "n3")
    go(stage, 20 * LIMIT)
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3 n4"}
    assert known(stage, "n4") == ["kept"]
    assert asked(stage)[-1] == "n1"


def test_a_member_without_a_state_does_not_take_in_for_one_that_has_one() -> None:
    stage = open_stage({"n1": FOUNDS, "n2": JOINS, "n3": JOINS})
    stage.plans = tuple(
        plan._replace(options=msgspec.structs.replace(plan.options, gives_state=False))
        if plan.members[0] == "n2"
        else plan
        for plan in stage.plans
    )
    stage.enter("n1")
    run(stage, 3)
    stage.enter("n2", "n1")
    run(stage, 12)
    stage.enter("n3", "n1")
    go(stage, 20 * LIMIT, "n1")
    assert view_of(stage, "n1")[1] == view_of(stage, "n2")[1] == "n1 n2"
    assert "the application of n1 was asked for it" in errors(stage, "n3")[-1]


def test_nobody_is_asked_where_nobody_is_there() -> None:
    stage = founded("n1", more="n2")
    assert view_of(stage, "n1") == ("n1.0.1", "n1")
    assert asked(stage) == []


def test_a_newcomer_that_dies_is_waited_for_no_longer() -> None:
    """The others have the state of n1: they need not wait for its application."""
    stage = joining()
    before = len(asked(stage))
    until(stage, lambda: len(asked(stage)) > before)
    die(stage, "n4")
    go(stage, 5 * LIMIT // 2, "n1", "n2", "n3")
    assert {view_of(stage, name)[1] for name in ("n1", "n2", "n3")} == {"n1 n2 n3"}
    assert stage.accepts("n2")


def test_members_of_one_formation_that_re_form_it_wait_for_no_application() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.form("n1")
    go(stage, LIMIT, "n1", "n2", "n3")
    assert {view_of(stage, name) for name in stage.actors} == {("n1.0.1", "n1 n2 n3")}
    assert stage.accepts("n2")


def test_the_other_side_of_a_partition_stays_where_it_is() -> None:
    stage = partitioned()
    stage.form("n1")
    go(stage, 12 * LIMIT, "n1")
    assert view_of(stage, "n1") == view_of(stage, "n2") == ("n1.0.1", "n1 n2")
    assert view_of(stage, "n3") == ("", "n3")
    assert "has not read for 0.3 s" in refusals(stage, "n3")[-1]


def test_applications_that_stop_reading_part_nobody() -> None:
    """Of `scenarios/open-unread.toml`: each view has all members of the one before it."""
    run = simulate(ROOT / "scenarios" / "open-unread.toml", seed=1)
    assert run.outcome.error is None
    assert not run.broken
    found: dict[tuple[str, str], list[list[str]]] = {}
    for row in run.trace.rows:
        if row.kind == "view":
            group = name_of(row.group or "")
            found.setdefault((group, row.process), []).append(list(row.members or ()))
    for (group, process), views in found.items():
        last: list[str] = []
        for members in (view for view in views if "n6" not in view):
            assert set(members) >= {*last} - {"n4", "n5"}, f"{process} in {group}"
            last = members
        assert len(views[-1]) == (6 if group == "a" else 5)
    entered: dict[tuple[str, str], int] = {}
    for row in run.trace.rows:
        if row.kind == "view":
            entered.setdefault((name_of(row.group or ""), row.process), row.at)
    assert all(entered[group, "n5"] < 8 * SECOND for group in ("a", "b", "c")), "n1 does not read"
    assert entered["a", "n6"] > 14 * SECOND, "somebody reads again"

"""A founding that a member started in: after a restart its disk says that it may have begun."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.protocol.newtop.forming_table import part, rejoin, run, view_of
from tests.protocol.newtop.founding_storms import (
    foundings,
    has_no_disk,
    restart,
    three_of_five,
)
from tests.protocol.newtop.open_table import waits
from tests.protocol.newtop.table import carry, die, member

from ordercast.errors import PeerError
from ordercast.kernel.family import Family
from ordercast.kernel.inputs import Forgotten
from ordercast.protocol.newtop import FAMILIES, FAMILY
from ordercast.protocol.newtop.packets import FoundingRecord
from ordercast.testing.stage import Stage
from ordercast.types import NodeId, StateWanted

ALL = [pytest.param(family, id=family.name) for family in FAMILIES]
EVERYBODY = "n1 n2 n3 n4 n5"


def started(family: Family = FAMILY) -> Stage:
    """n1, n2 and n3 have started in a founding by n1, whose application is asked for its state."""
    stage = three_of_five(family)
    stage.settle()
    assert any(isinstance(what, StateWanted) for _, what in stage.log)
    return stage


def member_restarts(family: Family) -> Stage:
    """n1 and n2 begin. n3 has started with them, and meets two others when it is back."""
    stage = started(family)
    part(stage, "n1 n2", "n3 n4 n5")
    die(stage, "n3")
    restart(stage, "n3")
    return stage


def initiator_restarts(family: Family) -> Stage:
    """n2 has the state, so it begins with n3. n1 meets two others when it is back."""
    stage = started(family)
    stage.provide("n1", b"")
    carry(stage, "n1", "n2")
    die(stage, "n1")
    part(stage, "n1 n4 n5", "n2 n3")
    restart(stage, "n1")
    return stage


def meet(stage: Stage) -> None:
    run(stage, 60)
    restart(stage, "n4")
    restart(stage, "n5")
    run(stage, 60)


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("restarted", [member_restarts, initiator_restarts])
def test_who_may_have_founded_the_group_founds_no_other_after_a_restart(
    restarted: Callable[[Family], Stage], family: Family
) -> None:
    stage = restarted(family)
    meet(stage)
    assert foundings(stage) == ["n1.0.1"]
    assert view_of(stage, "n4") == ("", "")
    rejoin(stage, "n1 n2", "n3 n4 n5")
    rejoin(stage, "n1 n4 n5", "n2 n3")
    run(stage, 120)
    assert len({view_of(stage, name)[0] for name in EVERYBODY.split()}) == 1


@pytest.mark.parametrize("restarted", [member_restarts, initiator_restarts])
def test_without_its_disk_it_founds_a_second_group(
    restarted: Callable[[Family], Stage],
) -> None:
    stage = restarted(FAMILY._replace(build=has_no_disk))
    meet(stage)
    assert len(foundings(stage)) == 2


def test_they_say_for_whom_they_wait() -> None:
    stage = member_restarts(FAMILY)
    meet(stage)
    on, why = waits(stage, "n3")[-1]
    assert on == ("n1",)
    assert "n1 may have founded it" in why
    stage = initiator_restarts(FAMILY)
    meet(stage)
    on, why = waits(stage, "n1")[-1]
    assert on == ("n2", "n3")
    assert "this node may have founded it with n2 n3" in why


def test_an_initiator_that_had_not_cast_the_state_is_free() -> None:
    """Nobody can begin what it had started, and it knows that."""
    stage = started()
    part(stage, "n2 n3", "n1 n4 n5")
    die(stage, "n1")
    restart(stage, "n1")
    meet(stage)
    assert foundings(stage) == ["n1.1.1"]
    rejoin(stage, "n2 n3", "n1 n4 n5")
    run(stage, 120)
    assert {len(view_of(stage, name)[1].split()) for name in EVERYBODY.split()} == {5}


# --- an initiator that lost its folder ----------------------------------------------------------


def initiator_loses_its_folder(**rule: int) -> Stage:
    """n2 and n3 have started in a founding by n1. It does not know any more whether it began."""
    stage = started()
    die(stage, "n1")
    run(stage, 60)
    restart(stage, "n1", lost=True, **rule)
    return stage


def test_all_that_were_invited_found_the_group_if_the_initiator_lost_its_folder() -> None:
    stage = initiator_loses_its_folder()
    die(stage, "n3")
    restart(stage, "n4")
    restart(stage, "n5")
    run(stage, 80)
    assert foundings(stage) == [], "n3 may be in the group"
    on, why = waits(stage, "n2")[-1]
    assert on == ("n3",)
    assert "n1 lost its data folder, and may have founded it with n3" in why
    restart(stage, "n3")
    run(stage, 120)
    assert len(foundings(stage)) == 1
    assert {len(view_of(stage, name)[1].split()) for name in EVERYBODY.split()} == {5}


def test_an_operator_says_that_one_of_them_is_gone_for_good() -> None:
    stage = initiator_loses_its_folder()
    die(stage, "n3")
    restart(stage, "n4")
    restart(stage, "n5")
    run(stage, 80)
    machine = member(stage, "n2")
    assert machine.remembers("g", "n3")
    stage.give("n2", Forgotten("g", "n3"))
    assert not machine.remembers("g", "n3")
    run(stage, 120)
    assert len(foundings(stage)) == 1
    assert {len(view_of(stage, name)[1].split()) for name in ("n1", "n2", "n4", "n5")} == {4}


def test_an_operator_says_that_the_initiator_is_gone_for_good() -> None:
    stage = started()
    die(stage, "n1")
    run(stage, 60)
    restart(stage, "n4")
    run(stage, 60)
    assert foundings(stage) == []
    for name in ("n2", "n3"):
        stage.give(name, Forgotten("g", "n1"))
    restart(stage, "n3")
    run(stage, 60)
    assert {view_of(stage, name)[1] for name in ("n2", "n4")} == {"n2 n3#1 n4"}


# --- the record ---------------------------------------------------------------------------------


def test_a_founding_that_has_begun_binds_nobody_later() -> None:
    stage = started()
    run(stage, 20)
    for name in ("n1", "n2", "n3"):
        [record] = stage.actors[name].disk.records()
        assert record == FoundingRecord("g", "", ())
    restart(stage, "n2")
    assert not member(stage, "n2").remembers("g", "n1")


def test_a_record_is_durable_before_others_can_depend_on_it() -> None:
    stage = started()
    records = {name: stage.actors[name].disk.records() for name in ("n1", "n2", "n3")}
    expected = FoundingRecord("g", "n1", ("n1", "n2", "n3"))
    assert set(map(tuple, records.values())) == {(expected,)}
    stage.provide("n1", b"")
    [record] = stage.actors["n1"].disk.records()
    assert record == FoundingRecord("g", "n1", ("n1", "n2", "n3"), is_cast=True)


def test_a_member_that_leaves_and_joins_again_is_as_bound_as_before() -> None:
    stage = started()
    die(stage, "n1")
    run(stage, 60)
    plan = next(plan for plan in stage.plans if plan.members == ("n2",))
    stage.leave("n2")
    stage.join("n2", plan)
    assert member(stage, "n2").remembers("g", "n1")


def test_a_peer_that_sends_a_record_breaks_the_rules() -> None:
    stage = started()
    with pytest.raises(PeerError, match="FoundingRecord"):
        stage.inject(NodeId("n1", 0), "n2", FoundingRecord("g", "n3", ("n3",)))

"""Who founds an open group again: members that were in it before, and some that keep nobody out."""

from __future__ import annotations

import pytest
from tests.protocol.newtop.forming_table import part, refusals, rejoin, run, view_of
from tests.protocol.newtop.open_table import (
    FOUNDS,
    JOINS,
    expecting,
    founded,
    open_stage,
    seen,
    waits,
)
from tests.protocol.newtop.table import member

from ordercast.kernel.family import Family, FoundingRule
from ordercast.protocol.newtop import FAMILIES
from ordercast.protocol.newtop.packets import Invite, Vote
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage
from ordercast.types import NodeId, View

ALL = [pytest.param(family, id=family.name) for family in FAMILIES]


def posted(stage: Stage) -> list[Posted]:
    return [what for _, what in stage.log if isinstance(what, Posted)]


@pytest.mark.parametrize("family", ALL)
def test_one_that_may_not_found_keeps_nobody_from_founding(family: Family) -> None:
    """n0 was last in the group with n9. All of the last members of the others are there."""
    last = FoundingRule(last=("n1", "n2", "n3"))
    entries = {"n0": FoundingRule(last=("n0", "n9")), "n1": last, "n2": last, "n3": last}
    stage = open_stage(entries, family)
    for name in entries:
        stage.enter(name, *(other for other in entries if other != name))
    run(stage, 60)
    assert {view_of(stage, name)[1] for name in entries} == {"n0 n1 n2 n3"}
    assert seen(stage, "n1")[0] in ("n1 n2", "n1 n2 n3")


def test_who_may_found_depends_on_all_that_are_there() -> None:
    """Without n4 the last members of n3 are too few, and without n3 those of n2."""
    entries = {
        "n2": FoundingRule(last=("n2", "n3")),
        "n3": FoundingRule(last=("n3", "n4", "n5")),
        "n4": FoundingRule(last=("n4", "n6")),
    }
    stage = open_stage(entries)
    for name in entries:
        stage.enter(name, *(other for other in entries if other != name))
    run(stage, 60)
    assert not any(isinstance(one.packet, Invite) for one in posted(stage))
    why = "some of these wait for others that may have it"
    assert waits(stage, "n2")[-1] == (("n3", "n4"), f"nobody is in 'g' yet: {why}")


def test_one_that_does_not_vote_keeps_nobody_from_founding() -> None:
    stage = open_stage(expecting(3, "n1 n2 n3 n4"))
    for name in ("n1", "n2", "n3"):
        stage.cut(name, "n4", one_way=True)
    for name in stage.actors:
        stage.enter(name, *(other for other in stage.actors if other != name))
    run(stage, 120)
    assert {view_of(stage, name)[1] for name in ("n1", "n2", "n3")} == {"n1 n2 n3"}


def test_only_members_that_name_a_founder_must_name_the_same() -> None:
    """n2 and n3 name none. n4 names another than n1."""
    names = FoundingRule(founds=True, founder="n1")
    stage = open_stage({"n1": names, "n2": JOINS, "n3": JOINS, "n4": FoundingRule(founder="n4")})
    stage.enter("n1")
    for name in ("n2", "n3", "n4"):
        stage.enter(name, "n1")
        run(stage, 20)
    assert view_of(stage, "n1")[1] == "n1 n2 n3"
    [why] = refusals(stage, "n4")
    assert "founder is n4 here and n1 there" in why


# --- one that was alone in the group ------------------------------------------------------------

WAS_ALONE = FoundingRule(founds=True, last=("n1",), asks=True)


@pytest.mark.parametrize("family", ALL)
def test_one_that_was_alone_joins_those_that_have_the_group_now(family: Family) -> None:
    stage = open_stage({"n1": WAS_ALONE, "n2": FOUNDS, "n3": JOINS}, family)
    stage.enter("n2")
    stage.enter("n3", "n2")
    run(stage, 20)
    stage.enter("n1", "n3")
    run(stage, 40)
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3"}
    assert seen(stage, "n1") == ["n1 n2 n3"]


def test_one_that_was_alone_founds_the_group_if_nobody_answers() -> None:
    stage = open_stage({"n1": WAS_ALONE, "n2": FOUNDS})
    stage.enter("n2")
    stage.cut("n1", "n2")
    stage.enter("n1", "n2")
    run(stage, 1)
    assert view_of(stage, "n1") == ("", "")
    why = "it was the only member of 'g', and asks whether others are in it"
    assert waits(stage, "n1") == [(("n2",), why)]
    run(stage, 20)
    assert view_of(stage, "n1") == ("n1.0.1", "n1")


def test_two_that_were_each_alone_found_one_group() -> None:
    entries = {name: FoundingRule(founds=True, last=(name,), asks=True) for name in ("n1", "n2")}
    stage = open_stage(entries)
    stage.enter("n1", "n2")
    stage.enter("n2", "n1")
    run(stage, 40)
    assert {view_of(stage, name) for name in entries} == {("n1.0.1", "n1 n2")}


def test_one_that_still_asks_founds_the_group_with_nobody() -> None:
    """n2 and n3 expect three. n1 does not count before it knows that nobody has the group."""
    stage = open_stage({"n1": WAS_ALONE, **expecting(3, "n2 n3")})
    stage.enter("n1", "n2")
    some = [NodeId(name) for name in ("n1", "n2", "n3")]
    terms = member(stage, "n1").named["g"].terms
    stage.inject(some[1], "n1", Invite("g", "n2.0.1", some, terms, founds=True))
    votes = [one.packet for one in posted(stage) if isinstance(one.packet, Vote)]
    assert [(vote.yes, vote.why) for vote in votes] == [(False, "n1 asks who is in the group")]


def test_members_know_which_formation_founded_their_group() -> None:
    """Those that join, and the sides of a partition, have the same one."""
    stage = founded("n1 n2 n3")
    part(stage, "n1", "n2 n3")
    run(stage, 40)
    assert view_of(stage, "n2")[1] == "n2 n3"
    rejoin(stage, "n1", "n2 n3")
    stage.form("n2")
    run(stage, 40)
    views = [what for _, what in stage.log if isinstance(what, View)]
    assert {view.founding for view in views} == {"n1.0.1"}
    assert len({view.formation for view in views}) == 4
    assert {view.founding for view in views_of_parts_that_merge()} == {""}


def views_of_parts_that_merge() -> list[View]:
    stage = founded("n1 n2", reform="auto")
    return [what for _, what in stage.log if isinstance(what, View)]

"""The only member of an open group is killed while it lets another in: its disk says with whom."""

from __future__ import annotations

import pytest
from tests.protocol.newtop.forming_table import part, rejoin, run, view_of
from tests.protocol.newtop.open_table import founded, waits
from tests.protocol.newtop.table import carry, die, member

from ordercast.kernel.family import Family
from ordercast.kernel.founding import entry_of, remembered
from ordercast.kernel.inputs import Forgotten
from ordercast.protocol.newtop import FAMILIES, FAMILY
from ordercast.protocol.newtop.packets import FoundingRecord
from ordercast.testing.stage import Stage
from ordercast.types import StateWanted, View

ALL = [pytest.param(family, id=family.name) for family in FAMILIES]


def foundings(stage: Stage) -> set[str]:
    return {what.founding for _, what in stage.log if isinstance(what, View)}


def letting_in(family: Family = FAMILY) -> Stage:
    """n1 founded the group, and has sent its state to n2, the first other."""
    stage = founded("n1", family, more="n2")
    stage.enter("n2", "n1")
    for _ in range(12):
        if any(isinstance(what, StateWanted) for _, what in stage.log):
            break
        stage.settle(ticks=1)
    stage.provide("n1", b"")
    assert len(foundings(stage)) == 1
    return stage


def restart(stage: Stage, name: str, *, lost: bool = False) -> None:
    """With its folder, which remembers its last view, or without."""
    if stage.actors[name].alive:
        die(stage, name)
    if lost:
        stage.actors[name].disk.erase()
    views = [what for who, what in stage.log if who.name == name and isinstance(what, View)]
    last = remembered((), views[-1]) if views and not lost else ()
    entry = entry_of(name, seeds=name != "n1", last=last, reborn=lost)
    stage.plans = tuple(
        plan._replace(entry=entry) if plan.members == (name,) else plan for plan in stage.plans
    )
    stage.enter(name, *({"n1", "n2"} - {name}))


def cut_off(family: Family = FAMILY) -> Stage:
    """n2 has begun, with the state. n1 does not know that, and reaches nobody when it is back."""
    stage = letting_in(family)
    carry(stage, "n1", "n2")
    die(stage, "n1")
    part(stage, "n1", "n2")
    run(stage, 60)
    assert view_of(stage, "n2")[1] == "n2"
    restart(stage, "n1")
    run(stage, 60)
    return stage


@pytest.mark.parametrize("family", ALL)
def test_it_does_not_found_the_group_again(family: Family) -> None:
    stage = cut_off(family)
    assert len(foundings(stage)) == 1
    assert view_of(stage, "n1") == ("", "")
    assert waits(stage, "n1")[-1][0] == ("n2",)
    rejoin(stage, "n1", "n2")
    run(stage, 120)
    assert len(foundings(stage)) == 1
    assert view_of(stage, "n1")[1] == view_of(stage, "n2")[1] == "n1#1 n2"


@pytest.mark.parametrize("family", ALL)
def test_they_found_it_together_if_the_other_has_not_begun(family: Family) -> None:
    """n2 never got the state, and may not found the group by itself."""
    stage = letting_in(family)
    die(stage, "n1")
    run(stage, 60)
    restart(stage, "n1")
    run(stage, 60)
    assert view_of(stage, "n1")[1] == view_of(stage, "n2")[1] == "n1#1 n2"


def test_they_do_not_if_the_other_lost_its_folder() -> None:
    """It may have been in the group, and have let others in."""
    stage = letting_in()
    carry(stage, "n1", "n2")
    run(stage, 4)
    die(stage, "n1")
    restart(stage, "n2", lost=True)
    restart(stage, "n1")
    run(stage, 60)
    assert view_of(stage, "n1") == view_of(stage, "n2") == ("", "")


def test_they_found_it_together_if_both_restart() -> None:
    stage = letting_in()
    carry(stage, "n1", "n2")
    run(stage, 4)
    die(stage, "n1")
    restart(stage, "n2")
    run(stage, 60)
    assert view_of(stage, "n2") == ("", "")
    restart(stage, "n1")
    run(stage, 60)
    assert view_of(stage, "n1")[1] == view_of(stage, "n2")[1] == "n1#1 n2#1"


def test_it_says_for_whom_it_waits() -> None:
    _, why = waits(cut_off(), "n1")[-1]
    assert "n2 may be in it: this node was about to let it in" in why, why
    assert why.endswith("let this node forget it: ordercast forget NAME")


def test_an_operator_says_that_the_other_is_gone_for_good() -> None:
    stage = cut_off()
    assert member(stage, "n1").remembers("g", "n2")
    stage.give("n1", Forgotten("g", "n2"))
    run(stage, 60)
    assert view_of(stage, "n1")[1] == "n1#1"


def test_one_that_has_begun_is_bound_no_longer() -> None:
    stage = letting_in()
    [record] = stage.actors["n1"].disk.records()
    assert record == FoundingRecord("g", "n1", ("n1", "n2"), is_cast=True)
    run(stage, 20)
    assert view_of(stage, "n1")[1] == "n1 n2"
    [record] = stage.actors["n1"].disk.records()
    assert record == FoundingRecord("g", "", ())

"""With `reform = "auto"`, of two sides of the same size the one that delivered more wins."""

from __future__ import annotations

import pytest
from tests.protocol.newtop.forming_table import QUICK, known, part, rejoin, run, view_of
from tests.protocol.newtop.open_table import FOUNDS, JOINS, open_stage
from tests.protocol.newtop.table import wait

from ordercast.kernel.family import Family
from ordercast.kernel.inputs import Acquainted
from ordercast.protocol.newtop import FAMILIES
from ordercast.testing.stage import Stage

ALL = [pytest.param(family, id=family.name) for family in FAMILIES]
NAMES = "n1 n2 n3 n4"


def parted(family: Family) -> Stage:
    stage = Stage.of(family, NAMES, formed=True, **{**QUICK, "reform": "auto"})
    stage.submit("n1", [b"before"])
    run(stage, 4)
    part(stage, "n1 n2", "n3 n4")
    wait(stage, 40)
    return stage


def reunited(stage: Stage) -> list[str]:
    """What all know then."""
    rejoin(stage, "n1 n2", "n3 n4")
    run(stage, 80)
    states = {tuple(known(stage, name)) for name in NAMES.split()}
    assert len(states) == 1, "all are together"
    return list(states.pop())


@pytest.mark.parametrize("family", ALL)
def test_the_side_that_delivered_more_wins(family: Family) -> None:
    stage = parted(family)
    for number in range(3):
        stage.submit("n4", [b"there%d" % number])
    stage.submit("n2", [b"here"])
    run(stage, 4)
    assert reunited(stage) == ["before", "there0", "there1", "there2"]


def test_of_sides_that_delivered_as_much_the_first_by_name_wins() -> None:
    stage = parted(FAMILIES[0])
    stage.submit("n4", [b"there"])
    stage.submit("n2", [b"here"])
    run(stage, 4)
    assert reunited(stage) == ["before", "here"]


def test_what_a_state_contains_counts_as_delivered() -> None:
    """n3 came late into the group of n2. n1 founds another of the same name, and meets n3."""
    stage = open_stage({"n1": FOUNDS, "n2": FOUNDS, "n3": JOINS}, reform="auto")
    stage.enter("n2")
    run(stage, 3)
    for number in range(3):
        stage.submit("n2", [b"old%d" % number])
    stage.enter("n3", "n2")
    run(stage, 12)
    stage.crash("n2")
    run(stage, 60)
    assert view_of(stage, "n3")[1] == "n3"
    stage.enter("n1")
    run(stage, 3)
    for number in range(2):
        stage.submit("n1", [b"new%d" % number])
    stage.give("n1", Acquainted("g", ("n3",)))
    run(stage, 80)
    assert view_of(stage, "n1")[1] == view_of(stage, "n3")[1] == "n1 n3"
    assert known(stage, "n1") == known(stage, "n3") == ["old0", "old1", "old2"]

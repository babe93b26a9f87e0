"""What is secured was delivered by all members of the primary view, and not only received."""

from __future__ import annotations

from tests.protocol.newtop.forming_table import QUICK, known, run
from tests.protocol.newtop.table import carry, member

from ordercast.kernel.family import Family, Plan
from ordercast.protocol.newtop import FAMILY, SEQUENCED
from ordercast.scenario.file import options_for
from ordercast.testing.stage import Stage
from ordercast.types import Secured, StateWanted


def staged(family: Family, quorum: str, **others: str) -> Stage:
    """Groups by name, with their members: one with a quorum, whose members have voted."""
    plans = [
        Plan(group, tuple(names.split()), options_for(family, options))
        for group, names, options in (
            ("q", quorum, {**QUICK, "quorum": "majority"}),
            *((group, names, QUICK) for group, names in others.items()),
        )
    ]
    stage = Stage(family, plans)
    stage.start()
    for name in quorum.split():  # those that started before the others were not heard
        voter = member(stage, name).named["q"].voter
        assert voter is not None
        stage.act(name, lambda step, voter=voter: voter.install(step, voter.view), "q")
    run(stage, 3)
    assert stage.accepts("n3", "q")
    return stage


def secured(stage: Stage) -> int:
    return sum(isinstance(what, Secured) for _, what in stage.log)


def test_a_member_that_waits_for_a_state_in_another_group_has_not_delivered() -> None:
    """n1 re-forms g with n2, which needs the state, and n1 does not hear that."""
    stage = staged(FAMILY, "n2 n3", g="n1 n2 n3")
    stage.form("n1", ("n2",))
    for _ in range(40):
        stage.settle(ticks=1)
        if any(isinstance(what, StateWanted) for _, what in stage.log):
            break
    assert stage.submit("n3", [b"more"], "g") is not None
    stage.settle(ticks=8)
    assert known(stage, "n2") == ["more"]
    stage.cut("n2", "n1", one_way=True)
    stage.provide("n1", b"")
    stage.settle(ticks=3)
    stage.submit("n3", [b"write"], "q")
    stage.settle(ticks=5)
    order = member(stage, "n2").order
    waits = order.queue.head()
    assert waits is not None
    assert order.deliverable_up_to() > waits
    assert known(stage, "n2") == ["more"]
    assert not secured(stage)
    stage.mend("n2", "n1")
    stage.settle(ticks=9)
    assert known(stage, "n2")[-1] == "write"
    assert secured(stage) == 1


def test_an_event_without_a_turn_is_not_delivered() -> None:
    """n1 orders, and n2 does not hear where: if n1 and n3 were gone now, nobody would order it."""
    stage = staged(SEQUENCED, "n1 n2 n3")
    stage.cut("n3", "n1", one_way=True)
    stage.submit("n3", [b"write"], "q")
    carry(stage, "n3", "n2")
    for _ in range(4):  # all numbers of n1 and n2 are above that of the event
        for name in ("n1", "n2"):
            stage.fire(name, "q")
            for other in ("n1", "n2", "n3"):
                if other != name:
                    carry(stage, name, other)
    stage.cut("n1", "n2", one_way=True)
    stage.mend("n3", "n1")
    stage.settle(ticks=2)
    assert known(stage, "n1") == known(stage, "n3") == ["write"]
    assert known(stage, "n2") == []
    assert not secured(stage)
    stage.mend("n1", "n2")
    stage.settle(ticks=3)
    assert known(stage, "n2") == ["write"]
    assert secured(stage) == 1

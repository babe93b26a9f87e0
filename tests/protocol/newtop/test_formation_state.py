"""Who is given the state of a formation, and who sees which views while the group is re-formed."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from tests.protocol.newtop.forming_table import known, outputs, partitioned, run, stage_of, view_of
from tests.protocol.newtop.open_table import seen
from tests.protocol.newtop.table import carry, die, fall_silent, group, member, node

from ordercast.kernel.family import Family
from ordercast.protocol.newtop import FAMILIES
from ordercast.protocol.newtop.history import Delivered
from ordercast.protocol.newtop.packets import Copy, DeliveryDigest, Need, State
from ordercast.testing.stage import Stage
from ordercast.types import Event, StateGiven, StateWanted, View

ALL = [pytest.param(family, id=family.name) for family in FAMILIES]


def states(stage: Stage, name: str) -> list[bytes | None]:
    return [what.state for what in outputs(stage, name) if isinstance(what, StateGiven)]


def sent(stage: Stage, kind: type) -> list[tuple[str, Any]]:
    return [
        (who.name, what.packet)
        for who, what in stage.log
        if type(what).__name__ == "Posted" and isinstance(what.packet, kind)
    ]


def test_the_state_goes_to_members_of_the_other_side_only() -> None:
    stage = partitioned()
    stage.form("n1")
    run(stage, 20)
    assert [len(states(stage, name)) for name in ("n1", "n2", "n3")] == [0, 0, 1]
    left_out = [packet.state for _, packet in sent(stage, State) if packet.is_left_out]
    assert left_out == [None]
    assert all(known(stage, name) == ["before", "here"] for name in ("n1", "n2", "n3"))


def left_out_for_n2(stage: Stage) -> None:
    """n1 re-forms the group with n2 alone. n2 delivers one event more than n1 before it moves."""
    stage.form("n1", ("n2",))
    for _ in range(40):
        stage.settle(ticks=1)
        if any(isinstance(what, StateWanted) for who, what in stage.log):
            break
    assert stage.submit("n3", [b"more"]) is not None
    for _ in range(8):
        stage.settle(ticks=1)
    assert known(stage, "n2")[-1] == "more"


def test_a_member_that_delivered_more_asks_for_the_state() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.submit("n1", [b"all"])
    run(stage, 3)
    left_out_for_n2(stage)
    run(stage, 10)
    assert [who for who, _ in sent(stage, Need)] == ["n2"]
    assert [who for who, _ in sent(stage, Copy)] == ["n1"]
    assert view_of(stage, "n1") == view_of(stage, "n2") == ("n1.0.1", "n1 n2")
    assert known(stage, "n1") == known(stage, "n2") == ["all"]
    stage.submit("n2", [b"on"])
    run(stage, 4)
    assert known(stage, "n1") == known(stage, "n2") == ["all", "on"]


def test_a_view_that_waited_comes_before_the_next_event() -> None:
    """n2 has lost n1 to the new formation, and goes on with n3 for a while."""
    stage = stage_of("n1 n2 n3", formed=True)
    left_out_for_n2(stage)
    heard = [what for what in outputs(stage, "n2") if isinstance(what, View | Event)]
    assert [type(what) for what in heard] == [View, View, Event]
    assert seen(stage, "n2") == ["n1 n2 n3", "n2 n3"] == seen(stage, "n3")


def test_if_the_initiator_is_gone_before_the_copy_the_formation_fails() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    left_out_for_n2(stage)
    fall_silent(stage, "n1")
    stage.mend("n1", "n2", one_way=True)
    stage.provide("n1", b"")
    carry(stage, "n1", "n2")
    for _ in range(8):
        stage.settle(ticks=1)
        if sent(stage, Need):
            break
    die(stage, "n1")
    run(stage, 60)
    assert view_of(stage, "n2") == view_of(stage, "n3") == ("", "n2 n3")
    assert stage.accepts("n2")


def test_a_copy_is_given_once_and_only_to_members() -> None:
    stage = partitioned()
    stage.form("n1")
    run(stage, 20)
    formation = view_of(stage, "n1")[0]
    for _ in range(3):
        stage.inject(node("n2"), "n1", Need("g", formation))
    assert len(sent(stage, Copy)) == 1
    stage.inject(node("n3"), "n1", Need("g", "n1.0.77"))
    assert len(sent(stage, Copy)) == 1
    stage.inject(node("n1"), "n2", Copy("g", formation, b"nonsense"))
    run(stage, 3)
    assert states(stage, "n2") == []


def test_the_initiator_forgets_the_state_after_a_while() -> None:
    stage = partitioned()
    stage.form("n1")
    run(stage, 20)
    named = member(stage, "n1").named["g"]
    assert named.giver.provided is not None
    run(stage, 400)
    assert named.giver.provided is None


@pytest.mark.parametrize("family", ALL)
def test_nobody_sees_fewer_members_while_a_group_re_forms(family: Family) -> None:
    stage = Stage.of(family, "n1 n2 n3", prompt_after="10ms", silence_limit="20ms")
    stage.form("n2")
    run(stage, 20)
    assert {tuple(seen(stage, name)) for name in ("n1", "n2", "n3")} == {("n1 n2 n3",) * 2}


def test_the_side_that_loses_sees_no_lonely_view_either() -> None:
    stage = stage_of("n1 n2 n3 n4", formed=True)
    for one in ("n1", "n2"):
        for other in ("n3", "n4"):
            stage.cut(one, other)
    run(stage, 60)
    for one in ("n1", "n2"):
        for other in ("n3", "n4"):
            stage.mend(one, other)
    stage.form("n1")
    run(stage, 30)
    assert seen(stage, "n4") == ["n1 n2 n3 n4", "n3 n4", "n1 n2 n3 n4"] == seen(stage, "n3")


def test_a_formation_that_fails_shows_the_views_that_waited() -> None:
    stage = stage_of("n1 n2 n3 n4", formed=True)
    stage.form("n1", ("n2", "n3"))
    for _ in range(10):
        stage.settle(ticks=1)
    assert group(stage, "n2").waiting_views
    assert seen(stage, "n2") == ["n1 n2 n3 n4"]
    die(stage, "n1")
    run(stage, 60)
    assert seen(stage, "n2") == ["n1 n2 n3 n4", "n2 n3 n4"] == seen(stage, "n3")
    assert stage.accepts("n2")


# --- the digest ----------------------------------------------------------------------------------


def digest(origins: str, is_ordered: bool) -> DeliveryDigest:
    """Of events of these origins, such as `n1 n2 n1`."""
    delivered = Delivered("f", (node("n2"), node("n1"), node("n3")))
    for name in origins.split():
        delivered.add(node(name), is_ordered)
    return delivered.history


def test_the_digest_tells_what_was_delivered_and_in_which_order() -> None:
    one, other = "n1 n2 n1", "n2 n1 n1"
    assert digest(one, True) == digest(one, True) != digest(other, True)
    assert digest(one, False) == digest(other, False)
    for fewer in ("", "n1", "n1 n2", "n1 n1"):
        assert digest(fewer, True) != digest(one, True)
        assert digest(fewer, False) != digest(one, False)


def test_no_two_short_sequences_have_one_digest() -> None:
    for is_ordered, different in ((True, sum(3**many for many in range(8))), (False, 120)):
        found = {
            digest(" ".join(origins), is_ordered)
            for many in range(8)
            for origins in product(("n1", "n2", "n3"), repeat=many)
        }
        assert len(found) == different

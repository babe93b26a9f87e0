"""Open groups: who founds one, how names that nobody listed join, and what keeps nobody out."""

from __future__ import annotations

import msgspec
import pytest
from tests.protocol.newtop.forming_table import (
    known,
    outputs,
    part,
    refusals,
    rejoin,
    run,
    view_of,
)
from tests.protocol.newtop.founding_storms import cut_before_the_last_vote, cut_before_the_state
from tests.protocol.newtop.open_table import (
    FOUNDS,
    JOINS,
    expecting,
    founded,
    open_stage,
    seen,
    waits,
)
from tests.protocol.newtop.table import die, member

from ordercast.errors import PeerError
from ordercast.kernel.family import Family, FoundingRule
from ordercast.kernel.inputs import Acquainted
from ordercast.kernel.packet import Packet
from ordercast.protocol.newtop import FAMILIES, FAMILY, gathering
from ordercast.protocol.newtop.packets import LARGEST_GROUP, Here, Invite, Please, Vote
from ordercast.protocol.newtop.presence import MOST_KNOWN
from ordercast.testing.stage import Stage
from ordercast.types import NodeId, StateGiven, StateWanted

ALL = [pytest.param(family, id=family.name) for family in FAMILIES]


def states(stage: Stage, name: str) -> int:
    """How many states the application was given."""
    return sum(isinstance(what, StateGiven) for what in outputs(stage, name))


def until(stage: Stage, kind: type[Packet], sender: str) -> None:
    """Until a member has sent such a packet, which is underway."""
    for _ in range(200):
        if any(isinstance(one.packet, kind) for one in stage.underway(sender)):
            return
        if stage.underway():
            stage.deliver(stage.underway()[0])
        else:
            due = [
                (actor.timers()[0][0], name)
                for name, actor in stage.actors.items()
                if actor.alive and actor.timers()
            ]
            stage.fire(min(due)[1])
    pytest.fail(f"{sender} has sent no {kind.__name__}")


# --- founding --------------------------------------------------------------------------------


def test_who_may_found_does_so_at_once_and_others_wait_and_say_so() -> None:
    stage = open_stage({"n1": FOUNDS, "n2": JOINS, "n3": JOINS})
    stage.enter("n1")
    stage.enter("n2", "n3")
    run(stage, 4)
    assert view_of(stage, "n1") == ("n1.0.1", "n1")
    assert waits(stage, "n2") == [(("n3",), "n3 did not answer")]
    stage.enter("n3")
    run(stage, 20)
    why = "nobody is in 'g' yet: give expect, members or a founder"
    assert waits(stage, "n2")[1:] == [(("n3",), why)]
    assert waits(stage, "n3")[-1] == (("n2",), why)
    assert view_of(stage, "n2") == view_of(stage, "n3") == ("", "")


def test_a_member_that_knows_nobody_says_so() -> None:
    stage = open_stage({"n1": JOINS})
    stage.enter("n1")
    run(stage, 30)
    assert waits(stage, "n1") == [((), "nobody is known who may be in 'g'")]


def test_the_first_view_has_as_many_as_are_expected() -> None:
    stage = open_stage(expecting(3, "n1 n2 n3 n4"))
    stage.enter("n1")
    stage.enter("n2", "n1")
    run(stage, 30)
    assert not stage.accepts("n1")
    assert waits(stage, "n1")[-1] == (
        (),
        "nobody is in 'g' yet: 2 of 3 expected nodes are here (n1 n2): start 1 more, or give all "
        "of them a lower expect if there are no more",
    )
    stage.enter("n3", "n1")
    run(stage, 20)
    assert {view_of(stage, name) for name in ("n1", "n2", "n3")} == {("n1.0.1", "n1 n2 n3")}
    assert seen(stage, "n2") == ["n1 n2 n3"]
    stage.enter("n4", "n3")
    run(stage, 20)
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3 n4"}


def test_a_founding_takes_the_consent_of_each() -> None:
    """n3 expects four, whatever the others expect, and whatever n1 thinks of it."""
    entries = {**expecting(3, "n1 n2"), "n3": FoundingRule(expect=4)}
    stage = open_stage(entries)
    for name in entries:
        stage.enter(name, "n1")
    run(stage, 60)
    assert view_of(stage, "n1") == ("", "")
    some = [stage.node(name) for name in entries]
    terms = member(stage, "n1").named["g"].terms
    stage.inject(some[0], "n3", Invite("g", "n1.0.1", some, terms, founds=True))
    votes = [
        what.packet.why
        for _, what in stage.log
        if hasattr(what, "packet") and isinstance(what.packet, Vote) and not what.packet.yes
    ]
    said = "n3 may not found it with these: 3 of 4 expected nodes are here (n1 n2 n3)"
    assert any(said in vote for vote in votes)


def test_who_is_in_the_group_founds_it_with_nobody() -> None:
    stage = founded("n1 n2", more="n3")
    stage.enter("n3")
    terms = member(stage, "n1").named["g"].terms
    stage.inject(
        NodeId("n3", 0),
        "n2",
        Invite("g", "n3.0.1", [NodeId("n2", 0), NodeId("n3", 0)], terms, True),
    )
    votes = [one.packet for one in stage.underway("n2", "n3") if isinstance(one.packet, Vote)]
    assert [(vote.yes, vote.why) for vote in votes] == [(False, "n2 is in the group already")]


def test_a_founding_begins_only_if_all_have_started() -> None:
    """n3 votes yes, and lacks the last vote. It is free, and founds the group with others."""
    stage = cut_before_the_last_vote()
    assert "" == view_of(stage, "n1")[1] == view_of(stage, "n2")[1]
    assert {view_of(stage, name)[1] for name in ("n3", "n4", "n5")} == {"n3 n4 n5"}
    rejoin(stage, "n1 n2", "n3 n4 n5")
    run(stage, 80)
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3 n4 n5"}


def test_who_started_in_a_founding_that_failed_waits_for_its_initiator() -> None:
    """n1 has begun, for all that n3 knows: n3 founds nothing without it."""
    stage = cut_before_the_state()
    assert view_of(stage, "n1") == ("n1.0.1", "n1 n2")
    assert {view_of(stage, name) for name in ("n3", "n4", "n5")} == {("", "")}
    on, why = waits(stage, "n3")[-1]
    assert on == ("n1",)
    assert why.startswith("nobody is in 'g' yet: n1 may have founded it; if it is gone for good")
    rejoin(stage, "n1 n2", "n3 n4 n5")
    run(stage, 80)
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3 n4 n5"}


def test_a_majority_of_those_who_were_in_it_found_it_again() -> None:
    last = ("n1", "n2", "n3", "n4")
    stage = open_stage(dict.fromkeys(last, FoundingRule(last=last)))
    for name in ("n2", "n3"):
        stage.enter(name, *last)
    run(stage, 40)
    assert view_of(stage, "n2") == ("", "")
    assert "more than half of n1 n2 n3 n4" in waits(stage, "n2")[-1][1]
    stage.enter("n4", *last)
    run(stage, 20)
    assert {view_of(stage, name)[1] for name in ("n2", "n3", "n4")} == {"n2 n3 n4"}


def test_an_application_cannot_found_by_a_request_what_its_entry_does_not_allow() -> None:
    stage = open_stage(expecting(3, "n1 n2"))
    stage.enter("n1", "n2")
    stage.enter("n2", "n1")
    run(stage, 3)
    stage.form("n1")
    run(stage, 80)
    assert view_of(stage, "n1") == ("", "")
    assert "2 of 3 expected nodes are here (n1 n2): start 1 more" in refusals(stage, "n1")[-1]


# --- joining ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ALL)
def test_a_name_that_nobody_listed_joins_with_the_state(family: Family) -> None:
    stage = founded("n1 n2", family, more="n3")
    stage.submit("n1", [b"a"])
    stage.submit("n2", [b"b"])
    run(stage, 4)
    stage.enter("n3", "n2")
    run(stage, 20)
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3"}
    assert sorted(known(stage, "n3")) == ["a", "b"]
    stage.submit("n3", [b"c"])
    run(stage, 4)
    assert all(sorted(known(stage, name)) == ["a", "b", "c"] for name in stage.actors)
    assert [states(stage, name) for name in stage.actors] == [0, 1, 1], "n2 was given one before"
    assert seen(stage, "n2") == ["n1 n2", "n1 n2 n3"], "nobody sees fewer members for a moment"


def without_state(stage: Stage, *names: str) -> None:
    """The applications of these members have none to give."""
    stage.plans = tuple(
        plan._replace(options=msgspec.structs.replace(plan.options, gives_state=False))
        if plan.members[0] in names
        else plan
        for plan in stage.plans
    )


@pytest.mark.parametrize("anchor", ["n1", "n2", "n3"])
def test_a_member_that_has_a_state_gives_it_whoever_is_first(anchor: str) -> None:
    names = {"n1": FOUNDS, "n2": JOINS, "n3": JOINS, "n4": JOINS}
    stage = open_stage(names)
    without_state(stage, "n1", "n2")
    stage.enter("n1")
    run(stage, 3)
    for name in ("n2", "n3"):
        stage.enter(name, "n1")
        run(stage, 14)
    assert view_of(stage, "n1")[1] == "n1 n2 n3"
    before = len(stage.log)
    stage.enter("n4", anchor)
    run(stage, 20)
    assert {view_of(stage, name)[1] for name in names} == {"n1 n2 n3 n4"}
    wanted = [who for who, what in stage.log[before:] if isinstance(what, StateWanted)]
    assert wanted == [NodeId("n3")]


def test_if_nobody_has_a_state_the_last_member_takes_others_in() -> None:
    stage = open_stage({"n1": FOUNDS, "n2": JOINS, "n3": JOINS})
    without_state(stage, "n1", "n2")
    stage.enter("n1")
    run(stage, 3)
    for name in ("n2", "n3"):
        stage.enter(name, "n1")
        run(stage, 14)
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3"}


def test_several_join_at_once_in_one_formation() -> None:
    stage = founded("n1 n2", more="n3 n4 n5")
    for name, anchor in (("n3", "n1"), ("n4", "n2"), ("n5", "n2")):
        stage.enter(name, anchor)
    run(stage, 20)
    assert {view_of(stage, name) for name in stage.actors} == {("n1.0.3", "n1 n2 n3 n4 n5")}


def test_who_asks_while_a_formation_is_on_its_way_is_next() -> None:
    stage = founded("n1", more="n2 n3", invitations="ask")
    stage.enter("n2", "n1")
    until(stage, Invite, "n1")
    stage.enter("n3", "n1")
    stage.settle(ticks=1)
    stage.answer("n2", True)
    for _ in range(12):
        run(stage, 1)
        if any(type(what).__name__ == "Invitation" for who, what in stage.log if who.name == "n3"):
            stage.answer("n3", True)
            stage.answer("n2", True)
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3"}


def test_a_new_incarnation_comes_back_by_itself() -> None:
    stage = founded("n1 n2 n3")
    stage.submit("n3", [b"old"])
    run(stage, 4)
    for name in ("n3", "n1"):  # n1 is the one that takes others in
        die(stage, name)
        stage.plans = tuple(
            plan._replace(entry=FoundingRule(last=("n1", "n2", "n3")))
            if name in plan.members
            else plan
            for plan in stage.plans
        )
        stage.enter(name, "n2")
        run(stage, 60)
        assert len({view_of(stage, each) for each in stage.actors}) == 1
        assert known(stage, name) == ["old"]
    assert view_of(stage, "n2")[1] == "n1#1 n2 n3#1"


def test_another_level_or_founder_is_told_once() -> None:
    stage = open_stage(
        {"n1": FoundingRule(founds=True, founder="n1"), "n2": FoundingRule(founder="n3")}
    )
    stage.enter("n1")
    stage.enter("n2", "n1")
    run(stage, 40)
    assert len(refusals(stage, "n2")) == 1
    assert "founder is n3 here and n1 there" in refusals(stage, "n2")[0]
    assert view_of(stage, "n1") == ("n1.0.1", "n1")


def test_sides_of_a_partition_join_only_if_that_is_asked_for() -> None:
    """A joiner brings its own side no other one."""
    stage = founded("n1 n2 n3", more="n4")
    part(stage, "n1 n2", "n3")
    run(stage, 60)
    rejoin(stage, "n1 n2", "n3")
    stage.enter("n4", "n1", "n3")
    run(stage, 60)
    assert view_of(stage, "n4")[1] == view_of(stage, "n1")[1] == "n1 n2 n4"
    assert view_of(stage, "n3")[1] == "n3"
    stage.form("n1")
    run(stage, 40)
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3 n4"}


def test_sides_of_an_open_group_come_together_automatically() -> None:
    stage = founded("n1 n2 n3", reform="auto")
    part(stage, "n1 n2", "n3")
    run(stage, 60)
    rejoin(stage, "n1 n2", "n3")
    run(stage, 120)
    assert {view_of(stage, name)[1] for name in stage.actors} == {"n1 n2 n3"}


# --- what keeps nobody out ---------------------------------------------------------------------


def entering(stage: Stage, name: str, anchor: str) -> None:
    """Until the application of the initiator is asked for the state."""
    asked = sum(isinstance(what, StateWanted) for _, what in stage.log)
    stage.enter(name, anchor)
    for _ in range(20):
        if sum(isinstance(what, StateWanted) for _, what in stage.log) > asked:
            return
        stage.settle(ticks=1)
    pytest.fail("nobody was asked")


def test_a_joiner_that_dies_before_the_state_delays_the_others_only() -> None:
    stage = founded("n1 n2", more="n3 n4")
    entering(stage, "n3", "n1")
    die(stage, "n3")
    run(stage, 40)
    assert view_of(stage, "n2") == view_of(stage, "n1") == ("n1.0.3", "n1 n2")
    assert stage.accepts("n1")
    stage.enter("n4", "n2")
    run(stage, 20)
    assert {view_of(stage, name)[1] for name in ("n1", "n2", "n4")} == {"n1 n2 n4"}


@pytest.mark.parametrize("leaver", ["n1", "n3"])
def test_an_application_that_fails_with_the_state_blocks_nobody(leaver: str) -> None:
    """n1 cannot make a snapshot, or n3 cannot restore one: its node leaves the group."""
    stage = founded("n1 n2", more="n3")
    stage.submit("n2", [b"kept"])
    run(stage, 4)
    entering(stage, "n3", "n2")
    before = stage.now
    if leaver == "n3":
        stage.provide("n1", b"kept")
        stage.settle()
    else:
        stage.actors["n1"].answered += 1  # it never will
    stage.leave(leaver)
    run(stage, 20 if leaver == "n1" else 6)
    assert stage.accepts("n2")
    assert stage.now - before < 1_000_000_000
    there = [name for name in ("n1", "n2", "n3") if name != leaver]
    assert {view_of(stage, name)[1] for name in there} == {" ".join(there)}
    assert all(known(stage, name) == ["kept"] for name in there)


def test_one_that_cannot_be_taken_in_keeps_no_other_out() -> None:
    """n3 reaches n1 only, so it never has all votes."""
    stage = founded("n1 n2", more="n3 n4 n5")
    part(stage, "n3", "n2 n4 n5")
    for name in ("n3", "n4", "n5"):
        stage.enter(name, "n1")
    run(stage, 300)
    assert {view_of(stage, name)[1] for name in ("n1", "n2", "n4", "n5")} == {"n1 n2 n4 n5"}
    assert view_of(stage, "n3") == ("", "")
    assert "n1 is in 'g'" in waits(stage, "n3")[-1][1]
    assert stage.accepts("n1")


def test_a_full_group_takes_nobody_in_and_the_joiner_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = founded("n1 n2", more="n3 n4")
    monkeypatch.setattr(gathering, "LARGEST_GROUP", 3)
    stage.enter("n3", "n1")
    stage.enter("n4", "n1")
    run(stage, 60)
    assert view_of(stage, "n1")[1] == view_of(stage, "n3")[1] == "n1 n2 n3"
    terms = member(stage, "n1").named["g"].terms
    full = Here("g", "n1.0.9", LARGEST_GROUP, "n1", terms, False)
    other = open_stage({"n1": JOINS})
    other.enter("n1", "n9")
    other.inject(NodeId("n9", 0), "n1", full)
    run(other, 3)
    assert waits(other, "n1")[-1] == (("n9",), "'g' has 50 members, and can have no more")
    assert not any(isinstance(one.packet, Please) for one in other.underway())


GHOSTS = [NodeId(f"ghost{number}", 0) for number in range(3 * MOST_KNOWN)]


def test_lies_about_who_wants_to_join_change_nothing() -> None:
    stage = founded("n1 n2", more="n3")
    n2, n3 = NodeId("n2", 0), NodeId("n3", 0)
    for joiner in (None, NodeId("n1", 0), n2, *GHOSTS):
        stage.inject(n2, "n1", Please("g", joiner))
    assert len(member(stage, "n1").named["g"].gathering.joiners) == LARGEST_GROUP
    stage.inject(n3, "n1", Please("g"))
    run(stage, 30)
    assert view_of(stage, "n1") == view_of(stage, "n2") == ("n1.0.2", "n1 n2")
    assert stage.accepts("n1")
    with pytest.raises(PeerError):
        stage.inject(NodeId("n1", 4), "n1", Please("g"))


def test_names_are_remembered_up_to_a_limit() -> None:
    stage = founded("n1 n2", more="n3")
    stage.give("n1", Acquainted("g", tuple(one.name for one in GHOSTS)))
    assert len(member(stage, "n1").named["g"].gathering.others) == MOST_KNOWN
    stage.enter("n3", "n1")
    run(stage, 20)
    assert view_of(stage, "n3")[1] == "n1 n2 n3"


def test_a_closed_group_learns_no_names() -> None:
    stage = Stage.of(FAMILY, "n1 n2")
    stage.give("n1", Acquainted("g", ("n9",)))
    assert member(stage, "n1").named["g"].gathering.others == ("n2",)
    terms = member(stage, "n1").named["g"].terms
    members = [NodeId("n1", 0), NodeId("n2", 0)]
    stage.inject(NodeId("n2", 0), "n1", Invite("g", "n2.0.1", members, terms, True))
    votes = [one.packet for one in stage.underway("n1", "n2") if isinstance(one.packet, Vote)]
    assert [vote.yes for vote in votes] == [False]

"""How groups form and re-form, and what votes and failures do to a formation."""

from __future__ import annotations

import pytest
from tests.protocol.newtop.forming_table import (
    QUICK,
    known,
    outputs,
    partitioned,
    refusals,
    run,
    stage_of,
    view_of,
    vote_of,
)
from tests.protocol.newtop.table import (
    carry,
    die,
    fall_silent,
    group,
    leave,
    member,
    node,
    views,
)

from ordercast.errors import UsageError
from ordercast.kernel.family import Plan
from ordercast.kernel.wording import GROUP
from ordercast.protocol.newtop.options import NewtopOptions
from ordercast.protocol.newtop.packets import Here, State
from ordercast.types import Partitioned, StateGiven, StateWanted, View, event_number

# --- at first ----------------------------------------------------------------------------------


def test_a_group_forms_when_all_members_are_reachable() -> None:
    stage = stage_of("n1 n2 n3")
    assert not stage.accepts("n1")
    run(stage)
    for name in ("n1", "n2", "n3"):
        assert view_of(stage, name) == ("n1.0.1", "n1 n2 n3")
        assert stage.accepts(name)
    stage.submit("n2", [b"hello"])
    run(stage, 3)
    assert all(known(stage, name) == ["hello"] for name in ("n1", "n2", "n3"))


def test_a_group_waits_for_missing_members_unless_an_application_asks() -> None:
    stage = stage_of("n1 n2 n3")
    stage.crash("n3")
    run(stage)
    assert view_of(stage, "n1") == ("", "")
    stage.form("n2")
    run(stage, 20)
    assert view_of(stage, "n1") == view_of(stage, "n2") == ("n2.0.1", "n1 n2")


def test_a_group_may_have_one_member() -> None:
    stage = stage_of("n1")
    run(stage, 3)
    assert view_of(stage, "n1") == ("n1.0.1", "n1")
    stage.submit("n1", [b"alone"])
    run(stage, 2)
    assert known(stage, "n1") == ["alone"]


def test_a_member_with_other_options_is_notified_of_the_difference() -> None:
    stage = stage_of("n1 n2")
    stage.crash("n2")
    stage.plans = (Plan(GROUP, ("n1", "n2"), NewtopOptions(**{**QUICK, "window": 7}), False),)
    stage.start("n2")
    run(stage)
    assert len(refusals(stage, "n2")) == 1
    assert "window is 7 here and 64 there" in refusals(stage, "n2")[0]
    assert view_of(stage, "n1") == ("", "")


def test_nothing_is_delivered_before_the_state() -> None:
    stage = stage_of("n1 n2 n3")
    stage.settle(ticks=3)
    assert any(isinstance(what, StateWanted) for _, what in stage.log)
    stage.settle(ticks=5)
    assert not any(outputs(stage, name) for name in ("n1", "n2", "n3"))
    assert not any(stage.accepts(name) for name in ("n1", "n2", "n3"))
    stage.provide("n1", b"now")
    stage.settle(ticks=2)
    assert known(stage, "n2") == known(stage, "n3") == ["now"]
    kinds = [type(what) for what in outputs(stage, "n2")]
    assert kinds == [StateGiven, View]
    assert [type(what) for what in outputs(stage, "n1")] == [View]


# --- re-forming ------------------------------------------------------------------------------


def test_the_side_of_the_member_that_asks_wins() -> None:
    stage = partitioned()
    stage.form("n2")
    run(stage, 20)
    for name in ("n1", "n2", "n3"):
        assert view_of(stage, name) == ("n2.0.1", "n1 n2 n3")
        assert known(stage, name) == ["before", "here"]
    stage.submit("n3", [b"together"])
    run(stage, 4)
    assert all(known(stage, name)[-1] == "together" for name in ("n1", "n2", "n3"))


def test_the_smaller_side_wins_if_its_member_asks() -> None:
    stage = partitioned()
    stage.form("n3")
    run(stage, 20)
    assert all(known(stage, name) == ["before", "there"] for name in ("n1", "n2", "n3"))


def test_the_application_is_notified_of_lost_members() -> None:
    stage = partitioned()
    gone = [what for what in outputs(stage, "n1") if isinstance(what, Partitioned)]
    assert [(what.view.members, what.gone) for what in gone] == [
        ((node("n1"), node("n2")), (node("n3"),))
    ]


def test_a_member_that_left_is_not_reported_as_lost() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    leave(stage, "n3")
    run(stage, 4)
    assert views(stage, "n1")[-1] == "g{n1 n2}"
    assert not any(isinstance(what, Partitioned) for what in outputs(stage, "n1"))


def test_event_numbers_continue_over_formations() -> None:
    stage = stage_of("n1 n2", formed=True)
    stage.submit("n1", [b"one"])
    stage.submit("n1", [b"two"])
    run(stage, 3)
    stage.form("n2")
    run(stage, 20)
    event = stage.submit("n1", [b"three"])
    assert event is not None
    assert event.number == event_number(0, 3)
    assert event.formation == "n2.0.1"
    run(stage, 3)
    assert known(stage, "n2") == ["one", "two", "three"]
    assert [what.number for what in stage.deliveries(node("n2"))] == [1, 2, 3]
    assert member(stage, "n1").stable_up_to("g") == 3


def test_events_in_flight_are_in_the_state() -> None:
    """An event that is submitted just before its origin goes over, and held up on its way."""
    stage = stage_of("n1 n2 n3", formed=True)
    stage.form("n1")
    stage.submit("n2", [b"late"])
    stage.cut("n2", "n1", one_way=True)
    stage.settle()
    stage.mend("n2", "n1", one_way=True)
    run(stage, 20)
    assert view_of(stage, "n3") == ("n1.0.1", "n1 n2 n3")
    assert all(known(stage, name) == ["late"] for name in ("n1", "n2", "n3"))


def test_the_initiator_waits_for_the_last_event_of_members_that_move_with_it() -> None:
    """A start may come by way of others, before what its sender has cast where it was."""
    stage = stage_of("n1 n2", formed=True, invitations="ask")
    stage.form("n1")
    stage.settle()
    stage.answer("n2", True)
    carry(stage, "n2", "n1")
    stage.submit("n2", [b"late"])
    stage.cut("n2", "n1", one_way=True)
    stage.settle()
    machine = member(stage, "n1")
    current, following = group(stage, "n1"), group(stage, "n1", "g+n1.0.1")
    assert not machine.transitions._has_all_of(current, following)
    stage.mend("n2", "n1", one_way=True)
    run(stage, 6)
    assert known(stage, "n1") == known(stage, "n2") == ["late"]
    assert current.moves[node("n2")][0] == "n1.0.1"


def test_a_member_that_moves_submits_nothing() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.form("n1", ("n2",))
    stage.settle(ticks=4)
    assert not stage.accepts("n1")
    assert not stage.accepts("n2")
    run(stage, 4)
    assert stage.accepts("n1")
    assert stage.accepts("n2")


def test_two_requests_at_once_lead_to_one_formation() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.form("n3")
    stage.form("n1")
    run(stage, 60)
    assert view_of(stage, "n1")[1] == "n1 n2 n3"
    assert len({view_of(stage, name) for name in ("n1", "n2", "n3")}) == 1


def test_of_two_initiators_that_invite_each_other_the_smaller_prevails() -> None:
    stage = stage_of("n1 n2", formed=True)
    for name in ("n2", "n1"):
        stage.form(name)
    heres = [one for one in stage.underway() if isinstance(one.packet, Here)]
    for parcel in heres:
        stage.deliver(parcel)
    for parcel in stage.underway():
        if isinstance(parcel.packet, Here):
            stage.deliver(parcel)
    votes = [vote_of(stage, name) for name in ("n1", "n2")]
    assert [vote.formation for vote in votes if vote] == ["n1.0.1", "n2.0.1"]
    stage.settle()
    assert "g+n1.0.1" in member(stage, "n1").joined
    assert "g+n1.0.1" in member(stage, "n2").joined


def test_the_initiator_waits_until_all_have_started() -> None:
    """A state that is numbered below a member's start would arrive too late there."""
    stage = stage_of("n1 n2 n3", invitations="ask", suspicion_limit="10s")
    stage.settle()
    stage.answer("n2", True)
    stage.answer("n3", True)
    carry(stage, "n2", "n1")
    carry(stage, "n3", "n1")
    stage.cut("n3", "n1", one_way=True)
    stage.settle(ticks=5)
    formed = group(stage, "n1", "g+n1.0.1")
    assert set(formed.starts) == {node("n1"), node("n2")}
    assert formed.bound() >= formed.floor > 0
    assert not any(isinstance(what, StateWanted) for _, what in stage.log)
    stage.mend("n3", "n1", one_way=True)
    run(stage, 4)
    assert view_of(stage, "n3") == ("n1.0.1", "n1 n2 n3")


def test_a_request_may_name_some_members() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.submit("n3", [b"all"])
    run(stage, 3)
    stage.form("n1", ("n2",))
    run(stage, 40)
    assert view_of(stage, "n1") == view_of(stage, "n2") == ("n1.0.1", "n1 n2")
    assert view_of(stage, "n3") == ("", "n3")
    with pytest.raises(UsageError, match="'n9' is not a member"):
        stage.form("n1", ("n9",))


def test_a_member_may_form_the_group_alone() -> None:
    stage = stage_of("n1 n2", formed=True)
    stage.form("n1", ("n1",))
    run(stage, 20)
    assert view_of(stage, "n1") == ("n1.0.1", "n1")
    assert view_of(stage, "n2") == ("", "n2")


def test_a_request_for_some_outlives_a_formation_of_all() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.form("n1")
    stage.settle(ticks=1)
    stage.form("n2", ("n3",))  # while it is on its way with all
    run(stage, 60)
    assert view_of(stage, "n2") == view_of(stage, "n3") == ("n2.0.1", "n2 n3")
    assert view_of(stage, "n1") == ("n1.0.1", "n1")


def test_a_member_that_does_not_answer_is_named() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.crash("n3")
    run(stage, 20)
    stage.form("n1", ("n2", "n3"))
    run(stage, 80)
    assert refusals(stage, "n1") == ["'g' was not re-formed: n3 does not answer"]
    assert stage.accepts("n1")
    stage.submit("n1", [b"still here"])
    run(stage, 4)
    assert known(stage, "n2") == ["still here"]


# --- vetoes ------------------------------------------------------------------------------------


def test_after_a_no_of_an_application_all_stay_in_their_formation() -> None:
    stage = stage_of("n1 n2 n3", formed=True, invitations="ask")
    stage.form("n1")
    for _ in range(40):
        run(stage, 1)
        if vote_of(stage, "n3") is not None:
            stage.answer("n3", False)
        if vote_of(stage, "n2") is not None:
            stage.answer("n2", True)
    assert refusals(stage, "n1") == ["'g' was not re-formed: n3: its application voted no"]
    assert all(stage.accepts(name) for name in ("n1", "n2", "n3"))
    assert view_of(stage, "n2") == ("", "n1 n2 n3")


def test_an_application_may_vote_later() -> None:
    stage = stage_of("n1 n2", formed=True, invitations="ask")
    stage.form("n1")
    stage.settle(ticks=1)
    stage.answer("n2", True)
    stage.answer("n2", False)  # it has answered
    run(stage, 6)
    assert view_of(stage, "n2") == ("n1.0.1", "n1 n2")


def test_a_yes_is_withdrawn_if_the_vote_does_not_end() -> None:
    """n3 voted yes and waits for the initiator, which is cut off; then it says no to all."""
    stage = stage_of("n1 n2 n3", formed=True)
    stage.form("n1")
    stage.settle()
    carry(stage, "n1", "n3")
    fall_silent(stage, "n3")
    run(stage, 60)
    assert view_of(stage, "n3") == ("", "n3")
    assert view_of(stage, "n1")[1] == view_of(stage, "n2")[1] == "n1 n2"
    assert stage.accepts("n1")
    assert stage.accepts("n3")


def test_a_member_that_votes_no_after_others_have_started_is_excluded() -> None:
    """n1 and n2 have all votes; n3 lacks that of n1, and takes its own back."""
    stage = stage_of("n1 n2 n3", formed=True, invitations="ask")
    stage.form("n1")
    stage.settle()
    stage.cut("n1", "n3", one_way=True)
    stage.answer("n2", True)
    stage.answer("n3", True)
    stage.settle()
    for name in ("n1", "n2"):
        assert "g+n1.0.1" in member(stage, name).joined
    assert vote_of(stage, "n3") is not None
    stage.fire("n3", ("vote", "g"))
    stage.settle()
    causes = [note.columns["cause"] for note in stage.notes(node("n1"), "suspect")]
    assert causes == ["refused"]
    run(stage, 60)
    assert view_of(stage, "n1") == view_of(stage, "n2") == ("n1.0.1", "n1 n2")
    assert view_of(stage, "n3") == ("", "n3")


def test_a_full_application_does_not_delay_a_formation() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.throttle("n2", full=True)
    stage.form("n1")
    run(stage, 20)
    assert view_of(stage, "n2") == ("n1.0.1", "n1 n2 n3")
    assert group(stage, "n2", "g+n1.0.1").is_full
    for number in range(100):
        stage.submit("n1", [str(number).encode()])
    run(stage, 4)
    assert not stage.accepts("n1"), "it holds the senders back there too"
    stage.throttle("n2", full=False)
    run(stage, 4)
    assert stage.accepts("n1")


# --- the initiator dies ---------------------------------------------------------------------


def test_without_a_state_all_stay_in_their_old_formation() -> None:
    stage = stage_of("n1 n2 n3 n4", formed=True)
    stage.submit("n2", [b"kept"])
    run(stage, 3)
    stage.form("n1", ("n2", "n3"))
    stage.settle(ticks=6)
    assert any(isinstance(what, StateWanted) for _, what in stage.log)
    assert not stage.accepts("n2")
    die(stage, "n1")
    run(stage, 60)
    assert view_of(stage, "n2") == view_of(stage, "n3") == ("", "n2 n3 n4")
    stage.submit("n3", [b"on"])
    run(stage, 4)
    assert known(stage, "n2") == known(stage, "n3") == ["kept", "on"]


def test_an_initiator_that_breaks_the_rules_and_gives_no_state_is_excluded_in_the_end() -> None:
    """One that follows them begins without its application in time (`test_unread_giver.py`)."""
    stage = stage_of("n1 n2 n3 n4", formed=True)
    member(stage, "n1").named["g"].giver.limit = 1 << 60
    stage.form("n1", ("n2", "n3"))
    stage.settle(ticks=100)
    assert not stage.accepts("n2")
    stage.settle(ticks=400)
    assert view_of(stage, "n2") == view_of(stage, "n3") == ("", "n2 n3 n4")
    assert stage.accepts("n2")


def test_a_state_that_one_member_has_reaches_all() -> None:
    stage = stage_of("n1 n2 n3 n4", formed=True)
    stage.submit("n2", [b"old"])
    run(stage, 3)
    stage.form("n1", ("n2", "n3"))
    stage.settle(ticks=6)
    stage.cut("n1", "n3")
    stage.provide("n1", b"old")
    states = [one for one in stage.underway("n1", "n2") if isinstance(one.packet, State)]
    assert states
    carry(stage, "n1", "n2")
    die(stage, "n1")
    run(stage, 80)
    assert view_of(stage, "n2") == view_of(stage, "n3")
    assert view_of(stage, "n2")[0] == "n1.0.1"
    assert known(stage, "n3") == ["old"]

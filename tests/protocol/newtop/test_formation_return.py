"""Members that return, partitions that re-form automatically, and groups beside other groups."""

from __future__ import annotations

from tests.protocol.newtop.forming_table import (
    QUICK,
    known,
    part,
    partitioned,
    run,
    stage_of,
    view_of,
)
from tests.protocol.newtop.table import leave, member, node, wait

from ordercast.kernel.family import Plan
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.options import NewtopOptions
from ordercast.protocol.newtop.packets import Here, Invite, Vote
from ordercast.testing.stage import Stage
from ordercast.types import StateWanted, event_number

# --- members that return ---------------------------------------------------------------------


def third_restarted() -> Stage:
    """A group of three that knows `old`, and whose third member has just restarted."""
    stage = stage_of("n1 n2 n3", formed=True)
    stage.submit("n1", [b"old"])
    run(stage, 3)
    stage.crash("n3")
    run(stage, 40)
    stage.start("n3")
    return stage


def test_a_new_incarnation_enters_on_request() -> None:
    stage = third_restarted()
    run(stage, 10)
    assert view_of(stage, "n3") == ("", "")
    assert not stage.accepts("n3")
    stage.form("n1")
    run(stage, 20)
    assert view_of(stage, "n3") == ("n1.0.1", "n1 n2 n3#1")
    assert known(stage, "n3") == ["old"]
    stage.submit("n3", [b"new"])
    run(stage, 4)
    assert known(stage, "n1") == known(stage, "n3") == ["old", "new"]


def test_a_new_incarnation_that_asks_does_not_provide_its_empty_state() -> None:
    stage = third_restarted()
    stage.form("n3")
    run(stage, 40)
    assert all(view_of(stage, name)[1] == "n1 n2 n3#1" for name in ("n1", "n2", "n3"))
    assert all(known(stage, name) == ["old"] for name in ("n1", "n2", "n3"))


def test_a_new_incarnation_enters_before_the_old_one_is_suspected() -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    stage.crash("n3")
    stage.start("n3")
    stage.form("n2")
    run(stage, 40)
    assert view_of(stage, "n1") == view_of(stage, "n3") == ("n2.0.1", "n1 n2 n3#1")


def test_sides_of_a_partition_re_form_automatically() -> None:
    stage = partitioned(reform="auto")
    run(stage, 120)
    for name in ("n1", "n2", "n3"):
        assert view_of(stage, name)[1] == "n1 n2 n3"
        assert known(stage, name) == ["before", "here"], "the larger part goes on"
    formation = view_of(stage, "n1")[0]
    run(stage, 120)
    assert view_of(stage, "n1")[0] == formation, "and then there is rest"


def test_only_the_first_member_of_the_largest_view_acts_automatically() -> None:
    stage = partitioned(reform="auto")
    for name in ("n1", "n2", "n3"):
        member(stage, name).named["g"].gathering.request = None
    terms = member(stage, "n1").named["g"].terms

    def requests(name: str, sender: str, size: int, first: str, delivered: int = 2) -> bool:
        here = Here("g", "other", size, first, terms, False, delivered=delivered)
        stage.inject(node(sender), name, here)
        return member(stage, name).named["g"].gathering.request is not None

    assert not requests("n3", "n1", 2, "n1"), "a larger part is there"
    assert not requests("n2", "n3", 1, "n3"), "n1 is the first of its part"
    assert not requests("n1", "n3", 3, "n3")
    assert not requests("n1", "n3", 2, "n0"), "one as large comes before it"
    assert not requests("n1", "n3", 2, "n3", 3), "one as large has delivered more"
    assert requests("n1", "n3", 2, "n3")


def test_nothing_happens_automatically_if_no_member_answers() -> None:
    stage = stage_of("n1 n2 n3", formed=True, reform="auto")
    part(stage, "n1 n2", "n3")
    wait(stage, 60)
    terms = member(stage, "n1").named["g"].terms
    stage.inject(node("n3"), "n1", Here("g", "", 1, "n3", terms, False))
    assert member(stage, "n1").named["g"].gathering.request is not None
    run(stage, 60)
    assert member(stage, "n1").named["g"].gathering.request is None
    assert view_of(stage, "n1") == view_of(stage, "n2") == ("", "n1 n2")


def test_a_new_incarnation_enters_automatically() -> None:
    stage = stage_of("n1 n2 n3", formed=True, reform="auto")
    stage.submit("n1", [b"old"])
    run(stage, 3)
    stage.crash("n1")
    run(stage, 40)
    stage.start("n1")
    run(stage, 160)
    assert all(view_of(stage, name)[1] == "n1#1 n2 n3" for name in ("n1", "n2", "n3"))
    assert known(stage, "n1") == ["old"]


def test_a_member_that_left_may_join_again_in_the_same_incarnation() -> None:
    stage = stage_of("n1 n2", formed=True)
    stage.submit("n2", [b"one"])
    run(stage, 3)
    leave(stage, "n2")
    run(stage, 3)
    stage.join("n2", stage.plans[0])
    stage.form("n1")
    run(stage, 20)
    event = stage.submit("n2", [b"two"])
    assert event is not None
    assert event.number == event_number(0, 2)
    run(stage, 4)
    assert known(stage, "n1") == known(stage, "n2") == ["one", "two"]


# --- beside other groups -----------------------------------------------------------------------


def test_a_group_forms_while_another_one_runs() -> None:
    options = NewtopOptions(**QUICK)
    plans = [Plan("a", ("n1", "n2"), options), Plan("b", ("n1", "n2"), options, formed=False)]
    stage = Stage(FAMILY, plans)
    stage.start()
    sent = []
    for number in range(12):
        if stage.accepts("n1", "a"):
            sent.append(f"a{number}")
            stage.submit("n1", [sent[-1].encode()], "a")
        run_both(stage)
    assert stage.accepts("n2", "b")
    stage.submit("n2", [b"b"], "b")
    run_both(stage)
    run_both(stage)
    heard = [[one.payloads[0].decode() for one in stage.deliveries(node(n))] for n in ("n1", "n2")]
    assert heard[0] == heard[1]
    assert len(heard[0]) == len(sent) + 1 > 5


def run_both(stage: Stage) -> None:
    stage.settle(ticks=2)
    for name, actor in stage.actors.items():
        log = [what for who, what in stage.log if who == actor.node]
        asked = [what for what in log if isinstance(what, StateWanted)]
        for what in asked[actor.answered :]:
            stage.provide(name, None, what.group)


def test_a_member_that_leaves_during_a_vote_votes_no() -> None:
    stage = stage_of("n1 n2 n3", formed=True, invitations="ask")
    stage.form("n1")
    stage.settle(ticks=1)
    leave(stage, "n3")
    votes = [one.packet for one in stage.underway("n3", "n1") if isinstance(one.packet, Vote)]
    assert [(vote.yes, vote.why) for vote in votes] == [(False, "it left the group")]
    assert any(
        isinstance(what.packet, Invite) for who, what in stage.log if hasattr(what, "packet")
    )

"""Virtual synchrony with a quorum on a stage: splits, merges, restarts, and what is secured."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.errors import PeerError
from ordercast.kernel.family import FoundingRule
from ordercast.kernel.inputs import CaughtUp
from ordercast.protocol.primary.packets import PrimaryAttempt
from ordercast.protocol.transis.member import SynchronyMember
from ordercast.testing.stage import Stage
from ordercast.types import Event, NodeId, Primary, Secured, View


def staged(names: str, **options: Any) -> Stage:
    """Members that started alone, and have merged."""
    stage = Stage.of("synchrony", names, formed=False, quorum="majority", **options)
    stage.settle(ticks=60)
    assert news(stage, names.split()[0])[-1].is_primary
    return stage


def news(stage: Stage, name: str) -> list[Primary]:
    node = stage.node(name)
    return [what for who, what in stage.log if who == node and isinstance(what, Primary)]


def up_to_date(stage: Stage, name: str) -> str:
    return " ".join(news(stage, name)[-1].up_to_date)


def secured(stage: Stage, name: str) -> list[tuple[int, int]]:
    """Counters of own events, as this incarnation was told."""
    node, mask = stage.node(name), (1 << 40) - 1
    told = [what for who, what in stage.log if who == node and isinstance(what, Secured)]
    return [(one.first & mask, one.up_to & mask) for one in told]


def heard(stage: Stage, name: str) -> list[str]:
    """Messages, views, transitional ones with ~, and whether a view is primary."""
    found = []
    for who, what in stage.log:
        if who != stage.node(name):
            continue
        if isinstance(what, Event):
            found.append(what.payloads[0].decode())
        elif isinstance(what, View):
            names = " ".join(str(member) for member in what.members)
            found.append(f"~{names}" if what.transitional else names)
        elif isinstance(what, Primary):
            found.append("primary" if what.is_primary else "outside")
    return found


def last(told: list[type], kind: type) -> int:
    return max(at for at, one in enumerate(told) if one is kind)


def machine(stage: Stage, name: str) -> SynchronyMember:
    found = stage.machine(name)
    assert isinstance(found, SynchronyMember)
    return found


def part(stage: Stage, *sides: str) -> None:
    for at, side in enumerate(sides):
        for other in sides[at + 1 :]:
            for one in side.split():
                for two in other.split():
                    stage.cut(one, two)
    stage.settle(ticks=60)


def heal(stage: Stage) -> None:
    for one in stage.actors:
        for two in stage.actors:
            if one < two:
                stage.mend(one, two)
    stage.settle(ticks=120)


# --- who may send ----------------------------------------------------------------------------


def test_of_two_halves_the_one_with_the_first_member_goes_on() -> None:
    stage = staged("n1 n2 n3 n4")
    part(stage, "n1 n4", "n2 n3")
    assert heard(stage, "n4")[-2:] == ["n1 n4", "primary"]
    assert heard(stage, "n2")[-2:] == ["n2 n3", "outside"]
    assert stage.accepts("n4")
    assert not stage.accepts("n2")
    assert machine(stage, "n2").blocked_by("g") == "quorum"
    assert news(stage, "n2")[-1].missing == ("n1", "n4")


def test_the_majority_is_of_the_last_primary_view() -> None:
    """Of five three go on, then two, and then one: the other four are no majority of that."""
    stage = staged("n1 n2 n3 n4 n5")
    part(stage, "n1 n2 n3", "n4 n5")
    part(stage, "n1 n2", "n3")
    part(stage, "n1", "n2")
    assert heard(stage, "n1")[-2:] == ["n1", "primary"]
    for one in ("n2", "n3"):
        for two in ("n3", "n4", "n5"):
            if one < two:
                stage.mend(one, two)
    stage.settle(ticks=120)
    assert heard(stage, "n2")[-2:] == ["n2 n3 n4 n5", "outside"]
    assert stage.accepts("n1")


def test_a_restart_of_everybody_makes_no_second_primary_view() -> None:
    stage = staged("n1 n2 n3")
    part(stage, "n1", "n2 n3")
    for name in ("n1", "n2", "n3"):
        stage.crash(name)
    stage.start("n1")
    stage.mend("n1", "n2")
    stage.start("n2")
    stage.settle(ticks=120)
    # They are two of the three that are listed, and n2 knows that n3 was in the last one.
    assert heard(stage, "n1")[-2:] == ["n1#1 n2#1", "outside"]
    stage.mend("n1", "n3")
    stage.start("n3")
    stage.settle(ticks=120)
    assert heard(stage, "n3")[-2:] == ["n1#1 n2#1 n3#1", "primary"]


def test_a_side_that_came_is_of_the_primary_view_when_the_vote_is_over() -> None:
    stage = staged("n1 n2 n3 n4 n5")
    part(stage, "n1 n2 n3", "n4", "n5")
    heal(stage)  # three sides
    whole = "n1 n2 n3 n4 n5"
    for name in whole.split():
        last = heard(stage, name)
        assert last[-2:] == [whole, "primary"]
        assert stage.accepts(name)


def test_nothing_is_accepted_while_a_view_is_changed_or_voted_on() -> None:
    stage = staged("n1 n2 n3")
    member = machine(stage, "n1")
    stage.crash("n3")
    voted_in_vain = changing = 0
    for _ in range(60):
        stage.settle(ticks=1)
        for parcel in stage.underway("n1"):
            stage.deliver(parcel)
    assert heard(stage, "n1")[-2:] == ["n1 n2", "primary"]
    stage.start("n3")
    for _ in range(4000):
        if heard(stage, "n1")[-1] == "primary" and len(member.view.members) == 3:
            break
        parcels = stage.underway()
        if parcels:
            stage.deliver(parcels[0])
        else:
            stage.fire(*soonest(stage))
        is_changing = member.current.change.stage == 2
        changing += is_changing
        undecided = member.franchise is not None and not member.franchise.is_primary
        voted_in_vain += undecided
        if is_changing or undecided:
            assert not stage.accepts("n1")
            assert member.blocked_by("g") == ("view" if is_changing else "quorum")
    assert changing
    assert voted_in_vain
    assert not member.own.waiting


def soonest(stage: Stage) -> tuple[str]:
    """Somebody whose timer is set, in turns."""
    names = [name for name, actor in stage.actors.items() if actor.alive and stage.timers(name)]
    return (names[stage.now % len(names)],)


def test_an_open_group_has_no_members_of_which_there_is_a_majority() -> None:
    stage = Stage.open(
        "synchrony", {"n1": FoundingRule(1), "n2": FoundingRule(1)}, quorum="majority"
    )
    stage.enter("n1")
    stage.enter("n2", "n1")
    stage.settle(ticks=30)
    assert heard(stage, "n2")[-2:] == ["n1 n2", "outside"]


# --- what is secured -------------------------------------------------------------------------


def test_a_safe_event_of_a_transitional_view_counts_for_those_who_came_along() -> None:
    """n3 never has it. n1 and n2 are the primary view that follows, so it is secured then."""
    stage = staged("n1 n2 n3")
    stage.cut("n1", "n3")
    stage.cut("n2", "n3")
    stage.submit("n1", [b"certain"], service="safe")
    stage.settle(ticks=1)
    assert secured(stage, "n1") == []
    stage.settle(ticks=60)
    assert heard(stage, "n1")[-4:] == ["~n1 n2", "certain", "n1 n2", "primary"]
    assert secured(stage, "n1") == [(1, 1)]
    told = [type(what) for who, what in stage.log if who == stage.node("n1")]
    assert last(told, Primary) < last(told, Secured), "when the vote is over"


def test_on_the_side_that_is_not_primary_it_counts_for_nobody() -> None:
    stage = staged("n1 n2 n3")
    stage.cut("n1", "n2")
    stage.cut("n1", "n3")
    stage.submit("n1", [b"lost"], service="safe")
    stage.settle(ticks=60)
    assert heard(stage, "n1")[-4:] == ["~n1", "lost", "n1", "outside"]
    heal(stage)
    assert stage.accepts("n1")
    stage.submit("n1", [b"later"])
    stage.settle(ticks=4)
    assert heard(stage, "n2")[-1] == "later"
    assert secured(stage, "n1") == [(2, 2)], "the first one is in doubt for ever"


def test_a_lone_member_secures_by_itself_only_what_it_may_send() -> None:
    stage = staged("n1 n2")
    part(stage, "n1", "n2")
    stage.submit("n1", [b"alone"])
    assert secured(stage, "n1") == [(1, 1)]
    assert stage.submit("n2", [b"alone"]) is None


# --- whose history goes on -------------------------------------------------------------------


def test_members_that_lack_nothing_are_up_to_date_whichever_way_they_come() -> None:
    stage = staged("n1 n2 n3")
    stage.submit("n1", [b"all have it"])
    stage.settle(ticks=4)
    part(stage, "n1 n2", "n3")
    heal(stage)
    assert up_to_date(stage, "n3") == "n1 n2 n3"


def behind() -> Stage:
    """n1 was away while the others sent. Then all are together."""
    stage = staged("n1 n2 n3")
    part(stage, "n1", "n2 n3")
    stage.submit("n2", [b"meanwhile"])
    stage.settle(ticks=4)
    heal(stage)
    assert {up_to_date(stage, name) for name in ("n1", "n2", "n3")} == {"n2 n3"}
    return stage


def test_members_that_are_behind_do_not_go_on_without_the_history() -> None:
    stage = behind()
    part(stage, "n1 n2", "n3")
    assert up_to_date(stage, "n1") == "n2"
    part(stage, "n1", "n2")
    assert not news(stage, "n1")[-1].is_primary
    assert "nobody here has the state" in news(stage, "n1")[-1].why


def test_a_member_that_has_caught_up_goes_on_with_it() -> None:
    stage = behind()
    stage.give("n1", CaughtUp("g", news(stage, "n1")[-1].view.id))
    part(stage, "n1 n2", "n3")
    assert up_to_date(stage, "n1") == "n1 n2"
    part(stage, "n1", "n2")
    assert news(stage, "n1")[-1].is_primary


def test_a_state_of_an_earlier_view_is_no_state_of_this_one() -> None:
    stage = behind()
    earlier = news(stage, "n1")[-1].view.id
    part(stage, "n1 n2", "n3")
    stage.give("n1", CaughtUp("g", earlier))
    heal(stage)
    assert up_to_date(stage, "n1") == "n2 n3"


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(("sender", "quorum"), [("n9", "majority"), ("n2", "none")])
def test_votes_of_strangers_and_without_a_quorum_are_refused(sender: str, quorum: str) -> None:
    stage = Stage.of("synchrony", "n1 n2", quorum=quorum)
    member = machine(stage, "n1")
    vote = PrimaryAttempt("g", 1, 1)
    with pytest.raises(PeerError):
        stage.act("n1", lambda step: member.receive(step, NodeId(sender), vote))

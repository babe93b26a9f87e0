"""Virtual synchrony with a quorum on a stage: splits, merges, restarts, and what is secured."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.errors import PeerError
from ordercast.kernel.family import FoundingRule, Plan
from ordercast.kernel.inputs import CaughtUp
from ordercast.kernel.step import Step
from ordercast.protocol.primary.packets import Coverage, PrimaryAttempt, PrimaryView
from ordercast.protocol.transis.flow import OwnEvents
from ordercast.protocol.transis.franchise import Franchise
from ordercast.protocol.transis.member import SynchronyMember
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.testing.stage import Stage
from ordercast.types import (
    Event,
    NodeId,
    Primary,
    Secured,
    SideStates,
    StateGiven,
    StateLost,
    StateWanted,
    View,
)


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


# --- where the group hands over states -------------------------------------------------------


class Replicas:
    """A group that hands over states, each of which is what was delivered, in order."""

    def __init__(self, names: str, merge: str) -> None:
        self.stage = Stage.of("synchrony", names, formed=False, quorum="majority", merge=merge)
        self.known: dict[NodeId, list[str]] = {}
        self.seen = 0  # of the stage's log
        self.settle()

    def settle(self, ticks: int = 60) -> None:
        for _ in range(ticks):
            self.stage.settle(ticks=1)
            while self.seen < len(self.stage.log):
                who, what = self.stage.log[self.seen]
                self.seen += 1
                self._hear(who, what)

    def _hear(self, who: NodeId, what: object) -> None:
        known = self.known.setdefault(who, [])
        if isinstance(what, Event):
            known.append(what.payloads[0].decode())
        elif isinstance(what, StateWanted):
            self.stage.provide(who.name, " ".join(known).encode())
        elif isinstance(what, StateGiven):
            self.known[who] = (what.state or b"").decode().split()
        elif isinstance(what, SideStates):
            each = [(one.state or b"").decode().split() for one in what.states]
            self.known[who] = list(dict.fromkeys(word for words in each for word in words))

    def part(self, *sides: str) -> None:
        part(self.stage, *sides)
        self.settle()

    def heal(self) -> None:
        self.stage.cuts.clear()
        self.settle(120)

    def submit(self, name: str, text: str) -> None:
        assert self.stage.submit(name, [text.encode()]) is not None
        self.settle(4)

    def state(self, name: str) -> str:
        return " ".join(self.known[self.stage.node(name)])


@pytest.mark.parametrize("merge", ["largest", "all"])
def test_the_side_with_the_secured_history_counts_and_not_the_larger_one(merge: str) -> None:
    """Of five three go on and then two. The other three are more, and have less."""
    group = Replicas("n1 n2 n3 n4 n5", merge)
    group.submit("n1", "first")
    group.part("n1 n2 n3", "n4 n5")
    group.submit("n3", "second")
    group.part("n1 n2", "n3")
    group.submit("n2", "third")
    for name in ("n4", "n5"):
        group.stage.mend("n3", name)
    group.settle(120)
    assert heard(group.stage, "n3")[-2:] == ["n3 n4 n5", "outside"]
    # n3 has what its primary view secured, and the others take it.
    assert {group.state(name) for name in ("n3", "n4", "n5")} == {"first second"}
    group.heal()
    assert up_to_date(group.stage, "n4") == "n1 n2 n3 n4 n5"
    assert {group.state(name) for name in group.stage.actors} == {"first second third"}
    told = [type(what) for who, what in group.stage.log if who == group.stage.node("n5")]
    given = StateGiven if merge == "largest" else SideStates
    assert last(told, View) < last(told, given) < last(told, Primary), "the vote follows the state"


@pytest.mark.parametrize("merge", ["largest", "all"])
def test_a_member_that_took_the_state_goes_on_with_it(merge: str) -> None:
    """n1 was away, and then it alone is a majority of the view that it was given the state in."""
    group = Replicas("n1 n2 n3", merge)
    group.part("n1", "n2 n3")
    group.submit("n2", "meanwhile")
    group.heal()
    group.part("n1 n2", "n3")
    group.part("n1", "n2")
    assert news(group.stage, "n1")[-1].is_primary
    assert group.state("n1") == "meanwhile"


def test_who_gave_up_a_state_for_one_that_is_not_primary_is_not_up_to_date() -> None:
    """n1 goes on alone. The others share the state of n2, which has most, and lack what n1 has."""
    group = Replicas("n1 n2 n3 n4", "largest")
    group.part("n1 n2 n3", "n4")
    group.submit("n3", "second")
    group.part("n1 n2", "n3")
    group.submit("n2", "third")
    group.part("n1", "n2")
    group.submit("n1", "fourth")
    for name in ("n3", "n4"):
        group.stage.mend("n2", name)
    group.stage.mend("n3", "n4")
    group.settle(120)
    assert heard(group.stage, "n3")[-2:] == ["n2 n3 n4", "outside"]
    assert {group.state(name) for name in ("n2", "n3", "n4")} == {"second third"}
    group.stage.crash("n1")
    group.settle(120)
    for name in ("n2", "n3", "n4"):
        assert not news(group.stage, name)[-1].is_primary, "nobody here has what n1 secured"


@pytest.mark.parametrize("is_ours", [False, True])
def test_own_events_are_in_doubt_if_the_state_of_another_side_was_taken(is_ours: bool) -> None:
    options = SynchronyOptions(quorum="majority", merge="largest")
    me, own, step = NodeId("n1"), OwnEvents(options), Step(0)
    franchise = Franchise(me, Plan("g", ("n1",), options), own)
    own.submit([b"before"], 6, "agreed")
    own.take(1)
    own.install()
    franchise.take(Coverage(PrimaryView(0, ())), is_ours)
    franchise.install(step, View("g", 1, (me,)))
    franchise.follow_up(step, is_waiting=True)
    assert not step.outputs, "the vote waits for the state"
    franchise.follow_up(step, is_waiting=False)
    assert franchise.is_primary
    assert any(isinstance(one, Secured) for one in step.outputs) is is_ours


def test_what_a_side_gave_up_is_never_secured() -> None:
    group = Replicas("n1 n2 n3", "largest")
    for name in ("n2", "n3"):
        group.stage.cut("n1", name)
    group.submit("n1", "lost")
    group.settle()
    assert group.state("n1") == "lost"
    group.heal()
    assert group.state("n1") == ""
    group.submit("n1", "later")
    assert secured(group.stage, "n1") == [(2, 2)]


def test_an_application_without_an_answer_leaves_others_behind() -> None:
    """Nobody on the side that goes on gives its state: n1 is told so, and is not up to date."""
    group = Replicas("n1 n2 n3", "largest")
    group.part("n1", "n2 n3")
    group.submit("n2", "meanwhile")
    group.stage.cuts.clear()
    limit = group.stage.now + 2 * SynchronyOptions().state_limit
    while group.stage.now < limit:
        group.stage.settle(ticks=1)
    group.stage.settle(ticks=10)
    assert up_to_date(group.stage, "n1") == "n2 n3"
    told = [type(what) for who, what in group.stage.log if who == group.stage.node("n1")]
    assert told.count(StateLost) == 2
    assert last(told, StateLost) < last(told, Primary)
    assert group.stage.accepts("n1")


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(("sender", "quorum"), [("n9", "majority"), ("n2", "none")])
def test_votes_of_strangers_and_without_a_quorum_are_refused(sender: str, quorum: str) -> None:
    stage = Stage.of("synchrony", "n1 n2", quorum=quorum)
    member = machine(stage, "n1")
    vote = PrimaryAttempt("g", 1, 1)
    with pytest.raises(PeerError):
        stage.act("n1", lambda step: member.receive(step, NodeId(sender), vote))

"""One exchange after the other, by hand: what a voter sends, persists, forms and refuses."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.errors import PeerError
from ordercast.kernel.step import Step
from ordercast.protocol.primary.packets import (
    Coverage,
    PrimaryAttempt,
    PrimaryReport,
    PrimaryView,
    VoterRecord,
    VoterReport,
    VoterStanding,
)
from ordercast.protocol.primary.rules import decide, has_majority, may_replace
from ordercast.protocol.primary.voter import Voter, VoterPhase
from ordercast.types import NodeId, Primary, View

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
ABC = PrimaryView(0, ("a", "b", "c"))
NOTHING = Coverage(PrimaryView(0, ()))


def view(number: int, *members: NodeId) -> View:
    return View("g", number, members)


def voters(*members: NodeId) -> list[Voter]:
    return [Voter(one, "g", ("a", "b", "c")) for one in members]


def settle(number: int, *some: Voter) -> list[Step]:
    """All of them install one view, and hear all of each other."""
    members = view(number, *(one.me for one in some))
    steps = [Step(0) for _ in some]
    for voter, step in zip(some, steps, strict=True):
        voter.install(step, members)
    done = [0] * len(some)
    while any(place < len(step.sent) for place, step in zip(done, steps, strict=True)):
        for place, (sender, step) in enumerate(zip(some, steps, strict=True)):
            for to, packet, _, _ in step.sent[done[place] :]:
                done[place] += 1
                for voter, answers in zip(some, steps, strict=True):
                    if voter.me in to:
                        assert isinstance(packet, PrimaryReport | PrimaryAttempt)
                        voter.receive(answers, sender.me, packet)
    return steps


def test_a_majority_is_more_than_half_or_half_with_the_first() -> None:
    assert has_majority(("a", "b", "c"), ("b", "c"))
    assert not has_majority(("a", "b", "c"), ("a", "x"))
    assert has_majority(("a", "b", "c", "d"), ("a", "d"))
    assert not has_majority(("a", "b", "c", "d"), ("b", "c"))
    assert not has_majority((), ("a",))


def test_all_members_of_a_view_form_it_and_persist_the_attempt_first() -> None:
    a, b, c = voters(A, B, C)
    steps = settle(1, a, b, c)
    for voter, step in zip((a, b, c), steps, strict=True):
        first, second = step.records
        assert isinstance(first, VoterRecord)
        assert isinstance(second, VoterRecord)
        assert first.standing == VoterStanding(1, ABC, (PrimaryView(1, ("a", "b", "c")),))
        assert second.standing == VoterStanding(1, PrimaryView(1, ("a", "b", "c")))
        assert voter.is_primary_in("", (A, B, C))
        (news,) = [one for one in step.outputs if isinstance(one, Primary)]
        assert news.is_primary
        assert news.number == 1


def test_a_view_without_a_majority_says_who_is_missing() -> None:
    a, b, c = voters(A, B, C)
    settle(1, a, b, c)
    (step,) = settle(2, c)
    (news,) = step.outputs
    assert isinstance(news, Primary)
    assert not news.is_primary
    assert (news.number, news.last, news.missing) == (1, ("a", "b", "c"), ("a", "b"))
    assert news.why == "2 of 3 members are missing"
    assert not step.records


def test_half_with_the_first_by_name_goes_on_and_the_other_half_does_not() -> None:
    a, b = voters(A, B)
    settle(1, a, b, *voters(C))
    settle(2, a, b)
    settle(3, b)
    settle(4, a)
    assert (a.phase, b.phase) == (VoterPhase.PRIMARY, VoterPhase.OUTSIDE)


def test_an_attempt_of_which_nobody_knows_binds_those_who_made_it() -> None:
    """a and b attempt a view. b may have formed it, and nobody can ask b."""
    a, b, c = voters(A, B, C)
    settle(1, a, b, c)
    members, step = view(2, A, B), Step(0)
    a.install(step, members)
    report = PrimaryReport("g", 2, b.report)
    a.receive(step, B, report)
    assert a.phase is VoterPhase.ATTEMPTED
    settle(3, a, c)
    assert a.standing.last.members == ("a", "c"), "a is half of the attempt, and its first"
    other = Voter(B, "g", ("a", "b", "c"), VoterRecord("g", VoterStanding(2, ABC, (AB,))))
    (_, outside) = settle(4, other, voters(C)[0])
    (news,) = outside.outputs
    assert isinstance(news, Primary)
    assert (news.last, news.missing) == (("a", "b"), ("a",))


AB = PrimaryView(2, ("a", "b"))


def test_an_attempt_that_one_of_its_members_did_not_make_is_void() -> None:
    one = VoterReport(VoterStanding(2, ABC, (AB,)), NOTHING)
    other = VoterReport(VoterStanding(0, ABC), NOTHING)
    found = decide({"b": one, "c": other})
    assert found.lacks == AB
    found = decide({"a": other, "c": other, "b": one})
    assert not found.why
    assert found.void == {AB}
    found = decide({"a": one, "b": one})
    assert (found.why, found.void) == ("", {AB}), "all its members are here, and none formed it"


def test_a_majority_that_lost_its_state_waits_for_those_who_may_have_it() -> None:
    formed = VoterStanding(4, PrimaryView(4, ("a", "b", "c")))
    lost = VoterReport(formed, NOTHING)
    found = decide({"a": lost, "b": lost})
    assert (found.missing, found.why) == (("c",), "nobody here has the state of that view")
    assert not decide({"a": lost, "b": lost, "c": lost}).why, "nobody can have it any more"
    has = VoterReport(formed, Coverage(formed.last))
    assert not decide({"a": lost, "b": has}).why


def test_a_member_of_a_primary_view_that_lost_its_record_does_not_count() -> None:
    formed = VoterStanding(4, PrimaryView(4, ("a", "b", "c")))
    has = VoterReport(formed, Coverage(formed.last))
    lost = VoterReport(VoterStanding(0, ABC), NOTHING)
    found = decide({"b": has, "c": lost})
    assert (found.missing, found.why) == (
        ("a",),
        "1 of 3 members are missing, and c lost the record of it",
    )
    assert not decide({"a": has, "b": has, "c": lost}).why
    assert not decide({"b": lost, "c": lost}).why, "a group that begins"


def test_a_state_is_given_up_for_one_that_covers_it() -> None:
    later = Coverage(PrimaryView(5, ("a", "b")))
    earlier = VoterReport(VoterStanding(4, ABC), Coverage(PrimaryView(4, ("a", "b", "c"))))
    assert not may_replace("c", earlier, later)
    assert may_replace("c", VoterReport(VoterStanding(5, ABC), later), earlier.coverage)
    undecided = Coverage(ABC, (AB,))
    assert not may_replace("c", VoterReport(VoterStanding(0, ABC), Coverage(ABC)), undecided)
    # a should have made that attempt and did not: it came to nothing.
    assert may_replace("a", VoterReport(VoterStanding(0, ABC), Coverage(ABC)), undecided)


def test_an_open_group_has_a_first_primary_view_once_it_is_founded() -> None:
    a, b = Voter(A, "g", ()), Voter(B, "g", ())
    settle(1, a, b)
    assert a.phase is b.phase is VoterPhase.OUTSIDE
    a.found(("a", "b"))
    b.found(("a", "b"))
    settle(2, a, b)
    assert a.phase is b.phase is VoterPhase.PRIMARY
    newcomer = Voter(C, "g", ())
    newcomer.take(a.report)
    settle(3, a, b, newcomer)
    assert newcomer.standing.last == PrimaryView(2, ("a", "b", "c"))


def test_packets_of_other_views_and_of_old_incarnations_do_not_count() -> None:
    a, b, _ = voters(A, B, C)
    step = Step(0)
    a.install(step, view(2, A, B))
    a.receive(step, B, PrimaryReport("g", 1, b.report))
    assert a.phase is VoterPhase.UNDECIDED
    a.receive(step, NodeId("b", 1), PrimaryReport("g", 2, b.report))
    assert a.phase is VoterPhase.UNDECIDED
    a.receive(step, B, PrimaryReport("g", 2, b.report))
    assert a.phase is VoterPhase.UNDECIDED, "a newer incarnation has been heard of"


def lie(report: VoterReport, **changes: object) -> VoterReport:
    return VoterReport(msgspec.structs.replace(report.standing, **changes), report.coverage)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"attempts": (PrimaryView(0, ("b",)),)}, "decided"),
        ({"attempts": (PrimaryView(9, ("b",)),)}, "contradict"),
        ({"attempts": (PrimaryView(1, ("a",)),), "number": 1}, "not in"),
        ({"last": PrimaryView(0, ("b", "a"))}, "invalid list"),
        ({"last": PrimaryView(0, ("a", "a"))}, "invalid list"),
    ],
)
def test_a_report_that_cannot_be_is_rejected(changes: dict[str, object], what: str) -> None:
    a, b, _ = voters(A, B, C)
    a.install(Step(0), view(1, A, B))
    with pytest.raises(PeerError, match=what):
        a.receive(Step(0), B, PrimaryReport("g", 1, lie(b.report, **changes)))
    assert a.phase is VoterPhase.UNDECIDED
    assert not a.standing.number

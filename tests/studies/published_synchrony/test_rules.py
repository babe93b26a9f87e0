"""The rules of Figures 2 to 8, one by one, by hand: machines on a stage, packets when we say so."""

from __future__ import annotations

import pytest

from ordercast.errors import PeerError
from ordercast.kernel.step import LINK
from ordercast.studies.published_synchrony import FAMILY
from ordercast.studies.published_synchrony.inputs import CommunicationBreak, Intercept
from ordercast.studies.published_synchrony.member import PublishedMember
from ordercast.studies.published_synchrony.packets import Cast, Data, Fault
from ordercast.testing.stage import Stage
from ordercast.types import Event, NodeId, View


def machine(stage: Stage, name: str) -> PublishedMember:
    found = stage.machine(name)
    assert isinstance(found, PublishedMember)
    return found


def breaks(stage: Stage, name: str, peer: str) -> None:
    stage.give(name, CommunicationBreak("g", peer))


def told(stage: Stage, name: str) -> list[str]:
    """What the application of a machine got: events by origin and counter, views by members."""
    found = []
    for node, what in stage.log:
        if node.name == name and isinstance(what, Event):
            found.append(f"{what.origin}:{what.number}")
        elif node.name == name and isinstance(what, View):
            found.append("+".join(member.name for member in what.members))
    return found


def faults_sent(stage: Stage) -> int:
    living = [name for name, actor in stage.actors.items() if actor.alive]
    return sum(machine(stage, name).counters("g")["FA"] for name in living)


def deliver(stage: Stage, source: str, target: str) -> None:
    """All that is underway on this path."""
    for message in stage.underway(source, target):
        stage.deliver(message)


# --- Figures 2 and 3 -----------------------------------------------------------------------------


def test_figure_2_messages_that_one_survivor_has_come_before_the_fault() -> None:
    """n1 loses n3 after its first message, n2 after its third: both deliver all three first."""
    stage = Stage.of(FAMILY, "n1 n2 n3", joins=False)
    stage.submit("n3", [b"one"])
    deliver(stage, "n3", "n1")
    stage.cut("n3", "n1", one_way=True)
    stage.submit("n3", [b"two"])
    stage.submit("n3", [b"three"])
    deliver(stage, "n3", "n2")
    stage.crash("n3")
    breaks(stage, "n1", "n3")
    stage.submit("n1", [b"after"])
    breaks(stage, "n2", "n3")
    stage.settle()
    expected = ["n1+n2+n3", "n3:1", "n3:2", "n3:3", "n1+n2", "n1:1"]
    assert told(stage, "n1") == told(stage, "n2") == expected


def test_a_message_that_arrives_after_the_fault_message_is_discarded() -> None:
    """Rule 2 of Figure 3: nobody delivers it, unless somebody had it before."""
    stage = Stage.of(FAMILY, "n1 n2 n3", joins=False)
    stage.submit("n3", [b"late"])
    breaks(stage, "n1", "n3")
    deliver(stage, "n1", "n2")
    deliver(stage, "n3", "n1")
    deliver(stage, "n3", "n2")
    deliver(stage, "n2", "n1")
    assert told(stage, "n1") == told(stage, "n2") == ["n1+n2+n3", "n1+n2"]
    assert machine(stage, "n1").counters("g")["discarded"] == 1


def test_a_change_of_two_faults_needs_a_vote_for_both() -> None:
    stage = Stage.of(FAMILY, "n1 n2 n3 n4", joins=False)
    stage.crash("n3")
    stage.crash("n4")
    breaks(stage, "n1", "n3")
    breaks(stage, "n2", "n4")
    stage.settle()
    assert told(stage, "n1") == told(stage, "n2") == ["n1+n2+n3+n4", "n1+n2+n4", "n1+n2"]
    assert machine(stage, "n1").faults.faulty == ()


def test_agreed_messages_wait_for_all_and_not_for_those_that_are_out() -> None:
    stage = Stage.of(FAMILY, "n1 n2 n3", joins=False, service="agreed")
    stage.submit("n2", [b"b"])
    stage.submit("n1", [b"a"])
    stage.cut("n3", "n1", one_way=True)
    stage.cut("n3", "n2", one_way=True)
    stage.settle(ticks=2)
    assert told(stage, "n1") == told(stage, "n2") == ["n1+n2+n3"]
    breaks(stage, "n1", "n3")
    stage.settle(ticks=2)
    expected = ["n1+n2+n3", "n1:1", "n2:1", "n1+n2"]
    assert told(stage, "n1") == told(stage, "n2") == expected


@pytest.mark.parametrize(("service", "count"), [("agreed", 3), ("safe", 0)])
def test_safe_messages_wait_for_acknowledgements_too(service: str, count: int) -> None:
    """Three concurrent messages have one height: their order is known, but nobody has said yet that
    it has those of the others."""
    stage = Stage.of(FAMILY, "n1 n2 n3", joins=False, service=service)
    for name in ("n1", "n2", "n3"):
        stage.submit(name, [b"at once"])
    stage.settle()
    assert told(stage, "n2") == ["n1+n2+n3", "n1:1", "n2:1", "n3:1"][: 1 + count]
    stage.settle(ticks=1)
    assert told(stage, "n2") == ["n1+n2+n3", "n1:1", "n2:1", "n3:1"]


# --- Figures 4 to 8 ------------------------------------------------------------------------------


def merging(sides: list[list[str]], **options: object) -> Stage:
    names = " ".join(sorted(name for side in sides for name in side))
    return Stage.of(FAMILY, names, sides=sides, **options)


def test_figure_4_sides_merge_in_one_step() -> None:
    stage = merging([["n1", "n2"], ["n3"], ["n4"]])
    stage.submit("n1", [b"before"])
    stage.settle()
    assert told(stage, "n2") == ["n1+n2", "n1:1"]
    assert machine(stage, "n3").joins.joining == ("n1", "n2", "n3", "n4")
    stage.settle(ticks=1)
    for name, before in (("n1", ["n1+n2", "n1:1"]), ("n3", ["n3"]), ("n4", ["n4"])):
        assert told(stage, name) == [*before, "n1+n2+n3+n4"]
    assert len({told(stage, name)[-1] for name in stage.actors}) == 1


def test_figure_8_messages_after_a_join_message_belong_to_the_joined_view() -> None:
    stage = merging([["n1"], ["n2"]])
    stage.give("n1", Intercept("g"))
    stage.settle()
    stage.fire("n1", "alpha")
    stage.submit("n1", [b"after"])
    assert told(stage, "n1") == ["n1"]
    stage.fire("n2", "alpha")
    stage.settle()
    assert told(stage, "n1") == ["n1", "n1+n2", "n1:1"]
    assert told(stage, "n2") == ["n2", "n1+n2", "n1:1"]


def test_a_fault_before_the_join_message_is_left_out_of_the_joined_view() -> None:
    stage = merging([["n1", "n2"], ["n3"]], answers="growth")
    stage.give("n3", Intercept("g"))
    stage.settle()
    stage.crash("n2")
    stage.fire("n3", "alpha")
    stage.fire("n1", "alpha")
    stage.settle()
    assert told(stage, "n1") == ["n1+n2"]
    breaks(stage, "n1", "n2")
    stage.settle()
    # Both suggestions held n2, so its fault is one after the join.
    assert told(stage, "n1") == ["n1+n2", "n1+n2+n3", "n1+n3"]
    assert told(stage, "n3") == ["n3", "n1+n2+n3", "n1+n3"]


def test_a_fault_that_is_being_agreed_on_is_carried_over_into_the_join() -> None:
    stage = merging([["n1", "n2", "n3"], ["n4"]])
    stage.crash("n3")
    stage.give("n2", Intercept("g"))
    breaks(stage, "n1", "n3")
    deliver(stage, "n2", "n1")
    joins = machine(stage, "n1").joins
    assert (joins.stage, joins.before, joins.last_faults["n1"]) == (1, ("n3",), ("n3",))
    assert machine(stage, "n1").faults.faulty == ()


def test_a_break_in_stage_1_is_not_noted() -> None:
    """Figure 6 goes on to Stage 2 at once, and suggests the machine that it has just lost."""
    stage = merging([["n1", "n2"], ["n3"]])
    stage.give("n3", Intercept("g"))
    stage.settle()
    breaks(stage, "n1", "n2")
    joins = machine(stage, "n1").joins
    assert (joins.stage, joins.joining, joins.faulty) == (2, ("n1", "n2", "n3"), ())


def test_if_stage_2_never_ends_there_is_no_second_join() -> None:
    stage = merging([["n1"], ["n2"]], ends="never")
    stage.give("n1", Intercept("g"))
    stage.settle(ticks=1)
    assert told(stage, "n1")[-1] == "n1+n2"
    attempts = machine(stage, "n1").counters("g")["AJ"]
    stage.give("n1", Intercept("g"))
    assert machine(stage, "n1").counters("g")["AJ"] == attempts
    mended = merging([["n1"], ["n2"]])
    mended.give("n1", Intercept("g"))
    mended.settle(ticks=1)
    mended.give("n1", Intercept("g"))
    assert machine(mended, "n1").counters("g")["AJ"] == attempts + 1


@pytest.mark.parametrize(("answers", "count"), [("every", 1501), ("growth", 3)])
def test_figure_7_in_the_first_1500_arrivals(answers: str, count: int) -> None:
    """Three machines that were four, one fault in Stage 2, packets in the order of sending.
    Each arrival of an FA message that fits is one FA message more."""
    stage = Stage.of(FAMILY, "n1 n2 n3 n4", answers=answers, ends="never", limit=5000)
    stage.give("n1", Intercept("g"))
    stage.settle()
    stage.crash("n4")
    for name in ("n1", "n2", "n3"):
        stage.fire(name, "alpha")
    stage.settle()
    breaks(stage, "n1", "n4")
    arrivals = 0
    while arrivals < 1500 and (underway := stage.underway()):
        stage.deliver(underway[0])
        arrivals += 1
    assert all(told(stage, name)[-1] == "n1+n2+n3" for name in ("n1", "n2", "n3"))
    assert faults_sent(stage) == count


# --- peers that lie ------------------------------------------------------------------------------


def message(**changes: object) -> Cast:
    fields: dict[str, object] = {"sender": "n2", "counter": 1, "past": (0, 0), "height": 1}
    return Data("g", **{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"sender": "n9"}, "about other machines than ours"),
        ({"past": (0, 0, 0)}, "about other machines than ours"),
        ({"counter": 2}, "does not follow its own"),
        ({"past": (2001, 0)}, "speaks of more than 2000 messages"),
        ({"counter": 2001, "past": (0, 2000)}, "speaks of more than 2000 messages"),
    ],
)
def test_messages_that_nobody_can_have_sent_are_refused(wrong: dict[str, object], why: str) -> None:
    stage = Stage.of(FAMILY, "n1 n2", joins=False)
    with pytest.raises(PeerError, match=why):
        stage.inject(NodeId("n2"), "n1", message(**wrong), LINK)
    assert machine(stage, "n1").graph.past() == (0, 0)
    stage.inject(NodeId("n2"), "n1", message(), LINK)
    assert machine(stage, "n1").graph.past() == (0, 1)


def test_a_machine_that_restarts_stays_silent() -> None:
    stage = Stage.of(FAMILY, "n1 n2", joins=False)
    stage.crash("n2")
    stage.start("n2")
    assert not stage.accepts("n2")
    stage.inject(NodeId("n1"), "n2", Fault("g", "n1", 1, (0, 0), 1, ("n2",)), LINK)
    assert told(stage, "n2") == ["n1+n2"]  # of its first incarnation


def test_a_machine_at_its_limit_accepts_nothing_more() -> None:
    stage = Stage.of(FAMILY, "n1 n2", joins=False, limit=2)
    assert stage.submit("n1", [b"one"])
    assert stage.submit("n1", [b"two"])
    assert stage.submit("n1", [b"three"]) is None
    breaks(stage, "n1", "n2")
    assert machine(stage, "n1").counters("g")["suppressed"] == 1


# --- what comes of a machine that is out ---------------------------------------------------------


def test_a_recovered_message_does_not_enter_if_nobody_needs_it_any_more() -> None:
    """Footnote a of Figure 3. n1 asks n3 for a message of n4, and loses n3 before the answer."""
    stage = Stage.of(FAMILY, "n1 n2 n3 n4", joins=False)
    stage.cut("n4", "n1", one_way=True)
    stage.submit("n4", [b"asked for"])
    deliver(stage, "n4", "n3")
    stage.submit("n3", [b"follows"])
    breaks(stage, "n1", "n4")
    deliver(stage, "n3", "n1")
    deliver(stage, "n1", "n3")
    breaks(stage, "n1", "n3")
    deliver(stage, "n3", "n1")
    assert machine(stage, "n1").graph.past() == (2, 0, 0, 0)
    assert told(stage, "n1") == ["n1+n2+n3+n4"]

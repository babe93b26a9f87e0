"""What another side delivered apart: exactly that, or how much of it is forgotten."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.protocol.transis import merge_storms
from tests.protocol.transis.merge_storms import MergeStorm, faults_of

from ordercast.errors import PeerError
from ordercast.kernel.clocks import Vector
from ordercast.kernel.family import machine_per_group
from ordercast.kernel.inputs import DifferenceWanted
from ordercast.protocol.transis import history
from ordercast.protocol.transis.history import EVENT_BYTES, DeliveryHistory
from ordercast.protocol.transis.member import SynchronyMember
from ordercast.protocol.transis.packets import Cast, ConfigurationId, Recall, Recalled, Seen
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage
from ordercast.types import Difference, Merged, NodeId

ONE, TWO, THREE = map(NodeId, ("n1", "n2", "n3"))


def assert_exact(storm: MergeStorm) -> None:
    for answer in storm.answered:
        assert faults_of(storm, answer) == [], answer.asked
    done = {answer.asked for answer in storm.answered}
    waiting = [asked for asked in storm.asked if asked not in done and asked.asker in storm.alive]
    assert waiting == []


def test_storms_are_told_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PART_BYTES", 4000)
    found: Counter[str] = Counter()
    for seed in range(16):
        storm = merge_storms.run(merge_storms.scenario(seed), seed)
        assert_exact(storm)
        for _, difference in storm.answered:
            assert not difference.forgotten
            assert difference.reaches_back
            found["complete"] += difference.complete
            found["with events"] += bool(difference.events)
            found["unheard"] += bool(difference.unheard)
    assert found["complete"] > 40, found
    assert found["with events"] > 30, found
    assert found["unheard"], found


def test_a_short_history_says_how_much_it_has_forgotten() -> None:
    forgotten = told = 0
    for seed in range(4):
        storm = merge_storms.run(merge_storms.scenario(seed, history="20KiB"), seed)
        assert_exact(storm)
        forgotten += sum(one.difference.forgotten for one in storm.answered)
        told += sum(len(one.difference.events) for one in storm.answered)
    assert forgotten > 100
    assert told > 100


def test_a_member_that_forgot_where_it_was_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_PASSAGES", 4)
    monkeypatch.setattr(history, "PART_BYTES", 4000)
    short = 0
    for seed in range(8):
        storm = merge_storms.run(merge_storms.scenario(seed), seed)
        assert_exact(storm)
        short += sum(not one.difference.reaches_back for one in storm.answered)
    assert short > 10


class _Late(DeliveryHistory):
    """Starts one event late."""

    def add(self, place: int, cast: Cast) -> None:
        if self.passages[-1].count:
            super().add(place, cast)
        else:
            self.passages[-1].count = 1


class _TakesAll(DeliveryHistory):
    """Believes that whoever came along once was there all the time."""

    def recall(self, ask: Recall) -> Recalled:
        passages = self.before(ask.view)
        for passage in passages or ():
            passage.together = passages[-1].together
        return super().recall(ask)


class _FromTheNext(DeliveryHistory):
    """Forgets that the last common view did not end for both in the same way."""

    def leave(self, seen: Vector, together: tuple[NodeId, ...]) -> None:
        super().leave(tuple(one + 1000 for one in seen), together)


@pytest.mark.parametrize("broken", [_Late, _TakesAll, _FromTheNext])
def test_storms_find_broken_histories(broken: type[DeliveryHistory]) -> None:
    class Broken(SynchronyMember):
        history_type = broken

    for seed in range(12):
        parsed = merge_storms.scenario(seed)
        storm = merge_storms.run(parsed, seed, machine_per_group(Broken))
        for answer in storm.answered:
            if faults_of(storm, answer) or answer.difference.forgotten:
                return
    pytest.fail("no storm found it")


# --- on a stage ------------------------------------------------------------------------------


def parted(names: str = "n1 n2 n3", *sides: str) -> Stage:
    """Members send, part, and send again, each one message on its side."""
    stage = Stage.of("synchrony", names)
    stage.submit("n1", [b"together"])
    stage.settle(ticks=2)
    apart = [side.split() for side in sides]
    for here in apart:
        for there in apart:
            for one in here:
                for other in there:
                    if here is not there:
                        stage.cut(one, other)
    stage.settle(ticks=40)
    for name in names.split():
        stage.submit(name, [f"{name} apart".encode()])
    stage.settle(ticks=2)
    return stage


def heal(stage: Stage) -> None:
    stage.cuts.clear()
    stage.settle(ticks=40)


def heard(stage: Stage, name: str, kind: type) -> list[Any]:
    return [what for who, what in stage.log if who == stage.node(name) and isinstance(what, kind)]


def ask(stage: Stage, name: str, place: int = 1) -> Merged:
    merged: Merged = heard(stage, name, Merged)[-1]
    stage.give(name, DifferenceWanted("g", merged.view.id, merged.sides[place]))
    return merged


def told(stage: Stage, name: str) -> list[bytes]:
    return [event.payloads[0] for event in heard(stage, name, Difference)[-1].events]


def test_each_side_is_told_what_the_other_delivered() -> None:
    stage = parted("n1 n2 n3", "n1 n2", "n3")
    heal(stage)
    for name in ("n1", "n3"):
        ask(stage, name)
    stage.settle()
    assert told(stage, "n1") == [b"n3 apart"]
    assert told(stage, "n3") == [b"n1 apart", b"n2 apart"]
    assert all(heard(stage, name, Difference)[0].complete for name in ("n1", "n3"))
    asked = [what for _, what in stage.log if isinstance(what, Posted)]
    recalls = [what for what in asked if isinstance(what.packet, Recall)]
    assert [each.to for each in recalls] == [(THREE,), (ONE,)]  # n2 delivered what n1 did


def test_the_next_member_tells_if_the_first_is_gone() -> None:
    stage = parted("n1 n2 n3", "n1 n2", "n3")
    heal(stage)
    ask(stage, "n3")
    stage.crash("n1")
    stage.settle(ticks=40)
    assert told(stage, "n3") == [b"n1 apart", b"n2 apart"]
    assert heard(stage, "n3", Difference)[0].complete  # n2 came along with n1 all the way


def test_if_nobody_is_left_the_answer_says_so() -> None:
    stage = parted("n1 n2", "n1", "n2")
    heal(stage)
    merged = ask(stage, "n2")
    stage.crash("n1")
    stage.settle(ticks=40)
    [difference] = heard(stage, "n2", Difference)
    assert difference.unheard == merged.sides[1] == (ONE,)
    assert not difference.complete
    assert not difference.events


def test_a_side_that_was_made_of_several_tells_all_of_them() -> None:
    """n2 and n3 were apart from each other too, and merge before they meet n1."""
    stage = parted("n1 n2 n3", "n1", "n2", "n3")
    stage.mend("n2", "n3")
    stage.settle(ticks=40)
    heal(stage)
    ask(stage, "n1")
    stage.settle()
    assert sorted(told(stage, "n1")) == [b"n2 apart", b"n3 apart"]
    assert heard(stage, "n1", Difference)[0].complete


def test_a_member_that_returns_has_no_past() -> None:
    stage = parted("n1 n2", "n1 n2")
    stage.rejoin("n2")
    stage.settle(ticks=40)
    for name in ("n1", "n2"):
        ask(stage, name)
    stage.settle()
    assert told(stage, "n2") == [b"together", b"n1 apart", b"n2 apart"]
    assert told(stage, "n1") == []


def test_a_question_about_no_side_is_answered() -> None:
    stage = parted("n1 n2", "n1 n2")
    stage.give("n1", DifferenceWanted("g", 17, (TWO,)))
    [difference] = heard(stage, "n1", Difference)
    assert difference.unheard == (TWO,)
    assert not difference.complete


# --- lies ------------------------------------------------------------------------------------


def answer(stage: Stage, **changes: Any) -> Recalled:
    """What n1 would be told by n3, with these changes."""
    merged = ask(stage, "n1")
    assert merged.sides[1] == (THREE,)
    packets = [what.packet for _, what in stage.log if isinstance(what, Posted)]
    [recall] = [packet for packet in packets if isinstance(packet, Recall)]
    given: dict[str, Any] = {"outcome": "end", "needed": 0}
    return Recalled("g", recall.view, recall.since, recall.after, **(given | changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"outcome": "more"}, "does not go on"),
        ({"events": 2, "needed": 1}, "more than it says"),
        ({"events": 20_000, "needed": 1 << 20}, "bytes of history"),
    ],
)
def test_answers_that_nobody_would_give_are_refused(changes: dict[str, Any], why: str) -> None:
    stage = parted("n1 n2 n3", "n1 n2", "n3")
    heal(stage)
    cid = ConfigurationId(2, THREE, 0)
    event = history.PastEvent(cid, THREE, 1, 1, "agreed", [b"x"], 1)
    changes = {**changes, "events": (event,) * changes.get("events", 0)}
    packet = answer(stage, **changes)
    with pytest.raises(PeerError, match=why):
        stage.inject(THREE, "n1", packet)


def test_questions_about_views_of_others_are_refused() -> None:
    stage = parted("n1 n2 n3", "n1 n2", "n3")
    view = stage.machine("n1").current.cid  # type: ignore[attr-defined]
    with pytest.raises(PeerError, match="which it was not in"):
        stage.inject(THREE, "n1", Recall("g", view, None, (), 0, 0))
    lie = Recall("g", ConfigurationId(9, TWO, 9), None, (Seen(view, (1,)),), 0, 0)
    with pytest.raises(PeerError, match="with other members"):
        stage.inject(TWO, "n1", lie)


def test_old_answers_are_dropped() -> None:
    stage = parted("n1 n2 n3", "n1 n2", "n3")
    heal(stage)
    packet = answer(stage)
    stage.settle()
    stage.inject(THREE, "n1", packet)
    assert len(heard(stage, "n1", Difference)) == 1


def test_what_a_history_retains_has_a_limit() -> None:
    found = DeliveryHistory(4 * EVENT_BYTES + 10)
    cid = ConfigurationId(1, ONE, 0)
    for number in range(1, 100):
        if number % 7 == 1:
            found.enter(cid, (ONE,), number, ())
        found.add(0, Cast("g", cid, number, number, (number,), "basic", number, [b"ab"], 2))
        assert found.size <= found.limit
    assert sum(len(passage.events) for passage in found.passages) == 4

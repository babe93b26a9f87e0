"""examples/consensus.py: one decision of all incarnations on all sides, and everybody learns it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.applications.driven import Driven, crashes, example, stormy

from ordercast import Message, NodeId, View

consensus = example("consensus")
MEMBERS = 5
NAMES = [f"n{one}" for one in range(1, MEMBERS + 1)]
SEEDS = range(1, 61)


def early(draw: Random) -> list[dict[str, Any]]:
    """Partitions while they decide, which takes some tens of milliseconds."""
    faults = []
    for at in range(20, 400, 40):
        names, size = draw.sample(NAMES, MEMBERS), draw.randint(1, 2)
        sides = [names[:size], names[size:]]
        lasts = f"{draw.randint(5, 40)}ms" if draw.random() < 0.7 else "1500ms"
        begins = f"{at + draw.randint(0, 30)}ms"
        faults.append({"at": begins, "kind": "partition", "sides": sides, "for": lasts})
    return faults


def decisions_of(member: type[Any]) -> set[str]:
    """Of all runs. Every run is judged."""
    decisions: set[str] = set()
    for seed in SEEDS:
        draw = Random(seed)
        values = {name: draw.choice("abc") for name in NAMES}
        scenario = stormy(MEMBERS, *crashes(seed, MEMBERS, back=1, for_good=1), *early(draw))

        def make(
            me: NodeId,
            voters: tuple[NodeId, ...],
            journal: bytes,
            values: dict[str, str] = values,
        ) -> Any:
            return member(me, voters, values[me.name])

        run = Driven(make, scenario, seed)
        made: set[str] = set()  # by anybody, at any time
        run.watch = lambda core, made=made: made.update({core.decision} - {None})
        run.go()
        assert len(made) <= 1, f"seed {seed}: two decisions, {made}"
        assert all(core.decision for core in run.alive()), f"seed {seed}: some have no decision"
        assert made <= {*values.values()}
        decisions |= made
    return decisions


def test_there_is_one_decision() -> None:
    assert decisions_of(consensus.Consensus) == {"a", "b", "c"}


class DecidesOnEverySide(consensus.Consensus):
    is_primary = True


class DecidesAgain(consensus.Consensus):
    """It decides by the values of the view, though there was a decision."""

    def begin(self) -> None:
        self.state["chosen"] = None
        super().begin()


@pytest.mark.parametrize("broken", [DecidesOnEverySide, DecidesAgain])
def test_a_member_that_breaks_a_rule_is_found(broken: type[Any]) -> None:
    with pytest.raises(AssertionError, match="two decisions"):
        decisions_of(broken)


# --- why members promise before they work: no storm has found it, so it is played by hand ---------

VOTERS = {name: NodeId(name) for name in "abcde"}


class DoesNotPromise(consensus.Consensus):
    """It works as soon as all have reported."""

    def _take_report(self, sender: NodeId, report: dict[str, Any]) -> list[bytes]:
        if super()._take_report(sender, report):
            self.ready = list(self.view.members)
            self.rank = [self.promised, 0]
            self.begin()
        return []


class Stage:
    """Cores without a network: views, and messages that the test delivers."""

    def __init__(self, member: type[Any], values: dict[str, str]) -> None:
        every = VOTERS.values()
        self.cores = {name: member(VOTERS[name], every, values[name]) for name in VOTERS}

    def enter(self, number: int, names: str) -> list[Message]:
        view = View("g", number, tuple(VOTERS[name] for name in names))
        return self._sent({name: self.cores[name].take(view) for name in names})

    def split(self, number: int, names: str) -> None:
        """What these members deliver from now on comes after their transitional view."""
        view = View("g", -number, tuple(VOTERS[name] for name in names), transitional=True)
        for name in names:
            self.cores[name].take(view)

    def deliver(self, names: str, messages: list[Message]) -> list[Message]:
        return self._sent(
            {
                name: [one for message in messages for one in self.cores[name].take(message)]
                for name in names
            }
        )

    def _sent(self, answers: dict[str, list[bytes]]) -> list[Message]:
        pairs = [(VOTERS[name], data) for name, some in answers.items() for data in some]
        return [Message(sender, data, "g", 0) for sender, data in pairs]


def decisions_after_two_attempts(member: type[Any], rounds: int) -> set[str]:
    """View 1 is complete for e alone, and view 2 is final for a alone. Both are then missing in
    turns: view 3 has c, which was in both."""
    stage = Stage(member, {"a": "x", "b": "y", "c": "x", "d": "y", "e": "y"})
    reports = stage.enter(1, "cde")
    stage.split(1, "e")
    stage.deliver("e", reports)
    stage.split(1, "cd")
    stage.deliver("cd", reports[:2])
    messages = stage.enter(2, "acd")
    for _ in range(rounds - 1):
        messages = stage.deliver("acd", messages)
    stage.deliver("a", messages)
    stage.split(2, "cd")
    stage.deliver("cd", messages)
    messages = stage.enter(3, "bce")
    for _ in range(rounds):
        messages = stage.deliver("bce", messages)
    assert stage.cores["a"].decision == "x"
    return {core.decision for core in stage.cores.values()} - {None}


def test_two_views_never_take_the_same_epoch() -> None:
    assert decisions_after_two_attempts(consensus.Consensus, rounds=2) == {"x"}


def test_without_the_promise_there_are_two_decisions() -> None:
    assert decisions_after_two_attempts(DoesNotPromise, rounds=1) == {"x", "y"}

"""examples/consensus.py: one decision of all incarnations on all sides, and everybody learns it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.applications.driven import Driven, crashes, example, stormy

from ordercast import NodeId

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


class DecidesOnEverySide(consensus.Consensus):  # type: ignore[name-defined,misc]
    is_primary = True


class DecidesAgain(consensus.Consensus):  # type: ignore[name-defined,misc]
    """It decides by the values of the view, though there was a decision."""

    def begin(self) -> None:
        self.state["chosen"] = None
        super().begin()


@pytest.mark.parametrize("broken", [DecidesOnEverySide, DecidesAgain])
def test_a_member_that_breaks_a_rule_is_found(broken: type[Any]) -> None:
    with pytest.raises(AssertionError, match="two decisions"):
        decisions_of(broken)

"""A member of a replicated map is paused, the others go on, and it comes back.

Without a quorum it is alone in its view when it resumes, and the writes that it takes there are
stable at once: they are lost when the sides come together. With a quorum none that was acknowledged
is lost. In `total` the group gives the state to a member that comes back; in `synchrony` the
application takes that of a member which is up to date.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.newtop.formation_storms import Ledgers

from ordercast.check.laws import check
from ordercast.kernel.inputs import CaughtUp
from ordercast.scenario.file import parse_scenario
from ordercast.sim.process import Heard
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Trace
from ordercast.trace.sinks import MemorySink
from ordercast.types import Event, NodeId, Primary, Secured, View

SCENARIO: dict[str, Any] = {
    "name": "one is paused",
    "processes": 3,
    "duration": "6s",
    "quiet": "4s",
    "workload": {"rate": 40},
    "network": {"delay": "2ms"},
    "fault": [{"at": "2s", "kind": "pause", "nodes": ["n1"], "for": "2s"}],
}
QUICK = {"suspicion_limit": "500ms", "silence_limit": "100ms"}
FAMILIES = {"total": {**QUICK, "reform": "auto"}, "synchrony": QUICK}


class Acknowledged(Ledgers):
    """What the applications know, and which of their own writes were acknowledged to them."""

    def __init__(self, *given) -> None:
        super().__init__(*given)
        self.alone: set[NodeId] = set()  # in their last view
        self.stable: set[str] = set()  # delivered by its sender, which is alone
        self.secured: set[str] = set()
        self.outside: dict[str, int] = {}
        self.began: dict[tuple[NodeId, int], list[str]] = {}  # by view: what each had then
        self.caught_up: list[str] = []

    def hear(self, node: NodeId, what: Heard) -> bytes | bool | None:
        if isinstance(what, Secured):
            self.secured |= {f"{node}:{one}" for one in range(what.first, what.up_to + 1)}
        if isinstance(what, Primary) and not what.is_primary:
            self.outside[node.name] = self.outside.get(node.name, 0) + 1
        answer = super().hear(node, what)
        if isinstance(what, View):
            self.began[node, what.id] = list(self.known[node, what.group])
            (self.alone.add if len(what.members) == 1 else self.alone.discard)(node)
        elif isinstance(what, Event) and node in self.alone and what.origin == node:
            self.stable.add(f"{node}:{what.number}")
        elif isinstance(what, Primary) and what.is_primary and node.name not in what.up_to_date:
            self.catch_up(node, what)
        return answer

    def catch_up(self, node: NodeId, what: Primary) -> None:
        group, view = what.group, what.view.id
        giver = next(one for one in what.view.members if one.name in what.up_to_date)
        since = self.known[node, group][len(self.began[node, view]) :]
        self.known[node, group] = [*self.began[giver, view], *since]
        self.world.processes[node.name].give(group, CaughtUp(group, view))
        self.caught_up.append(node.name)


def play(family: str, seed: int, **options: str) -> tuple[Acknowledged, list[list[str]]]:
    document = {"family": family, "options": FAMILIES[family] | options}
    sink, ledgers = MemorySink(), Acknowledged(None, 0.0)
    scenario = parse_scenario(SCENARIO | document)
    ledgers.world = Simulation(scenario, seed, sink=sink, application=ledgers.hear)
    outcome = ledgers.world.run()
    broken = [one for one in check(Trace(outcome.header, sink.rows)) if one.answer == "broken"]
    assert not broken
    states = [known for (_, group), known in sorted(ledgers.known.items()) if known]
    assert len(states) == 3
    return ledgers, states


def are_equal(states: list[list[str]]) -> bool:
    return all(sorted(one) == sorted(states[0]) for one in states)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_quorum_stable_writes_of_the_paused_member_are_lost(family: str) -> None:
    lost = 0
    for seed in range(10):
        ledgers, (own, *others) = play(family, seed)
        assert are_equal(others)
        assert are_equal([own, *others]) or family == "synchrony", "they are together in the end"
        lost += len(ledgers.stable - set(others[0]))
    assert lost >= 18, lost


@pytest.mark.parametrize("family", FAMILIES)
def test_with_a_quorum_no_acknowledged_write_is_lost(family: str) -> None:
    for seed in range(5):
        ledgers, states = play(family, seed, quorum="majority")
        assert are_equal(states), "they are together in the end"
        assert len(ledgers.secured) > 100
        assert not ledgers.secured - set(states[0])
        assert ledgers.outside == {"n1": ledgers.outside["n1"]}, "only the paused one was outside"
        assert ledgers.caught_up == (["n1"] if family == "synchrony" else [])

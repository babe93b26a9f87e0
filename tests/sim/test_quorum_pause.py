"""A member of a replicated map is paused, the others go on, and it comes back.

Without a quorum it is alone in its view when it resumes, and the writes that it takes there are
stable at once: they are lost when the sides come together. With a quorum none that was acknowledged
is lost.
"""

from __future__ import annotations

from typing import Any

from tests.protocol.newtop.formation_storms import Ledgers

from ordercast.check.laws import check
from ordercast.scenario.file import parse_scenario
from ordercast.sim.process import Heard
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Trace
from ordercast.trace.sinks import MemorySink
from ordercast.types import Event, NodeId, Primary, Secured, View

SCENARIO: dict[str, Any] = {
    "name": "one is paused",
    "family": "total",
    "processes": 3,
    "duration": "6s",
    "quiet": "4s",
    "options": {"reform": "auto", "suspicion_limit": "500ms", "silence_limit": "100ms"},
    "workload": {"rate": 40},
    "network": {"delay": "2ms"},
    "fault": [{"at": "2s", "kind": "pause", "nodes": ["n1"], "for": "2s"}],
}


class Acknowledged(Ledgers):
    """What the applications know, and which of their own writes were acknowledged to them."""

    def __init__(self, *given) -> None:
        super().__init__(*given)
        self.alone: set[NodeId] = set()  # in their last view
        self.stable: set[str] = set()  # delivered by its sender, which is alone
        self.secured: set[str] = set()
        self.outside: dict[str, int] = {}

    def hear(self, node: NodeId, what: Heard) -> bytes | bool | None:
        if isinstance(what, Secured):
            self.secured |= {f"{node}:{one}" for one in range(what.first, what.up_to + 1)}
        if isinstance(what, Primary) and not what.is_primary:
            self.outside[node.name] = self.outside.get(node.name, 0) + 1
        answer = super().hear(node, what)
        if isinstance(what, View):
            (self.alone.add if len(what.members) == 1 else self.alone.discard)(node)
        elif isinstance(what, Event) and node in self.alone and what.origin == node:
            self.stable.add(f"{node}:{what.number}")
        return answer


def play(seed: int, **options: str) -> tuple[Acknowledged, list[list[str]]]:
    scenario = parse_scenario(SCENARIO | {"options": SCENARIO["options"] | options})
    sink, ledgers = MemorySink(), Acknowledged(None, 0.0)
    ledgers.world = Simulation(scenario, seed, sink=sink, application=ledgers.hear)
    outcome = ledgers.world.run()
    broken = [one for one in check(Trace(outcome.header, sink.rows)) if one.answer == "broken"]
    assert not broken
    states = [known for (_, group), known in sorted(ledgers.known.items()) if known]
    assert len(states) == 3
    assert all(sorted(one) == sorted(states[0]) for one in states), "they are together in the end"
    return ledgers, states


def test_without_a_quorum_stable_writes_of_the_paused_member_are_lost() -> None:
    lost = 0
    for seed in range(5):
        ledgers, states = play(seed)
        lost += len(ledgers.stable - set(states[0]))
    assert lost >= 18, lost


def test_with_a_quorum_no_acknowledged_write_is_lost() -> None:
    for seed in range(5):
        ledgers, states = play(seed, quorum="majority")
        assert len(ledgers.secured) > 100
        assert not ledgers.secured - set(states[0])
        assert ledgers.outside == {"n1": ledgers.outside["n1"]}, "only the paused one was outside"

"""Packets that come at the same time: what follows from them waits for the last of them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ordercast.check.metric import MeasuredRun
from ordercast.check.metrics.events import deliveries, event_of, submitted_at
from ordercast.kernel.family import Plan
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.transis import FAMILY
from ordercast.protocol.transis.member import SynchronyMember, built_of
from ordercast.protocol.transis.options import Synchrony
from ordercast.protocol.transis.packets import Cast, Status
from ordercast.scenario.file import parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.testing import simulate
from ordercast.testing.simulation import Simulated
from ordercast.types import Event, NodeId
from ordercast.units import MILLISECOND

NODES = tuple(NodeId(f"n{number}", 0) for number in range(4))
SCENARIOS = Path(__file__).parents[3] / "scenarios"


def member(node: NodeId) -> SynchronyMember:
    names = tuple(each.name for each in NODES)
    plan = Plan(group="g", members=names, options=Synchrony(), formed=True)
    made = SynchronyMember(node, plan, Random(1))
    made.start(Step(0))
    return made


def cast_of(node: NodeId) -> Packet:
    """The first event of a member."""
    step = Step(1)
    member(node).submit(step, "g", [b"x"], 1)
    return next(packet for _, packet, _, _ in step.sent if isinstance(packet, Cast))


def sent(step: Step) -> list[type[Packet]]:
    return [type(packet) for _, packet, _, _ in step.sent]


def test_events_of_three_members_cost_one_acknowledgement() -> None:
    ours, step = member(NODES[0]), Step(2)
    for node in NODES[1:]:
        ours.receive(step, node, cast_of(node))
    assert not step.sent
    ours.drain(step)
    assert sent(step) == [Status]


def test_an_event_that_is_submitted_meanwhile_acknowledges_them() -> None:
    ours, step = member(NODES[0]), Step(2)
    for node in NODES[1:]:
        ours.receive(step, node, cast_of(node))
    ours.submit(step, "g", [b"x"], 1)
    ours.drain(step)
    assert sent(step) == [Cast]
    assert [cast.vector for _, cast, _, _ in step.sent if isinstance(cast, Cast)] == [(1, 1, 1, 1)]
    # All have sent, and what they send later is higher than what they have sent. Of the events of
    # that height ours is the first by name, so nothing can come before it.
    origins = [each.origin for each in step.outputs if isinstance(each, Event)]
    assert origins == [*NODES[1:], NODES[0]]


class Late(SynchronyMember):
    """Packets that come within a quarter of a millisecond came at the same time."""

    def drain(self, step: Step) -> None:
        if not self._is_drained:
            step.set_timer("late", self.options.prompt_after // 2)

    def expire(self, step: Step, timer: Timer) -> None:
        super().drain(step)
        if timer != "late":
            super().expire(step, timer)

    def on(self, step: Step, given: object) -> None:
        super().drain(step)
        super().on(step, given)  # type: ignore[arg-type]


class Forgets(Late):
    """Nothing follows from packets that came together."""

    def expire(self, step: Step, timer: Timer) -> None:
        self._is_drained = True
        if timer != "late":
            SynchronyMember.expire(self, step, timer)


class Swaps(Late):
    """Of the packets that came together an event is taken up after the one behind it."""

    kept: tuple[NodeId, Packet] | None = None

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        kept, self.kept = self.kept, None
        if kept is None and isinstance(packet, Cast):
            self.kept = sender, packet
            return
        super().receive(step, sender, packet)
        if kept is not None:
            super().receive(step, *kept)


def run_of(scenario: Scenario | Path, seed: int, kind: type[SynchronyMember]) -> Simulated:
    families = {"synchrony": FAMILY._replace(build=built_of(kind))}
    return simulate(scenario, seed, families=families)


@pytest.mark.parametrize("name", ["synchrony-chaos", "synchrony-quorum-chaos", "synchrony-lossy"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_every_law_holds_if_members_gather(name: str, seed: int) -> None:
    run = run_of(SCENARIOS / f"{name}.toml", seed, Late)
    assert run.outcome.error is None
    assert not run.broken, run.broken


def test_events_that_are_taken_up_in_another_order_are_found() -> None:
    error = run_of(SCENARIOS / "synchrony-chaos.toml", 1, Swaps).outcome.error
    assert "sent" in str(error)
    assert "after" in str(error)


CALM = {
    "name": "calm",
    "family": "synchrony",
    "processes": 4,
    "duration": "2s",
    "quiet": "1s",
    "workload": {"rate": 20, "service": ["agreed", "safe"]},
    "network": {"delay": "2ms"},
}


def slowest(kind: type[SynchronyMember]) -> float:
    """Milliseconds of the simulated network, from a submission to the last delivery."""
    run = MeasuredRun(run_of(parse_scenario(CALM), 1, kind).trace.rows)
    made, found = submitted_at(run), deliveries(run)
    assert len(found) == 4 * len(made) > 400
    return max(row.at - made[event_of(row)] for row in found) / MILLISECOND


def test_what_is_gathered_is_acknowledged_at_once() -> None:
    """Two trips of 2 ms, and a quarter of one to gather. The laws alone would not miss it: a member
    that forgets what came acknowledges it with its next heartbeat."""
    assert slowest(SynchronyMember) < 10
    assert slowest(Late) < 10
    assert slowest(Forgets) > 50

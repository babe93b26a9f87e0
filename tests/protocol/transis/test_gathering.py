"""Packets that come at the same time: what follows from them waits for the last of them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ordercast.kernel.family import Plan
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.transis import FAMILY
from ordercast.protocol.transis.member import SynchronyMember, built_of
from ordercast.protocol.transis.options import Synchrony
from ordercast.protocol.transis.packets import Cast, Status
from ordercast.testing import simulate
from ordercast.types import Event, NodeId

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
    # All have sent, and what they send later is higher than what they have sent.
    others = [each.origin for each in step.outputs if isinstance(each, Event)]
    assert others == list(NODES[1:])


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


@pytest.mark.parametrize("name", ["synchrony-chaos", "synchrony-quorum-chaos", "synchrony-lossy"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_every_law_holds_if_members_gather(name: str, seed: int) -> None:
    families = {"synchrony": FAMILY._replace(build=built_of(Late))}
    run = simulate(SCENARIOS / f"{name}.toml", seed, families=families)
    assert run.outcome.error is None
    assert not run.broken, run.broken

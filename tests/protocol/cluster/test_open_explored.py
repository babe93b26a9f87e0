"""A newcomer and the founder of an open causal cluster: every schedule of it, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.check.laws import check
from ordercast.kernel.family import FoundingRule, Plan, machine_per_group
from ordercast.kernel.inputs import Acquainted
from ordercast.kernel.step import Step
from ordercast.protocol.cluster.causal_member import CausalMember
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import options_for
from ordercast.sim.explore import Bounds, Setting, explore

CAUSAL = FAMILIES["causal"]
OPTIONS = options_for(CAUSAL, {"hops": 0, "tickets": 1, "join_wait": "1ms", "updaters": ["n1"]})
NAMES = ("n1", "n2")


class KnowsN1(CausalMember):
    """n1 founds the cluster, and n2 knows n1 when it starts."""

    def start(self, step: Step) -> None:
        super().start(step)
        if self.me.name == "n2":
            self.on(step, Acquainted("g", ("n1",)))


PAIR = Setting(
    NAMES,
    (
        (
            CAUSAL._replace(build=machine_per_group(KnowsN1)),
            tuple(
                Plan("g", (name,), OPTIONS, False, FoundingRule(founds=name == "n1"))
                for name in NAMES
            ),
        ),
    ),
    clocks=True,
    prelude=False,
    latest_only=True,
    rounds=40,
)


@pytest.mark.parametrize(
    ("states", "bounds"),
    [
        (200, {"timers": 1}),
        (2000, {"timers": 2}),
        pytest.param(4000, {"timers": 2, "crashes": 1}, marks=pytest.mark.long),
        pytest.param(18000, {"timers": 3}, marks=pytest.mark.long),
    ],
)
def test_every_schedule_of_a_join_keeps_all_laws(states: int, bounds: dict[str, Any]) -> None:
    bound = Bounds(max_states=20_000, submissions={"n1": 1}, **bounds)
    report = explore(PAIR, bound, check, settle=True)
    assert report.broken is None, str(report)
    assert report.complete
    assert report.unfinished == 0
    assert report.states >= states

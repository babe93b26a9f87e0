"""A newcomer and the founder of an open group: every schedule of it, up to small bounds."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.check.laws import check
from ordercast.kernel.family import FoundingRule, Plan, machine_for_all
from ordercast.kernel.inputs import Acquainted
from ordercast.kernel.step import Step
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.newtop.options import NewtopOptions
from ordercast.sim.explore import Bounds, Setting, explore

OPTIONS = NewtopOptions(prompt_after="20ms", silence_limit="20ms", suspicion_limit="40ms")
NAMES = ("n1", "n2")


class KnowsN1(NewtopMember):
    """n1 founds the group, and n2 knows n1 when it starts."""

    def start(self, step: Step) -> None:
        super().start(step)
        if self.me.name == "n2":
            self.on(step, Acquainted("g", ("n1",)))


PAIR = Setting(
    NAMES,
    (
        (
            FAMILY._replace(build=machine_for_all(KnowsN1)),
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
        (80, {"timers": 1}),
        (50, {"crashes": 1, "restarts": 1}),
        (200, {"timers": 1, "crashes": 1}),
        (2000, {"timers": 2}),
        pytest.param(3000, {"timers": 2, "losses": 1}, marks=pytest.mark.long),
    ],
)
def test_every_schedule_of_a_join_keeps_all_laws(states: int, bounds: dict[str, Any]) -> None:
    bound = Bounds(max_states=20_000, submissions={"n1": 1}, **bounds)
    report = explore(PAIR, bound, check, settle=True)
    assert report.broken is None, str(report)
    assert report.complete
    assert report.unfinished == 0
    assert report.states >= states

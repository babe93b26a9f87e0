"""Two members that have to form their group: every schedule of it, up to small bounds."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.check.laws import check
from ordercast.kernel.family import Plan
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.options import NewtopOptions
from ordercast.sim.explore import Bounds, explore
from ordercast.sim.explore.setting import Setting

OPTIONS = NewtopOptions(prompt_after="20ms", silence_limit="20ms", suspicion_limit="40ms")
NAMES = ("n1", "n2")
PAIR = Setting(
    NAMES,
    ((FAMILY, (Plan("g", NAMES, OPTIONS, formed=False),)),),
    clocks=True,
    prelude=False,
    latest_only=True,
    rounds=20,
)


@pytest.mark.parametrize(
    ("states", "bounds"),
    [
        (150, {"crashes": 1}),
        (1500, {"crashes": 1, "restarts": 1}),
        (2500, {"timers": 1}),
        pytest.param(4500, {"timers": 1, "crashes": 1}, marks=pytest.mark.long),
        pytest.param(4000, {"timers": 1, "losses": 1}, marks=pytest.mark.long),
    ],
)
def test_every_schedule_of_a_formation_keeps_all_laws(states: int, bounds: dict[str, Any]) -> None:
    bound = Bounds(max_states=20_000, submissions={"n1": 1}, **bounds)
    report = explore(PAIR, bound, check, settle=True)
    assert report.broken is None, str(report)
    assert report.complete
    assert report.states >= states

"""Joining an open fifo group, in every way that is possible within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.check.laws import check
from ordercast.kernel.family import FoundingRule, Plan
from ordercast.kernel.inputs import Acquainted
from ordercast.kernel.step import Step
from ordercast.protocol import fifo
from ordercast.protocol.fifo.building import machines
from ordercast.protocol.fifo.member import FifoMember
from ordercast.protocol.fifo.options import FifoOptions
from ordercast.sim.explore import Bounds, Setting, explore
from ordercast.units import MILLISECOND, Duration

FEW_TICKS = FifoOptions(
    heartbeat=Duration(50 * MILLISECOND), suspicion_limit=Duration(200 * MILLISECOND)
)
KNOWS_N1 = Acquainted("g", ("n1",))
N1_SENDS = {"n1": 1}


class KnowsN1(FifoMember):
    """Of these members n1 founds the group, and n2 knows n1 when it starts."""

    def start(self, step: Step) -> None:
        super().start(step)
        if self.me.name == "n2":
            self.on(step, KNOWS_N1)


def open_setting(*names: str, **rules: Any) -> Setting:
    plans = tuple(
        Plan("g", (name,), FEW_TICKS, False, FoundingRule(founds=name == "n1")) for name in names
    )
    family = fifo.FAMILY._replace(
        build=machines(KnowsN1),
        may_send=lambda plan, name: name != "n3",  # so the prelude does not wait for it
    )
    # A member that waits says since when, so it reads its clock.
    return Setting(names, ((family, plans),), clocks=True, latest_only=True, **rules)


@pytest.mark.parametrize(
    ("settle", "bounds", "states"),
    [
        (False, Bounds(submissions=1, timers=2), 1_000),
        (False, Bounds(submissions=N1_SENDS, timers=3), 10_000),
    ],
)
def test_a_member_joins_its_founder_in_any_way(settle: bool, bounds: Bounds, states: int) -> None:
    where = open_setting("n1", "n2", prelude=False)
    report = explore(where, bounds, check, settle=settle)
    assert report.broken is None, report
    assert report.complete
    assert report.states > states, report


@pytest.mark.parametrize(
    ("settle", "bounds", "states"),
    [
        (False, Bounds(submissions=N1_SENDS, inputs=1, timers=1), 500),
        (True, Bounds(submissions=N1_SENDS, inputs=1, timers=1, crashes=1), 1_000),
    ],
)
def test_a_third_member_joins_two_in_any_way(settle: bool, bounds: Bounds, states: int) -> None:
    """n3 hears of n1 at any time: before an event, after it, or while n2 or n1 crashes."""
    where = open_setting("n1", "n2", "n3", inputs=(KNOWS_N1,))
    report = explore(where, bounds, check, settle=settle)
    assert report.broken is None, report
    assert report.complete
    assert report.unfinished == 0
    assert report.states > states, report


@pytest.mark.long
def test_a_third_member_joins_two_in_any_way_until_it_is_in() -> None:
    where = open_setting("n1", "n2", "n3", inputs=(KNOWS_N1,))
    report = explore(where, Bounds(submissions=N1_SENDS, inputs=1, timers=2), check)
    assert report.broken is None, report
    assert report.complete
    assert report.states > 50_000, report


def test_a_restarted_member_joins_again_in_any_way() -> None:
    bounds = Bounds(submissions=1, timers=1, crashes=1, restarts=1)
    report = explore(open_setting("n1", "n2"), bounds, check)
    assert report.broken is None, report
    assert report.complete
    assert report.states > 1_000, report

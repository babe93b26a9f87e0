"""Every schedule of three processes in two groups that share one of them, up to small bounds."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.check.laws import check
from ordercast.kernel.family import Plan
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.options import NewtopOptions
from ordercast.sim.explore import Bounds, explore
from ordercast.sim.explore.setting import Setting

OPTIONS = NewtopOptions(prompt_after="100ms", silence_limit="200ms", suspicion_limit="400ms")
PLANS = (Plan("a", ("n1", "n2"), OPTIONS), Plan("b", ("n2", "n3"), OPTIONS))
TWO_GROUPS = Setting(("n1", "n2", "n3"), ((FAMILY, PLANS),), clocks=True, prelude=False, rounds=10)
TWO_SENDERS = {"n1": 1, "n3": 1}


def assert_sound(states: int, **bounds: Any) -> None:
    report = explore(TWO_GROUPS, Bounds(max_states=4000, **bounds), check, settle=True)
    assert report.broken is None, str(report)
    assert report.complete
    assert report.states >= states


def test_two_senders_and_a_timer_keep_all_laws_in_every_order() -> None:
    assert_sound(150, submissions=TWO_SENDERS, timers=1)


def test_a_crash_at_every_moment_keeps_all_laws() -> None:
    assert_sound(10, submissions={"n1": 1}, crashes=1)


@pytest.mark.long
def test_two_senders_and_two_timers_keep_all_laws_in_every_order() -> None:
    assert_sound(2000, submissions=TWO_SENDERS, timers=2)

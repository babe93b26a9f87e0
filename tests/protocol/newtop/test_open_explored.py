"""A newcomer and the founder of an open group: every schedule of it, up to small bounds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.pairs import KnowsN1, assert_explored, founder_and_newcomer

from ordercast.kernel.family import machine_for_all
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.protocol.newtop.options import NewtopOptions

OPTIONS = NewtopOptions(prompt_after="20ms", silence_limit="20ms", suspicion_limit="40ms")


class Member(KnowsN1, NewtopMember):
    pass


PAIR = founder_and_newcomer(FAMILY._replace(build=machine_for_all(Member)), OPTIONS)


@pytest.mark.parametrize(
    ("states", "bounds"),
    [
        (80, {"timers": 1}),
        (50, {"crashes": 1, "restarts": 1}),
        (200, {"timers": 1, "crashes": 1}),
        (1500, {"timers": 2}),
        pytest.param(1800, {"timers": 2, "losses": 1}, marks=pytest.mark.long),
    ],
)
def test_every_schedule_of_a_join_keeps_all_laws(states: int, bounds: dict[str, Any]) -> None:
    assert_explored(PAIR, states, bounds)

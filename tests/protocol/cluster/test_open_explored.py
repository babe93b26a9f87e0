"""A newcomer and the founder of an open causal cluster: every schedule of it, within bounds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.pairs import KnowsN1, assert_explored, founder_and_newcomer

from ordercast.kernel.family import machine_per_group
from ordercast.protocol.cluster.causal_member import CausalMember
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import options_for

CAUSAL = FAMILIES["causal"]
OPTIONS = options_for(CAUSAL, {"hops": 0, "tickets": 1, "join_wait": "1ms", "updaters": ["n1"]})


class Member(KnowsN1, CausalMember):
    pass


PAIR = founder_and_newcomer(CAUSAL._replace(build=machine_per_group(Member)), OPTIONS)


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
    assert_explored(PAIR, states, bounds)

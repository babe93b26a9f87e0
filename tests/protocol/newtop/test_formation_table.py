"""The table of formations: every input has an answer in every state that inputs can meet."""

from __future__ import annotations

from typing import get_args

import pytest
from tests.protocol.newtop.forming_table import stage_of
from tests.protocol.newtop.table import member, node

from ordercast.kernel.step import Step
from ordercast.protocol.newtop.attempt import Agreed, Attempt, Idle, Voting
from ordercast.protocol.newtop.formation import TABLE
from ordercast.protocol.newtop.packets import Numbered, OfFormations

TIMERS = ("here", "gather", "vote", "state")
IGNORED = [
    (state, what) for state, row in TABLE.items() for what in row if isinstance(row[what], str)
]


def test_every_input_has_a_cell_in_every_state() -> None:
    assert {*TABLE, Agreed} == set(get_args(Attempt))
    rows = [set(row) for row in TABLE.values()]
    assert all(row == rows[0] for row in rows)
    assert rows[0] >= {*get_args(OfFormations), Numbered, *TIMERS}


@pytest.mark.parametrize(
    ("state", "what"), [(state, what) for state, what in IGNORED if what in TIMERS]
)
def test_a_timer_that_means_nothing_in_a_state_changes_nothing(state: type, what: str) -> None:
    stage = stage_of("n1 n2 n3", formed=True)
    named = member(stage, "n1").named["g"]
    if state is Idle:
        named.attempt = Idle()
    elif state is Voting:
        named.attempt = Voting("n2.0.1", node("n2"), (node("n1"), node("n2")))
    else:
        stage.form("n1", ("n2",))
        stage.settle(ticks=4)
    attempt, step = named.attempt, Step(0)
    assert type(attempt) is state
    named.give(step, what)
    assert named.attempt is attempt
    assert step.sent == step.outputs == step.timers == []

"""A load that is given by the round of the group that it goes to."""

from __future__ import annotations

import pytest
from tests.sim.probes import FAMILY, MILLISECOND, Stage

from ordercast.scenario.schema import GroupSettings, WorkloadSettings


def submissions(stage: Stage, group: str) -> int:
    return sum(row.group == group for row in stage.rows_of("submit"))


def test_a_sender_submits_the_configured_messages_per_round() -> None:
    """Rounds of 100 ms over 10 s: 100 of them, two messages in each, by two senders."""
    load = WorkloadSettings(per_round=2, pattern="steady")
    stage = Stage(2, workload=load)
    stage.run()
    assert submissions(stage, "g") == pytest.approx(400, abs=2)


def test_each_group_has_rounds_of_its_own() -> None:
    groups = [
        GroupSettings(
            name=f"rounds of {round_ms} ms",
            members=["n1"],
            family=FAMILY,
            options={"round": f"{round_ms}ms"},
        )
        for round_ms in (50, 500)
    ]
    load = WorkloadSettings(per_round=1, pattern="steady")
    stage = Stage(1, workload=load, scenario={"group": groups})
    stage.run()
    assert submissions(stage, "rounds of 50 ms") == pytest.approx(200, abs=1)
    assert submissions(stage, "rounds of 500 ms") == pytest.approx(20, abs=1)
    times = [row.at for row in stage.rows_of("submit") if row.group == "rounds of 50 ms"]
    assert times[0] == 50 * MILLISECOND

"""Members that were never faulty and reach each other stay in one view, whoever comes and goes.

Members that stop together wake with all that arrived meanwhile, of views that they were in and of
views that they were not in. They read it in any order, and what they say then is about the past.
"""

from __future__ import annotations

from itertools import pairwise

from tests.protocol.transis.test_views import SCENARIOS, cut, lawful, scenario, views

from ordercast.scenario.faults.processes import Pause
from ordercast.scenario.file import load_scenario
from ordercast.testing import Simulated, simulate
from ordercast.trace.schema import Row
from ordercast.types import StateGiven, View
from ordercast.units import MILLISECOND, SECOND


def torn(run: Simulated, healthy: set[str], since: int, until: int) -> list[Row]:
    """Views of healthy members that lack another healthy one."""
    return [
        row
        for row in run.trace.rows
        if row.kind == "view" and row.process in healthy and since <= row.at < until
        if not healthy.issubset(row.members or ())
    ]


def test_members_that_wake_together_do_not_tear_those_that_were_there() -> None:
    paused = load_scenario(SCENARIOS / "synchrony-pauses.toml")
    pauses = [fault for fault in paused.fault if isinstance(fault, Pause)]
    ends = [*(int(fault.at) for fault in pauses[1:]), 1 << 62]
    for seed in range(1, 13):
        run = lawful(simulate(paused, seed))
        for fault, end in zip(pauses, ends, strict=True):
            healthy = set(run.heard) - set(fault.nodes)
            assert len(healthy) == 3
            assert torn(run, healthy, int(fault.at), end) == [], f"seed {seed}"
        # The third is on the largest side each time: it goes on with its own state, and no change
        # of its view is for nothing.
        members = [row.members for row in views(run, "n3")]
        assert all(one != other for one, other in pairwise(members)), f"seed {seed}"
        heard = [type(item) for item in run.heard["n3"]]
        assert heard.count(View) > 8
        assert StateGiven not in heard, f"seed {seed}"


def test_a_candidate_that_misses_one_of_a_side_does_not_tear_it() -> None:
    """The path between n1 and n4 is cut while n1 merges with the view of the four others. It is n1
    that waits outside."""
    outside = 0
    for seed in range(30):
        apart = cut("1s", "3s", "n1", "n2 n3 n4 n5")
        half_way = cut(f"{4020 + 2 * seed}ms", "3s", "n1", "n4")
        run = lawful(simulate(scenario(5, apart, half_way, duration="8s"), seed))
        healed = 7 * SECOND + 20 * MILLISECOND
        rows = [row for row in run.trace.rows if 4 * SECOND <= row.at < healed]
        if any(row.kind == "view" and len(row.members or ()) == 5 for row in rows):
            continue  # they had merged before
        assert torn(run, {"n2", "n3", "n4", "n5"}, 4 * SECOND, healed) == [], f"seed {seed}"
        outside += any(row.kind == "suspect" and row.peer == "n1" for row in rows)
    assert outside > 2

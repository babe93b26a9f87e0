"""Groups come to rest in the simulator, and a group that does not is noticed.

No family promises `rest`: how soon members come to rest depends on their suspicion limit, and live
on the load of the machine. Here it is asked for by its name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.check.laws import check
from ordercast.check.verdict import Answer, Verdict
from ordercast.kernel.family import Family, machine_per_group
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.fifo.member import FifoMember
from ordercast.testing import simulate

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


class Restless(FifoMember):
    """Installs its view again and again, once it has set a member aside."""

    def expire(self, step: Step, timer: Timer) -> None:
        super().expire(step, timer)
        if self.views_installed > 1:
            self._install(step)


def verdict_on(name: str, seed: int, **families: Family) -> Verdict:
    run = simulate(SCENARIOS / f"{name}.toml", seed, families={**FAMILIES, **families})
    assert run.outcome.error is None
    return check(run.trace, ["rest"])[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "name", ["chaos", "restarts", "open-fifo-chaos", "total-partition", "total-reform"]
)
def test_groups_come_to_rest_after_their_faults(name: str, seed: int) -> None:
    assert verdict_on(name, seed).answer is Answer.HOLDS


def test_a_group_that_never_comes_to_rest_is_noticed() -> None:
    fifo = FAMILIES["fifo"]._replace(build=machine_per_group(Restless))
    found = verdict_on("one_crash", 1, fifo=fifo)
    assert found.answer is Answer.BROKEN
    assert found.witness[0].kind == "view"


def test_each_family_of_a_run_is_asked_for_rest_with_the_times_of_the_run() -> None:
    """Judged family by family, as where groups of a run are of several: the times stay known."""
    run = simulate(SCENARIOS / "one_crash.toml", 1)
    groups = {"group": [{"name": "g", "family": "of-another-system"}]}
    header = run.trace.header
    mixed = type(run.trace)(
        type(header)(
            header.run,
            "fifo",
            {**header.parameters, **groups},
            start=header.start,
            ending=header.ending,
        ),
        run.trace.rows,
    )
    assert {one.law: one.answer for one in check(mixed)}["rest"] is Answer.HOLDS

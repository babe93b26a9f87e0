"""Two members, n1 and n2, of which every schedule is tried, up to small bounds."""

from __future__ import annotations

from typing import Any

from ordercast.check.laws import check
from ordercast.kernel.family import Family, FoundingRule, Plan
from ordercast.kernel.inputs import Acquainted
from ordercast.sim.explore import Bounds, Setting, explore

NAMES = ("n1", "n2")


class KnowsN1:
    """Beside the class of a member: n2 knows n1 when it starts."""

    me: Any
    on: Any

    def start(self, step: Any) -> None:
        super().start(step)  # type: ignore[misc]
        if self.me.name == "n2":
            self.on(step, Acquainted("g", ("n1",)))


def pair(family: Family, plans: tuple[Plan, ...], rounds: int) -> Setting:
    return Setting(
        NAMES, ((family, plans),), clocks=True, prelude=False, latest_only=True, rounds=rounds
    )


def founder_and_newcomer(family: Family, options: object) -> Setting:
    """n1 founds an open group, and n2 joins it."""
    entries = {name: FoundingRule(founds=name == "n1") for name in NAMES}
    plans = tuple(Plan("g", (name,), options, False, entry) for name, entry in entries.items())
    return pair(family, plans, rounds=40)


def assert_explored(setting: Setting, states: int, bounds: dict[str, Any]) -> None:
    """Every schedule keeps all laws, and there are so many states at least."""
    bound = Bounds(max_states=20_000, submissions={"n1": 1}, **bounds)
    report = explore(setting, bound, check, settle=True)
    assert report.broken is None, str(report)
    assert report.complete
    assert report.unfinished == 0
    assert report.states >= states

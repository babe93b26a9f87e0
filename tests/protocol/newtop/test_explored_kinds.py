"""Every schedule of three processes in groups with a sequencer, and without order."""

from __future__ import annotations

from typing import Any

from ordercast.check.history import PROMISES
from ordercast.check.implications import with_implied
from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Verdict
from ordercast.kernel.family import Family, Plan
from ordercast.protocol.newtop import ATOMIC, FAMILY, SEQUENCED
from ordercast.protocol.newtop.options import AtomicOptions, NewtopOptions, SequencedOptions
from ordercast.sim.explore import Bounds, explore
from ordercast.sim.explore.setting import Setting
from ordercast.trace.schema import Trace

NAMES = ("n1", "n2", "n3")
TIMES: dict[str, Any] = {
    "prompt_after": "100ms",
    "silence_limit": "200ms",
    "suspicion_limit": "400ms",
}


def by_promise(family: str) -> Any:
    laws = with_implied(PROMISES[family].laws, LAWS.values())

    def judge(trace: Trace) -> list[Verdict]:
        return check(trace, laws)

    return judge


def assert_sound(
    parts: tuple[tuple[Family, tuple[Plan, ...]], ...], judge: Any, states: int, **bounds: Any
) -> None:
    setting = Setting(NAMES, parts, clocks=True, prelude=False, rounds=10)
    report = explore(setting, Bounds(max_states=4000, **bounds), judge, settle=True)
    assert report.broken is None, str(report)
    assert report.complete
    assert report.states >= states


def test_two_senders_and_a_sequencer_keep_all_laws_in_every_order() -> None:
    plan = Plan("a", NAMES, SequencedOptions(**TIMES))
    judge = by_promise("total")
    assert_sound(((SEQUENCED, (plan,)),), judge, 300, submissions={"n2": 1, "n3": 1})


def test_a_crash_at_every_moment_keeps_the_laws_of_sequenced_groups() -> None:
    plan = Plan("a", NAMES, SequencedOptions(**TIMES))
    judge = by_promise("sequenced")
    assert_sound(((SEQUENCED, (plan,)),), judge, 50, submissions={"n2": 1}, crashes=1)


def test_groups_with_and_without_a_sequencer_in_one_process_keep_all_laws() -> None:
    parts = (
        (SEQUENCED, (Plan("a", ("n1", "n2"), SequencedOptions(**TIMES)),)),
        (FAMILY, (Plan("b", ("n2", "n3"), NewtopOptions(**TIMES)),)),
    )
    assert_sound(parts, by_promise("total"), 100, submissions={"n2": 2, "n3": 1})


def test_a_crash_at_every_moment_keeps_the_laws_of_atomic_groups() -> None:
    plan = Plan("a", NAMES, AtomicOptions(**TIMES))
    judge = by_promise("atomic")
    assert_sound(((ATOMIC, (plan,)),), judge, 200, submissions={"n2": 1, "n3": 1}, crashes=1)

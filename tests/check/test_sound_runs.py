"""Correct runs keep every law, and every way of spoiling one is noticed by the law it concerns."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from tests.check.mutations import MUTATIONS, Mutation, renumbered
from tests.check.sound_runs import SoundRun

from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer
from ordercast.trace.schema import Ending, Trace
from ordercast.trace.text import format_history, parse_history

WITHOUT_NEWCOMERS = [name for name, law in LAWS.items() if law.promised_only]
"""Laws that members break which come late and never get what is older: no run with faults keeps
them."""


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("faults", [False, True])
def test_a_correct_run_keeps_every_law(groups: int, faults: bool) -> None:
    for seed in range(200):
        trace = SoundRun(seed, faults=faults, groups=groups, size=20 + seed % 80).trace()
        for verdict in check(trace, list(LAWS)):
            late = faults and verdict.law in WITHOUT_NEWCOMERS
            assert late or verdict.answer is Answer.HOLDS, (seed, verdict)


def test_the_correct_runs_are_not_trivial() -> None:
    kinds: dict[str, int] = {}
    for seed in range(100):
        trace = SoundRun(seed, faults=True, groups=2, size=60).trace()
        for row in trace.rows:
            kinds[row.kind] = kinds.get(row.kind, 0) + 1
            kinds["second life"] = kinds.get("second life", 0) + row.incarnation
    for kind in ("submit", "deliver", "view", "crash", "leave", "suspect", "ticket", "second life"):
        assert kinds[kind] > 20, kind


def test_a_truncated_correct_run_breaks_nothing() -> None:
    """However short: every process's log is a prefix of what it would have been."""
    for seed in range(100):
        chance = Random(seed)
        trace = SoundRun(seed, faults=True, groups=2, size=60).trace()
        rows = trace.rows[: chance.randrange(len(trace.rows))]
        lost = chance.choice([row.process for row in trace.rows])
        rows = rows[:-1] if seed % 2 else [row for row in rows if row.process != lost]
        cut = Trace(msgspec.structs.replace(trace.header, ending=Ending.CUT), rows)
        answers = {verdict.law: verdict.answer for verdict in check(cut, list(LAWS))}
        broken = {law for law, answer in answers.items() if answer is Answer.BROKEN}
        assert broken <= set(WITHOUT_NEWCOMERS), (seed, answers)
        for law in ("agreement", "completeness", "disjoint-views", "durable"):
            assert answers[law] is Answer.UNKNOWN


@pytest.mark.parametrize(
    ("law", "mutation"), MUTATIONS, ids=[f"{law}-{one.__name__}" for law, one in MUTATIONS]
)
def test_a_run_with_a_planted_mistake_breaks_its_law(law: str, mutation: Mutation) -> None:
    spoilt = 0
    for seed in range(150):
        trace = SoundRun(seed, faults=False, groups=1 + seed % 2, size=40).trace()
        if mutation.__name__ == "deliver_in_another_view":
            trace = SoundRun(seed, faults=True, size=80).trace()
        rows = mutation(trace.rows, Random(seed))
        if rows is None:
            continue
        spoilt += 1
        verdict = check(Trace(trace.header, renumbered(rows)), [law])[0]
        assert verdict.answer is Answer.BROKEN, seed
        assert verdict.witness
        assert verdict.why
    assert spoilt >= 20


def test_correct_runs_can_be_written_down() -> None:
    for seed in range(50):
        trace = SoundRun(seed, faults=True, groups=2).trace()
        assert parse_history(format_history(trace)) == trace

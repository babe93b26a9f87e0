"""Runs with services: every engine answers as the plain judges, with their witnesses and words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.check.mutations import renumbered
from tests.check.service_oracles import with_services
from tests.check.small_groups import SmallGroups
from tests.check.sound_runs import SoundRun
from tests.check.spoilt_runs import scrambled_views, spoilt
from tests.check.test_oracles import random_trace
from tests.check.test_service_laws import MUTATIONS
from tests.spark.test_online import delivery, told
from tests.spark.test_vector_laws import compare

from ordercast.check.law import LawForm
from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer
from ordercast.spark.columns import columns_of
from ordercast.spark.laws import JudgeLimits, judge_lake
from ordercast.spark.online import KeyMemory, judge
from ordercast.spark.vector import Vectors
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.schema import Trace

ALL = list(LAWS)


def test_vectors_judge_random_runs_with_services_as_the_reference() -> None:
    answers: Counter[tuple[str, Answer]] = Counter()
    for seed in range(250):
        for trace in (random_trace(seed), SmallGroups(seed).trace(), scrambled_views(seed)):
            served = with_services(trace, transitional=0.2, lies=0.05 * (seed % 2))
            compare(served, (trace.header.run, seed))
            answers.update((one.law, one.answer) for one in check(served, ALL))
    for law in ("fifo", "total", "total-in-view", "causal-in-view", "safe", "self-delivery"):
        assert answers[law, Answer.BROKEN] > 5, law
        assert answers[law, Answer.HOLDS] > 20, law


def test_vectors_judge_spoilt_runs_with_services_as_the_reference() -> None:
    broken: Counter[str] = Counter()
    for seed in range(400):
        trace = with_services(spoilt(seed), transitional=0.1 * (seed % 2))
        compare(trace, seed)
        broken.update(one.law for one in check(trace, ALL) if one.answer is Answer.BROKEN)
    assert broken["safe"] >= 8
    assert broken["causal-in-view"] >= 8


def test_vectors_judge_planted_mistakes_with_services_as_the_reference() -> None:
    for _, mutation in MUTATIONS:
        for seed in range(6):
            trace = with_services(SoundRun(seed, faults=False, size=60).trace())
            rows = mutation(trace.rows, Random(seed))
            if rows is not None:
                compare(Trace(trace.header, renumbered(rows)), (mutation.__name__, seed))


def test_vectors_judge_sound_runs_with_services_themselves() -> None:
    for seed in range(60):
        trace = with_services(SoundRun(seed, faults=False, groups=1, size=80).trace())
        vectors = Vectors(columns_of(trace))
        for law in ("fifo", "total", "total-in-view", "safe", "self-delivery"):
            assert vectors.form(LAWS[law]) is LawForm.VECTOR, (seed, law)
            assert vectors.judge(LAWS[law]).answer is Answer.HOLDS, (seed, law)


@pytest.mark.slow
def test_spark_judges_runs_with_services_as_the_reference(spark: Any, tmp_path: Path) -> None:
    """In one task, and in slices first."""
    traces = {
        "sound": with_services(SoundRun(3, faults=False, groups=1, size=40).trace()),
        "faulty": with_services(SoundRun(5, faults=True, groups=2, size=60).trace()),
        "spoilt": with_services(spoilt(12)),
    }
    for name, trace in traces.items():
        header = type(trace.header)(name, None, trace.header.parameters, start=0, ending="finished")
        trace = Trace(header, trace.rows)
        write_trace(tmp_path, trace)
        for limits in (JudgeLimits(), JudgeLimits(huge=0)):
            (judged,) = judge_lake(spark, [run_folder(tmp_path, name)], ALL, limits)
            assert judged.verdicts == check(trace, ALL), (name, limits)


def test_a_stream_judges_basic_events_by_themselves() -> None:
    """n1:3 is basic, and overtakes; n1:2 is late for those that are not."""
    numbers = [(1, "agreed"), (4, "basic"), (3, "safe"), (5, "basic"), (2, "causal")]
    stream = [delivery(at, "n1", number, cause=word) for at, (number, word) in enumerate(numbers)]
    found = judge(KeyMemory(), stream)
    assert told(found) == [("fifo", 4)]
    assert found[0].why == "after n1:3"
    again = [delivery(9, "n1", 4, cause="basic")]
    memory = KeyMemory()
    judge(memory, stream)
    kept = KeyMemory(packed=memory.pack())
    assert ("fifo", 9) in told(judge(kept, again))


def test_a_stream_does_not_judge_the_past_of_basic_events() -> None:
    cause = {"index": 0, "stamp": (1, 0)}
    effect = {"index": 1, "stamp": (1, 1)}
    for word, expected in (("basic", []), ("agreed", [("optimistic-causal", 1)])):
        stream = [
            delivery(0, "n2", 1, cause=word, **effect),
            delivery(1, "n1", 1, cause="agreed", **cause),
        ]
        assert told(judge(KeyMemory(), stream)) == expected

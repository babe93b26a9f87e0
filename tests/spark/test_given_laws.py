"""Laws given as values: one that only this file knows is judged by every engine.

And which form of a law ran is asserted, so that no law falls back on its plain judge unnoticed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.check.sound_runs import SoundRun

import ordercast
from ordercast.check.history import History
from ordercast.check.law import Delivery, Law, LawForm, Streaming
from ordercast.check.laws import LAWS, check, judge_run
from ordercast.check.verdict import Answer, Verdict, broken, holds
from ordercast.kernel.family import Promises
from ordercast.spark.by_value import pack
from ordercast.spark.columns import columns_of, count_rows
from ordercast.spark.laws import JudgedRun, JudgeLimits, has_huge_run, judge_lake
from ordercast.spark.online import KeyMemory, breaks, judge
from ordercast.spark.stream import register
from ordercast.spark.vector import judge_columns
from ordercast.testing import simulate
from ordercast.trace.lake import find_runs
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.record_log import RecordLog
from ordercast.trace.recording import Record
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history

NAME = "no-thirteen"


def unlucky(number: int | None) -> bool:
    return number == 13


def find(history: History) -> Verdict:
    for log in history.logs:
        for row in log.deliveries:
            if unlucky(row.number):
                return broken(NAME, (row,), f"{row.process} delivered number 13")
    return holds(NAME)


def find_again(
    memory: dict[str, int], deliveries: Iterable[Delivery]
) -> Iterator[tuple[Delivery, str]]:
    for each in deliveries:
        memory["seen"] = memory.get("seen", 0) + 1
        if unlucky(each.number):
            yield each, f"as its event {memory['seen']}"


PLAIN = Law(name=NAME, says="nobody delivers an event of number 13", reads=("deliver",), judge=find)
STREAMING = Law(
    name=NAME,
    says=PLAIN.says,
    reads=PLAIN.reads,
    judge=find,
    stream=Streaming(dict, find_again),
)


def counted(last: int) -> Trace:
    """n1 submits and delivers that many events, and n2 delivers them too."""
    text = f"run counted-{last} family=fifo ending=finished\n"
    for number in range(1, last + 1):
        text += f"n1 submit n1:{number}\nn1 deliver n1:{number}\nn2 deliver n1:{number}\n"
    return parse_history(text)


def test_a_law_that_only_this_file_knows_is_judged_by_the_plain_judge() -> None:
    verdicts = check(counted(13), [PLAIN, "fifo"])
    assert [(one.law, one.answer) for one in verdicts] == [
        (NAME, Answer.BROKEN),
        ("fifo", Answer.HOLDS),
    ]
    assert check(counted(12), [PLAIN])[0].answer is Answer.HOLDS


def test_vectors_fall_back_on_the_plain_judge_and_say_so() -> None:
    trace = counted(13)
    answers = judge_columns(columns_of(trace), [PLAIN, "fifo"])
    assert answers.verdicts == check(trace, [PLAIN, "fifo"])
    assert answers.forms == {NAME: LawForm.PLAIN, "fifo": LawForm.VECTOR}


@pytest.mark.parametrize("seed", range(1, 6))
def test_vectors_leave_the_same_laws_out_for_the_same_reason(seed: int) -> None:
    trace = simulate("scenarios/causal-chaos.toml", seed).trace
    assert judge_columns(columns_of(trace)).not_asked == judge_run(trace).not_asked != []


def test_a_run_too_large_for_the_plain_judge_is_unknown_with_the_reason() -> None:
    trace = counted(13)
    answers = judge_columns(columns_of(trace), [PLAIN, "fifo"], plain_rows=len(trace.rows) - 1)
    told, fifo = answers.verdicts
    assert (told.answer, fifo.answer) == (Answer.UNKNOWN, Answer.HOLDS)
    assert told.why.startswith("only the plain judge can decide it here, and the run has 39 rows")


def test_every_law_of_ours_has_a_vector_form_and_a_proof_over_slices() -> None:
    for law in LAWS.values():
        assert law.skeleton_only or (law.select and law.prove), law.name


def test_a_packed_law_needs_nothing_of_the_file_that_defines_it(tmp_path: Path) -> None:
    """Unpacked by a Python that cannot import this file, as a Spark task on another machine."""
    (tmp_path / "packed").write_bytes(pack([STREAMING]))
    code = (
        "import pathlib, sys; from ordercast.spark.by_value import unpack\n"
        "(law,) = unpack(pathlib.Path('packed').read_bytes())\n"
        "assert not [name for name in sys.modules if 'given_laws' in name]\n"
        "from ordercast.check.law import Delivery\n"
        "((_, why),) = law.stream.breaks({}, [Delivery(0, 0, 0, 'n1', 13)]); print(law.name, why)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(ordercast.__file__).parents[1])}
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout == f"{NAME} as its event 1\n", told.stderr


def test_a_stream_remembers_what_the_law_wants() -> None:
    stream = [Delivery(at, 0, 0, "n1", at + 11) for at in range(3)]
    memory = KeyMemory([STREAMING])
    assert judge(memory, stream[:2], [STREAMING]) == []
    again = KeyMemory([STREAMING], memory.pack())
    assert [one.why for one in judge(again, stream[2:], [STREAMING])] == ["as its event 3"]


@pytest.mark.slow(15)
def test_laws_go_to_spark_as_values(spark: Any, tmp_path: Path) -> None:
    """In a task, for a run judged in slices, and in a run that only slices can read."""
    folders = []
    for trace in (counted(12), counted(13)):
        write_trace(tmp_path, trace)
        folders.append(run_folder(tmp_path, trace.header.run))

    def answers(judged: list[JudgedRun]) -> list[Answer]:
        return [verdict.answer for one in judged for verdict in one.verdicts]

    tasks = judge_lake(spark, folders, [PLAIN, "fifo"])
    assert answers(tasks) == [Answer.HOLDS, Answer.HOLDS, Answer.BROKEN, Answer.HOLDS]
    assert tasks[1].verdicts == check(counted(13), [PLAIN, "fifo"])
    assert tasks[0].forms == {NAME: LawForm.PLAIN, "fifo": LawForm.VECTOR}
    (sliced,) = judge_lake(spark, folders[1:], [PLAIN, "fifo"], JudgeLimits(huge=0))
    assert sliced.verdicts == tasks[1].verdicts
    assert sliced.forms == {NAME: LawForm.PLAIN, "fifo": LawForm.SLICES}
    (beyond,) = judge_lake(spark, folders[1:], [PLAIN, "fifo"], JudgeLimits(huge=0, read=38))
    assert answers([beyond]) == [Answer.UNKNOWN, Answer.HOLDS]
    assert "slices could not prove it, and the run has 39 rows" in beyond.verdicts[0].why


def test_a_run_with_more_rows_than_a_task_may_read_is_huge(tmp_path: Path) -> None:
    for count in (12, 13):
        write_trace(tmp_path, counted(count))
    folders = find_runs(tmp_path)
    most = max(map(count_rows, folders))
    assert has_huge_run(folders, JudgeLimits(huge=most - 1))
    assert not has_huge_run(folders, JudgeLimits(huge=most))
    assert not has_huge_run(folders)


@pytest.mark.slow
def test_a_sound_run_is_proved_by_slices_alone(spark: Any, tmp_path: Path) -> None:
    trace = SoundRun(1, faults=False, groups=1, size=40).trace()
    write_trace(tmp_path, trace)
    (judged,) = judge_lake(
        spark, [run_folder(tmp_path, trace.header.run)], LAWS, JudgeLimits(huge=0)
    )
    assert judged.not_asked == []
    assert set(judged.forms.values()) == {LawForm.SLICES}
    assert list(judged.forms) == list(LAWS)


@pytest.mark.slow
def test_a_stream_takes_laws_as_values(spark: Any, tmp_path: Path) -> None:
    register(spark)
    log = RecordLog(tmp_path / "recording")
    log.append(
        [
            Record(0, "deliver", 1, "r", 0, "g", "n1", 0, number, size=1, payloads=[b"x"])
            for number in range(11, 15)
        ]
    )
    log.close()
    table = spark.read.format("ordercast").load(str(tmp_path / "recording"))
    (row,) = breaks(table, [STREAMING, "fifo"]).collect()
    assert (row["law"], row["number"]) == (NAME, 13)
    assert row["why"] == "r delivered n1:13 as its event 3"


@pytest.mark.slow
def test_promises_of_a_family_that_nobody_lists_are_judged(tmp_path: Path, spark: Any) -> None:
    """A durable family remembers across a restart what it delivered, so twice is broken."""
    promises = {"nowhere": Promises(("no-creation", "no-duplication"), durable=True)}
    trace = parse_history(
        "run again family=nowhere ending=finished\n"
        "n1 submit n1:1\nn1 deliver n1:1\nn2 deliver n1:1\nn2 crash\nn2#1 deliver n1:1\n"
    )
    write_trace(tmp_path, trace)
    folders = [run_folder(tmp_path, "again")]
    expected = check(trace, promises=promises)
    assert _answers(expected) == {"no-creation": Answer.HOLDS, "no-duplication": Answer.BROKEN}
    for limits in (JudgeLimits(), JudgeLimits(huge=0)):  # in a task, and in slices first
        (judged,) = judge_lake(spark, folders, None, limits, promises)
        assert judged.verdicts == expected
        (forgetful,) = judge_lake(spark, folders, ["no-duplication"], limits)
        assert _answers(forgetful.verdicts) == {"no-duplication": Answer.HOLDS}


def _answers(verdicts: list[Verdict]) -> dict[str, Answer]:
    return {one.law: one.answer for one in verdicts}

"""Laws on a run too large for one task, judged in slices: equal to the plain reference.

What slices settle must be what the reference says, and on sound runs they must settle all of it,
or the whole of a huge run would have to go through one task after all. What Spark only carries is
tested without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from pyarrow import parquet
from tests.check.feed_runs import FeedRun, spoilt_feed
from tests.check.mutations import MUTATIONS, renumbered
from tests.check.service_oracles import with_services
from tests.check.small_groups import SmallGroups
from tests.check.sound_runs import SoundRun
from tests.check.spoilt_runs import spoilt as spoilt_anyhow
from tests.check.test_oracles import random_tickets, random_trace
from tests.check.test_service_laws import MUTATIONS as SERVED

from ordercast.check.law import Law
from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer
from ordercast.errors import TraceError
from ordercast.spark.columns import Doubt
from ordercast.spark.laws import JudgeLimits, judge_lake
from ordercast.spark.sliced_run import Slices, prepare, settle
from ordercast.spark.slices import EventStream
from ordercast.spark.walks import FEW, REPORT, SliceReport, look, walk
from ordercast.trace.lake import read_header, read_run
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.schema import Ending, Row, Trace
from ordercast.trace.text import parse_history

HISTORIES = Path(__file__).resolve().parents[1] / "histories"
ALL = list(LAWS)
EVERY = list(LAWS.values())


def sound(seed: int) -> Trace:
    """Nothing fails and everybody is in the group from the start."""
    while True:
        trace = SoundRun(seed, faults=False, groups=1, size=40).trace()
        if {row.process for row in trace.rows} == {
            row.process for row in trace.rows if row.kind == "view"
        }:
            return trace
        seed += 1000


def written(lake: Path, name: str, trace: Trace, **fields: Any) -> tuple[Path, Trace]:
    header = msgspec.structs.replace(trace.header, run=name, **fields)
    trace = Trace(header, trace.rows)
    write_trace(lake, trace)
    return run_folder(lake, name), trace


@pytest.mark.slow
def test_slices_prove_every_law_of_a_sound_run(spark: Any, tmp_path: Path) -> None:
    folder, trace = written(tmp_path, "sound", sound(1))
    settled = settle(spark, folder, EVERY)
    assert settled is not None
    assert settled.rows == len(trace.rows)
    assert [settled.verdicts[law] for law in ALL] == check(trace, ALL)
    assert {one.answer for one in settled.verdicts.values()} == {Answer.HOLDS}
    folder, trace = written(tmp_path, "cut", sound(2), ending=Ending.CUT, family="causal")
    (judged,) = judge_lake(spark, [folder], None, JudgeLimits(huge=0))
    assert (judged.verdicts, judged.rows) == (check(trace), len(trace.rows))


def passed(folder: Path, laws: list[Law], cores: int, silent: int = -1) -> Slices | None:
    """Both passes in this process, task by task; None where a slice is in doubt.

    The task `silent` of the second pass never answers.
    """
    header = read_header(folder)
    plan = prepare(folder, header, laws, cores)
    messages = [one for number in range(plan.slices) for one in look(plan, number)]
    few: list[Row] = []
    said: list[SliceReport] = []
    for one in messages:
        if one.kind == FEW:
            few += msgspec.msgpack.decode(one.data, type=list[Row])
        elif one.kind == REPORT:
            said.append(msgspec.msgpack.decode(one.data, type=SliceReport))
    if any(one.doubt or not one.facts["steps"] for one in said):
        return None
    assert all(one.streams == said[0].streams for one in said)
    streams = [EventStream(*one) for one in said[0].streams]
    walked = []
    for task in range(plan.walkers + 2):
        mail = [one._asdict() for one in messages if task in one.tasks]
        if mail and task != silent:
            walked.append(walk(streams, plan.walkers, task, mail))
    return Slices(plan, header, few, said, walked)


def in_row_groups(folder: Path, rows: int) -> None:
    """The same file, in row groups so small that every task has some to read as a whole."""
    (part,) = folder.glob("part-*.parquet")
    table = parquet.ParquetFile(part).read()
    parquet.write_table(table, part, row_group_size=rows, write_page_checksum=True)


def spoilt(law: str, count: int) -> list[Trace]:
    """A handwritten history that breaks the law, and sound runs that were spoilt."""
    path = HISTORIES / f"broken-{law}.history"
    traces = [parse_history(path.read_text(encoding="utf-8"), path.name)]
    ways = [one for name, one in (*MUTATIONS, *SERVED) if name == law]
    seed = ALL.index(law)
    while len(traces) <= count:
        run = sound(seed)
        if law == "virtual-synchrony":
            run = SoundRun(seed, faults=True, size=80).trace()
        way = ways[seed % len(ways)]
        if (law, way) in SERVED:
            run = with_services(run)
        rows = way(run.rows, Random(seed))
        seed += 1
        if rows is not None:
            traces.append(Trace(run.header, renumbered(rows)))
    return traces


@pytest.mark.parametrize("law", ALL)
def test_no_pass_proves_a_broken_law(tmp_path: Path, law: str) -> None:
    """Whatever is settled of a broken run, of all laws, is what the reference says."""
    for number, trace in enumerate(spoilt(law, 6)):
        folder, named = written(tmp_path, f"broken-{number}", trace)
        in_row_groups(folder, 5)
        expected = {one.law: one for one in check(named, ALL)}
        assert expected[law].answer is Answer.BROKEN
        run = passed(folder, EVERY, cores=1 + number % 3)
        assert run is not None
        for told in run.settle(EVERY).values():
            assert told == expected[told.law]


@pytest.mark.parametrize("seed", range(24))
def test_passes_judge_runs_with_faults_and_groups_as_the_reference(
    tmp_path: Path, seed: int
) -> None:
    """In whatever order the rows stand in the file, and for families that outlive a crash."""
    trace = SoundRun(seed, faults=seed % 2 == 1, groups=1 + seed % 3, size=40).trace()
    rows = list(trace.rows)
    if seed % 4 > 1:
        Random(seed).shuffle(rows)
    family = (None, "fifo", "causal")[seed // 3 % 3]
    folder, named = written(tmp_path, "run", Trace(trace.header, rows), family=family)
    in_row_groups(folder, 11)
    run = passed(folder, EVERY, cores=1 + seed % 4)
    assert run is not None
    expected = {one.law: one for one in check(named, ALL)}
    found = run.settle(EVERY)
    assert {"fifo", "no-duplication", "no-creation", "virtual-synchrony"} <= found.keys()
    assert found == {law: expected[law] for law in found}


def feed(seed: int) -> Trace:
    return FeedRun(seed).trace()


def anything(count: int) -> Iterator[Trace]:
    """Histories that nobody made sound, and sound runs that were spoilt in any way."""
    for path in sorted(HISTORIES.glob("*.history")):
        yield parse_history(path.read_text(encoding="utf-8"), path.name)
    for seed in range(count):
        yield spoilt_anyhow(seed)
        if seed % 2:
            yield (spoilt_feed if seed % 4 > 1 else feed)(seed)
        yield (random_trace, lambda seed: SmallGroups(seed).trace(), random_tickets)[seed % 3](seed)


@pytest.mark.parametrize("count", [50, pytest.param(400, marks=pytest.mark.long)])
def test_every_proof_agrees_with_the_reference(tmp_path: Path, count: int) -> None:
    read, broken = 0, 0
    for number, trace in enumerate(anything(count)):
        folder, named = written(tmp_path, f"any-{number}", trace)
        in_row_groups(folder, 7)
        try:
            run = passed(folder, EVERY, cores=1 + number % 3)
        except Doubt:
            continue
        if run is None:
            continue
        expected = {one.law: one for one in check(named, ALL)}
        for told in run.settle(EVERY).values():
            assert told == expected[told.law], number
        read += 1
        broken += sum(one.answer is Answer.BROKEN for one in expected.values())
    assert read > 150 + count
    assert broken > 150 + count


HARD = {
    "total": "n1 deliver n8:1 at=5\nn1 deliver n9:1 at=5\nn2 deliver n9:1 at=5\n"
    "n2 deliver n8:1 at=5\nn8 submit n8:1 at=4\nn9 submit n9:1 at=4\n",
    "no-creation": "n1 deliver n2:1 at=5\nn1 submit n1:1 at=5\nn2 deliver n1:1 at=5\n"
    "n2 submit n2:1 at=5\n",
    "no-duplication": "n1 submit n1:1\nn2 deliver n1:1 at=5\nn2 deliver n1:1 at=5\n",
}
"""All within one instant: a law is broken, and no time tells."""


@pytest.mark.parametrize("law", HARD)
def test_rows_at_one_time_prove_nothing(tmp_path: Path, law: str) -> None:
    folder, trace = written(tmp_path, "tie", parse_history(f"run r ending=finished\n{HARD[law]}"))
    assert check(trace, [law])[0].answer is Answer.BROKEN
    run = passed(folder, EVERY, cores=2)
    assert run is not None
    assert law not in run.settle(EVERY)


def test_an_event_delivered_twice_between_two_views_proves_nothing(tmp_path: Path) -> None:
    """Twice the same cancels itself out in a digest."""
    text = "run r ending=finished\nn3 submit n3:1 at=1\nn3 submit n3:2 at=1\n"
    for member, number in (("n1", 1), ("n2", 2)):
        twice = f"{member} deliver n3:{number} at=5\n" * 2
        text += f"{member} view 1 n1,n2 at=4\n{twice}{member} view 2 n1,n2 at=6\n"
    folder, trace = written(tmp_path, "twice", parse_history(text))
    assert check(trace, ["virtual-synchrony"])[0].answer is Answer.BROKEN
    run = passed(folder, EVERY, cores=2)
    assert run is not None
    assert "virtual-synchrony" not in run.settle(EVERY)


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_a_task_that_does_not_answer_proves_nothing(tmp_path: Path, silent: int) -> None:
    folder, _ = written(tmp_path, "sound", sound(3))
    unproved = {0: "causal", 1: "causal", 2: "total"}[silent]
    for task in (silent, -1):
        run = passed(folder, EVERY, cores=2, silent=task)
        assert run is not None
        assert (unproved in run.settle(EVERY)) == (task == -1)


def test_an_event_of_a_later_incarnation_is_not_known_before(tmp_path: Path) -> None:
    text = "run r ending=finished\nn1 deliver n1#1:1 at=1\nn1#1 submit n1#1:1 at=2\n"
    folder, trace = written(tmp_path, "lives", parse_history(text))
    assert check(trace, ["no-creation"])[0].answer is Answer.BROKEN
    run = passed(folder, EVERY, cores=2)
    assert run is not None
    assert "no-creation" not in run.settle(EVERY)


def test_tickets_of_one_group_prove_nothing_about_another(tmp_path: Path) -> None:
    text = "run r ending=finished\nn1 ticket group=g index=0 cause=acquired\n"
    text += "n1 submit n1:1 group=g index=0 stamp=1\nn1 submit n1:1 group=h index=0 stamp=1\n"
    folder, trace = written(tmp_path, "groups", parse_history(text))
    assert check(trace, ["ticket-uniqueness"])[0].answer is Answer.UNKNOWN
    run = passed(folder, EVERY, cores=2)
    assert run is not None
    assert "ticket-uniqueness" not in run.settle(EVERY)


@pytest.mark.slow
def test_a_broken_law_of_a_huge_run_is_reported_with_its_witness(
    spark: Any, tmp_path: Path
) -> None:
    for law in ("fifo", "causal", "total", "ticket-uniqueness"):
        folder, named = written(tmp_path, f"broken-{law}", spoilt(law, 1)[-1])
        (judged,) = judge_lake(spark, [folder], [law], JudgeLimits(huge=0))
        assert judged.verdicts == check(named, [law])
        assert judged.verdicts[0].answer is Answer.BROKEN


def doubtful(trace: Trace) -> dict[str, list[Row]]:
    """Rows with which a law that reads them is unknown, or an order that hides a gap."""
    replace = msgspec.structs.replace
    rows = trace.rows
    deliver = next(at for at, row in enumerate(rows) if row.kind == "deliver")
    view = next(at for at, row in enumerate(rows) if row.kind == "view")
    submit = next(row for row in rows if row.kind == "submit")
    return {
        "no-origin": [*rows[:deliver], replace(rows[deliver], origin=None), *rows[deliver + 1 :]],
        "no-members": [*rows[:view], replace(rows[view], members=None), *rows[view + 1 :]],
        "submitted-twice": renumbered([*rows, submit]),
    }


@pytest.mark.slow
def test_flaws_and_gaps_are_left_to_the_vectors_or_judged_alike(spark: Any, tmp_path: Path) -> None:
    for name, rows in doubtful(sound(5)).items():
        folder, trace = written(tmp_path, name, Trace(sound(5).header, rows))
        (judged,) = judge_lake(spark, [folder], ALL, JudgeLimits(huge=0))
        assert judged.verdicts == check(trace, ALL), name
    text = "run gap ending=finished\nn1 submit n1:1\nn2 deliver n1:1\nn2 submit n2:1\n"
    text += "n3 deliver n2:1\nn3 submit n3:1\nn4 deliver n3:1\nn4 deliver n1:1\n"
    folder, trace = written(tmp_path, "gap", parse_history(text))
    (judged,) = judge_lake(spark, [folder], ["optimistic-causal", "causal"], JudgeLimits(huge=0))
    assert [one.answer for one in judged.verdicts] == [Answer.BROKEN, Answer.BROKEN]
    assert judged.verdicts == check(trace, ["optimistic-causal", "causal"])


@pytest.mark.slow
def test_a_damaged_huge_run_is_refused_in_the_words_of_the_reader(
    spark: Any, tmp_path: Path
) -> None:
    folder, _ = written(tmp_path, "damaged", sound(3))
    part = next(folder.glob("part-*.parquet"))
    part.write_bytes(b"XXXX" + part.read_bytes()[4:])  # which Spark's own reader does not mind
    good, trace = written(tmp_path, "good", sound(4))
    damaged, fine = judge_lake(spark, [folder, good], ["fifo"], JudgeLimits(huge=0))
    with pytest.raises(TraceError) as plain:
        read_run(folder)
    assert damaged.error == str(plain.value)
    assert fine.verdicts == check(trace, ["fifo"])

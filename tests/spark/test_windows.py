"""Laws as windows of Spark SQL, for a run too large for one task: equal to the plain reference.

What windows settle must be what the reference says, and on sound runs they must settle all of it,
or the whole of a huge run would have to go through one task after all.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.check.mutations import MUTATIONS, renumbered
from tests.check.sound_runs import SoundRun

from ordercast.check.laws import check
from ordercast.check.verdict import Answer
from ordercast.consistency import LAWS
from ordercast.errors import TraceError
from ordercast.spark.laws import judge_lake
from ordercast.spark.windows import settle
from ordercast.trace.lake import read_run
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.schema import Ending, Row, Trace
from ordercast.trace.text import parse_history

HISTORIES = Path(__file__).resolve().parents[1] / "histories"
ALL = list(LAWS)


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
def test_windows_settle_every_law_of_a_sound_run(spark: Any, tmp_path: Path) -> None:
    folder, trace = written(tmp_path, "sound", sound(1))
    settled = settle(spark, folder, ALL)
    assert settled is not None
    assert settled.rows == len(trace.rows)
    assert [settled.verdicts[law] for law in ALL] == check(trace, ALL)
    assert {one.answer for one in settled.verdicts.values()} == {Answer.HOLDS}
    folder, trace = written(tmp_path, "cut", sound(2), ending=Ending.CUT, family="causal")
    (judged,) = judge_lake(spark, [folder], None, huge_rows=0)
    assert (judged.verdicts, judged.rows) == (check(trace), len(trace.rows))


@pytest.mark.slow
@pytest.mark.parametrize("law", ALL)
def test_windows_never_hold_what_is_broken(spark: Any, tmp_path: Path, law: str) -> None:
    """A handwritten history of the law, and a sound run that was spoilt."""
    path = HISTORIES / f"broken-{law}.history"
    traces = [parse_history(path.read_text(encoding="utf-8"), path.name)]
    seed = ALL.index(law)
    while len(traces) < 2:
        run = sound(seed)
        ways = [one for name, one in MUTATIONS if name == law]
        if law == "virtual-synchrony":
            run = SoundRun(seed, faults=True, size=80).trace()
        rows = ways[seed % len(ways)](run.rows, Random(seed))
        seed += 1
        if rows is not None:
            traces.append(Trace(run.header, renumbered(rows)))
    for number, trace in enumerate(traces):
        folder, named = written(tmp_path, f"broken-{number}", trace)
        (expected,) = check(named, [law])
        assert expected.answer is Answer.BROKEN
        (judged,) = judge_lake(spark, [folder], [law], huge_rows=0)
        assert judged.verdicts == [expected]


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
def test_flaws_and_gaps_are_left_to_the_vectors_or_told_alike(spark: Any, tmp_path: Path) -> None:
    for name, rows in doubtful(sound(5)).items():
        folder, trace = written(tmp_path, name, Trace(sound(5).header, rows))
        (judged,) = judge_lake(spark, [folder], ALL, huge_rows=0)
        assert judged.verdicts == check(trace, ALL), name
    text = "run gap ending=finished\nn1 submit n1:1\nn2 deliver n1:1\nn2 submit n2:1\n"
    text += "n3 deliver n2:1\nn3 submit n3:1\nn4 deliver n3:1\nn4 deliver n1:1\n"
    folder, trace = written(tmp_path, "gap", parse_history(text))
    (judged,) = judge_lake(spark, [folder], ["optimistic-causal", "causal"], huge_rows=0)
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
    damaged, fine = judge_lake(spark, [folder, good], ["fifo"], huge_rows=0)
    with pytest.raises(TraceError) as plain:
        read_run(folder)
    assert damaged.error == str(plain.value)
    assert fine.verdicts == check(trace, ["fifo"])

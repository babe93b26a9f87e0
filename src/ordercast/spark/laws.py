"""The laws on a lake: `ordercast check LAKE --engine spark`.

A run is judged in one task, by the vector forms of the laws (vector.py). One that is too large for
a task is first judged in slices (sliced_run.py), which use all cores and need no memory for all of
it; what they cannot settle goes to a task all the same. Either way the plain judge has the last
word, so the answers are those of `--engine plain`, witness and all. What no form can decide of a
run of that size is unknown, with this reason. A run that cannot be read is an answer too, and the
others go on. Laws and promises go to the tasks as values (by_value.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ordercast.check.history import PROMISES, FamilyPromises
from ordercast.check.law import Law, LawForm
from ordercast.check.laws import named
from ordercast.check.promise import NotAsked
from ordercast.check.verdict import Verdict, unknown
from ordercast.errors import TraceError
from ordercast.spark.by_value import pack, unpack
from ordercast.spark.columns import count_rows, read_columns
from ordercast.spark.sliced_run import Settled, settle
from ordercast.spark.vector import PLAIN_ROWS, judge_columns
from ordercast.trace.lake import ROWS_LIMIT

TASK_BYTES = 2_300_000_000
"""The memory that one task may need."""

ROW_BYTES = 230
"""What a task needs for a row of a large run: the peak of a process was 0.70 GB for 2.5 million
rows (265 a row), 2.3 GB for 10 million (227) and 4.3 GB for 20 million (213)."""

HUGE_ROWS = TASK_BYTES // ROW_BYTES
"""Runs with more rows than this are first judged in slices."""


class JudgedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run, judged, or why it cannot be. `forms`: by law, the form that gave the answer."""

    folder: str
    run: str = ""
    family: str | None = None
    ending: str = ""
    rows: int = 0
    verdicts: list[Verdict] = []
    forms: dict[str, LawForm] = {}
    not_asked: list[NotAsked] = []
    error: str | None = None


class JudgeLimits(NamedTuple):
    """Runs with more rows than `huge` are first judged in slices; those with more than `read` never
    otherwise. With more than `plain` no run is made into objects for the plain judge."""

    huge: int = HUGE_ROWS
    read: int = ROWS_LIMIT
    plain: int = PLAIN_ROWS


DEFAULT_LIMITS = JudgeLimits()


def has_huge_run(folders: Iterable[Path], limits: JudgeLimits = DEFAULT_LIMITS) -> bool:
    """Whether any of these runs is judged in slices, which are queries."""
    return any(count_rows(folder) > limits.huge for folder in folders)


def judge_lake(
    spark: Any,
    folders: Sequence[Path],
    laws: Iterable[Law | str] | None = None,
    limits: JudgeLimits = DEFAULT_LIMITS,
    promises: FamilyPromises = PROMISES,
) -> list[JudgedRun]:
    """Every run of these folders, in their order, as `check` judges each."""
    wanted = named(laws)
    found: dict[int, JudgedRun] = {}
    tasks: list[tuple[int, str, list[str] | None]] = []
    settled: dict[int, Settled] = {}
    for place, folder in enumerate(folders):
        path = folder.resolve()
        ask = None if wanted is None else [law.name for law in wanted]
        rows = count_rows(path)
        known = settle(spark, path, wanted, promises) if rows > limits.huge else None
        if known is not None:
            settled[place] = known
            ask = [law.name for law in known.laws if law.name not in known.verdicts]
            if not ask or rows > limits.read:
                found[place] = _joined(path, known, _too_large(path, ask, rows, limits.read))
                continue
        tasks.append((place, str(path), ask))
    task = _task(pack(wanted or ()), dict(promises), limits.plain)
    for place, judged in _in_tasks(spark, tasks, task):
        known = settled.get(place)
        found[place] = judged if known is None else _joined(Path(judged.folder), known, judged)
    return [found[place] for place in range(len(folders))]


def judge(
    folder: Path,
    laws: Iterable[Law | str] | None,
    promises: FamilyPromises = PROMISES,
    plain_rows: int = PLAIN_ROWS,
) -> JudgedRun:
    """One run, in this process."""
    try:
        run = read_columns(folder)
    except TraceError as error:
        return JudgedRun(folder=str(folder), error=str(error))
    answers = judge_columns(run, laws, promises, plain_rows)
    return JudgedRun(
        folder=str(folder),
        run=run.header.run,
        family=run.header.family,
        ending=str(run.header.ending),
        rows=run.count,
        verdicts=answers.verdicts,
        forms=answers.forms,
        not_asked=answers.not_asked,
    )


def _too_large(folder: Path, laws: list[str], rows: int, most: int) -> JudgedRun:
    """What is said of the laws that slices did not prove, if no task can read the run."""
    why = (
        f"slices could not prove it, and the run has {rows:,} rows, more than the {most:,} that "
        "are read into memory"
    )
    return JudgedRun(folder=str(folder), verdicts=[unknown(law, why) for law in laws])


def _joined(folder: Path, known: Settled, rest: JudgedRun) -> JudgedRun:
    """What the slices settled and what a task found, in the order that was asked for."""
    if rest.error is not None:
        return rest
    verdicts = known.verdicts | {one.law: one for one in rest.verdicts}
    return JudgedRun(
        folder=str(folder),
        run=known.header.run,
        family=known.header.family,
        ending=str(known.header.ending),
        rows=known.rows,
        verdicts=[verdicts[law.name] for law in known.laws],
        forms=dict.fromkeys(known.verdicts, LawForm.SLICES) | rest.forms,
        not_asked=known.not_asked,
    )


def _in_tasks(
    spark: Any,
    tasks: list[tuple[int, str, list[str] | None]],
    task: Callable[[Iterator[Any]], Iterator[Any]],
) -> Iterator[tuple[int, JudgedRun]]:
    if not tasks:
        return
    columns = "place int, folder string, laws array<string>"
    frame = spark.createDataFrame(tasks, columns).repartitionByRange(len(tasks), "place")
    for row in frame.mapInArrow(task, "place int, judged binary").collect():
        yield row["place"], msgspec.msgpack.decode(bytes(row["judged"]), type=JudgedRun)


def _task(
    packed: bytes, promises: FamilyPromises, plain_rows: int
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        laws = {law.name: law for law in unpack(packed)}
        for batch in batches:
            rows = batch.to_pylist()
            judged = []
            for row in rows:
                asked = row["laws"] and [laws.get(name, name) for name in row["laws"]]
                answer = judge(Path(row["folder"]), asked, promises, plain_rows)
                judged.append(msgspec.msgpack.encode(answer))
            places = pyarrow.array([row["place"] for row in rows], pyarrow.int32())
            yield pyarrow.RecordBatch.from_arrays(
                [places, pyarrow.array(judged, pyarrow.binary())], ["place", "judged"]
            )

    return run

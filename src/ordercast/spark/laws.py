"""The laws on a lake: `ordercast check LAKE --engine spark`.

A run is judged in one task, by vectors (vector.py). One that is too large for a task is first
judged in slices (windows.py), which use all cores and need no memory for the whole; what they
cannot settle goes to a task all the same. Either way the reference has the last word, so
the answers are those of `--engine plain`, witness and all. A run that cannot be read is an answer
too, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ordercast.check.verdict import Verdict
from ordercast.errors import TraceError
from ordercast.spark.columns import count_rows, read_columns
from ordercast.spark.vector import judge_columns
from ordercast.spark.windows import Settled, settle

TASK_BYTES = 2_300_000_000
"""The memory that one task may need."""

ROW_BYTES = 230
"""What a task needs for a row of a large run: the peak of a process was 0.70 GB for 2.5 million
rows (265 a row), 2.3 GB for 10 million (227) and 4.3 GB for 20 million (213)."""

HUGE_ROWS = TASK_BYTES // ROW_BYTES
"""Runs with more rows than this are first judged in slices."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One run, judged, or why it cannot be."""

    folder: str
    run: str = ""
    family: str | None = None
    ending: str = ""
    rows: int = 0
    verdicts: list[Verdict] = []
    error: str | None = None


def judge_lake(
    spark: Any,
    folders: Sequence[Path],
    laws: Sequence[str] | None,
    huge_rows: int = HUGE_ROWS,
) -> list[Judged]:
    """Every run of these folders, in their order."""
    wanted = list(dict.fromkeys(laws)) if laws else None
    found: dict[int, Judged] = {}
    tasks: list[tuple[int, str, list[str] | None]] = []
    settled: dict[int, Settled] = {}
    for place, folder in enumerate(folders):
        path = folder.resolve()
        ask = wanted
        if count_rows(path) > huge_rows:
            known = settle(spark, path, wanted)
            if known is not None:
                settled[place] = known
                ask = [law for law in known.laws if law not in known.verdicts]
                if not ask:
                    found[place] = _joined(path, known, None)
                    continue
        tasks.append((place, str(path), ask))
    for place, judged in _in_tasks(spark, tasks):
        known = settled.get(place)
        found[place] = judged if known is None else _joined(Path(judged.folder), known, judged)
    return [found[place] for place in range(len(folders))]


def judge(folder: Path, laws: Sequence[str] | None) -> Judged:
    """One run, in this process."""
    try:
        run = read_columns(folder)
    except TraceError as error:
        return Judged(folder=str(folder), error=str(error))
    return Judged(
        folder=str(folder),
        run=run.header.run,
        family=run.header.family,
        ending=str(run.header.ending),
        rows=run.count,
        verdicts=judge_columns(run, laws),
    )


def _joined(folder: Path, known: Settled, rest: Judged | None) -> Judged:
    """What the slices settled and what a task found, in the order that was asked for."""
    if rest is not None and rest.error is not None:
        return rest
    verdicts = dict(known.verdicts)
    verdicts.update((one.law, one) for one in (rest.verdicts if rest is not None else ()))
    return Judged(
        folder=str(folder),
        run=known.header.run,
        family=known.header.family,
        ending=str(known.header.ending),
        rows=known.rows,
        verdicts=[verdicts[law] for law in known.laws],
    )


def _in_tasks(
    spark: Any, tasks: list[tuple[int, str, list[str] | None]]
) -> Iterator[tuple[int, Judged]]:
    if not tasks:
        return
    columns = "place int, folder string, laws array<string>"
    frame = spark.createDataFrame(tasks, columns).repartitionByRange(len(tasks), "place")
    for row in frame.mapInArrow(_task(), "place int, judged binary").collect():
        yield row["place"], msgspec.msgpack.decode(bytes(row["judged"]), type=Judged)


def _task() -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            rows = batch.to_pylist()
            judged = [
                msgspec.msgpack.encode(judge(Path(row["folder"]), row["laws"])) for row in rows
            ]
            places = pyarrow.array([row["place"] for row in rows], pyarrow.int32())
            yield pyarrow.RecordBatch.from_arrays(
                [places, pyarrow.array(judged, pyarrow.binary())], ["place", "judged"]
            )

    return run

"""The laws on a lake, a task a run: `ordercast check LAKE --engine spark`.

Each task reads one run's own files and asks the plain reference, so the answers are those of
`--engine plain`, witness and all; only the runs are shared out over cores and machines. A run that
cannot be read is an answer too, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ordercast.check.laws import check
from ordercast.check.verdict import Verdict
from ordercast.errors import TraceError
from ordercast.trace.lake import read_run


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One run, judged, or why it cannot be."""

    folder: str
    run: str = ""
    family: str | None = None
    ending: str = ""
    rows: int = 0
    verdicts: list[Verdict] = []
    error: str | None = None


def judge_lake(spark: Any, folders: Sequence[Path], laws: Sequence[str] | None) -> list[Judged]:
    """Every run of these folders, in their order."""
    rows = [(place, str(folder.resolve())) for place, folder in enumerate(folders)]
    frame = spark.createDataFrame(rows, "place int, folder string").repartition(len(rows))
    told = frame.mapInArrow(_task(list(laws) if laws else None), "place int, judged binary")
    found = {row["place"]: bytes(row["judged"]) for row in told.collect()}
    return [msgspec.msgpack.decode(found[place], type=Judged) for place in range(len(rows))]


def judge(folder: Path, laws: Sequence[str] | None) -> Judged:
    try:
        trace = read_run(folder)
    except TraceError as error:
        return Judged(folder=str(folder), error=str(error))
    return Judged(
        folder=str(folder),
        run=trace.header.run,
        family=trace.header.family,
        ending=str(trace.header.ending),
        rows=len(trace.rows),
        verdicts=check(trace, laws),
    )


def _task(laws: list[str] | None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            rows = batch.to_pylist()
            judged = [msgspec.msgpack.encode(judge(Path(row["folder"]), laws)) for row in rows]
            places = pyarrow.array([row["place"] for row in rows], pyarrow.int32())
            yield pyarrow.RecordBatch.from_arrays(
                [places, pyarrow.array(judged, pyarrow.binary())], ["place", "judged"]
            )

    return run

"""Sweeps: every cell of an experiment as part of a Spark task.

Theory of operation. Cells become rows, rows become tasks of a second or two. A task does its cells,
writes what is to be kept by itself, which costs less than handing rows to Spark, and returns one
manifest a cell. A cell whose manifest is there is not done again: so a sweep that was killed goes
on where it was, and a task that Spark repeats costs nothing. Nothing depends on how cells are
spread over tasks and machines, so the figures are the same everywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ordercast.spark.cells import MANIFESTS, Manifest, manifest_path, read_manifest, run_cell
from ordercast.spark.experiment import Cell

SCHEMA = "id string, place int, seed long, settings string, document string"
TASKS_A_CORE = 16
LOOK_SECONDS = 0.5


def sweep(
    spark: Any,
    cells: list[Cell],
    out: Path,
    traces: str,
    tell: Callable[[int], None] = lambda done: None,
) -> list[Manifest]:
    """Does all cells that are not done, and returns the manifests of all, in order.

    `tell` hears how many are done, now and then.
    """
    out = out.resolve()
    (out / MANIFESTS).mkdir(parents=True, exist_ok=True)
    found = {cell.id: read_manifest(manifest_path(out, cell.id)) for cell in cells}
    left = [cell for cell in cells if found[cell.id] is None]
    tell(len(cells) - len(left))
    if left:
        with _Watch(out, left, len(cells) - len(left), tell):
            for manifest in _run(spark, left, out, traces):
                found[manifest.id] = manifest
    done = [(cell, found[cell.id]) for cell in cells]
    return [
        msgspec.structs.replace(one, place=cell.place, settings=cell.settings)
        for cell, one in done
        if one is not None
    ]


def _run(spark: Any, cells: list[Cell], out: Path, traces: str) -> list[Manifest]:
    rows = [
        (
            cell.id,
            cell.place,
            cell.seed,
            msgspec.json.encode(cell.settings, enc_hook=str).decode(),
            msgspec.json.encode(cell.document, enc_hook=str).decode(),
        )
        for cell in cells
    ]
    tasks = max(1, min(len(rows), TASKS_A_CORE * _cores(spark)))
    frame = spark.createDataFrame(rows, SCHEMA).repartition(tasks)
    told = frame.mapInArrow(_task(str(out), traces), "manifest string").collect()
    return [msgspec.json.decode(row["manifest"], type=Manifest) for row in told]


def _cores(spark: Any) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # over Connect there is no context to ask
        return 8


def _task(out: str, traces: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            told = [
                msgspec.json.encode(
                    run_cell(
                        row["id"],
                        row["place"],
                        row["seed"],
                        msgspec.json.decode(row["settings"]),
                        msgspec.json.decode(row["document"]),
                        Path(out),
                        traces,
                    )
                ).decode()
                for row in batch.to_pylist()
            ]
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(told)], ["manifest"])

    return run


class _Watch:
    """Tells how many cells are done, by counting manifests: that works with every cluster."""

    def __init__(
        self, out: Path, cells: list[Cell], before: int, tell: Callable[[int], None]
    ) -> None:
        self._paths = [manifest_path(out, cell.id) for cell in cells]
        self._before = before
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._tell(self._before + self._count())

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._tell(self._before + self._count())

    def _count(self) -> int:
        self._paths = [path for path in self._paths if not self._seen(path)]
        return self._done

    _done = 0

    def _seen(self, path: Path) -> bool:
        if path.exists():
            self._done += 1
            return True
        return False

"""What a sweep came to: all manifests as one table, and by combination with confidence."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import msgspec

from ordercast.errors import UsageError
from ordercast.spark.trials import Manifest
from ordercast.trace.parquet import load_pyarrow

RESULTS = "results.parquet"
# The 97.5 % points of Student's t for 1 to 30 degrees of freedom; beyond, the normal one.
_STUDENT = (
    *(12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Estimate(NamedTuple):
    """A mean over seeds, and how far the true one may lie from it with 95 % confidence."""

    value: float
    margin: float | None  # None: one seed tells nothing about that


class Combination(NamedTuple):
    settings: dict[str, Any]
    runs: int
    broken: int  # runs that broke a law
    failed: int  # runs that a machine broke
    not_asked: int  # runs of which laws were not asked, because something failed
    metrics: dict[str, Estimate]


def combine(manifests: list[Manifest]) -> list[Combination]:
    """By combination of the grid, in its order."""
    places: dict[int, list[Manifest]] = {}
    for manifest in manifests:
        places.setdefault(manifest.place, []).append(manifest)
    return [_combined(several) for _, several in sorted(places.items())]


def _combined(several: list[Manifest]) -> Combination:
    names = dict.fromkeys(name for manifest in several for name in manifest.metrics)
    metrics = {
        name: estimate([one.metrics[name] for one in several if name in one.metrics])
        for name in names
    }
    return Combination(
        several[0].settings,
        len(several),
        sum(bool(one.broken) for one in several),
        sum(one.error is not None for one in several),
        sum(bool(one.not_asked) for one in several),
        metrics,
    )


def estimate(values: list[float]) -> Estimate:
    if len(values) < 2:
        return Estimate(values[0], None)
    freedom = len(values) - 1
    point = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96
    return Estimate(mean(values), point * stdev(values) / math.sqrt(len(values)))


def write_results(out: Path, manifests: list[Manifest]) -> Path:
    """One row a run, in the order of the grid and the seeds: the same bytes for the same runs.

    UsageError: it cannot be written. The table of an earlier sweep then stays as it was.
    """
    pyarrow = load_pyarrow()
    names = sorted({name for manifest in manifests for name in manifest.metrics})
    columns: dict[str, list[Any]] = {
        "id": [one.id for one in manifests],
        "settings": [
            msgspec.json.encode(one.settings, order="deterministic").decode() for one in manifests
        ],
        "seed": [one.seed for one in manifests],
        "ending": [one.ending for one in manifests],
        "error": [one.error for one in manifests],
        "broken": ["; ".join(one.broken) or None for one in manifests],
        "not_asked": [
            "; ".join(law for some in one.not_asked for law in some.laws) or None
            for one in manifests
        ],
        "rows": [one.rows for one in manifests],
    }
    assert columns.keys().isdisjoint(names), "a metric has the name of another column"
    columns |= {name: [one.metrics.get(name) for one in manifests] for name in names}
    path = out / RESULTS
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        pyarrow.parquet.write_table(pyarrow.core.table(columns), temporary, compression="zstd")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        why = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(f"{path} cannot be written: {why}") from error
    return path

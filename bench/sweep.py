"""A sweep on Spark against a plain pool of processes that runs the same simulations.

Both are timed in turn, in the same run of this program, each into a folder of its own. The session
and the pool are up, and have imported all that they need, before the clock starts: what is compared
is a sweep and not how long Java takes to start, which has a table of its own.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from bench.table import Table
from ordercast.spark.experiment import Trial
from ordercast.spark.session import open_session
from ordercast.spark.sweep import sweep
from ordercast.spark.trials import run_trial

REPEATS = 5
RUNS = 40
DOCUMENT = {
    "name": "bench",
    "family": "causal",
    "processes": 20,
    "duration": "3s",
    "quiet": "1s",
    "options": {"tickets": 10, "join_wait": "50ms", "ownership": "fixed"},
}


def measure() -> list[Table]:
    cores = os.cpu_count() or 1
    starts = []
    begin = time.perf_counter()
    with (
        open_session(f"local[{cores}]", light=True) as spark,
        ProcessPoolExecutor(cores, get_context("spawn")) as pool,
        tempfile.TemporaryDirectory() as folder,
    ):
        starts.append(("session", time.perf_counter() - begin))
        small = _trials(2 * cores, duration="500ms")
        sweep(spark, small, Path(folder) / "spark-warm", "all")
        starts.append(("session and a first sweep", time.perf_counter() - begin))
        list(pool.map(partial(run_trial, out=Path(folder) / "pool-warm", traces="all"), small))
        trials = _trials(RUNS)
        pooled, swept = [], []
        for turn in range(REPEATS):
            aside = Path(folder) / f"pool-{turn}"
            do = partial(run_trial, out=aside, traces="all")
            pooled.append(_took(lambda do=do: list(pool.map(do, trials))))
            aside = Path(folder) / f"spark-{turn}"
            swept.append(_took(lambda aside=aside: sweep(spark, trials, aside, "all")))
    ratios = [one / other for one, other in zip(swept, pooled, strict=True)]
    rows = [
        ("pool of processes", f"{median(pooled):.2f}", _spread(pooled), ""),
        ("sweep on Spark", f"{median(swept):.2f}", _spread(swept), f"{median(ratios):.2f}"),
    ]
    note = (
        f"{RUNS} runs, traces kept, {cores} cores, wall time of {REPEATS} turns; the ratio is the "
        "median of those of each turn."
    )
    started = [(name, f"{seconds:.1f}") for name, seconds in starts]
    return [
        Table("Sweeps", ("", "seconds", "spread", "times the pool's"), rows, note),
        Table("Start", ("", "seconds"), started, "Wall time, once, from nothing."),
    ]


def _trials(count: int, **changes: str) -> list[Trial]:
    document = {**DOCUMENT, **changes}
    name = "-".join(["bench", *changes])
    return [Trial(f"{name}-{seed}", 0, {}, seed, document) for seed in range(1, count + 1)]


def _took(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _spread(seconds: list[float]) -> str:
    return f"{(max(seconds) - min(seconds)) / median(seconds):.0%}"

"""What a metric is: one number of one run, defined once, as a plain function.

Everything that shows a metric (lab, sim, live, reports, tables on Spark) calls that function, so a
metric means the same everywhere. `check/metrics/` has the definitions, a file a subject.

  MeasuredRun  one run as metrics see it: its rows, the times of its group, and what its world
               counted beside the trace. Intermediate results are computed once: `run.once(fact)`
  Metric       a name, a unit, a sentence, and the function; None: this run does not have it
  Breakdown    the same for what has several records a run, such as one a process

Nothing here needs numpy or Spark: `spark/metrics.py` maps these functions over a lake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ordercast.trace.schema import Row
from ordercast.types import GroupTimes
from ordercast.units import SECOND

T = TypeVar("T")


class MeasuredRun:
    """`counted`: None for what was not."""

    __slots__ = ("_facts", "counted", "rows", "times")

    def __init__(
        self,
        rows: Sequence[Row],
        times: GroupTimes | None = None,
        counted: Mapping[str, float | None] | None = None,
    ) -> None:
        self.rows = rows
        self.times = times or GroupTimes()
        self.counted = counted or {}
        self._facts: dict[Callable[[MeasuredRun], Any], Any] = {}

    def once(self, fact: Callable[[MeasuredRun], T]) -> T:
        """What the function says about this run, computed when first asked for."""
        if fact not in self._facts:
            self._facts[fact] = fact(self)
        found: T = self._facts[fact]
        return found


class Metric(NamedTuple):
    name: str
    unit: str  # s, B, rounds, a share of 1, or what is counted
    says: str
    of: Callable[[MeasuredRun], float | None]


class Breakdown(NamedTuple):
    name: str
    says: str
    record: type[Any]  # a NamedTuple: its fields are the columns
    of: Callable[[MeasuredRun], Iterable[tuple[Any, ...]]]


def seconds(run: MeasuredRun) -> float:
    return SECOND


def summary(
    name: str,
    unit: str,
    says: str,
    values: Callable[[MeasuredRun], Iterable[int]],
    divisor: Callable[[MeasuredRun], float | None] = seconds,
) -> tuple[Metric, Metric, Metric]:
    """NAME_mean, NAME_p50 and NAME_p99 of the values, divided by a number of the run."""

    def ordered(run: MeasuredRun) -> list[int]:
        return sorted(run.once(values))

    def metric(suffix: str, words: str, of: Callable[[list[int]], float]) -> Metric:
        def value(run: MeasuredRun) -> float | None:
            by, several = divisor(run), run.once(ordered)
            return of(several) / by if by and several else None

        return Metric(f"{name}_{suffix}", unit, f"{says}: {words}", value)

    return (
        metric("mean", "the mean", mean),
        metric("p50", "the median", lambda several: percentile(several, 0.5)),
        metric("p99", "99 % take no longer", lambda several: percentile(several, 0.99)),
    )


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Between the two values that lie around it, by their distance (as numpy does it)."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    part = place - below
    # From the nearer end, so that a share of 1 is the last value exactly.
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)

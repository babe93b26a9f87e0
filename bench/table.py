"""A table of measured figures, and how they are measured: repeated, median and spread."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

REPEATS = 5


class Table(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""


class Timing(NamedTuple):
    """CPU seconds of one piece of work: the median of the repeats, and how far they lie apart."""

    seconds: float
    spread: float  # (largest - smallest) / median

    def rate(self, count: int) -> str:
        return f"{count / self.seconds:,.0f}"

    def each(self, count: int) -> str:
        return f"{self.seconds / count * 1e6:.2f}"

    @property
    def shown_spread(self) -> str:
        return f"{self.spread:.0%}"


def timed(work: Callable[[], object], repeats: int = REPEATS) -> Timing:
    """CPU time, because the machine may have other things to do."""
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    middle = median(seconds)
    return Timing(middle, (max(seconds) - min(seconds)) / middle)

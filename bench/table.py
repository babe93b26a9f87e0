"""A table of measured figures, how it is shown, and how figures are measured: repeated, median and
spread."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table as Shown

REPEATS = 5


class Table(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""
    wrong: str = ""  # what a figure shows that must not be


def show(table: Table) -> None:
    out = Console(width=max(100, Console().width))
    shown = Shown(*table.columns, title=table.title, box=box.SIMPLE, title_justify="left")
    for column in shown.columns[1:]:
        column.justify = "right"
    for row in table.rows:
        shown.add_row(*row)
    out.print(shown)
    if table.note:
        out.print(f"[dim]{table.note}[/]")
    if table.wrong:
        out.print(f"[bold red]wrong:[/] {table.wrong}")


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

"""Prints every table of figures: `make bench`, or `python -m bench kernel` for one."""

from __future__ import annotations

import platform
import sys
from importlib import import_module

from rich import box
from rich.console import Console
from rich.table import Table as Shown

MODULES = (
    "kernel",
    "simulator",
    "traces",
    "samplers",
    "cluster",
    "live",
    "crowd",
    "joining",
    "newtop",
    "spark",
)
PARTS = ("sweep", "laws", "stream", "rounds")  # of the bench of Spark, which may be run alone


def main(wanted: list[str]) -> int:
    out = Console(width=max(100, Console().width))
    unknown = [name for name in wanted if name not in MODULES + PARTS]
    if unknown:
        print(f"no bench {unknown[0]!r}: there are {', '.join(MODULES)}", file=sys.stderr)
        return 2
    out.print(f"Python {platform.python_version()}; CPU time; median and spread of repeats")
    for name in wanted or MODULES:
        for table in import_module(f"bench.{name}").measure():
            shown = Shown(*table.columns, title=table.title, box=box.SIMPLE, title_justify="left")
            for column in shown.columns[1:]:
                column.justify = "right"
            for row in table.rows:
                shown.add_row(*row)
            out.print(shown)
            if table.note:
                out.print(f"[dim]{table.note}[/]")
    return 0


sys.exit(main(sys.argv[1:]))

"""Prints every table of figures: `make bench`, or `python -m bench kernel` for one."""

from __future__ import annotations

import platform
import sys
from importlib import import_module

from bench.table import show

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
    "transis",
    "feed",
    "spark",
)
PARTS = ("sweep", "laws", "stream", "rounds")  # of the bench of Spark, which may be run alone


def main(wanted: list[str]) -> int:
    unknown = [name for name in wanted if name not in MODULES + PARTS]
    if unknown:
        print(f"no bench {unknown[0]!r}: there are {', '.join(MODULES)}", file=sys.stderr)
        return 2
    print(f"Python {platform.python_version()}; CPU time; median and spread of repeats")
    is_wrong = False
    for name in wanted or MODULES:
        for table in import_module(f"bench.{name}").measure():
            show(table)
            is_wrong |= bool(table.wrong)
    return int(is_wrong)


sys.exit(main(sys.argv[1:]))

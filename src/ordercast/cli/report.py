"""`ordercast report`: write the page of an experiment or of runs.

Writes report.html into a folder that ordercast lab has written (the laws, the figures, what broke
and how to see it again), or into one that ordercast live or sim has (what happened, who delivered
what, the laws). One file, without network.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ordercast.cli import screen
from ordercast.errors import UsageError
from ordercast.trace.parquet import HEADER_FILE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="--out of lab, live or sim")


def run(arguments: argparse.Namespace) -> int:
    path = write_report(arguments.folder)
    screen.stdout().print(str(path), markup=False)
    return 0


def write_report(folder: Path) -> Path:
    """The page of what is in the folder."""
    try:
        from ordercast.report.page import write_page
        from ordercast.report.run_page import run_page
        from ordercast.report.sweep_page import PAGE, sweep_page
        from ordercast.spark.outcome import EXPERIMENT_FILE
    except ModuleNotFoundError as error:
        raise UsageError(f'pages need {error.name}: pip install "ordercast[spark,web]"') from error
    if any(folder.glob("run=*")) or (folder / HEADER_FILE).exists():
        page = run_page(folder)
    elif (folder / EXPERIMENT_FILE).exists():
        page = sweep_page(folder)
    else:
        raise UsageError(
            f"{folder} {'holds' if folder.exists() else 'does not exist, so it holds'} neither an "
            "experiment nor a run: give a folder that ordercast lab has written, or one that "
            "ordercast live or sim has written with --out"
        )
    write_page(folder / PAGE, page)
    return folder / PAGE

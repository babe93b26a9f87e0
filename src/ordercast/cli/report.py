"""`ordercast report`: writes the page of a sweep again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ordercast.cli import screen
from ordercast.errors import UsageError


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="write the page of an experiment again",
        description="Writes report.html into a folder that ordercast lab has written: the laws, "
        "the figures, what broke and how to see it again. One file, without network.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of ordercast lab --out")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    path = write_report(arguments.folder)
    screen.stdout().print(str(path), markup=False)
    return 0


def write_report(folder: Path) -> Path:
    """The page of what is in the folder."""
    try:
        from ordercast.report.page import write_page
        from ordercast.report.sweep_page import PAGE, sweep_page
    except ModuleNotFoundError as error:
        raise UsageError(f'pages need {error.name}: pip install "ordercast[spark,web]"') from error
    path = folder / PAGE
    write_page(path, sweep_page(folder))
    return path

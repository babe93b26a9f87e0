"""`ordercast monitor`: watch a running node.

Asks a running node once a second, as `ordercast members` does once.
"""

from __future__ import annotations

import argparse
import asyncio
import io
from pathlib import Path

from rich.console import Console
from rich.live import Live

from ordercast.cli import members, screen
from ordercast.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    members.add_arguments(parser)
    parser.add_argument("--count", type=int, help="looks, one a second (no limit)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.count is not None and arguments.count < 1:
        raise UsageError(f"--count is {arguments.count}: give a whole number from 1 on")
    asyncio.run(_watch(members.control_of(arguments), arguments.json, arguments.count))
    return 0


async def _watch(path: Path, json: bool, looks: int | None) -> None:
    out = screen.stdout()
    # Off a terminal every look is printed; on one they take each other's place.
    quiet = Console(file=io.StringIO())
    with Live(console=out if out.is_terminal else quiet, auto_refresh=False) as live:
        while looks is None or looks > 0:
            status = await members.ask_node(path)
            if json:
                screen.json_line(status)
            elif out.is_terminal:
                live.update(members.shown(status), refresh=True)
            else:
                out.print(members.shown(status))
            looks = None if looks is None else looks - 1
            if looks != 0:
                await asyncio.sleep(1)

"""`ordercast check`: judges traces, whoever wrote them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.text import Text

from ordercast.check.explain import explain
from ordercast.check.laws import check
from ordercast.check.verdict import Answer, Verdict
from ordercast.cli import screen
from ordercast.consistency import FAMILIES
from ordercast.errors import TraceError, UsageError, unknown_word
from ordercast.trace.lake import read_lake
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history

HISTORY = ".history"
LARGEST_HISTORY = 16 << 20


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="judge traces, whoever wrote them",
        description="Checks the laws on every run of a trace lake, on one run's folder, or on a "
        "history written by hand (a .history file).",
    )
    parser.add_argument("lake", type=Path, metavar="LAKE", help="a folder of traces, or a history")
    parser.add_argument("--laws", help="these laws, by comma, instead of those of its family")
    parser.add_argument(
        "--engine", choices=["plain", "spark"], default="plain", help="only plain in this version"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.engine == "spark":
        raise UsageError("--engine spark is not in this version: leave it away, plain judges")
    laws = None
    if arguments.laws is not None:
        laws = [name.strip() for name in arguments.laws.split(",") if name.strip()]
        if not laws:
            raise UsageError("--laws names no law")
        check(_EMPTY, laws)  # a wrong name is told before anything is read
    answers: list[Answer] = []
    for trace in _traces(arguments.lake):
        family = trace.header.family
        if family is not None and family not in FAMILIES and laws is None:
            told = unknown_word("family", family, FAMILIES)
            screen.stderr().print(f"{trace.header.run}: {told} All laws are judged.", markup=False)
        verdicts = check(trace, laws)
        answers += [verdict.answer for verdict in verdicts]
        if arguments.json:
            fields = {
                "run": trace.header.run,
                "rows": len(trace.rows),
                "ending": str(trace.header.ending),
                "laws": [screen.verdict_fields(verdict) for verdict in verdicts],
            }
            screen.json_line(fields)
            continue
        _print_run(trace, verdicts)
    if Answer.BROKEN in answers:
        return 1
    return 3 if Answer.UNKNOWN in answers else 0


def _print_run(trace: Trace, verdicts: list[Verdict]) -> None:
    """A line a run, and below it what is wrong, in full."""
    out = screen.stdout()
    told = f"{trace.header.run}: {len(trace.rows)} rows, {trace.header.ending}; "
    out.print(Text(told) + screen.laws_in_short(verdicts))
    for verdict in verdicts:
        if verdict.answer is not Answer.HOLDS:
            indented = explain(verdict, screen.explanation_width()).replace("\n", "\n    ")
            out.print(f"    {indented}", markup=False)


def _traces(path: Path) -> Iterator[Trace]:
    if path.suffix != HISTORY or path.is_dir():
        yield from read_lake(path)
        return
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_HISTORY + 1)
        text = data.decode()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not a text file in UTF-8") from error
    if len(data) > LARGEST_HISTORY:
        raise TraceError(f"{path}: over {LARGEST_HISTORY} bytes; long traces belong in a lake")
    yield parse_history(text, str(path))


_EMPTY = parse_history("run nothing ending=finished")

"""`ordercast check`: judge traces, whoever wrote them.

Checks the laws on every run of a trace lake, on one run's folder, on a history written by hand (a
.history file), or on a folder with the .rows files that the nodes of a live program wrote.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from ordercast.check.explain import explain
from ordercast.check.history import PROMISES, FamilyPromises
from ordercast.check.laws import judge_run, named
from ordercast.check.promise import NotAsked, promises_with, unknown_family
from ordercast.check.verdict import Answer, Verdict
from ordercast.cli import screen
from ordercast.errors import TraceError, UsageError
from ordercast.kernel.family import services_in
from ordercast.levels import find_family
from ordercast.protocol.families import DEFAULT
from ordercast.spark.session import EMBEDDED
from ordercast.trace.lake import find_runs, read_lake
from ordercast.trace.row_files import SUFFIX, holds_row_files, read_row_files
from ordercast.trace.schema import Trace
from ordercast.trace.text import parse_history

HISTORY = ".history"
LARGEST_HISTORY = 16 << 20


class Judged(NamedTuple):
    """One run and its verdicts, or why it could not be read."""

    run: str
    family: str | None
    ending: str
    rows: int
    verdicts: list[Verdict]
    not_asked: list[NotAsked]
    error: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", type=Path, metavar="LAKE", help="a folder of traces, or a history")
    parser.add_argument("--family", help="of the groups in .rows files, which do not say it")
    parser.add_argument(
        "--laws", help="these laws, separated by commas, instead of those that its family promises"
    )
    parser.add_argument(
        "--engine",
        choices=["plain", "spark"],
        default="plain",
        help="spark: a task for each run (plain)",
    )
    parser.add_argument("--master", default=EMBEDDED, metavar="URL", help="where Spark runs")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    laws = None
    if arguments.laws is not None:
        laws = [name.strip() for name in arguments.laws.split(",") if name.strip()]
        if not laws:
            raise UsageError("--laws names no law")
        named(laws)  # a wrong name is refused before anything is read
    answers: list[Answer] = []
    for judged in _judged_runs(arguments, laws):
        if judged.error is not None:
            raise TraceError(judged.error)
        if laws is None and (why := unknown_family(judged.family, _promises(arguments))):
            screen.stderr().print(f"{judged.run}: {why}", markup=False)
        verdicts = judged.verdicts
        answers += [verdict.answer for verdict in verdicts]
        if arguments.json:
            fields = {
                "run": judged.run,
                "rows": judged.rows,
                "ending": judged.ending,
                "laws": [screen.verdict_fields(verdict) for verdict in verdicts],
                "not_asked": screen.not_asked_fields(judged.not_asked),
            }
            screen.json_line(fields)
            continue
        _print_run(judged)
    if Answer.BROKEN in answers:
        return 1
    return 3 if Answer.UNKNOWN in answers else 0


def _judged_runs(arguments: argparse.Namespace, laws: list[str] | None) -> Iterator[Judged]:
    path, family = arguments.lake, arguments.family
    if path.suffix == SUFFIX and path.is_file():
        raise UsageError(f"{path} has the rows of one node: give the folder with those of all")
    of_live_nodes = holds_row_files(path)
    in_lake = not of_live_nodes and path.suffix != HISTORY
    if arguments.engine == "spark" and not in_lake:
        screen.stderr().print(f"{path}: no lake, so it is judged without Spark", markup=False)
    if of_live_nodes:
        if family is None and laws is None:
            raise UsageError(
                f"{path}: rows of live nodes do not say which family ran: give --family, such as "
                f"--family {DEFAULT}, or --laws"
            )
        found = None if family is None else find_family(family)
        name, services = (None, {}) if found is None else (found.name, services_in([found]))
        traces = iter([read_row_files(path, name, services)])
        return _judged(traces, laws, _promises(arguments))
    if family is not None:
        raise UsageError(f"--family is for {SUFFIX} files, and there is none: {path}")
    if arguments.engine == "spark" and in_lake:
        return _judged_by_spark(arguments, laws)
    return _judged(_traces(path), laws, PROMISES)


def _promises(arguments: argparse.Namespace) -> FamilyPromises:
    return promises_with([find_family(arguments.family)] if arguments.family else [])


def _judged(
    traces: Iterator[Trace], laws: list[str] | None, promises: FamilyPromises
) -> Iterator[Judged]:
    for trace in traces:
        header = trace.header
        judged = judge_run(trace, laws, promises)
        yield Judged(header.run, header.family, str(header.ending), len(trace.rows), *judged)


def _judged_by_spark(arguments: argparse.Namespace, laws: list[str] | None) -> Iterator[Judged]:
    try:
        from ordercast.spark.laws import has_huge_run, judge_lake
        from ordercast.spark.session import open_session
    except ModuleNotFoundError as error:
        raise UsageError(
            f'--engine spark needs {error.name}: pip install "ordercast[spark]"'
        ) from error
    folders = find_runs(arguments.lake)
    # Tasks in Python do the work; only a run that is cut into slices needs much of Spark's own.
    with open_session(arguments.master, light=not has_huge_run(folders)) as spark:
        found = judge_lake(spark, folders, laws)
    for one in found:
        answers = one.verdicts, one.not_asked
        yield Judged(one.run, one.family, one.ending, one.rows, *answers, one.error)


def _print_run(judged: Judged) -> None:
    """A line a run, and below it what is wrong, in full."""
    out = screen.stdout()
    start = f"{judged.run}: {judged.rows} rows, {judged.ending}; "
    out.print(Text(start) + screen.laws_in_short(judged.verdicts))
    for left_out in judged.not_asked:
        out.print(f"    {left_out}", markup=False)
    for verdict in judged.verdicts:
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

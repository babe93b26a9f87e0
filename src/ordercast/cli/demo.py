"""`ordercast demo`: a live group, a killed member, the laws on Spark, a sweep, a page.

Starts a group of real processes, kills one, checks on Spark that the promised order held, sweeps
some simulations, and writes one page about it all.
"""

from __future__ import annotations

import argparse
import asyncio
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ordercast.check.context import rows_around
from ordercast.check.explain import explain
from ordercast.check.laws import LAWS, Checked
from ordercast.check.verdict import Answer
from ordercast.cli import screen
from ordercast.cli.live import LiveResult, judge, narrate
from ordercast.errors import OrdercastError, UsageError
from ordercast.live.run import plan_of, run_plan
from ordercast.report.narrative import Line, tell
from ordercast.scenario.faults.fault import Fault
from ordercast.scenario.file import parse_scenario
from ordercast.spark.session import EMBEDDED
from ordercast.studies.demonstration import BUG, BUGGY, EXPERIMENT, LIVE, SWEPT
from ordercast.testing.mutants import mutant_families
from ordercast.testing.simulation import Simulated, simulate
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.schema import Trace
from ordercast.types import NodeId

BUG_SEEDS = 50
TONE_COLOURS = {"bad": "red", "good": "green", "view": "cyan", "load": "dim", "": ""}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("out") / "demo", metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=1, help="of the load and the sweep (1)")
    parser.add_argument(
        "--master", default=EMBEDDED, metavar="URL", help="where Spark runs (embedded)"
    )


class DemoFailed(OrdercastError):
    """Something that must not happen did."""


def run(arguments: argparse.Namespace) -> int:
    try:
        return _run(arguments)
    except DemoFailed as error:
        screen.stderr().print(f"ordercast: {error}", markup=False)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    try:
        from ordercast.report.demo_page import Bug, demo_page
        from ordercast.report.page import write_page
        from ordercast.report.sweep_page import PAGE
        from ordercast.spark.session import open_session
    except ModuleNotFoundError as error:
        raise UsageError(
            f'the demo needs {error.name}: pip install "ordercast[cli,net,spark,web]"'
        ) from error
    out, folder = screen.stdout(), arguments.out
    _welcome(out, folder)
    lived = _live(out, arguments.seed, folder)
    narrative = tell(lived.trace)
    _print_narrative(out, narrative)
    _print_members(out, lived.trace)
    _title(out, "Were the promises kept?", "Spark starts: it takes some seconds.")
    with open_session(arguments.master, light=True) as spark:
        judged = _judge(out, spark, folder, lived)
        wrong = _sweep(out, spark, folder, arguments.seed)
    simulated, seed = _find_bug(arguments.seed)
    _print_bug(out, simulated, seed)
    bug = Bug(simulated.trace, simulated.broken[0], seed, BUG)
    path = folder / PAGE
    write_page(path, demo_page(lived.trace, judged, folder / "sweep", bug))
    out.print(f"[bold]All of it on one page:[/] {path}\n")
    return 1 if wrong or any(one.answer is Answer.BROKEN for one in judged.verdicts) else 0


def _welcome(out: Console, folder: Path) -> None:
    out.print()
    out.print(
        Panel(
            "1  five real processes form a causal cluster; n2 is killed, n4 takes its place\n"
            "2  their traces go through Spark: was the promised order kept?\n"
            "3  a small sweep of simulations: what is recovery good for?\n"
            "4  a bug is planted: can a promise be seen to break?\n"
            f"Everything is written to {folder}.",
            title="ordercast",
            box=box.ROUNDED,
            expand=False,
        )
    )


def _title(out: Console, title: str, *lines: str) -> None:
    out.print(f"\n[bold]{title}[/]\n")
    for line in lines:
        out.print(f"[dim]{line}[/]")


# --- live --------------------------------------------------------------------------------------


def _live(out: Console, seed: int, folder: Path) -> LiveResult:
    _title(
        out,
        "A live group",
        "Three tickets permit updates: n1, n2 and n3 take them, n4 waits. Twelve seconds.",
    )
    scenario = parse_scenario(tomllib.loads(LIVE))

    def watch(fault: Fault, begins: bool) -> None:
        names = ", ".join(fault.nodes)
        out.print(
            f"  {names} is killed (SIGKILL)" if begins else f"  {names} is started again",
            style="red" if begins else "green",
        )

    lived = judge(scenario, seed, asyncio.run(run_plan(plan_of(scenario, seed), narrate, watch)))
    if lived.error:
        raise DemoFailed(f"the live group could not go on: {lived.error}")
    write_trace(folder / "lake", lived.trace, replace=True)
    return lived


def _print_narrative(out: Console, lines: list[Line]) -> None:
    _title(out, "What happened")
    table = Table.grid(padding=(0, 2))
    for line in lines:
        table.add_row(
            Text(f"{line.at / 1e9:7.3f} s", "dim"), Text(line.text, TONE_COLOURS[line.tone])
        )
    out.print(table)


def _print_members(out: Console, trace: Trace) -> None:
    _title(out, "Who has what at the end")
    last = {row.process: row.incarnation for row in trace.rows if row.kind == "start"}
    names = sorted(last)
    counts: dict[tuple[str, str], int] = {}
    for row in trace.rows:
        if row.kind == "deliver" and row.origin and row.incarnation == last[row.process]:
            counts[row.origin, row.process] = counts.get((row.origin, row.process), 0) + 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("events of")
    for name in names:
        table.add_column(f"at {NodeId(name, last[name])}", justify="right")
    for origin in sorted({origin for origin, _ in counts}):
        table.add_row(origin, *(str(counts.get((origin, name), 0)) for name in names))
    out.print(table)
    out.print(
        "[dim]n2#1 is the second incarnation of n2: it has what the others still held when it\n"
        "joined, and all since.[/]"
    )


# --- Spark -------------------------------------------------------------------------------------


def _judge(out: Console, spark: Any, folder: Path, lived: LiveResult) -> Checked:
    from ordercast.spark.laws import judge_lake

    run = run_folder(folder / "lake", lived.trace.header.run)
    judged = judge_lake(spark, [run], None)[0]
    if judged.error:
        raise DemoFailed(judged.error)
    out.print(f"Checked on {judged.rows:,} rows of what the members wrote down:\n")
    table = Table.grid(padding=(0, 1))
    for verdict in judged.verdicts:
        mark = {Answer.HOLDS: "✓", Answer.BROKEN: "✗", Answer.UNKNOWN: "?"}[verdict.answer]
        colour = screen.COLOURS[verdict.answer]
        table.add_row(f" [{colour}]{mark} {verdict.law}[/]", LAWS[verdict.law].says)
    out.print(table)
    for verdict in judged.verdicts:
        if verdict.answer is not Answer.HOLDS:
            out.print(explain(verdict, screen.explanation_width()), markup=False)
    for left_out in judged.not_asked:
        out.print(f"\n{left_out}", markup=False)
    return Checked(judged.verdicts, judged.not_asked)


def _sweep(out: Console, spark: Any, folder: Path, seed: int) -> bool:
    """Whether anything went wrong in it."""
    from ordercast.cli.lab import exit_code, load, print_results, run_experiment

    place = folder / "sweep"
    place.mkdir(parents=True, exist_ok=True)
    (place / "scenario.toml").write_text(SWEPT.lstrip(), encoding="utf-8")
    file = place / "experiment.toml"
    file.write_text(f"first_seed = {seed}\n{EXPERIMENT.lstrip()}", encoding="utf-8")
    _title(
        out,
        "What is recovery good for?",
        "25 processes with thrifty gossip, simulated in Spark's tasks:",
    )
    manifests = run_experiment(spark, load(file), place)
    print_results(manifests)
    return exit_code(manifests) != 0


# --- a bug -------------------------------------------------------------------------------------


def _find_bug(seed: int) -> tuple[Simulated, int]:
    """A run with a bug planted, for as many seeds as it takes to show."""
    scenario = parse_scenario(tomllib.loads(BUGGY))
    for number in range(seed, seed + BUG_SEEDS):
        simulated = simulate(scenario, number, families=mutant_families(BUG))
        if simulated.broken:
            return simulated, number
    raise DemoFailed(f"the planted bug did not show in {BUG_SEEDS} seeds")


def _print_bug(out: Console, simulated: Simulated, seed: int) -> None:
    _title(
        out,
        "And if there were a bug?",
        "A simulated fifo group whose survivors forget to pass on what a dead member had sent to",
        f"only some of them (seed {seed}):\n",
    )
    verdict = simulated.broken[0]
    shown = msgspec.structs.replace(verdict, witness=rows_around(simulated.trace, verdict))
    out.print(explain(shown, screen.explanation_width()), markup=False)
    out.print("\nThat is how a broken promise looks. Above, none was.\n")

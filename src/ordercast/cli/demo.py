"""`ordercast demo`: the main job in a minute, without configuration.

A simulated group loses a member and falls apart; the story is told from its trace, its laws are
checked; and then the same run is repeated with a bug planted, to show that the laws can fail.
"""

from __future__ import annotations

import argparse
import tomllib
from typing import Any

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ordercast.check.explain import explain
from ordercast.check.verdict import Answer
from ordercast.cli import screen
from ordercast.cli.story import Line, tell
from ordercast.consistency import LAWS
from ordercast.sim.scenario_file import parse_scenario
from ordercast.testing.mutants import mutant_families
from ordercast.testing.simulation import Simulated, simulate
from ordercast.types import NodeId
from ordercast.units import SECOND

SCENARIO = """
name = "demo"
family = "fifo"
processes = 5
duration = "9s"
quiet = "3s"

[workload]
rate = 40

[network]
delay = "5ms"
jitter = 0.8
spread = 0.6

[[fault]]                # n4 loses power, and comes back as a new incarnation
at = "2s"
kind = "crash"
nodes = ["n4"]
for = "2s"

[[fault]]                # the network falls into two parts
at = "5s"
kind = "partition"
sides = [["n1", "n2"], ["n3", "n4", "n5"]]
for = "2s"
"""

CUTS = [  # what no member can see, and so no trace tells
    Line(5 * SECOND, "the network is cut between n1 n2 and n3 n4 n5", "bad"),
    Line(7 * SECOND, "the cut is mended", "good"),
]
BUG = "forgets-the-dead"
MOST_SEEDS = 50
COLOURS = {"bad": "red", "good": "green", "view": "cyan", "load": "dim", "": ""}


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="see a group survive a crash and a partition, and its laws checked",
        description="Simulates a group that loses a member and falls apart, tells what "
        "happened, and checks that the promised order held. Takes a few seconds.",
    )
    parser.add_argument("--seed", type=int, default=1, help="another run of the same story (1)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    out = screen.stdout()
    scenario = parse_scenario(tomllib.loads(SCENARIO))
    simulated = simulate(scenario, arguments.seed)
    out.print()
    out.print(
        Panel(
            "Five processes, n1 to n5, send to each other by reliable FIFO multicast.\n"
            "n4 will lose power; later the network will fall into two parts.\n"
            "All of it in virtual time, decided by one number: the seed "
            f"{arguments.seed}.",
            title="ordercast",
            box=box.ROUNDED,
            expand=False,
        )
    )
    _print_story(out, sorted(tell(simulated.trace) + CUTS, key=lambda line: line.at))
    _print_members(out, simulated, scenario.names)
    _print_laws(out, simulated)
    if simulated.broken:
        return 1
    return _show_a_bug_caught(out, arguments.seed)


def _print_story(out: Console, lines: list[Line]) -> None:
    out.print("\n[bold]What happened[/]\n")
    table = Table.grid(padding=(0, 2))
    for line in lines:
        table.add_row(Text(f"{line.at / 1e9:7.3f} s", "dim"), Text(line.text, COLOURS[line.tone]))
    out.print(table)


def _print_members(out: Console, simulated: Simulated, names: tuple[str, ...]) -> None:
    out.print("\n[bold]Who has what at the end[/]\n")
    last = {row.process: row.incarnation for row in simulated.trace.rows if row.kind == "start"}
    counts: dict[tuple[str, str], int] = {}
    for row in simulated.trace.rows:
        if row.kind == "deliver" and row.origin and row.incarnation == last[row.process]:
            counts[row.origin, row.process] = counts.get((row.origin, row.process), 0) + 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("events of")
    for name in names:
        table.add_column(f"at {NodeId(name, last[name])}", justify="right")
    for origin in names:
        table.add_row(origin, *(str(counts.get((origin, name), 0)) for name in names))
    out.print(table)
    out.print(
        "[dim]n4#1 is the second life of n4: it has what was still held when it came,\n"
        "and all since. The others agree, though they were cut apart: what each side\n"
        "missed was sent when it returned.[/]"
    )


def _print_laws(out: Console, simulated: Simulated) -> None:
    rows = len(simulated.trace.rows)
    out.print(f"\n[bold]What was promised, checked on {rows:,} trace rows[/]\n")
    table = Table.grid(padding=(0, 1))
    for verdict in simulated.verdicts:
        mark = {Answer.HOLDS: "✓", Answer.BROKEN: "✗", Answer.UNKNOWN: "?"}[verdict.answer]
        colour = screen.COLOURS[verdict.answer]
        table.add_row(f" [{colour}]{mark} {verdict.law}[/]", LAWS[verdict.law].says)
    out.print(table)
    for verdict in simulated.verdicts:
        if verdict.answer is not Answer.HOLDS:
            out.print(explain(verdict, screen.explanation_width()), markup=False)


def _show_a_bug_caught(out: Console, seed: int) -> int:
    """The same story with a bug planted, for as many seeds as it takes to show."""
    scenario = parse_scenario(tomllib.loads(SCENARIO))
    for number in range(seed, seed + MOST_SEEDS):
        simulated = simulate(scenario, number, families=mutant_families(BUG))
        if simulated.broken:
            out.print(
                "\n[bold]And if there were a bug?[/]\n\n"
                "Now the survivors forget to pass on what n4 had sent to only some of\n"
                f"them (seed {number}):\n"
            )
            out.print(explain(simulated.broken[0], screen.explanation_width()), markup=False)
            out.print("\nThat is how a broken promise looks. Above, none was.\n")
            return 0
    screen.stderr().print(f"the planted bug did not show in {MOST_SEEDS} seeds")
    return 1

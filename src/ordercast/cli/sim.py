"""`ordercast sim`: run a scenario in the simulator and check its laws.

Runs a scenario in virtual time, one run a seed, checks the laws that its family promises, and
prints a row a run. A failure comes with the command that shows it again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from ordercast.check.explain import explain
from ordercast.check.metric import MeasuredRun
from ordercast.check.metrics.tickets import TicketCounts, counted, together
from ordercast.check.promise import NotAsked, not_asked_in
from ordercast.check.verdict import Answer, Verdict
from ordercast.cli import screen
from ordercast.errors import UsageError, unknown_word
from ordercast.kernel.family import Family
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import choices_in, load_scenario
from ordercast.scenario.schema import Scenario
from ordercast.sim.world import Outcome, advice_on
from ordercast.testing.mutants import BREAKS, FAMILY_OF, mutant_families
from ordercast.testing.simulation import quiet_enough, simulate
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.schema import TraceLevel

MOST_SEEDS = 1_000_000
RUNS_IN_A_TASK = 8
RUNS_WORTH_A_POOL = 24
"""Fewer are done sooner in this process than others take to start."""


class RunRequest(NamedTuple):
    """What every run of one call has in common. It travels to the processes that do the work."""

    scenario: Scenario
    level: TraceLevel
    round_trip: bool
    mutant: str | None
    lake: Path | None

    @property
    def families(self) -> Mapping[str, Family]:
        return mutant_families(self.mutant) if self.mutant else FAMILIES


class SeedResult(NamedTuple):
    """One run, reduced to what is printed of it."""

    seed: int
    outcome: Outcome
    verdicts: list[Verdict]
    not_asked: list[NotAsked]
    tickets: TicketCounts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="a TOML file")
    parser.add_argument("--seed", type=int, required=True, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, from --seed on (1)")
    parser.add_argument("--out", type=Path, metavar="LAKE", help="write the traces here")
    parser.add_argument(
        "--trace", choices=list(TraceLevel), default=TraceLevel.APP, help="how much (app)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--jobs", type=int, help="processes that share the work (one a core)")
    parser.add_argument(
        "--round-trip", action="store_true", help="send every packet through the codec"
    )
    parser.add_argument(
        "--mutant", metavar="BUG", help=f"plant a bug, to see it caught: {', '.join(BREAKS)}"
    )


def run(arguments: argparse.Namespace) -> int:
    wanted = _check(arguments)
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    jobs = arguments.jobs or os.cpu_count() or 1
    out = screen.stdout()
    printer = _print_json if arguments.json else _Table(out)
    totals = {"broken": 0, "undecided": 0}
    tickets: list[TicketCounts] = []
    not_asked: list[tuple[int, list[NotAsked]]] = []
    # On one terminal rows and bar go through one console, which keeps them apart.
    console = out if out.is_terminal else screen.stderr()
    progress = screen.progress(console, hidden=arguments.json or len(seeds) == 1)
    with progress:
        task = progress.add_task("runs", total=len(seeds))
        for ran in _run_all(wanted, seeds, jobs):
            progress.advance(task)
            tickets.append(ran.tickets)
            broken = [verdict for verdict in ran.verdicts if verdict.answer is Answer.BROKEN]
            if broken or ran.outcome.error:
                totals["broken"] += 1
            elif not ran.verdicts or any(v.answer is Answer.UNKNOWN for v in ran.verdicts):
                totals["undecided"] += 1
            not_asked.append((ran.seed, ran.not_asked))
            first = totals["broken"] == 1
            hint = _hint(wanted, ran) if broken and first else None
            printer(ran, _replay(arguments, ran.seed), first, hint)
    if not arguments.json:
        for sentence in not_asked_in(not_asked):
            out.print(sentence, markup=False)
        if any(one.granted for one in tickets):
            out.print(screen.tickets_in_short(together(tickets)), markup=False)
    return _conclude(arguments, len(seeds), totals)


def _check(arguments: argparse.Namespace) -> RunRequest:
    """All that can be wrong with the call, before anything runs."""
    if not 1 <= arguments.runs <= MOST_SEEDS:
        raise UsageError(f"--runs is {arguments.runs}: give 1 to {MOST_SEEDS}")
    if not 0 <= arguments.seed < 1 << 62:
        raise UsageError(f"--seed is {arguments.seed}: give a whole number from 0 on")
    if arguments.jobs is not None and not 1 <= arguments.jobs <= 1024:
        raise UsageError(f"--jobs is {arguments.jobs}: give 1 to 1024")
    if arguments.mutant is not None and arguments.mutant not in BREAKS:
        raise UsageError(unknown_word("bug", arguments.mutant, BREAKS))
    if arguments.out is not None and arguments.trace == TraceLevel.OFF:
        raise UsageError("--out needs a trace: do not give --trace off")
    scenario = load_scenario(arguments.scenario)
    for told in advice_on(scenario):
        screen.stderr().print(f"{arguments.scenario}: {told}", markup=False)
    families = sorted({choice.family.name for choice in choices_in(scenario)})
    if arguments.mutant is not None and FAMILY_OF[arguments.mutant] not in families:
        bug = f"{arguments.mutant} is a bug of {FAMILY_OF[arguments.mutant]}"
        raise UsageError(f"--mutant {bug}, and this scenario runs {' and '.join(families)}")
    if arguments.out is not None:
        for seed in range(arguments.seed, arguments.seed + arguments.runs):
            folder = run_folder(arguments.out, scenario.run_name(seed))
            if folder.exists():
                raise UsageError(f"{folder} exists already: choose another --out or --seed")
    return RunRequest(
        scenario, TraceLevel(arguments.trace), arguments.round_trip, arguments.mutant, arguments.out
    )


def _run_all(wanted: RunRequest, seeds: range, jobs: int) -> Iterator[SeedResult]:
    """Every run in order of seeds, by several processes where that is worth it."""
    if jobs == 1 or len(seeds) < RUNS_WORTH_A_POOL:
        for seed in seeds:
            yield from _run_some(wanted, range(seed, seed + 1))
        return
    tasks = [
        seeds[start : start + RUNS_IN_A_TASK] for start in range(0, len(seeds), RUNS_IN_A_TASK)
    ]
    # Ctrl-C is for us alone: the others inherit that it is ignored, and are told to stop.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        results = pool.map(partial(_run_some, wanted), tasks)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        for several in results:
            yield from several
    finally:
        pool.shutdown(cancel_futures=True)


def _run_some(wanted: RunRequest, seeds: range) -> list[SeedResult]:
    done = []
    for seed in seeds:
        simulated = simulate(
            wanted.scenario,
            seed,
            level=wanted.level,
            round_trip=wanted.round_trip,
            families=wanted.families,
        )
        if wanted.lake is not None:
            write_trace(wanted.lake, simulated.trace)
        tickets = counted(MeasuredRun(simulated.trace.rows))
        ran = SeedResult(seed, simulated.outcome, simulated.verdicts, simulated.not_asked, tickets)
        done.append(ran)
    return done


def _hint(wanted: RunRequest, ran: SeedResult) -> str | None:
    """What to do about broken laws that a longer quiet phase would show to hold."""
    broken = [verdict.law for verdict in ran.verdicts if verdict.answer is Answer.BROKEN]
    quiet = wanted.scenario.quiet
    enough = quiet_enough(wanted.scenario, ran.seed, broken, wanted.families)
    if enough is None:
        return None
    laws = " and ".join(broken)
    return f"quiet = {quiet} is too short: with quiet = {enough} the same run keeps {laws}."


class _Table:
    """A line a run. The first failure is told in full, of the others the laws are named."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = False

    def __call__(self, ran: SeedResult, replay: str, first_failure: bool, hint: str | None) -> None:
        out, outcome = self._console, ran.outcome
        if not self._begun:
            out.print(
                f"{'seed':>8}  {'ended':9} {'events':>8} {'delivered':>10} {'packets':>9}  laws"
            )
            self._begun = True
        line = screen.laws_in_short(ran.verdicts)
        if outcome.error:
            line = Text(f"failed: {outcome.error}", "bold red")
        # In one piece: a progress bar may be drawn between two.
        row = f"{ran.seed:8}  {outcome.header.ending:9} {outcome.submitted:8} "
        row += f"{outcome.delivered:10} {outcome.packets:9}  "
        out.print(Text(row) + line)
        broken = [verdict for verdict in ran.verdicts if verdict.answer is Answer.BROKEN]
        if not broken and not outcome.error:
            return
        if first_failure:
            for verdict in broken:
                out.print()
                out.print(explain(verdict, screen.explanation_width()), markup=False)
            out.print()
            if hint:
                out.print(hint, markup=False)
        out.print(f"          again: {replay}", markup=False)


def _print_json(ran: SeedResult, replay: str, first_failure: bool, hint: str | None) -> None:
    outcome = ran.outcome
    fields: dict[str, Any] = {
        "run": outcome.header.run,
        "seed": ran.seed,
        "ending": str(outcome.header.ending),
        "submitted": outcome.submitted,
        "delivered": outcome.delivered,
        "packets": outcome.packets,
        "tickets": screen.ticket_fields(ran.tickets),
        "laws": [screen.verdict_fields(verdict) for verdict in ran.verdicts],
        "not_asked": screen.not_asked_fields(ran.not_asked),
    }
    if hint:
        fields["hint"] = hint
    if outcome.error:
        fields["error"] = outcome.error
    if outcome.error or any(verdict.answer is Answer.BROKEN for verdict in ran.verdicts):
        fields["replay"] = replay
    screen.json_line(fields)


def _replay(arguments: argparse.Namespace, seed: int) -> str:
    words = ["ordercast", "sim", str(arguments.scenario), "--seed", str(seed)]
    if arguments.round_trip:
        words.append("--round-trip")
    if arguments.mutant:
        words += ["--mutant", arguments.mutant]
    return shlex.join(words)


def _conclude(arguments: argparse.Namespace, count: int, totals: dict[str, int]) -> int:
    broken, undecided = totals["broken"], totals["undecided"]
    if count > 1:
        screen.stderr().print(
            f"{count} runs: {count - broken - undecided} kept every law, {broken} broke one, "
            f"{undecided} could not be judged"
        )
    elif undecided and arguments.trace == TraceLevel.OFF:
        screen.stderr().print("--trace off: without a trace no law can be judged")
    return 1 if broken else 3 if undecided else 0

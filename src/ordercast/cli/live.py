"""`ordercast live`: run a scenario with real processes and check its laws.

Runs a scenario with one operating system process a member on this machine, in real time and with
real faults: processes are killed, stopped and cut off. Checks the laws that its family promises.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from rich.text import Text

from ordercast import __version__
from ordercast.check.explain import explain
from ordercast.check.laws import LAWS, Checked, judge_run
from ordercast.check.metric import MeasuredRun
from ordercast.check.metrics import events, measure, tickets
from ordercast.check.promise import NotAsked, promises_with
from ordercast.check.verdict import Answer, Verdict
from ordercast.cli import screen
from ordercast.errors import UsageError
from ordercast.kernel.family import services_in
from ordercast.live.run import plan_of, run_plan
from ordercast.live.supervisor import Gathered
from ordercast.scenario.file import choices_in, family_in, load_scenario, parameters_of
from ordercast.scenario.schema import NetworkSettings, Scenario
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.schema import Ending, Header, Trace
from ordercast.units import SECOND, Duration


class LiveResult(NamedTuple):
    """One live run, judged."""

    trace: Trace
    verdicts: list[Verdict]
    not_asked: list[NotAsked]
    error: str | None
    began: bool
    hint: str | None  # why a law may only look broken

    def counts(self) -> dict[str, float]:
        crashes = sum(row.kind == "crash" for row in self.trace.rows)
        return {"crashes": crashes, **measure(MeasuredRun(self.trace.rows), events.COUNTS)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="a TOML file")
    parser.add_argument("--seed", type=int, default=1, help="of the load and of chaos (1)")
    parser.add_argument("--out", type=Path, metavar="LAKE", help="write the trace here")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.seed < 1 << 62:
        raise UsageError(f"--seed is {arguments.seed}: give a whole number from 0 on")
    scenario = load_scenario(arguments.scenario)
    plan = plan_of(scenario, arguments.seed, str(arguments.scenario))
    name = live_name(scenario, arguments.seed)
    if arguments.out is not None and run_folder(arguments.out, name).exists():
        folder = run_folder(arguments.out, name)
        raise UsageError(f"{folder} exists already: choose another --out or --seed")
    if scenario.network != NetworkSettings():
        narrate("the [network] table is ignored: packets use this machine's network")
    lived = judge(scenario, arguments.seed, asyncio.run(run_plan(plan, narrate)))
    if arguments.out is not None:
        write_trace(arguments.out, lived.trace)
    _print_json(lived) if arguments.json else _print(lived)
    return _exit_code(lived)


def live_name(scenario: Scenario, seed: int) -> str:
    return f"live-{scenario.run_name(seed)}"


def judge(scenario: Scenario, seed: int, gathered: Gathered) -> LiveResult:
    choices = choices_in(scenario)
    header = Header(
        run=live_name(scenario, seed),
        family=family_in(scenario, choices),
        parameters=parameters_of(scenario, choices),
        seed=seed,
        version=__version__,
        start=gathered.began,
        end=gathered.ended,
        ending=Ending.FAILED if gathered.error else Ending.FINISHED,
        services=services_in(choice.family for choice in choices),
    )
    trace = Trace(header, gathered.rows)
    began = gathered.began is not None
    promises = promises_with(choice.family for choice in choices)
    judged = judge_run(trace, promises=promises) if began else Checked([], [])
    hint = _hint(trace, judged.verdicts, scenario.quiet)
    return LiveResult(trace, *judged, gathered.error, began, hint)


def _hint(trace: Trace, verdicts: list[Verdict], quiet: Duration) -> str | None:
    """Whether what is missing may only be late: members still delivered towards the end."""
    missing = any(
        verdict.answer is Answer.BROKEN and LAWS[verdict.law].finished_only for verdict in verdicts
    )
    last = max((row.at for row in trace.rows if row.kind == "deliver"), default=0)
    left = (trace.header.end or 0) - last
    if not missing or left > quiet // 2:
        return None
    before = f"{left / SECOND:.1f} s before the end"
    return f"quiet = {quiet} may be too short: the last delivery came {before}."


# --- what is said ----------------------------------------------------------------------------


def narrate(text: str) -> None:
    screen.stderr().print(text, markup=False)


def _print(lived: LiveResult) -> None:
    out, header = screen.stdout(), lived.trace.header
    line = screen.laws_in_short(lived.verdicts)
    if lived.error:
        line = Text(f"failed: {lived.error}", "bold red")
    out.print(
        f"{'seed':>8}  {'ended':9} {'crashes':>7} {'events':>8} {'delivered':>10} "
        f"{'given up':>8}  laws"
    )
    counts = lived.counts()
    row = f"{header.seed:8}  {header.ending:9} {counts['crashes']:7} "
    row += f"{counts['submitted']:8} {counts['delivered']:10} {counts['given_up']:8}  "
    out.print(Text(row) + line)
    for left_out in lived.not_asked:
        out.print(str(left_out), markup=False)
    found = tickets.counted(MeasuredRun(lived.trace.rows))
    if found.granted:
        out.print(screen.tickets_in_short(found), markup=False)
    for verdict in lived.verdicts:
        if verdict.answer is Answer.BROKEN:
            out.print()
            out.print(explain(verdict, screen.explanation_width()), markup=False)
    if lived.hint:
        out.print(f"\n{lived.hint}", markup=False)


def _print_json(lived: LiveResult) -> None:
    header = lived.trace.header
    fields: dict[str, Any] = {
        "run": header.run,
        "seed": header.seed,
        "ending": str(header.ending),
        **lived.counts(),
        "tickets": screen.ticket_fields(tickets.counted(MeasuredRun(lived.trace.rows))),
        "laws": [screen.verdict_fields(verdict) for verdict in lived.verdicts],
        "not_asked": screen.not_asked_fields(lived.not_asked),
    }
    if lived.error:
        fields["error"] = lived.error
    if lived.hint:
        fields["hint"] = lived.hint
    screen.json_line(fields)


def _exit_code(lived: LiveResult) -> int:
    """As in the simulator: a member that broke is a failure; a run that never began is none."""
    answers = [verdict.answer for verdict in lived.verdicts]
    if Answer.BROKEN in answers or (lived.error and lived.began):
        return 1
    return 3 if lived.error or Answer.UNKNOWN in answers else 0

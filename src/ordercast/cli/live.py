"""`ordercast live`: the same scenario with one real process a member, and its laws checked."""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.text import Text

from ordercast import __version__
from ordercast.check.explain import explain
from ordercast.check.laws import check
from ordercast.check.tenures import tenures_of
from ordercast.check.verdict import Answer, Verdict
from ordercast.cli import screen
from ordercast.errors import UsageError
from ordercast.live.member import GroupPlan, LoadPlan, asked_for
from ordercast.live.namespaces import Namespaces, Unavailable
from ordercast.live.supervisor import Gathered, LivePlan, Supervisor, Trouble
from ordercast.net.config import objection_to
from ordercast.scenario import chance
from ordercast.scenario.file import choices_in, family_in, load_scenario, parameters_of
from ordercast.scenario.schema import Fault, NetworkSettings, Scenario
from ordercast.sim.faults import cut_paths, draw_chaos, end_of
from ordercast.sim.world import run_name
from ordercast.trace.parquet import run_folder, write_trace
from ordercast.trace.schema import Ending, Header, Trace
from ordercast.units import SECOND

MOST_PROCESSES = 100
WHY_NOT = {
    "loss": "real packets between the members are not ours to lose",
    "slow": "real packets between the members are not ours to delay",
    "disk": "the disk is this machine's",
    "skew": "the clock is this machine's",
}


class Lived(NamedTuple):
    """One live run, judged."""

    trace: Trace
    verdicts: list[Verdict]
    error: str | None
    began: bool

    def count(self, kind: str) -> int:
        return sum(row.kind == kind for row in self.trace.rows)


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "live",
        help="run a scenario with real processes and check its laws",
        description="Runs a scenario with one operating system process a member on this machine, "
        "in real time and with real faults: processes are killed, stopped and cut off. Checks the "
        "laws that its family promises.",
    )
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="a TOML file")
    parser.add_argument("--seed", type=int, default=1, help="of the load and of chaos (1)")
    parser.add_argument("--out", type=Path, metavar="LAKE", help="write the trace here")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


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
        _narrate("the [network] table is left aside: packets take this machine's own time")
    lived = judge(scenario, arguments.seed, asyncio.run(run_plan(plan)))
    if arguments.out is not None:
        write_trace(arguments.out, lived.trace)
    _print_json(lived) if arguments.json else _print(lived)
    return _exit_code(lived)


# --- from a scenario to a plan ---------------------------------------------------------------


def plan_of(scenario: Scenario, seed: int, source: str = "<scenario>") -> LivePlan:
    """The scenario as a supervisor takes it. UsageError: it asks for what cannot be done live."""
    if scenario.processes > MOST_PROCESSES:
        raise UsageError(
            f"{source}: {scenario.processes} processes; live, each is a process of this machine, "
            f"and {MOST_PROCESSES} are the most"
        )
    for group in scenario.groups():
        if objection := objection_to(group.name):
            raise UsageError(f"{source}: {objection}")
    groups = tuple(_group(scenario, number) for number in range(len(scenario.groups())))
    faults = list(scenario.fault)
    if scenario.chaos is not None:
        for kind in scenario.chaos.faults:
            if kind in WHY_NOT:
                raise UsageError(f"{source}: chaos draws {kind}, which {_cannot(kind)}")
        faults += draw_chaos(scenario.chaos, scenario, chance.stream(seed, "faults"))
    for number, fault in enumerate(faults, 1):
        if fault.kind in WHY_NOT:
            raise UsageError(f"{source}: fault {number} ({fault.kind}) {_cannot(fault.kind)}")
    load = scenario.workload
    return LivePlan(
        scenario.names,
        groups,
        LoadPlan(
            senders=list(scenario.senders()),
            payload=int(load.payload),
            batch=load.batch,
            pattern=load.pattern,
            seed=seed,
            tenure=None if load.tenure is None else load.tenure / SECOND,
            begins={name: (scenario.duration - at) / SECOND for name, at in load.begins.items()},
        ),
        tuple(_trouble(fault, scenario) for fault in faults),
        int(scenario.duration),
        int(scenario.quiet),
    )


def _cannot(kind: str) -> str:
    return f"cannot be done live ({WHY_NOT[kind]}): use ordercast sim"


def _group(scenario: Scenario, number: int) -> GroupPlan:
    group = scenario.groups()[number]
    plan = GroupPlan(
        name=group.name,
        family=scenario.family_of(group),
        members=group.members,
        options=scenario.options_of(group),
    )
    family, options = asked_for(plan)[1]
    rate = scenario.workload.rate_in(family.round_of(options))
    return msgspec.structs.replace(plan, rate=rate)


def _trouble(fault: Fault, scenario: Scenario) -> Trouble:
    end = end_of(fault)
    first = scenario.groups()[0]
    return Trouble(
        fault.kind,
        int(fault.at),
        None if end is None else int(end),
        tuple(fault.nodes),
        tuple(cut_paths(fault, scenario.names)) if fault.kind in ("partition", "one-way") else (),
        fault.disk == "lost",
        (fault.group or first.name) if fault.kind == "reform" else "",
    )


# --- the run ---------------------------------------------------------------------------------


async def run_plan(
    plan: LivePlan, watch: Callable[[Trouble, bool], None] = lambda trouble, begins: None
) -> Gathered:
    """The run in a folder of its own. Whoever tells us to end ends it in an orderly way."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        with tempfile.TemporaryDirectory(prefix="ordercast-live-") as folder, _network(plan) as net:
            return await Supervisor(plan, Path(folder), net, _narrate, watch).run()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@contextmanager
def _network(plan: LivePlan) -> Iterator[Namespaces | None]:
    """Where the plan cuts paths: the kernel's own network, if we may have one."""
    if not any(trouble.paths for trouble in plan.troubles):
        yield None
        return
    namespaces = Namespaces(plan.names)
    try:
        namespaces.open()
    except Unavailable as error:
        _narrate(f"cuts are made by the members themselves: {error}")
        yield None
        return
    _narrate("cuts are made by the kernel: each member has a network namespace")
    try:
        yield namespaces
    finally:
        namespaces.close()


def live_name(scenario: Scenario, seed: int) -> str:
    return f"live-{run_name(scenario, seed)}"


def judge(scenario: Scenario, seed: int, gathered: Gathered) -> Lived:
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
    )
    trace = Trace(header, gathered.rows)
    began = gathered.began is not None
    return Lived(trace, check(trace) if began else [], gathered.error, began)


# --- what is said ----------------------------------------------------------------------------


def _narrate(text: str) -> None:
    screen.stderr().print(text, markup=False)


def _print(lived: Lived) -> None:
    out, header = screen.stdout(), lived.trace.header
    line = screen.laws_in_short(lived.verdicts)
    if lived.error:
        line = Text(f"failed: {lived.error}", "bold red")
    out.print(
        f"{'seed':>8}  {'ended':9} {'crashes':>7} {'events':>8} {'delivered':>10} "
        f"{'given up':>8}  laws"
    )
    row = f"{header.seed:8}  {header.ending:9} {lived.count('crash'):7} "
    row += f"{lived.count('submit'):8} {lived.count('deliver'):10} {lived.count('lose'):8}  "
    out.print(Text(row) + line)
    tenures = tenures_of(lived.trace.rows)
    if tenures.granted:
        out.print(screen.tickets_in_short(tenures), markup=False)
    for verdict in lived.verdicts:
        if verdict.answer is Answer.BROKEN:
            out.print()
            out.print(explain(verdict, screen.explanation_width()), markup=False)


def _print_json(lived: Lived) -> None:
    header = lived.trace.header
    fields: dict[str, Any] = {
        "run": header.run,
        "seed": header.seed,
        "ending": str(header.ending),
        "crashes": lived.count("crash"),
        "submitted": lived.count("submit"),
        "delivered": lived.count("deliver"),
        "given_up": lived.count("lose"),
        "tickets": screen.tenure_fields(tenures_of(lived.trace.rows)),
        "laws": [screen.verdict_fields(verdict) for verdict in lived.verdicts],
    }
    if lived.error:
        fields["error"] = lived.error
    screen.json_line(fields)


def _exit_code(lived: Lived) -> int:
    """As in the simulator: a member that broke is a failure; a run that never began is none."""
    answers = [verdict.answer for verdict in lived.verdicts]
    if Answer.BROKEN in answers or (lived.error and lived.began):
        return 1
    return 3 if lived.error or Answer.UNKNOWN in answers else 0

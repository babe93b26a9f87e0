"""A scenario as a live run: what of it real processes can do, and the run itself."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ordercast.errors import UsageError
from ordercast.live.member import GroupPlan, LoadPlan, asked_for
from ordercast.live.namespaces import Namespaces, Unavailable
from ordercast.live.supervisor import Gathered, LivePlan, Supervisor
from ordercast.scenario.chaos import faults_of
from ordercast.scenario.faults import FAULTS
from ordercast.scenario.faults.fault import Fault
from ordercast.scenario.faults.paths import Cut
from ordercast.scenario.schema import Scenario
from ordercast.units import SECOND

MOST_PROCESSES = 200


def plan_of(scenario: Scenario, seed: int, source: str = "<scenario>") -> LivePlan:
    """The scenario as a supervisor takes it. UsageError: it asks for what cannot be done live."""
    if scenario.processes > MOST_PROCESSES:
        raise UsageError(
            f"{source}: {scenario.processes} processes; live, each is a process of this machine, "
            f"and {MOST_PROCESSES} are the most"
        )
    groups = tuple(_group(scenario, number) for number in range(len(scenario.groups())))
    chaos = scenario.chaos
    for kind in (*chaos.faults, *chaos.also) if chaos is not None else ():
        if why := FAULTS[kind].why_not_live:
            raise UsageError(f"{source}: chaos draws {kind}, which {_cannot(why)}")
    for number, fault in enumerate(scenario.fault, 1):
        if fault.why_not_live:
            what = f"fault {number} ({fault.kind}) {_cannot(fault.why_not_live)}"
            raise UsageError(f"{source}: {what}")
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
            hold_for=None if load.hold_for is None else load.hold_for / SECOND,
            services=load.services,
            replies=load.replies,
            begins={name: (scenario.duration - at) / SECOND for name, at in load.begins.items()},
        ),
        tuple(faults_of(scenario, seed)),
        int(scenario.duration),
        int(scenario.quiet),
    )


def _cannot(why: str) -> str:
    return f"cannot be done live ({why}): use ordercast sim"


def _group(scenario: Scenario, number: int) -> GroupPlan:
    group = scenario.groups()[number]
    plan = GroupPlan(
        name=group.name,
        family=scenario.family_of(group),
        members=group.members,
        options=scenario.options_of(group),
        open=group.open,
        anchors=group.anchors,
        expect=group.expect,
        of=group.of,
        founder=group.founder,
    )
    family, options = asked_for(plan)[1]
    rate = scenario.workload.rate_in(family.round_of(options))
    return msgspec.structs.replace(plan, rate=rate)


async def run_plan(
    plan: LivePlan,
    narrate: Callable[[str], None],
    watch: Callable[[Fault, bool], None] = lambda fault, begins: None,
) -> Gathered:
    """The run in a folder of its own. SIGTERM ends it in an orderly way."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ordercast-live-") as folder,
            _network(plan, narrate) as network,
        ):
            return await Supervisor(plan, Path(folder), network, narrate, watch).run()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@contextmanager
def _network(plan: LivePlan, narrate: Callable[[str], None]) -> Iterator[Namespaces | None]:
    """Where the plan cuts paths: the kernel's own network, if we may have one."""
    if not any(isinstance(fault, Cut) for fault in plan.faults):
        yield None
        return
    namespaces = Namespaces(plan.names)
    try:
        namespaces.open()
    except Unavailable as error:
        narrate(f"cuts are made by the members themselves: {error}")
        yield None
        return
    narrate("cuts are made by the kernel: each member has a network namespace")
    try:
        yield namespaces
    finally:
        namespaces.close()

"""What a scenario must not say although every key of it is well formed.

Each rule yields where it is broken and what would be right. The first one found is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from ordercast.protocol.families import FAMILIES
from ordercast.sim.scenario import Fault, Scenario
from ordercast.units import SECOND

Where = tuple[str | int, ...]
Finding = tuple[Where, str]

LONGEST = 24 * 3600 * SECOND
MOST_SUBMISSIONS = 20_000_000
LARGEST_PAYLOAD = 16 << 20
LARGEST_LOAD = 8 << 30
"""Bytes that the load may submit in one run, over all receivers' buffers a few times that."""


def findings(scenario: Scenario) -> Iterator[Finding]:
    yield from _time(scenario)
    yield from _load(scenario)
    yield from _network(scenario)
    yield from _groups(scenario)
    names = set(scenario.names)
    for index, fault in enumerate(scenario.fault):
        for key, what in _fault(fault, scenario, names):
            where: Where = ("fault", index, key) if key else ("fault", index)
            yield where, f"fault {index + 1} ({fault.kind}): {what}"
    chaos = scenario.chaos
    if chaos is not None:
        if not chaos.faults:
            yield ("chaos", "faults"), "chaos.faults is empty: name at least one kind"
        if chaos.every <= 0 or chaos.longest <= 0:
            yield ("chaos",), "chaos.every and chaos.longest must be longer than nothing"


def _time(scenario: Scenario) -> Iterator[Finding]:
    if scenario.duration <= 0:
        yield ("duration",), "duration must be longer than nothing"
    if scenario.duration + scenario.quiet > LONGEST:
        yield ("duration",), "duration and quiet together may be one day at most"


def _load(scenario: Scenario) -> Iterator[Finding]:
    load = scenario.workload
    if not 0 <= load.payload <= LARGEST_PAYLOAD:
        yield ("workload", "payload"), f"workload.payload may be {LARGEST_PAYLOAD} bytes at most"
    if load.per_round is not None:
        families = {scenario.family_of(group) for group in scenario.groups()}
        if not all("round" in FAMILIES[family].options.__struct_fields__ for family in families):
            names = " and ".join(sorted(families))
            yield ("workload", "per_round"), f"{names} has no rounds: say workload.rate instead"
    wanted = load.senders
    if isinstance(wanted, int) and not 0 <= wanted <= scenario.processes:
        what = f"workload.senders is {wanted}, but there are {scenario.processes} processes"
        yield ("workload", "senders"), what
    elif isinstance(wanted, list):
        for name in wanted:
            if name not in scenario.names:
                yield ("workload", "senders"), _no_such(name, scenario)
    messages = load.rate * len(scenario.senders()) * scenario.duration / SECOND
    if messages / load.batch > MOST_SUBMISSIONS or messages * load.payload > LARGEST_LOAD:
        yield (
            ("workload",),
            f"the load is {messages:.0f} messages of {int(load.payload)} bytes, more than a "
            f"simulation holds: lower rate, duration, senders or payload",
        )


def _network(scenario: Scenario) -> Iterator[Finding]:
    network = scenario.network
    if network.delay <= 0:
        yield ("network", "delay"), "network.delay must be longer than nothing"
    if network.bandwidth is not None and network.bandwidth <= 0:
        yield ("network", "bandwidth"), "network.bandwidth must be more than nothing"
    if network.loss > 0.95:
        yield ("network", "loss"), "network.loss may be 0.95 at most: something must get through"
    if network.shape != "lognormal" and network.jitter > 1:
        yield ("network", "jitter"), f"network.jitter of a {network.shape} delay is 1 at most"
    if network.answer_within <= 0:
        yield ("network", "answer_within"), "network.answer_within must be longer than nothing"


def _groups(scenario: Scenario) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, group in enumerate(scenario.groups()):
        where: Where = ("group", index) if scenario.group else ("processes",)
        if group.name in seen:
            yield where, f"two groups are named {group.name!r}"
        seen.add(group.name)
        if not group.members:
            yield where, f"group {group.name!r} has no members"
        for name in group.members:
            if name not in scenario.names:
                yield where, _no_such(name, scenario)
        if len(set(group.members)) < len(group.members):
            yield where, f"group {group.name!r} lists a member twice"
        family = FAMILIES[scenario.family_of(group)]
        if len(group.members) > family.largest_group:
            yield (
                where,
                f"group {group.name!r} has {len(group.members)} members; a {family.name} group "
                f"has at most {family.largest_group}",
            )


def _fault(fault: Fault, scenario: Scenario, names: set[str]) -> Iterator[tuple[str, str]]:
    if fault.at > scenario.duration:
        yield "at", f"at {fault.at} is after the load ends ({scenario.duration})"
    if fault.lasts is not None and fault.lasts <= 0:
        yield "for", "for must be longer than nothing"
    mentioned = [*fault.nodes, *(name for side in fault.sides for name in side)]
    for name in mentioned:
        if name not in names:
            yield ("nodes" if name in fault.nodes else "sides"), _no_such(name, scenario)
    if fault.kind in ("partition", "one-way"):
        yield from _sides(fault)
    elif fault.sides:
        yield "sides", "only a partition and a one-way cut have sides: say nodes"
    elif not fault.nodes and fault.kind != "loss":
        yield "", 'says nobody: add nodes = ["n1"]'


def _sides(fault: Fault) -> Iterator[tuple[str, str]]:
    listed = [name for side in fault.sides for name in side]
    if fault.sides and fault.nodes:
        yield "nodes", "say sides or nodes, not both"
    elif not fault.sides and not fault.nodes:
        yield "", 'says no sides: add sides = [["n1"], ["n2"]]'
    elif len(set(listed)) < len(listed):
        yield "sides", "a process cannot be on two sides"
    elif fault.sides and (len(fault.sides) < 2 or not all(fault.sides)):
        yield "sides", "takes two sides or more, none of them empty"
    elif fault.kind == "one-way" and len(fault.sides) > 2:
        yield "sides", "a one-way cut has two sides: from the first to the second"


def _no_such(name: str, scenario: Scenario) -> str:
    return f"there is no process {name!r}: they are n1 to n{scenario.processes}"

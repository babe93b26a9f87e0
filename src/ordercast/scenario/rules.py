"""What a scenario must not say although every key of it is well formed.

Each rule yields where it is broken and what would be right. The first one found is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ordercast.errors import unknown_word
from ordercast.kernel.family import Family, Plan
from ordercast.levels import Choice
from ordercast.scenario.faults import FAULTS
from ordercast.scenario.schema import ChaosSettings, GroupSettings, Scenario
from ordercast.settings import Finding, Where
from ordercast.types import objection_to_group
from ordercast.units import MILLISECOND, SECOND, Duration

MOST_FAULTS = 100_000
LONGEST = 24 * 3600 * SECOND
MOST_SUBMISSIONS = 20_000_000
LARGEST_PAYLOAD = 16 << 20
LARGEST_LOAD = 8 << 30
"""Bytes that the load may submit in one run, over all receivers' buffers a few times that."""


def findings(scenario: Scenario, choices: Sequence[Choice]) -> Iterator[Finding]:
    """What is wrong with a scenario, whose groups have these families and options."""
    names = frozenset(scenario.names)
    families = {
        group.name: choice.family for group, choice in zip(scenario.groups(), choices, strict=True)
    }
    yield from _time(scenario)
    yield from _senders(scenario, names)
    yield from _groups(scenario, names, choices)
    yield from _load(scenario, choices)
    yield from _may_send(scenario, choices)
    yield from _services(scenario, choices)
    yield from _replies(scenario, choices)
    yield from _network(scenario)
    for index, fault in enumerate(scenario.fault):
        for key, what in fault.check(scenario, families):
            where: Where = ("fault", index, key) if key else ("fault", index)
            yield where, f"fault {index + 1} ({fault.kind}): {what}"
    if scenario.chaos is not None:
        yield from _chaos(scenario.chaos, scenario, families)


def _time(scenario: Scenario) -> Iterator[Finding]:
    if scenario.duration <= 0:
        yield ("duration",), "duration must be longer than nothing"
    if scenario.duration + scenario.quiet > LONGEST:
        longer = "quiet" if scenario.quiet > scenario.duration else "duration"
        yield (longer,), "duration and quiet together may be one day at most"


def _senders(scenario: Scenario, names: frozenset[str]) -> Iterator[Finding]:
    wanted = scenario.workload.senders
    if isinstance(wanted, int) and not 0 <= wanted <= scenario.processes:
        what = f"workload.senders is {wanted}, but there are {scenario.processes} processes"
        yield ("workload", "senders"), what
    elif isinstance(wanted, list):
        for name in wanted:
            if name not in names:
                yield ("workload", "senders"), scenario.no_such(name)
        if len(set(wanted)) < len(wanted):
            yield ("workload", "senders"), "workload.senders lists a process twice"
    senders = frozenset(scenario.senders())
    for name, begins in scenario.workload.begins.items():
        if name not in senders:
            yield ("workload", "begins"), f"workload.begins: {name} is no sender"
        elif begins >= scenario.duration:
            yield ("workload", "begins"), f"workload.begins: {name} begins when the load is over"


def _load(scenario: Scenario, choices: Sequence[Choice]) -> Iterator[Finding]:
    load = scenario.workload
    if not 0 <= load.payload <= LARGEST_PAYLOAD:
        yield ("workload", "payload"), f"workload.payload may be {LARGEST_PAYLOAD} bytes at most"
    if load.hold_for is not None and load.hold_for <= 0:
        yield ("workload", "hold_for"), "workload.hold_for must be longer than nothing"
    if load.per_round is not None and any(choice.family.round is None for choice in choices):
        names = " and ".join(sorted({choice.family.name for choice in choices}))
        yield ("workload", "per_round"), f"{names} has no rounds: say workload.rate instead"
    if load.batch * load.payload > LARGEST_PAYLOAD:
        what = f"a batch of {load.batch} messages of {load.payload} may be {LARGEST_PAYLOAD} bytes"
        yield ("workload", "batch"), f"{what} at most"
    senders = frozenset(scenario.senders())
    messages = sum(
        load.rate_in(family.round_of(own))
        * len(senders.intersection(group.members))
        * scenario.duration
        / SECOND
        for group, (family, own) in zip(scenario.groups(), choices, strict=True)
    )
    if messages / load.batch > MOST_SUBMISSIONS or messages * load.payload > LARGEST_LOAD:
        yield (
            ("workload",),
            f"the load is {messages:.0f} messages of {int(load.payload)} bytes, more than a "
            f"simulation holds: lower rate, duration, senders or payload",
        )


def _may_send(scenario: Scenario, choices: Sequence[Choice]) -> Iterator[Finding]:
    """`all` means all members that may send; a sender that is named must be one of them."""
    for group, (family, own) in zip(scenario.groups(), choices, strict=True):
        known = None if group.open else group.members
        if objection := family.objection(group.name, own, known):
            yield ("options", objection.option), objection.why
    if scenario.workload.senders == "all":
        return
    for group, (family, own) in zip(scenario.groups(), choices, strict=True):
        plan = Plan(group.name, tuple(sorted(group.members)), own)
        for name in scenario.senders():
            if name in group.members and not family.may_send(plan, name):
                what = f"workload.senders: {name} owns no ticket of group {group.name!r}"
                yield ("workload", "senders"), what


def _services(scenario: Scenario, choices: Sequence[Choice]) -> Iterator[Finding]:
    wanted = scenario.workload.service
    if wanted == []:
        yield ("workload", "service"), "workload.service is empty: name at least one"
    for word in scenario.workload.services:
        for family, _ in choices:
            if not family.services:
                what = f"{family.name} has no services: leave it out"
                yield ("workload", "service"), f"workload.service: {what}"
            elif word not in family.services:
                what = unknown_word(f"service of {family.name}", word, family.services)
                yield ("workload", "service"), f"workload.service: {what}"


def _replies(scenario: Scenario, choices: Sequence[Choice]) -> Iterator[Finding]:
    for family, _ in choices if scenario.workload.replies else ():
        if not family.replies:
            what = f"messages of {family.name} reply to nothing: leave it out"
            yield ("workload", "replies"), f"workload.replies: {what}"


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


def _groups(
    scenario: Scenario, names: frozenset[str], choices: Sequence[Choice]
) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, (group, choice) in enumerate(zip(scenario.groups(), choices, strict=True)):
        where: Where = ("group", index) if scenario.group else ("processes",)
        if objection := objection_to_group(group.name):
            yield (*where, "name"), objection
        if group.name in seen:
            yield where, f"two groups are named {group.name!r}"
        seen.add(group.name)
        if not group.members:
            yield where, f"group {group.name!r} has no members"
        for name in group.members:
            if name not in names:
                yield where, scenario.no_such(name)
        if len(set(group.members)) < len(group.members):
            yield where, f"group {group.name!r} lists a member twice"
        family = choice.family
        yield from _open_group(group, family, where)
        if not (scenario.begins_formed(group) or family.formation):
            yield where, f"group {group.name!r}: {family.name} groups do not form: leave formed out"
        if len(group.members) > family.largest_group:
            yield (
                where,
                f"group {group.name!r} has {len(group.members)} members; a {family.name} group "
                f"has at most {family.largest_group}",
            )


def _open_group(group: GroupSettings, family: Family, where: Where) -> Iterator[Finding]:
    name, anchors = f"group {group.name!r}", set(group.anchors)
    if not group.open:
        for key in ("anchors", "expect", "of", "founder"):
            if getattr(group, key):
                yield (*where, key), f"{name}: {key} is for open groups: add open = true"
        return
    if not family.opens:
        yield (*where, "open"), f"{name}: {family.name} groups do not open: leave open out"
    if group.formed:
        yield (*where, "formed"), f"{name} is open, so it forms during the run: leave formed out"
    if group.founder and not family.founded:
        yield (*where, "founder"), f"{name}: nobody founds a {family.name} group: leave founder out"
    if not anchors:
        yield (*where, "open"), f'{name} is open: say whom all know, as in anchors = ["n1"]'
    founders = [group.founder] if group.founder else []
    for key, names in (("anchors", group.anchors), ("founder", founders)):
        for one in names:
            if one not in group.members:
                yield (*where, key), f"{name}: {key} names {one!r}, which is not in members"
    if group.expect > len(group.members):
        what = f"expect is {group.expect}, but {len(group.members)} run the group"
        yield (*where, "expect"), f"{name}: {what}"
    if group.of and not group.expect <= group.of < 2 * group.expect:
        what = f"of is {group.of}, and expect {group.expect}, which must be more than half of it"
        yield (*where, "of"), f"{name}: {what}"
    if group.expect and group.founder:
        yield (*where, "expect"), f"{name} has a founder, so it waits for no number: leave out one"
    if len(anchors) > 1 and family.founded and not group.expect and not group.founder:
        what = "with several anchors nobody may found it: add expect = 3, or a founder"
        yield (*where, "anchors"), f"{name}: {what}"


def _chaos(
    chaos: ChaosSettings, scenario: Scenario, families: dict[str, Family]
) -> Iterator[Finding]:
    if not chaos.faults:
        yield ("chaos", "faults"), "chaos.faults is empty: name at least one kind"
    for key, kinds in (("faults", chaos.faults), ("also", [*chaos.also])):
        for kind in dict.fromkeys(kinds):
            if kind not in FAULTS:
                yield ("chaos", key), f"chaos.{key}: {unknown_word('word', kind, FAULTS)}"
                return
            for what in FAULTS[kind].chaos_check(scenario, families):
                yield ("chaos", key), f"chaos.{key}: {what}"
    spans: dict[Where, Duration] = {("every",): chaos.every, ("longest",): chaos.longest}
    spans |= {("also", kind): every for kind, every in chaos.also.items()}
    for where, span in spans.items():
        name = ".".join(("chaos", *map(str, where)))
        if span <= 0:
            yield ("chaos", *where), f"{name} must be longer than nothing"
        elif where != ("longest",) and scenario.duration // (span + MILLISECOND) > MOST_FAULTS:
            yield ("chaos", *where), f"{name} draws over {MOST_FAULTS} faults: make it longer"

"""Runs of groups with virtual synchrony in which faults are aimed at changes, drawn from a seed.

A recorded run has what each incarnation's application was handed, and what its machine decided.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from ordercast.kernel.family import machine_per_group
from ordercast.kernel.step import Step
from ordercast.protocol.transis import FAMILY
from ordercast.protocol.transis.member import SynchronyMember
from ordercast.protocol.transis.packets import ConfigurationId, Joint, Proposal
from ordercast.protocol.transis.suggestion import Decision
from ordercast.scenario.file import parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Row
from ordercast.trace.sinks import MemorySink
from ordercast.types import NodeId
from ordercast.units import MILLISECOND

KINDS = ("crash", "crash", "partition", "partition", "one-way", "pause", "slow", "loss")
SECONDS = 5
"""Faults last no longer than this."""


class Proposed(NamedTuple):
    at: int
    proposal: Proposal


class Installation(NamedTuple):
    at: int
    former: ConfigurationId
    decision: Decision
    own: Proposal  # our latest one before it
    proposed: list[Proposal]  # all of ours in the former configuration


class MachineLog:
    """What one incarnation proposed and installed, in order."""

    def __init__(self) -> None:
        self.proposed: list[Proposed] = []
        self.readied: list[tuple[Decision, Proposal]] = []
        self.installed: list[Installation] = []
        self.stage = 0  # at the last look


class Storm(NamedTuple):
    heard: dict[NodeId, list[Any]]  # by incarnation: what its application was handed
    machines: dict[NodeId, MachineLog]
    rows: list[Row]
    stage_limit: int
    suspicion_limit: int
    faults_end: int  # nanoseconds
    error: str | None


def fault(draw: Random, names: list[str], at: int, longest: int) -> dict[str, Any]:
    kind = draw.choice(KINDS)
    found: dict[str, Any] = {"at": f"{at}ms", "kind": kind}
    mixed = draw.sample(names, len(names))
    lasts = draw.randrange(20, longest)
    if kind in ("partition", "one-way"):
        way = draw.random()
        first = draw.randrange(1, len(mixed))
        found["sides"] = [mixed[:first], mixed[first:]]
        if way < 0.25:  # one pair only
            found["sides"] = [mixed[:1], mixed[1:2]]
        elif way < 0.5 and kind == "partition" and first > 1:
            found["sides"] = [mixed[:1], mixed[1:first], mixed[first:]]
    else:
        found["nodes"] = mixed[:1]
    if kind == "slow":
        found["factor"] = draw.choice((5.0, 30.0))
    if kind != "crash" or draw.random() < 0.5:
        found["for"] = f"{min(lasts, 1000 * SECONDS - at)}ms"
    return found


def end_of(faults: list[dict[str, Any]]) -> int:
    """When the last one is over, in milliseconds."""
    return max(int(one["at"][:-2]) + int(one.get("for", "0ms")[:-2]) for one in faults)


def scenario(seed: int, **options: str) -> tuple[Scenario, int, int]:
    """Each fault is followed by others about when it is noticed. Returns the suspicion limit and
    the end of the faults too, in milliseconds. `options`: further ones of the group."""
    draw = Random(seed)
    names = [f"n{number}" for number in range(1, draw.randrange(4, 8))]
    limit = draw.choice((200, 400, 1000))
    faults = []
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(200, 3000)
        faults.append(fault(draw, names, at, 2000))
        for _ in range(draw.randrange(1, 4)):
            later = at + limit * 3 // 4 + draw.randrange(-30, limit)
            faults.append(fault(draw, names, min(later, 4900), 1000))
    document = {
        "name": "storm",
        "family": "synchrony",
        "processes": len(names),
        "duration": f"{SECONDS}s",
        "quiet": "8s",
        "options": {
            "window": draw.choice((1, 2, 8)),
            "suspicion_limit": f"{limit}ms",
            "silence_limit": f"{limit // 4}ms",
            "stage_limit": f"{limit * 2 // 3}ms",
            "rest": f"{limit // 4}ms",
            "hello": f"{limit // 20}ms",
            "hello_limit": f"{limit // 5}ms",
            **options,
        },
        "workload": {
            "rate": draw.choice((5, 20)),
            "service": ["basic", "causal", "agreed", "safe"],
        },
        "network": {"delay": draw.choice(("1ms", "4ms")), "jitter": draw.choice((0.2, 0.8))},
        "fault": faults,
    }
    return parse_scenario(document), limit, end_of(faults)


def recorded(seed: int) -> Storm:
    parsed, limit, end = scenario(seed)
    machines: dict[NodeId, MachineLog] = {}
    heard: dict[NodeId, list[Any]] = {}

    class Recorded(SynchronyMember):
        """A member that says what it decides."""

        def _propose(self, step: Step) -> None:
            super()._propose(step)
            log = machines.setdefault(self.me, MachineLog())
            log.proposed.append(Proposed(step.now, self.current.change.proposals[self.me]))

        def _install(self, step: Step, decision: Decision, joint: Joint) -> None:
            log = machines.setdefault(self.me, MachineLog())
            former = self.current.cid
            of_former = [one.proposal for one in log.proposed if one.proposal.cid == former]
            own = self.current.change.proposals[self.me]
            log.installed.append(Installation(step.now, former, decision, own, of_former))
            super()._install(step, decision, joint)

        def _follow_up(self, step: Step) -> None:
            super()._follow_up(step)
            change = self.current.change
            log = machines.setdefault(self.me, MachineLog())
            log.stage = change.stage
            known = [decision for decision, _ in log.readied]
            for decision in change.readied.values():
                if decision not in known:
                    log.readied.append((decision, change.proposals[self.me]))

    sink = MemorySink()
    world = Simulation(
        parsed,
        seed,
        sink=sink,
        application=lambda node, item: heard.setdefault(node, []).append(item),
        families={"synchrony": FAMILY._replace(build=machine_per_group(Recorded))},
    )
    outcome = world.run()
    limits = limit * 2 // 3 * MILLISECOND, limit * MILLISECOND
    return Storm(heard, machines, sink.rows, *limits, end * MILLISECOND, outcome.error)

"""Runs of totally ordered groups with whatever may go wrong, all of it drawn from one seed."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import msgspec

from ordercast.check.laws import check
from ordercast.check.verdict import Verdict
from ordercast.kernel.family import Family
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.newtop import FAMILY
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.scenario.file import parse_scenario
from ordercast.scenario.schema import GroupSettings
from ordercast.sim.process import Process
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Ending, Header, Row, Trace
from ordercast.trace.sinks import MemorySink
from ordercast.units import MILLISECOND

ALL = ("crash", "pause", "partition", "one-way", "loss", "slow")


class Storm(NamedTuple):
    rows: list[Row]
    verdicts: list[Verdict]
    error: str | None
    groups: list[list[str]]
    packets: int

    def count(self, kind: str) -> int:
        return sum(row.kind == kind for row in self.rows)

    def causal_across_groups(self) -> Verdict:
        """MD5' of the paper: nothing is delivered before what it follows from, in other groups
        either. The law with all groups taken for one, in which numbers tell them apart."""
        names = sorted({row.group for row in self.rows if row.group})
        rows = [
            msgspec.structs.replace(
                row, group="all", number=(names.index(row.group) << 30) + (row.number or 0)
            )
            for row in self.rows
            if row.kind in ("submit", "deliver") and row.group
        ]
        header = Header("together", ending=Ending.FINISHED)
        return check(Trace(header, rows), ["optimistic-causal"])[0]

    @property
    def broken(self) -> list[str]:
        """What is wrong with it, in words."""
        found = [f"{one.law}: {one.why}" for one in self.verdicts if one.answer != "holds"]
        return [self.error, *found] if self.error else found


def storm(
    seed: int,
    *,
    kinds: tuple[str, ...] = ALL,
    family: Family = FAMILY,
    options: dict[str, Any] | None = None,
    seconds: int = 3,
    faults: tuple[int, int] = (1, 5),
    longest_ms: int = 1500,
    departures: int = 0,
    sequenced: float = 0.0,
    atomic: float = 0.0,
    laws: tuple[str, ...] | None = None,
    round_trip: bool = False,
) -> Storm:
    """Some overlapping groups, some load, some faults; then a time in which nothing happens.

    `sequenced` is how likely a group has a sequencer, `atomic` that it has no order. Without
    `laws` each family is judged by what it promises.
    """
    draw = Random(seed)
    names = [f"n{number + 1}" for number in range(draw.randrange(2, 7))]
    groups = draw_groups(draw, names)
    own = {
        "window": draw.choice((2, 4, 16)),
        "prompt_after": draw.choice(("5ms", "10ms", "20ms")),
        "silence_limit": draw.choice(("40ms", "100ms")),
        "suspicion_limit": draw.choice(("250ms", "500ms")),
    }
    drawn = [
        draw_fault(draw, names, kinds, seconds, longest_ms) for _ in range(draw.randint(*faults))
    ]
    document: dict[str, Any] = {
        "name": "storm",
        "processes": len(names),
        "duration": f"{seconds}s",
        "quiet": "3s",
        "workload": {"rate": draw.choice((3, 10, 40))},
        "network": {
            "delay": draw.choice(("1ms", "4ms", "12ms")),
            "jitter": draw.choice((0.2, 0.8)),
        },
        "fault": drawn if kinds else [],
        "group": [
            {"name": chr(ord("a") + at), "members": members} for at, members in enumerate(groups)
        ],
    }
    parsed = parse_scenario(document)
    own |= options or {}
    scenario = msgspec.structs.replace(
        parsed,
        family="total",
        options=own,
        group=[_of_family(draw, each, sequenced, atomic, own) for each in parsed.group],
    )
    sink = MemorySink()
    world = Simulation(scenario, seed, sink=sink, families=_built_by(family), round_trip=round_trip)
    for _ in range(departures):
        group = draw.randrange(len(groups))
        who = draw.choice(groups[group])
        at = draw.randrange(200, 900 * seconds) * MILLISECOND
        world.queue.add(at, _depart, (world.processes[who], chr(ord("a") + group)))
    outcome = world.run()
    trace = Trace(outcome.header, sink.rows)
    return Storm(sink.rows, check(trace, laws), outcome.error, groups, outcome.packets)


def _of_family(
    draw: Random, group: GroupSettings, sequenced: float, atomic: float, options: dict[str, Any]
) -> GroupSettings:
    drawn = draw.random() if sequenced or atomic else 1.0
    if drawn < sequenced + atomic:
        family = "sequenced" if drawn < sequenced else "atomic"
        return msgspec.structs.replace(group, family=family, options=options)
    return group


def _built_by(family: Family) -> dict[str, Family]:
    """All families of Newtop, with the machines of one of them."""
    return {
        each.name: each._replace(build=family.build)
        for each in FAMILIES.values()
        if each.one_machine
    }


def _depart(departure: tuple[Process, str]) -> None:
    """A process leaves a group."""
    process, group = departure
    seat = process.host.seats.get(group)
    machine = seat.machine if seat is not None else None
    if isinstance(machine, NewtopMember) and group in machine.joined and not process.is_paused:
        process.leave(group)


def draw_groups(draw: Random, names: list[str]) -> list[list[str]]:
    """One to three groups that overlap at random, or a ring in which each shares one member."""
    if len(names) >= 3 and draw.random() < 0.4:
        size = min(len(names), draw.choice((3, 4)))
        ring = draw.sample(names, size)
        return [sorted((ring[at], ring[at - 1])) for at in range(size)]
    return [
        sorted(draw.sample(names, draw.randint(min(2, len(names)), len(names))))
        for _ in range(draw.randrange(1, 4))
    ]


def draw_fault(
    draw: Random, names: list[str], kinds: tuple[str, ...], seconds: int, longest_ms: int
) -> dict[str, Any]:
    kind = draw.choice(kinds or ALL)
    fault: dict[str, Any] = {"at": f"{draw.randrange(200, 900 * seconds)}ms", "kind": kind}
    mixed = draw.sample(names, len(names))
    if kind in ("partition", "one-way"):
        if draw.random() < 0.4:  # one pair only
            fault["sides"] = [mixed[:1], mixed[1:2]]
        else:
            place = draw.randrange(1, len(mixed))
            fault["sides"] = [mixed[:place], mixed[place:]]
    else:
        fault["nodes"] = mixed[:1]
    if not (kind == "crash" and draw.random() < 0.7):
        fault["for"] = f"{draw.randrange(20, longest_ms)}ms"
    if kind == "slow":
        fault["factor"] = draw.choice((5.0, 30.0))
    return fault

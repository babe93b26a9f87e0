"""Runs in which groups form, are partitioned and re-form, all of it drawn from one seed.

Applications here have a state: the list of the events that they know of. They hand it over when
they are asked, take it over when they are given one, and add to it what is delivered. So a run
shows whether members that begin together begin with the same.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import msgspec
from tests.protocol.newtop.storms import draw_fault, draw_groups

from ordercast.check.laws import check
from ordercast.kernel.family import Family
from ordercast.protocol.families import FAMILIES
from ordercast.protocol.newtop.member import NewtopMember
from ordercast.scenario.file import parse_scenario
from ordercast.sim.process import Heard
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Row, Trace
from ordercast.trace.sinks import MemorySink
from ordercast.types import (
    Event,
    Invitation,
    NodeId,
    StateGiven,
    StateWanted,
    View,
    label_of,
    name_of,
)

ALL = ("crash", "pause", "partition", "one-way", "loss", "slow")


class Ledgers:
    """The applications of all processes: what each knows of each group."""

    def __init__(self, draw: Random, vetoes: float) -> None:
        self._draw = draw
        self._vetoes = vetoes
        self.known: dict[tuple[NodeId, str], list[str]] = {}
        self.given: dict[str, list[str]] = {}  # by formation: the state that its initiator gave
        self.begun: dict[str, dict[NodeId, list[str]]] = {}  # by formation: with what each began
        self.last_view: dict[tuple[NodeId, str], View] = {}
        self.vetoed = 0
        self.world: Simulation  # in which they are

    def hear(self, node: NodeId, what: Heard) -> bytes | bool | None:
        known = self.known.setdefault((node, what.group), [])
        if isinstance(what, Event):
            known.append(f"{what.origin}:{what.number}")
        elif isinstance(what, StateWanted):
            self.given[f"{what.group}+{what.token}"] = list(known)
            return msgspec.json.encode(known)
        elif isinstance(what, StateGiven):
            assert what.state is not None
            self.known[node, what.group] = msgspec.json.decode(what.state, type=list[str])
        elif isinstance(what, View):
            label = label_of(what.group, what.formation)
            self.last_view[node, label] = what
            if what.formation:
                self.begun.setdefault(label, {}).setdefault(node, list(known))
        elif isinstance(what, Invitation) and self._draw.random() < self._vetoes:
            self.vetoed += 1
            return False
        return None


class Storm(NamedTuple):
    trace: Trace
    broken: list[str]  # what is wrong with it, in words
    ledgers: Ledgers
    groups: list[list[str]]

    @property
    def rows(self) -> list[Row]:
        return self.trace.rows

    def formations(self, least: int = 1) -> int:
        """Formations by vote in which at least so many members began."""
        return sum(len(begun) >= least for begun in self.ledgers.begun.values())


def storm(
    seed: int,
    *,
    kinds: tuple[str, ...] = ALL,
    families: dict[str, Family] = FAMILIES,
    of: tuple[str, ...] = ("total",),
    reform: str | None = None,
    requests: tuple[int, int] = (0, 4),
    faults: tuple[int, int] = (0, 4),
    aimed: bool = False,
    vetoes: float = 0.0,
    seconds: int = 4,
    round_trip: bool = False,
    options: dict[str, Any] | None = None,
    keep: type[Ledgers] = Ledgers,
) -> Storm:
    """Groups that exist or have to form, members that restart, requests to re-form.

    `aimed`: faults begin while a formation is on its way.
    """
    draw = Random(seed)
    names = [f"n{number + 1}" for number in range(draw.randrange(2, 6))]
    groups = draw_groups(draw, names)
    listed: list[dict[str, Any]] = [
        draw_fault(draw, names, kinds or ALL, seconds, 1500) for _ in range(draw.randint(*faults))
    ]
    for fault in listed:
        if fault["kind"] == "crash" and draw.random() < 0.7:
            fault.setdefault("for", f"{draw.randrange(20, 1500)}ms")
    for _ in range(draw.randint(*requests)):
        group = draw.randrange(len(groups))
        at = f"{draw.randrange(200, 900 * seconds)}ms"
        who = draw.choice(groups[group])
        listed.append({"at": at, "kind": "reform", "nodes": [who], "group": _name(group)})
    asked = [one["at"] for one in listed if one["kind"] == "reform"] or ["0ms"]
    for fault in listed if aimed else ():
        if fault["kind"] != "reform":
            later = draw.randrange(draw.choice((20, 60, 200)))
            fault["at"] = f"{int(draw.choice(asked)[:-2]) + later}ms"
    document: dict[str, Any] = {
        "name": "storm",
        "processes": len(names),
        "family": of[0],
        "duration": f"{seconds}s",
        "quiet": "8s",
        "options": {
            "window": draw.choice((2, 4, 16)),
            "prompt_after": draw.choice(("5ms", "10ms", "20ms")),
            "silence_limit": draw.choice(("40ms", "100ms")),
            "suspicion_limit": draw.choice(("250ms", "500ms")),
            "reform": reform or draw.choice(("ask", "auto")),
            "invitations": "ask" if vetoes else "accept",
            **(options or {}),
        },
        "workload": {"rate": draw.choice((3, 10, 40))},
        "network": {
            "delay": draw.choice(("1ms", "4ms", "12ms")),
            "jitter": draw.choice((0.2, 0.8)),
        },
        "fault": listed,
        "group": [
            {"name": _name(at), "members": members, "formed": draw.random() < 0.5}
            for at, members in enumerate(groups)
        ],
    }
    for each in document["group"] if len(of) > 1 else ():
        each["family"], each["options"] = draw.choice(of), document["options"]
    scenario = parse_scenario(document)
    sink, ledgers = MemorySink(), keep(draw, vetoes)
    world = Simulation(
        scenario,
        seed,
        sink=sink,
        families=families,
        application=ledgers.hear,
        round_trip=round_trip,
    )
    ledgers.world = world
    outcome = world.run()
    trace = Trace(outcome.header, sink.rows)
    verdicts = check(trace)
    broken = [f"{one.law}: {one.why}" for one in verdicts if one.answer != "holds"]
    broken += [outcome.error] if outcome.error else []
    kinds_of = {group.name: group.family or of[0] for group in scenario.groups()}
    unordered = {name for name, kind in kinds_of.items() if kind == "atomic"}
    broken += [*differences(ledgers, unordered), *losses(ledgers, sink.rows), *repetitions(ledgers)]
    if scenario.options["reform"] == "auto":
        broken += separations(world)
    return Storm(trace, broken, ledgers, groups)


def _name(group: int) -> str:
    return chr(ord("a") + group)


def separations(world: Simulation) -> list[str]:
    """Members that are there and not together, where they should come together by themselves."""
    found = []
    for group in world.scenario.groups():
        there = [world.processes[name] for name in group.members if world.processes[name].alive]
        views = {}
        for process in there:
            machine = process.host.seats[group.name].machine
            assert isinstance(machine, NewtopMember)
            current = machine.named[group.name].current
            views[process.node] = current.views.members if current is not None else ()
        if any(views.values()) and len({*views.values(), tuple(sorted(views))}) > 1:
            words = [f"{node} with {' '.join(map(str, view))}" for node, view in views.items()]
            found.append(f"{group.name} has not come together: {', '.join(words)}")
    return found


def repetitions(ledgers: Ledgers) -> list[str]:
    """Members that know of an event twice: by a state that they were given, and by delivery."""
    return [
        f"{node} knows of an event of {group} twice"
        for (node, group), known in ledgers.known.items()
        if len(set(known)) < len(known)
    ]


def differences(ledgers: Ledgers, unordered: set[str]) -> list[str]:
    """Members that begin a formation with another state than its initiator provided.

    In a group without order, members that come along keep the order in which they delivered.
    """
    found = []
    for label, begun in ledgers.begun.items():
        if label not in ledgers.given:
            if len(begun) > 1:
                found.append(f"{len(begun)} begin {label}, and none of them was asked for a state")
            continue
        as_known = sorted if name_of(label) in unordered else list[str]
        for node, known in begun.items():
            if as_known(known) != as_known(ledgers.given[label]):
                found.append(f"{node} begins {label} with other events than the others")
    return found


def losses(ledgers: Ledgers, rows: list[Row]) -> list[str]:
    """Events that members which moved with the initiator sent on its side, and not in its state."""
    found = []
    submitted: dict[tuple[str, int, str], list[str]] = {}
    for row in rows:
        if row.kind == "submit":
            node = NodeId(row.process, row.incarnation)
            key = row.process, row.incarnation, row.group or ""
            submitted.setdefault(key, []).append(f"{node}:{row.number}")
    for label, state in ledgers.given.items():
        name, _, formation = label.partition("+")
        initiator = NodeId(formation.split(".")[0], int(formation.split(".")[1]))
        came_from = _place_before(rows, initiator, name, label)
        if came_from is None:
            continue
        view = ledgers.last_view[initiator, came_from]
        for node in ledgers.begun.get(label, {}):
            if node in view.members:
                sent = submitted.get((node.name, node.incarnation, came_from), [])
                missing = [event for event in sent if event not in state]
                if missing:
                    found.append(f"{missing[0]} of {came_from} is lost on the way to {label}")
    return found


def _place_before(rows: list[Row], node: NodeId, name: str, label: str) -> str | None:
    """The formation that an incarnation was in before another one."""
    views = [
        row.group
        for row in rows
        if row.kind == "view"
        and (row.process, row.incarnation) == (node.name, node.incarnation)
        and (row.group or "").partition("+")[0] == name
    ]
    before = views[: views.index(label)] if label in views else []
    return before[-1] if before else None

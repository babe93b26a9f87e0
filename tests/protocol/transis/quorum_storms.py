"""Groups with virtual synchrony and a quorum under storms, with applications that have a state.

An application that is not up to date takes the state of one that is, as that one had it when the
primary view began, and says so: most times. Or the group hands over the states when sides merge,
and an application takes the one that it is given, or all that is in several. What was secured must
be in the state of every member that later primary views call up to date, as long as a member of the
one before has not crashed since it had all of it.
"""

from __future__ import annotations

import json
from random import Random
from typing import NamedTuple

from tests.protocol.transis.storms import scenario

from ordercast.check.laws import check
from ordercast.kernel.family import Family
from ordercast.kernel.inputs import CaughtUp
from ordercast.protocol.transis import FAMILY
from ordercast.sim.process import Heard
from ordercast.sim.world import Simulation
from ordercast.trace.schema import Row, Trace
from ordercast.trace.sinks import MemorySink
from ordercast.types import (
    Event,
    NodeId,
    Primary,
    Secured,
    SideStates,
    StateGiven,
    StateWanted,
    View,
)


class MergedStates:
    """What each application knows, and what was secured."""

    def __init__(self, draw: Random, catches_up: float) -> None:
        self.draw = draw
        self.catches_up = catches_up  # how often a member that is behind takes the state
        self.world: Simulation
        self.known: dict[NodeId, list[str]] = {}
        self.ever: dict[NodeId, set[str]] = {}  # the same, with what was given up since
        self.began: dict[tuple[NodeId, int], list[str]] = {}  # by view: what each had then
        self.formed: dict[int, Primary] = {}
        self.number: dict[NodeId, int] = {}  # of the last primary view of each
        self.secured: dict[str, int] = {}  # writes, and in which primary view
        self.missed: list[str] = []
        self.seen = dict.fromkeys(("primary", "outside", "secured", "behind", "caught up"), 0)

    def hear(self, node: NodeId, what: Heard) -> bytes | None:
        known = self.known.setdefault(node, [])
        if isinstance(what, Event):
            known.append(f"{what.origin}:{what.number}")
            self.ever.setdefault(node, set()).add(known[-1])
        elif isinstance(what, StateWanted):
            return json.dumps(known).encode()
        elif isinstance(what, StateGiven):
            self._take(node, (what.state,))
        elif isinstance(what, SideStates):
            self._take(node, tuple(one.state for one in what.states))
        elif isinstance(what, View) and not what.transitional:
            self.began[node, what.id] = list(known)
        elif isinstance(what, Secured):
            for one in range(what.first, what.up_to + 1):
                self.secured.setdefault(f"{node}:{one}", self.number[node])
        elif isinstance(what, Primary) and not what.is_primary:
            self.seen["outside"] += 1
        elif isinstance(what, Primary):
            self._check(node, what)
        return None

    def _take(self, node: NodeId, states: tuple[bytes | None, ...]) -> None:
        written = [json.loads(state) for state in states if state is not None]
        taken = dict.fromkeys(one for each in written for one in each)
        last = self.number.get(node, 0)
        for one in self.known[node]:
            if self.secured.get(one, last + 1) <= last and one not in taken:
                self.missed.append(f"{node} gives up {one}, which was secured, for another state")
        self.known[node] = list(taken)
        self.ever.setdefault(node, set()).update(taken)
        self.seen["caught up"] += 1

    def _check(self, node: NodeId, what: Primary) -> None:
        number = what.number
        self.seen["primary"] += 1
        self.number[node] = number
        before = max((one for one in self.formed if one < number), default=None)
        self.formed[number] = what
        if before is not None:
            self._forget_lost(self.formed[before], number)
        if node.name in what.up_to_date:
            lost = [one for one in self._before(number) if one not in self.known[node]]
            if lost:
                self.missed.append(f"{node} is in primary view {number} without {lost[0]}")
            return
        self.seen["behind"] += 1
        if self.draw.random() < self.catches_up:
            self._catch_up(node, what)

    def _before(self, number: int) -> list[str]:
        return [one for one, place in self.secured.items() if place < number]

    def _forget_lost(self, before: Primary, number: int) -> None:
        """If no process is left that has all of it, the group has begun anew."""
        secured = set(self._before(number))
        for member in before.view.members:
            if self._is_there(member) and secured <= self.ever.get(member, set()):
                return
        for write in secured:
            del self.secured[write]

    def _is_there(self, node: NodeId) -> bool:
        process = self.world.processes[node.name]
        return process.alive and process.node == node

    def _catch_up(self, node: NodeId, what: Primary) -> None:
        view = what.view.id
        for giver in what.view.members:
            if giver.name in what.up_to_date and self._is_there(giver):
                since = self.known[node][len(self.began[node, view]) :]
                self.known[node] = [*self.began[giver, view], *since]
                self.began[node, view] = self.began[giver, view]
                self.ever.setdefault(node, set()).update(self.known[node])
                self.world.processes[node.name].give(what.group, CaughtUp(what.group, view))
                self.seen["caught up"] += 1
                return


class QuorumStorm(NamedTuple):
    rows: list[Row]
    broken: list[str]
    states: MergedStates


def storm(
    seed: int, family: Family = FAMILY, catches_up: float = 0.8, merge: str = "none"
) -> QuorumStorm:
    parsed, _, _ = scenario(seed, quorum="majority", merge=merge)
    sink, states = MemorySink(), MergedStates(Random(seed), catches_up)
    states.world = Simulation(
        parsed, seed, sink=sink, application=states.hear, families={"synchrony": family}
    )
    outcome = states.world.run()
    verdicts = check(Trace(outcome.header, sink.rows))
    broken = [f"{one.law}: {one.why}" for one in verdicts if one.answer != "holds"]
    broken += [outcome.error] if outcome.error else []
    states.seen["secured"] = len(states.secured)
    return QuorumStorm(sink.rows, broken + states.missed, states)

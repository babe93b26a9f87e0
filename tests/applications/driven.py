"""The cores of examples in the simulator: each process has one, and sends what it returns.

    run = Driven(make, stormy(4), seed)
    run.act(100 * MILLISECOND, lambda core, draw: core.withdraw("ann", draw.randint(1, 50)))
    run.go()

A core takes what the live program takes, and its journal survives a crash. The cores of all
incarnations stay in `cores`: what they did is what really happened, whatever the others know.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, TypeAlias

from ordercast import Message
from ordercast.kernel.inputs import DifferenceWanted
from ordercast.kernel.step import Heard
from ordercast.scenario.file import parse_scenario
from ordercast.scenario.schema import Scenario
from ordercast.sim.world import Simulation
from ordercast.types import Event, Merged, NodeId

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GROUP = "g"
Wish: TypeAlias = Callable[[Any, Random], list[bytes]]
Plan: TypeAlias = tuple[str, int, Wish, Random, int]


def example(name: str) -> ModuleType:
    """A program of the examples, as it is imported where they are."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module(name)


def stormy(processes: int, *faults: dict[str, Any], **settings: Any) -> Scenario:
    """Partitions that overlap, one-way cuts, pauses, and the faults that are given."""
    given: dict[str, Any] = {
        "name": "applications",
        "family": "synchrony",
        "processes": processes,
        "duration": "12s",
        "quiet": "10s",
        "workload": {"senders": 0},
        "network": {"delay": "2ms", "jitter": 0.5, "loss": 0.002},
        "chaos": {
            "faults": ["partition", "partition", "one-way", "pause"],
            "every": "900ms",
            "longest": "2500ms",
        },
        "group": [{"name": GROUP, "members": [f"n{one}" for one in range(1, processes + 1)]}],
        "fault": list(faults),
    }
    return parse_scenario(given | settings)


def crashes(seed: int, processes: int, *, back: int, for_good: int = 0) -> list[dict[str, Any]]:
    """Different processes crash at random times: so many come back, and so many do not."""
    draw = Random(f"crashes {seed}")
    names = draw.sample([f"n{one}" for one in range(1, processes + 1)], back + for_good)
    faults: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        fault: dict[str, Any] = {"kind": "crash", "nodes": [name]}
        fault["at"] = f"{draw.randint(1500, 10500)}ms"
        if place < back:
            fault["for"] = f"{draw.randint(50, 2500)}ms"
        faults.append(fault)
    return faults


class Driven:
    def __init__(
        self, make: Callable[..., Any], scenario: Scenario, seed: int, service: str = "safe"
    ) -> None:
        self.names = scenario.names
        self.cores: dict[NodeId, Any] = {}
        self.watch: Callable[[Any], None] = lambda core: None  # called after whatever a core took
        self._make = make
        self._voters = tuple(NodeId(name) for name in scenario.names)
        self._world = Simulation(scenario, seed, application=self._take)
        self._queue = self._world.queue
        self._until, self._end = scenario.duration, scenario.duration + scenario.quiet
        self._seed, self._service = seed, service
        self._journals: dict[str, bytes] = {}
        self._waiting: dict[NodeId, list[bytes]] = {}

    def go(self) -> None:
        outcome = self._world.run()
        assert outcome.error is None, outcome.error

    def alive(self) -> list[Any]:
        """The cores of those who are alive at the end."""
        return [
            self.cores[process.node] for process in self._world.processes.values() if process.alive
        ]

    def act(self, every: int, wish: Wish, to_the_end: bool = False) -> None:
        """While the faults last, or to the end, every process does this at random times."""
        for name in self.names:
            draw = Random(f"{self._seed} {name}")
            self._plan((name, every, wish, draw, self._end if to_the_end else self._until))

    def _plan(self, plan: Plan) -> None:
        _, every, _, draw, until = plan
        at = self._queue.now + 1 + round(draw.expovariate(1 / every))
        if at < until:
            self._queue.add(at, self._act, plan)

    def _act(self, plan: Plan) -> None:
        name, _, wish, draw, _ = plan
        process = self._world.processes[name]
        if process.alive and not process.is_paused and process.node in self.cores:
            self._send(process.node, wish(self.cores[process.node], draw))
        self._plan(plan)

    def _take(self, node: NodeId, item: Heard) -> None:
        if node not in self.cores:
            journal = self._journals.get(node.name, b"{}")
            self.cores[node] = self._make(node, self._voters, journal)
        core = self.cores[node]
        items: list[object] = [item]
        if isinstance(item, Event):
            items = [
                Message(item.origin, data, item.group, item.number, item.service)
                for data in item.payloads
            ]
        for one in items:
            messages = core.take(one)
            self._journals[node.name] = core.journal()
            self.watch(core)
            self._send(node, messages)
        if isinstance(item, Merged) and getattr(core, "wants_differences", False):
            for side in item.sides[1:]:
                wanted = DifferenceWanted(GROUP, item.view.id, side)
                self._queue.add(self._queue.now, self._ask, (node, wanted))

    def _ask(self, question: tuple[NodeId, DifferenceWanted]) -> None:
        """When what was delivered together has been taken."""
        node, wanted = question
        process = self._world.processes[node.name]
        if process.alive and process.node == node:
            process.give(GROUP, wanted)

    def _send(self, node: NodeId, messages: list[bytes]) -> None:
        """When what was delivered together has been taken: a step is not over before."""
        if messages:
            self._waiting.setdefault(node, []).extend(messages)
            self._queue.add(self._queue.now, self._submit, node)

    def _submit(self, node: NodeId) -> None:
        process, waiting = self._world.processes[node.name], self._waiting[node]
        if process.node != node or not process.alive:
            waiting.clear()
        while waiting and process.accepts(GROUP):
            data = waiting.pop(0)
            process.submit(GROUP, [data], len(data), self._service)
        if waiting:
            process.await_room(GROUP, lambda: self._submit(node))
        else:
            process.on_room.pop(GROUP, None)

"""Which incarnation a process starts as, and with which ones the others talk (`kernel/identity`).

A process that has its folder counts on. One that lost it asks every process that it reaches both
ways, and takes a number above what they report, or draws one. Where two incarnations first meet
they tell each other whom they know; one that turns out to be outdated is refused, and abandons
itself: that is a crash, with the folder lost, and a start as a newer incarnation.

Only runs in which a folder is lost need this, and runs with open groups, where a process knows
those that have met it: in all others the numbers are counted.
"""

from __future__ import annotations

from functools import partial

from ordercast.kernel.identity import Acquaintances, first_incarnation
from ordercast.scenario import chance
from ordercast.sim.event_queue import EventQueue
from ordercast.sim.network import Network
from ordercast.sim.process import Process
from ordercast.types import NodeId


class Identities:
    """Of all processes of one run."""

    def __init__(
        self, queue: EventQueue, network: Network, processes: dict[str, Process], seed: int
    ) -> None:
        self._queue = queue
        self._network = network
        self._processes = processes
        self._seed = seed
        self._taken = 0  # numbers that were not counted

    def watch(self) -> None:
        """Before the run begins, if it needs this: every meeting counts."""
        for process in self._processes.values():
            process.acquaintances = Acquaintances()
            process.meets = partial(self._meet, process)

    def start(self, process: Process) -> None:
        """Starts a process that is down, with the folder that it has, or with none."""
        if process.disk.incarnation is not None:
            process.start()
            return
        others = [other for other in self._processes.values() if other is not process]
        reported = [
            other.acquaintances.known.get(process.name)
            for other in others
            if other.acquaintances is not None and self._is_connected(process, other)
        ]
        self._take_number(process, reported, is_sure=len(reported) == len(others))

    def _take_number(self, process: Process, reported: list[NodeId | None], is_sure: bool) -> None:
        self._taken += 1
        process.disk.reborn = any(node is not None for node in reported)
        draw = chance.stream(self._seed, "incarnation", process.name, self._taken)
        process.start(first_incarnation(process.name, reported, is_sure, draw))

    def _is_connected(self, one: Process, other: Process) -> bool:
        """Whether the other one would answer."""
        paths = ((one.name, other.name), (other.name, one.name))
        return other.alive and not other.is_paused and not any(map(self._network.cuts.get, paths))

    def _meet(self, process: Process, sender: NodeId) -> bool:
        """Whether the process talks to this incarnation, of which it has a packet."""
        ours = process.acquaintances
        if ours is None or not process.alive:
            return True
        other = self._processes[sender.name]
        theirs = other.acquaintances
        if theirs is not None and other.node == sender and self._is_connected(process, other):
            told = list(ours.known.values())
            ours.note(theirs.known.values())
            theirs.note(told)
            for one, known in ((process, ours), (other, theirs)):
                if known.newer_than(one.node) is not None:  # after the step that is underway
                    act = partial(one.when_awake, self._abandon)
                    self._queue.add(self._queue.now + 1, act, one)
        else:
            ours.note([sender])
        if ours.newer_than(sender) is not None or ours.newer_than(process.node) is not None:
            return False
        ours.known[sender.name] = sender
        return True

    def _abandon(self, process: Process) -> None:
        """A newer incarnation of its name is known: this one ends, and a newer one still opens."""
        known = process.acquaintances
        newer = None if known is None else known.newer_than(process.node)
        if newer is not None:
            process.crash("abandoned")
            process.disk.erase()
            self._take_number(process, [newer], is_sure=False)

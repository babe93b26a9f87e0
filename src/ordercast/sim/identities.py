"""Which incarnation a process starts as, and with which ones the others talk (`kernel/identity`).

A process that has its folder counts on. One that lost it asks every process that it reaches both
ways, takes a number above what they report and tells them which, or draws one. Where two
incarnations first meet they tell each other whom they know; one that turns out to be outdated is
refused, and abandons itself: that is a crash, with the folder lost, and a start as a newer
incarnation. So does one that drew its number and founded a group alone, when it meets somebody who
knew its name before.

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
        answering = [
            other.acquaintances
            for other in others
            if other.acquaintances is not None and self._is_connected(process, other)
        ]
        reported = [one.report(process.name) for one in answering]
        node = self._take_number(process, reported, len(answering) == len(others))
        if process.disk.reborn:
            for one in answering:
                one.taken[process.name] = node
        process.start(node)

    def _take_number(
        self, process: Process, reported: list[NodeId | None], is_sure: bool
    ) -> NodeId:
        self._taken += 1
        draw = chance.stream(self._seed, "incarnation", process.name, self._taken)
        node = first_incarnation(process.name, reported, is_sure, draw)
        process.disk.reborn = any(one is not None for one in reported)
        process.disk.drawn = None if process.disk.reborn else node.incarnation
        return node

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
            outdated = [_outdated_by(process, theirs), _outdated_by(other, ours)]
            told = list(ours.known.values())
            ours.note(theirs.known.values())
            theirs.note(told)
            for one, newest in zip((process, other), outdated, strict=True):
                if newest is not None:  # it ends after the step that is underway
                    act = partial(one.when_awake, self._abandon)
                    self._queue.add(self._queue.now + 1, act, (one, one.node, newest))
            if outdated != [None, None]:
                return False
        elif other.node == sender and other.disk.drawn is not None and other.founds:
            return False  # it might have to abandon itself, and cannot be told now
        else:
            ours.note([sender])
        if ours.newer_than(sender) is not None or ours.newer_than(process.node) is not None:
            return False
        ours.known[sender.name] = sender
        return True

    def _abandon(self, order: tuple[Process, NodeId, NodeId]) -> None:
        """Another incarnation of its name counts: this one ends, and a newer one opens."""
        process, node, newest = order
        if process.node is node:
            process.crash("abandoned")
            process.disk.erase()
            process.start(self._take_number(process, [newest], is_sure=False))


def _outdated_by(process: Process, others: Acquaintances) -> NodeId | None:
    """Above which incarnation the process has to begin again, if it has to.

    Because others know a newer one; or because they knew one before its number was drawn, and it
    has founded a group since, without knowing whether its name had one.
    """
    newer, known = others.newer_than(process.node), others.known.get(process.name)
    drawn = process.disk.drawn
    if newer is None and process.founds and known is not None and drawn is not None:
        return process.node if known.incarnation < drawn else None
    return newer

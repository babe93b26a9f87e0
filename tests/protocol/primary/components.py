"""A group whose views split and merge at random, with real voters: what is searched for two
primary views, and for a secured write that a later primary view does not have.

The model is harsher than any family. A view is any set of live members. Its members install it when
they like, or never. A packet waits as long as it likes, or is lost. A process crashes between two
steps, or when a step is on its disk and nothing of it has left. Its record stays, its state does
not.

A view comes about in one of two ways, as in Newtop. *Formed*: the initiator's state is everybody's,
and a member with the state of a later primary view does not come along. *Shrunk*: some of those
that are in a view go on, with the same state.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from ordercast.kernel.step import Step
from ordercast.protocol.primary.packets import (
    PrimaryAttempt,
    PrimaryReport,
    PrimaryView,
    VoterRecord,
    VoterReport,
)
from ordercast.protocol.primary.rules import covers, has_majority
from ordercast.protocol.primary.voter import Voter, VoterPhase
from ordercast.types import NodeId, View

MakeVoter = Callable[..., Voter]
Packets = PrimaryReport | PrimaryAttempt


class Broken(AssertionError):
    """What must never be."""


class Offer(NamedTuple):
    """A view that a member may install, and how it comes about."""

    view: View
    parent: int | None  # shrunk from this one; None: it is formed
    state: frozenset[int] = frozenset()  # formed: that of the initiator
    initiator: NodeId | None = None
    report: VoterReport | None = None


class Process:
    def __init__(self, node: NodeId, voter: Voter) -> None:
        self.node = node
        self.voter = voter
        self.record: VoterRecord | None = None
        self.alive = True
        self.state: frozenset[int] = frozenset()  # the writes that its application has
        self.offers: list[Offer] = []

    @property
    def view(self) -> int | None:
        return self.voter.view.id if self.alive and self.voter.view is not None else None


class Components:
    def __init__(self, names: tuple[str, ...], chance: Random, make: MakeVoter = Voter) -> None:
        self.names = names
        self.chance = chance
        self.make = make
        self.processes = {
            name: Process(NodeId(name), make(NodeId(name), "g", names)) for name in names
        }
        self.links: dict[tuple[NodeId, NodeId], deque[Packets]] = {}
        self.views = 0
        self.closed: set[int] = set()  # views whose last write is decided
        self.formed: dict[int, tuple[str, ...]] = {0: tuple(sorted(names))}
        self.writes = 0
        self.secured: dict[int, int] = {}  # writes, and the number of their primary view
        self.counts = dict.fromkeys(["formed", "secured", "outside"], 0)

    # --- one action --------------------------------------------------------------------------

    def act(self) -> None:
        chance = self.chance.random()
        if chance < 0.62:
            self.deliver()
        elif chance < 0.80:
            self.install()
        elif chance < 0.87:
            self.write()
        elif chance < 0.92:
            self.shrink()
        elif chance < 0.96:
            self.form()
        elif chance < 0.975:
            self.lose()
        elif chance < 0.985:
            self.crash(self.chance.choice(self.alive()) if self.alive() else None)
        else:
            self.restart()

    def alive(self) -> list[Process]:
        return [one for one in self.processes.values() if one.alive]

    def some(self, of: list[Process]) -> list[Process]:
        """Any of them, at least one; often all."""
        if self.chance.random() < 0.3:
            return list(of)
        return self.chance.sample(of, self.chance.randint(1, len(of)))

    def new_view(self, members: list[Process]) -> View:
        self.views += 1
        return View("g", self.views, tuple(sorted(one.node for one in members)))

    def form(self) -> None:
        if not self.alive():
            return
        members = self.some(self.alive())
        initiator = max(members, key=lambda one: one.voter.coverage.last.number)
        if self.chance.random() < 0.3:
            initiator = members[0]
        view = self.new_view(members)
        offer = Offer(view, None, initiator.state, initiator.node, initiator.voter.report)
        for one in members:
            one.offers.append(offer)
        self.take(initiator, offer)

    def shrink(self) -> None:
        there = sorted({one.view for one in self.alive() if one.view is not None})
        if not there:
            return
        parent = self.chance.choice(there)
        members = self.some([one for one in self.alive() if one.view == parent])
        self.closed.add(parent)
        state = frozenset().union(*(one.state for one in members))
        offer = Offer(self.new_view(members), parent)
        for one in members:
            one.state = state
            one.offers.append(offer)

    def install(self) -> None:
        ready = [one for one in self.alive() if one.offers]
        if ready:
            process = self.chance.choice(ready)
            self.take(process, self.chance.choice(process.offers[-2:]))

    def take(self, process: Process, offer: Offer) -> None:
        process.offers = [one for one in process.offers if one.view.id > offer.view.id]
        if offer.parent is None:
            assert offer.initiator is not None
            assert offer.report is not None
            if not process.voter.may_take(offer.initiator, offer.report):
                return  # it has the state of a later primary view
            process.state = offer.state
            process.voter.take(offer.report)
        elif process.view != offer.parent:
            return
        self.apply(process, lambda step: process.voter.install(step, offer.view))

    def deliver(self) -> None:
        ready = [ends for ends, waiting in self.links.items() if waiting]
        if ready:
            sender, to = self.chance.choice(ready)
            packet = self.links[sender, to].popleft()
            process = self.processes[to.name]
            if process.alive and process.node == to:
                self.apply(process, lambda step: process.voter.receive(step, sender, packet))

    def lose(self) -> None:
        ready = [waiting for waiting in self.links.values() if waiting]
        if ready:
            self.chance.choice(ready).popleft()

    def write(self) -> None:
        """A member of the primary view writes. It is secured if all its members have it."""
        able = [
            one
            for one in self.alive()
            if one.voter.phase is VoterPhase.PRIMARY and one.view not in self.closed
        ]
        if not able:
            return
        writer = self.chance.choice(able)
        view = writer.voter.view
        assert view is not None
        self.writes += 1
        with_it = [one for one in self.alive() if one.view == view.id]
        for one in with_it:
            one.state |= {self.writes}
        if {one.node for one in with_it} == set(view.members):
            self.secured[self.writes] = writer.voter.standing.number
            self.counts["secured"] += 1

    def crash(self, process: Process | None) -> None:
        if process is not None and process.alive:
            process.alive, process.offers, process.state = False, [], frozenset()
            last = max(self.formed)
            view = PrimaryView(last, self.formed[last])
            there = (one for one in self.alive() if one.node.name in view.members)
            if not any(covers(one.voter.coverage, view) for one in there):
                self.secured = {}
            for (sender, to), waiting in self.links.items():
                if process.node in (sender, to):
                    for _ in range(self.chance.randint(0, len(waiting))):
                        waiting.pop()

    def restart(self) -> None:
        dead = [one for one in self.processes.values() if not one.alive]
        if dead:
            process = self.chance.choice(dead)
            process.node = NodeId(process.node.name, process.node.incarnation + 1)
            process.voter = self.make(process.node, "g", self.names, process.record)
            process.alive = True

    # --- what comes of it --------------------------------------------------------------------

    def apply(self, process: Process, call: Callable[[Step], None]) -> None:
        step = Step(0)
        call(step)
        if step.records and self.chance.random() < 0.03:
            self.crash(process)  # before the disk had it
            return
        for record in step.records:
            assert isinstance(record, VoterRecord)
            process.record = record
        if process.voter.phase is VoterPhase.PRIMARY and step.records:
            self.note_formed(process)
        if step.records and self.chance.random() < 0.05:
            self.crash(process)  # before anything left
            return
        self.counts["outside"] += process.voter.phase is VoterPhase.OUTSIDE
        for to, packet, _, _ in step.sent:
            assert isinstance(packet, Packets)
            for one in to:
                assert isinstance(one, NodeId)
                self.links.setdefault((process.node, one), deque()).append(packet)

    def note_formed(self, process: Process) -> None:
        last = process.voter.standing.last
        self.counts["formed"] += last.number not in self.formed
        before = self.formed.setdefault(last.number, last.members)
        if before != last.members:
            raise Broken(f"number {last.number} is {before} and {last.members}")
        check_chain([PrimaryView(*each) for each in sorted(self.formed.items())])
        # A member that is behind may form a view that others have left: it secures nothing there.
        earlier = {write for write, number in self.secured.items() if number < last.number}
        if not earlier <= process.state:
            raise Broken(f"{process.node} forms {last} without {earlier - process.state}")


def check_chain(views: list[PrimaryView]) -> None:
    for earlier, later in itertools.pairwise(views):
        if not has_majority(earlier.members, later.members):
            raise Broken(f"{later} has no majority of {earlier}")


def search(
    seeds: range, names: tuple[str, ...], actions: int, make: MakeVoter = Voter
) -> dict[str, int]:
    """Raises Broken. Returns how often anything of interest came about."""
    total: dict[str, int] = {}
    for seed in seeds:
        group = Components(names, Random(seed), make)
        for _ in range(actions):
            group.act()
        for what, count in group.counts.items():
            total[what] = total.get(what, 0) + count
    return total

"""One node of the published feed: its inputs, and which rules they are for.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994). propagation.py has Figure 2, moves.py
Figure 3, transition.py Figure 4, failures.py sections 5.1 and 5.2, recovery.py section 5.3.

Here is what the paper leaves to its surroundings, in the reading that is kindest to it:
 1. Messages go by link: FIFO, nothing is lost but by a crash, and a partition holds them
    (section 5.4). The numbers of a link and its FIFO queue are the paper's (links.py).
 2. All that a node knows is on disk before anything leaves it.
 3. A parent that says nothing for `detect` has failed. Only its first child looks, and the others
    believe it.
 4. The log is never cut short.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step, Timer
from ordercast.studies.published_feed.inputs import Move, Posting
from ordercast.studies.published_feed.links import NumberedLink
from ordercast.studies.published_feed.options import PublishedFeedOptions
from ordercast.studies.published_feed.packets import (
    MOST_MESSAGES,
    OWN,
    Ack,
    AddChild,
    Ask,
    Batch,
    Beat,
    DeleteChild,
    Flushed,
    Granted,
    Hello,
    Item,
    Kind,
    Logged,
    Order,
    Report,
    Resumed,
    Returned,
    Saved,
)
from ordercast.studies.published_feed.propagation import PublishedPropagation
from ordercast.studies.published_feed.recovery import PublishedRecovery
from ordercast.studies.published_feed.state import PublishedState
from ordercast.studies.published_feed.view import TreeView
from ordercast.types import Event, NodeId, Payloads


def build(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    return [PublishedNode(me, plan, chance, records) for plan in plans]


class PublishedNode:
    takes: Collection[type[Input]] = (Move, Posting)

    def __init__(
        self, me: NodeId, plan: Plan, chance: Random, records: Sequence[Packet] = ()
    ) -> None:
        options = plan.options
        assert isinstance(options, PublishedFeedOptions)
        self.me, self.group, self.options, self._chance = me, plan.group, options, chance
        self.groups: tuple[str, ...] = (plan.group,)
        self.members = plan.members
        self.state = PublishedState(
            me, plan.group, options, TreeView.first(me.name, plan.members, options)
        )
        self.propagation = PublishedPropagation(self.state)
        self.moves, self.failures = self.propagation.moves, self.propagation.failures
        self.recovery = PublishedRecovery(self.state, self.propagation)
        self._heard: dict[str, int] = {}
        self._posts: list[Posting] = []  # those that wait for a batch
        self._saved: Saved | None = None
        self._restore([record for record in records if record.group == plan.group])

    def _restore(self, records: list[Packet]) -> None:
        for record in records:
            if isinstance(record, Logged):
                self.state.restore_entry(record)
            elif isinstance(record, Saved):
                self.state.restore(record)
                self.moves.restore(record)
                self._saved = record

    # --- inputs --------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        self.state.note_parent(step)
        self._heard = dict.fromkeys(self.state.view.correspondents, step.now)
        step.set_timer("beat", self.options.beat)
        if self.me.incarnation:
            self.recovery.start(step)
        self._save(step)

    def accepts(self, group: str, now: int) -> bool:
        if self.recovery.unanswered or len(self.state.log) >= MOST_MESSAGES:
            return False
        return self.options.posts == "free" or bool(self._posts)

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        reply = self._answers()
        kind: Kind = "normal" if reply is None else "reply"
        message = self.propagation.post(step, kind, payloads, size, reply)
        self.state.deliver(step, message)
        self._save(step)
        return self.state.event(message)

    def _answers(self) -> tuple[str, int] | None:
        """The event that the next post answers."""
        state = self.state
        if self.options.posts == "given":
            to = self._posts.pop(0).reply_to
            return (to, state.newest[to]) if to else None
        return state.newest_of_all if self._chance.random() < self.options.replies else None

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        self._refuse(sender, packet)
        name = sender.name
        link = self.state.link(name)
        if sender.incarnation > link.node.incarnation:
            link.node = sender
        self._heard[name] = step.now
        if isinstance(packet, Beat):
            return
        if isinstance(packet, Item):
            if packet.tag > link.received:
                link.queue[packet.tag] = packet
            else:
                step.send(link.node, Ack(self.group, packet.tag, False))
        elif isinstance(packet, Ack):
            self._acknowledged(name, link, packet)
        else:
            self._give(step, sender, packet)
        self._drain(step)
        self._save(step)

    def expire(self, step: Step, timer: Timer) -> None:
        if timer == "hello":
            self.recovery.ask(step)
        elif timer == "beat":
            if self.state.view.children:
                step.send(tuple(self.state.view.children), Beat(self.group), DATAGRAM)
            self._look(step)
            step.set_timer("beat", self.options.beat)
        self._drain(step)
        self._save(step)

    def on(self, step: Step, given: Input) -> None:
        if isinstance(given, Move):
            if given.target not in self.members or given.target == self.me.name:
                raise UsageError(f"{self.me.name} cannot move to {given.target!r}")
            self.moves.ask(step, given.target)
        elif isinstance(given, Posting):
            if given.reply_to and given.reply_to not in self.state.newest:
                what = f"{self.me.name} has no message of {given.reply_to!r} to answer"
                raise UsageError(f"{what}: post later")
            self._posts.append(given)
        self._drain(step)
        self._save(step)

    def stable_up_to(self, group: str) -> int:
        return 0

    def counters(self, group: str) -> dict[str, int]:
        return {**self.state.counters, "logged": len(self.state.log)}

    # --- packets -------------------------------------------------------------------------------

    def _refuse(self, sender: NodeId, packet: Packet) -> None:
        if sender.name not in self.members or sender.name == self.me.name:
            raise PeerError(f"{sender} is no other node of this feed")
        strangers = [name for name in packet.makers() if name not in self.members]
        if strangers:
            raise PeerError(f"{sender} sent a message of {strangers[0]!r}, who is no node here")
        if isinstance(packet, Item):
            received = self.state.link(sender.name).received
            if packet.tag > received + MOST_MESSAGES:
                why = f"{received} have come, and {MOST_MESSAGES} more is the limit"
                raise PeerError(f"{sender} numbered a message {packet.tag}: {why}")

    def _give(self, step: Step, sender: NodeId, packet: Packet) -> None:
        name = sender.name
        if isinstance(packet, Granted):
            self.moves.granted(step, name, packet)
        elif isinstance(packet, AddChild):
            self.moves.child_added(name, packet.child)
        elif isinstance(packet, DeleteChild):
            self.moves.child_deleted(name, packet.child)
        elif isinstance(packet, Ask):
            self.failures.asked(step, name, packet)
        elif isinstance(packet, Report):
            self.failures.reported(step, name, packet)
        elif isinstance(packet, Order):
            self.failures.ordered(step, packet)
        elif isinstance(packet, Batch):
            self.failures.batch(step, name, packet)
        elif isinstance(packet, Returned):
            self.failures.returned(step, packet)
        elif isinstance(packet, Hello):
            self.recovery.hello(step, sender)
        elif isinstance(packet, Flushed):
            self.recovery.flushed(step, name, packet)
        elif isinstance(packet, Resumed):
            self.recovery.resumed(step, name, packet)

    def _acknowledged(self, sender: str, link: NumberedLink, ack: Ack) -> None:
        """Figure 2: an acknowledgement of the parent counts, also one in its place (5.2)."""
        if link.unacknowledged.pop(ack.tag, None) is None or not ack.new:
            return
        view = self.state.view
        if not ack.instead and sender == view.parent:
            self.state.vectors.acknowledged_by_parent(stands_still=False)
        elif ack.instead and ack.instead == view.parent:
            others = (view.grandparent, view.coordinator_of(ack.instead))
            if sender in others:
                self.state.vectors.acknowledged_by_parent(stands_still=True)

    def _drain(self, step: Step) -> None:
        """Takes whatever is next in a stream and need not wait."""
        progress = True
        while progress:
            progress = False
            for peer, link in list(self.state.links.items()):
                while (item := link.next()) is not None and not self._must_wait(peer, item):
                    link.take()
                    new = self._take(step, peer, item)
                    step.send(link.node, Ack(self.group, item.tag, new, item.instead))
                    progress = True

    def _must_wait(self, peer: str, item: Item) -> bool:
        unanswered = self.recovery.unanswered
        return (
            (bool(unanswered) and peer not in unanswered)
            or self.moves.blocks(peer)
            or self.failures.in_transition(item.instead)
        )

    def _take(self, step: Step, peer: str, item: Item) -> bool:
        if item.instead:
            return self.failures.take_instead(step, peer, item)
        take = self.propagation.take
        if self.recovery.unanswered:
            return take(step, item.message, OWN, "recovered", peer)
        if peer == self.state.view.parent:
            return take(step, item.message, item.previous, "parent", peer)
        if peer == self.moves.old_parent:
            return take(step, item.message, item.previous, "old parent", peer)
        return take(step, item.message, item.previous, "child", peer)

    # --- around them ---------------------------------------------------------------------------

    def _look(self, step: Step) -> None:
        """The first child of a parent that says nothing is the coordinator."""
        parent = self.state.view.parent
        if parent is None or parent in self.failures.current or self.recovery.unanswered:
            return
        heard = self._heard.setdefault(parent, step.now)
        is_first = self.state.view.coordinator_of(parent) == self.me.name
        if is_first and step.now - heard > self.options.detect:
            self.failures.suspect(step, parent)

    def _save(self, step: Step) -> None:
        state, moves, view, vectors = self.state, self.moves, self.state.view, self.state.vectors
        old = moves.old_vector
        saved = Saved(
            self.group,
            view.own_row(),
            view.parent_row(),
            {child: tuple(row) for child, row in view.of_children.items()},
            vectors.own.value(),
            vectors.parent.value(),
            dict(vectors.made_by_child),
            dict(vectors.received),
            state.saved_links(),
            tuple(state.waiting.values()),
            moves.target,
            moves.old_parent,
            None if old is None else old.value(),
            tuple((kept.origin, kept.sequence) for kept in moves.held),
        )
        if saved != self._saved:
            self._saved = saved
            step.persist(saved)

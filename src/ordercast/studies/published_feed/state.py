"""What all rules of a node share: its view, vectors, log and links, and what it counts."""

from __future__ import annotations

from ordercast.kernel.step import Step
from ordercast.studies.published_feed.links import Kept, NumberedLink
from ordercast.studies.published_feed.log import MessageLog
from ordercast.studies.published_feed.options import PublishedFeedOptions
from ordercast.studies.published_feed.packets import (
    Item,
    Logged,
    Message,
    Saved,
    SavedLink,
    SavedWait,
)
from ordercast.studies.published_feed.vectors import StateVector, StateVectors
from ordercast.studies.published_feed.view import TreeView
from ordercast.types import Event, NodeId

COUNTERS = (
    "posted delivered duplicates resent diffused returned recovered transitions moves lacking"
).split()


class PublishedState:
    def __init__(
        self, me: NodeId, group: str, options: PublishedFeedOptions, view: TreeView
    ) -> None:
        self.me, self.name, self.group, self.options = me, me.name, group, options
        self.view = view
        self.vectors = StateVectors(self.name, view.children, view.siblings)
        self.log = MessageLog()
        # Of `vector = "next"`: messages that wait for the one before them, not in the log yet.
        self.waiting: dict[tuple[str, int], SavedWait] = {}
        self.links: dict[str, NumberedLink] = {}
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.newest: dict[str, int] = {}  # of each other node: the last event delivered
        self.newest_of_all: tuple[str, int] | None = None

    def link(self, peer: str) -> NumberedLink:
        found = self.links.get(peer)
        if found is None:
            found = self.links[peer] = NumberedLink(peer)
        return found

    def send(self, step: Step, peer: str, kept: Kept) -> bool:
        """Sends a message of the log. False: the link is closed, and it is kept."""
        link = self.link(peer)
        if link.closed:
            link.kept.append(kept)
            return False
        self._post(step, link, link.number(kept), kept)
        return True

    def resend(self, step: Step, peer: str) -> None:
        """Sends what was not acknowledged, with the numbers that it had."""
        link = self.link(peer)
        for tag, again in link.unacknowledged.items():
            self._post(step, link, tag, again)

    def open(self, step: Step, peer: str) -> int:
        """Sends all that was kept. Returns how many of these are not in place of a failed node."""
        link = self.link(peer)
        link.closed = False
        kept, link.kept = link.kept, []
        for one in kept:
            self._post(step, link, link.number(one), one)
        return sum(not one.instead for one in kept)

    def _post(self, step: Step, link: NumberedLink, tag: int, kept: Kept) -> None:
        key = kept.origin, kept.sequence
        waits = self.waiting.get(key)
        message, previous = (waits.message, waits.previous) if waits else self.log.find(*key)
        step.send(link.node, Item(self.group, tag, message, previous, kept.instead))

    def deliver(self, step: Step, message: Message) -> None:
        if message.is_control:
            return
        self.counters["delivered"] += 1
        self._note_newest(message)
        step.deliver(self.event(message))

    def _note_newest(self, message: Message) -> None:
        if message.origin != self.name and not message.is_control:
            self.newest[message.origin] = message.number
            self.newest_of_all = message.origin, message.number

    def event(self, message: Message) -> Event:
        origin = NodeId(message.origin, message.incarnation)
        return Event(
            *(self.group, origin, message.number, message.payloads),
            size=message.size,
            reply=message.reply,
        )

    def note_parent(self, step: Step) -> None:
        parent, peer = self.view.parent, None
        if parent is not None:
            peer = f"{parent}#{self.link(parent).node.incarnation}"
        step.note("parent", group=self.group, peer=peer)

    # --- on disk ---

    def restore(self, saved: Saved) -> None:
        view = {child: tuple(row) for child, row in saved.of_children.items()}
        self.view = TreeView(saved.own, saved.of_parent, view)
        self.vectors = StateVectors(self.name, (), ())
        self.vectors.own = StateVector.of(saved.vector)
        self.vectors.parent = StateVector.of(saved.parent_vector)
        self.vectors.made_by_child = dict(saved.made_by_children)
        self.vectors.received = dict(saved.received)
        self.waiting = {one.message.key: one for one in saved.waiting}
        self.links = {one.peer: NumberedLink.of(one) for one in saved.links}

    def restore_entry(self, logged: Logged) -> None:
        self.log.add(logged.message, logged.previous)
        self._note_newest(logged.message)

    def saved_links(self) -> tuple[SavedLink, ...]:
        return tuple(link.saved(peer) for peer, link in self.links.items())

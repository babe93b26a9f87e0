"""A node changes its parent: Figure 3.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994), section 4.

Rules.
 1. v sends join_request through the tree like any message. Until the new parent's ack comes, v
    sends nothing more upwards: what it makes and gets from below waits for the new parent.
 2. The new parent NP sends drop through the tree, and only then takes v as a child.
 3. v takes nothing from NP until the drop has come from the old parent OP.
 4. OP passes the drop on, also to v, and then forgets v.
Nobody asks whether NP is below v, or about to move there itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.studies.published_feed.links import Kept
from ordercast.studies.published_feed.packets import (
    AddChild,
    DeleteChild,
    Granted,
    Message,
    Saved,
)
from ordercast.studies.published_feed.state import PublishedState
from ordercast.studies.published_feed.vectors import StateVector

if TYPE_CHECKING:
    from ordercast.studies.published_feed.propagation import PublishedPropagation


class PublishedMoves:
    def __init__(self, state: PublishedState, propagation: PublishedPropagation) -> None:
        self.state = state
        self.propagation = propagation
        self.target = ""  # the new parent, from the request until its ack
        self.held: list[Kept] = []  # what goes up to it then
        self.old_parent = ""  # from the ack until the drop
        self.old_vector: StateVector | None = None  # what we know of it
        self._dropped = False  # the drop came before the ack

    def restore(self, saved: Saved) -> None:
        self.target, self.old_parent = saved.target, saved.old_parent
        self.held = [Kept(*one) for one in saved.held]
        self.old_vector = StateVector.of(saved.old_vector) if saved.old_vector is not None else None

    @property
    def is_asking(self) -> bool:
        return self.target != ""

    def blocks(self, peer: str) -> bool:
        """Rule 3."""
        return self.old_parent != "" and peer == self.state.view.parent

    # --- node v ------------------------------------------------------------------------------

    def ask(self, step: Step, target: str) -> None:
        view = self.state.view
        if view.parent in (None, target) or self.is_asking or self.old_parent:
            return
        row = tuple(view.children)
        self.propagation.post(step, "join", mover=self.state.name, target=target, row=row)
        self.target = target
        self._dropped = False

    def granted(self, step: Step, sender: str, packet: Granted) -> None:
        if sender != self.target:
            return
        state, view = self.state, self.state.view
        assert view.parent is not None
        self.old_parent, self.old_vector = view.parent, state.vectors.parent
        view.set_parent(sender, packet.row)
        state.vectors.parent = StateVector.of(packet.vector)
        state.vectors.own.up = packet.vector.sent_down
        state.counters["moves"] += 1
        self.target = ""
        if self._dropped:
            self._finish()
        state.note_parent(step)
        held, self.held = self.held, []
        for kept in held:
            self.propagation.send_up(step, kept)

    def take_from_old_parent(self, previous: str) -> None:
        """Figure 2, with the vector of the old parent."""
        vectors = self.state.vectors
        vectors.own.up += 1
        vectors.own.sent_down += 1
        if self.old_vector is not None:
            self.old_vector.sent_down += 1
            self.old_vector.note_previous(previous)

    def _finish(self) -> None:
        self.old_parent, self.old_vector, self._dropped = "", None, False

    # --- the others --------------------------------------------------------------------------

    def obey(self, step: Step, message: Message) -> None:
        """A control message has come, and was passed on."""
        state = self.state
        if message.kind == "join" and message.target == state.name:
            self._grant(step, message)
        elif message.kind == "drop" and message.mover == state.name:
            if self.old_parent:
                self._finish()
            else:
                self._dropped = True
        elif message.kind == "drop" and message.mover in state.view.children:
            state.view.remove_child(message.mover)
            state.vectors.remove_child(message.mover)
            self._inform(step, DeleteChild(state.group, message.mover))

    def _grant(self, step: Step, message: Message) -> None:
        state, mover = self.state, message.mover
        if mover in state.view.children:
            return
        self.propagation.post(step, "drop", mover=mover)
        state.view.add_child(mover, message.row)
        state.vectors.add_child(mover)
        self._inform(step, AddChild(state.group, mover), besides=mover)
        granted = Granted(state.group, state.vectors.own.value(), state.view.own_row())
        step.send(state.link(mover).node, granted)

    def _inform(self, step: Step, packet: Packet, besides: str = "") -> None:
        for peer in self.state.view.correspondents:
            if peer != besides:
                step.send(self.state.link(peer).node, packet)

    def child_added(self, sender: str, child: str) -> None:
        state = self.state
        if sender == state.view.parent:
            if child not in state.view.siblings:
                state.view.siblings.append(child)
            state.vectors.parent.down.setdefault(child, 0)
        elif child not in (row := state.view.of_children.get(sender, [child])):
            row.append(child)

    def child_deleted(self, sender: str, child: str) -> None:
        state = self.state
        if sender == state.view.parent:
            if child in state.view.siblings:
                state.view.siblings.remove(child)
            state.vectors.parent.down.pop(child, None)
        elif child in (row := state.view.of_children.get(sender, [])):
            row.remove(child)

"""A failed node comes back: section 5.3.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994).

Rules.
 1. f asks all correspondents. Each sends what f has not acknowledged, and then that this was all;
    its parent adds its V.
 2. Then f sends that correspondent what it has not acknowledged itself.
 3. When all have answered, W grows by what was new, and f sends its V to its children, who take it
    as their V^P. Until then nobody sends f anything else, and f takes nothing else: so the vectors
    are told at one moment, which the paper leaves open.
"""

from __future__ import annotations

from ordercast.kernel.step import DATAGRAM, Step
from ordercast.studies.published_feed.packets import Flushed, Hello, Resumed
from ordercast.studies.published_feed.propagation import PublishedPropagation
from ordercast.studies.published_feed.state import PublishedState
from ordercast.studies.published_feed.vectors import StateVector
from ordercast.types import NodeId


class PublishedRecovery:
    def __init__(self, state: PublishedState, propagation: PublishedPropagation) -> None:
        self.state = state
        self.propagation = propagation
        self.unanswered: list[str] = []  # correspondents; empty: we do not recover
        self._answered: dict[str, int] = {}  # by peer: the incarnation that we have answered

    # --- node f ------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        self.unanswered = list(self.state.view.correspondents)
        for peer in self.unanswered:
            self.state.link(peer).closed = True
        self.ask(step)

    def ask(self, step: Step) -> None:
        if self.unanswered:
            step.send(tuple(self.unanswered), Hello(self.state.group), DATAGRAM)
            step.set_timer("hello", self.state.options.beat)

    def flushed(self, step: Step, sender: str, packet: Flushed) -> None:
        if sender not in self.unanswered:
            return
        state = self.state
        self.unanswered.remove(sender)
        is_parent = sender == state.view.parent
        if is_parent and packet.vector is not None:
            state.vectors.parent = StateVector.of(packet.vector)
        state.resend(step, sender)
        count = state.open(step, sender)
        if is_parent:
            state.vectors.send_to_parent(count)
        if not self.unanswered:
            self._resume(step)

    def _resume(self, step: Step) -> None:
        state = self.state
        state.vectors.own.sent_down += self.propagation.recovered
        for child in state.view.children:
            step.send(state.link(child).node, Resumed(state.group, state.vectors.own.value()))
        if state.view.parent is not None:
            step.send(state.link(state.view.parent).node, Resumed(state.group))

    # --- its correspondents ------------------------------------------------------------------

    def hello(self, step: Step, sender: NodeId) -> None:
        state, peer = self.state, sender.name
        if self._answered.get(peer, -1) >= sender.incarnation:
            return
        self._answered[peer] = sender.incarnation
        self.propagation.failures.end(step, peer)
        state.resend(step, peer)
        state.open(step, peer)
        state.link(peer).closed = True
        vector = state.vectors.own.value() if peer in state.view.children else None
        step.send(sender, Flushed(state.group, vector))
        if peer == state.view.parent:
            state.note_parent(step)  # as another incarnation

    def resumed(self, step: Step, sender: str, packet: Resumed) -> None:
        state = self.state
        is_parent = sender == state.view.parent
        if is_parent and packet.vector is not None:
            state.vectors.parent = StateVector.of(packet.vector)
        count = state.open(step, sender)
        if is_parent:
            state.vectors.send_to_parent(count)

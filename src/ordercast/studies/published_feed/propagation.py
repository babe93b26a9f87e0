"""How a message goes on from node to node: Figure 2.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994), section 3; for messages that come
another way, sections 5.1 to 5.3.

Rules.
 1. A new message goes to all correspondents but the one that it came from.
 2. It is new if its number is above MV[origin], which then grows by one: as printed.
 3. From a correspondent of a failed node it counts as if that one had sent it, but V^P stands
    still.
 4. What a node missed while it was down it takes and does not forward (section 5.3).
With `vector = "next"` a message that is not its origin's next one waits, and with `recovery =
"forwards"` rule 4 is left out: these are not the paper's.
"""

from __future__ import annotations

from ordercast.kernel.step import Step
from ordercast.studies.published_feed.failures import PublishedFailures
from ordercast.studies.published_feed.links import Kept
from ordercast.studies.published_feed.moves import PublishedMoves
from ordercast.studies.published_feed.packets import (
    OWN,
    UP,
    Kind,
    Logged,
    Message,
    SavedWait,
    Source,
)
from ordercast.studies.published_feed.state import PublishedState
from ordercast.types import Payloads


class PublishedPropagation:
    def __init__(self, state: PublishedState) -> None:
        self.state = state
        self.moves = PublishedMoves(state, self)
        self.failures = PublishedFailures(state, self)
        self.recovered = 0  # messages since this incarnation began to recover

    # --- own messages ------------------------------------------------------------------------

    def post(
        self,
        step: Step,
        kind: Kind,
        payloads: Payloads | None = None,
        size: int = 0,
        reply: tuple[str, int] | None = None,
        mover: str = "",
        target: str = "",
        row: tuple[str, ...] = (),
    ) -> Message:
        state = self.state
        sequence, incarnation = state.vectors.generate(), state.me.incarnation
        message = Message(
            state.name,
            sequence,
            incarnation,
            kind,
            payloads or [],
            size,
            reply,
            mover,
            target,
            row,
        )
        state.counters["posted"] += 1
        self._log(step, message, OWN)
        self._send_down(step, message, besides="")
        at_once = kind == "drop" and state.options.drop == "at once"
        self.send_up(step, Kept(*message.key), at_once)
        return message

    # --- messages of others ------------------------------------------------------------------

    def take(self, step: Step, message: Message, previous: str, source: Source, peer: str) -> bool:
        """Whether the message was new."""
        vectors, waiting = self.state.vectors, self.state.waiting
        place = vectors.place(message)
        waits = place == "later" and self.state.options.vector == "next"
        if place == "old" or (waits and message.key in waiting):
            self.state.counters["duplicates"] += 1
            return False
        if waits:
            waiting[message.key] = SavedWait(message, previous, source, peer)
            return True
        self._enter(step, message, previous, source, peer)
        origin = message.origin
        while waiting:
            found = waiting.pop((origin, vectors.received[origin] + 1), None)
            if found is None:
                break
            self._enter(step, found.message, found.previous, found.source, found.peer)
        return True

    def _enter(
        self, step: Step, message: Message, previous: str, source: Source, peer: str
    ) -> None:
        state, vectors = self.state, self.state.vectors
        vectors.count_received(message.origin)
        mine = UP
        if source == "parent":
            vectors.take_from_parent(previous)
        elif source == "old parent":
            self.moves.take_from_old_parent(previous)
        elif source == "instead":
            vectors.take_instead_of_parent()
        elif source == "child":
            vectors.take_from_child(peer, message.origin)
            mine = peer
        else:
            is_parent = peer == state.view.parent
            vectors.recover(peer, is_parent)
            self.recovered += 1
            state.counters["recovered"] += 1
            mine = UP if is_parent else peer
        self._log(step, message, mine)
        if source != "recovered" or state.options.recovery == "forwards":
            self._send_down(step, message, besides=mine)
            if mine != UP:
                self.send_up(step, Kept(*message.key))
        self.moves.obey(step, message)

    def _log(self, step: Step, message: Message, previous: str) -> None:
        self.state.log.add(message, previous)
        step.persist(Logged(self.state.group, message, previous))
        if previous != OWN or message.is_control:  # a post is delivered by who posted it
            self.state.deliver(step, message)

    # --- where it goes -----------------------------------------------------------------------

    def _send_down(self, step: Step, message: Message, besides: str) -> None:
        kept = Kept(*message.key)
        for child in list(self.state.view.children):
            if child == besides:
                continue
            if child in self.failures.current:
                self.failures.route(step, child, kept)
            else:
                self.state.send(step, child, kept)

    def send_up(self, step: Step, kept: Kept, at_once: bool = False) -> None:
        state, parent = self.state, self.state.view.parent
        if parent is None:
            return
        if self.moves.is_asking and not at_once:
            self.moves.held.append(kept)
        elif parent in self.failures.current:
            self.failures.route(step, parent, kept)
        elif state.send(step, parent, kept):
            state.vectors.send_to_parent()

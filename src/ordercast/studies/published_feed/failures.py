"""A correspondent has failed: transition and diffusion, sections 5.1 and 5.2.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994). Figure 4 itself is transition.py.

Rules.
 1. The coordinator CO is the failed node's first child by name (the paper leaves the election to
    others). It notices the silence, and asks all correspondents of the failed node f.
 2. From its answer on, a correspondent keeps for f what would go to f, and in a queue for CO. "The
    last so many messages" of Figure 4 are those before its answer.
 3. A correspondent knows from its order how many batches will come. When it has them all, it sorts
    them by class and takes the messages as if f had sent them. Then its queue goes to CO.
 4. CO takes what comes to it as from a parent, and passes it on to the other correspondents of f.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.studies.published_feed.links import Kept
from ordercast.studies.published_feed.packets import (
    CLASSES,
    OWN,
    Ask,
    Batch,
    Item,
    Message,
    Order,
    Report,
    Resend,
    Returned,
    Source,
)
from ordercast.studies.published_feed.state import PublishedState
from ordercast.studies.published_feed.transition import ParentReport, plan

if TYPE_CHECKING:
    from ordercast.studies.published_feed.propagation import PublishedPropagation


class FailedNode:
    """One failed correspondent, as this node sees it."""

    def __init__(self, failed: str, coordinator: str, correspondents: tuple[str, ...]) -> None:
        self.failed = failed
        self.coordinator = coordinator
        self.correspondents = correspondents
        self.logged = 0  # how long our log was when we answered
        self.queue: list[Kept] = []  # what goes to CO when the transition is over
        self.batches: list[tuple[Message, ...]] = []
        self.expects: int | None = None
        self.is_over = False  # the transition: diffusion has begun
        self.reports: dict[str, Report] = {}  # at CO


class PublishedFailures:
    def __init__(self, state: PublishedState, propagation: PublishedPropagation) -> None:
        self.state = state
        self.propagation = propagation
        self.current: dict[str, FailedNode] = {}

    def in_transition(self, failed: str) -> bool:
        failure = self.current.get(failed)
        return failure is not None and not failure.is_over

    # --- transition --------------------------------------------------------------------------

    def suspect(self, step: Step, failed: str) -> None:
        """The coordinator has heard nothing of its parent."""
        state = self.state
        above = [] if state.view.grandparent is None else [state.view.grandparent]
        correspondents = (*above, *state.view.siblings)
        incarnation = state.link(failed).node.incarnation
        state.counters["transitions"] += 1
        ask = Ask(state.group, failed, incarnation, correspondents)
        self._tell(step, correspondents, ask)
        self._open(step, state.name, ask)

    def asked(self, step: Step, sender: str, ask: Ask) -> None:
        if ask.failed not in self.state.view.correspondents or ask.failed in self.current:
            return
        if self.state.link(ask.failed).node.incarnation == ask.incarnation:  # else it is back
            self._open(step, sender, ask)

    def _open(self, step: Step, coordinator: str, ask: Ask) -> None:
        state = self.state
        failure = FailedNode(ask.failed, coordinator, ask.correspondents)
        failure.logged = len(state.log)
        state.link(ask.failed).closed = True
        self.current[ask.failed] = failure
        vectors = state.vectors
        if ask.failed == state.view.parent:
            report = Report(state.group, ask.failed, vectors.parent.value())
        else:
            made = vectors.made_by_child.get(ask.failed, 0)
            report = Report(state.group, ask.failed, vectors.own.value(), made)
        if coordinator == state.name:
            self.reported(step, state.name, report)
        else:
            step.send(state.link(coordinator).node, report)

    def reported(self, step: Step, sender: str, report: Report) -> None:
        failure = self.current.get(report.failed)
        if failure is None or failure.coordinator != self.state.name:
            return
        failure.reports[sender] = report
        if len(failure.reports) == len(failure.correspondents):
            self._order(step, failure)

    def _order(self, step: Step, failure: FailedNode) -> None:
        state, failed = self.state, failure.failed
        parent, above = None, state.view.grandparent
        if above is not None:
            found = failure.reports[above]
            received = found.vector.down.get(failed, 0)
            parent = ParentReport(above, found.vector.sent_down, received, found.received)
        children = {
            name: report.vector for name, report in failure.reports.items() if name != above
        }
        planned = plan(failed, parent, children)
        state.counters["lacking"] += planned.lacking
        expects = dict.fromkeys(failure.correspondents, 0)
        for resends in planned.resends.values():
            for name in (name for resend in resends for name in resend.to):
                expects[name] += 1
        for name, resends in planned.resends.items():
            order = Order(state.group, failed, tuple(resends), expects[name])
            if name == state.name:
                self.ordered(step, order)
            else:
                step.send(state.link(name).node, order)

    def ordered(self, step: Step, order: Order) -> None:
        state = self.state
        failure = self.current.get(order.failed)
        logged = len(state.log) if failure is None else failure.logged
        for resend in order.resends:
            messages = self._last(resend, order.failed, logged)
            state.counters["resent"] += len(messages) * len(resend.to)
            self._tell(step, resend.to, Batch(state.group, order.failed, tuple(messages)))
        if failure is not None and not failure.is_over:
            failure.expects = order.expects
            self._finish(step, failure)

    def _last(self, resend: Resend, failed: str, logged: int) -> list[Message]:
        log = self.state.log
        if resend.what == "down":
            return log.last_down(resend.count, logged)
        if resend.what == "up":
            return log.last_up(resend.count, logged)
        return log.last_made(failed, resend.count, logged)

    def batch(self, step: Step, sender: str, batch: Batch) -> None:
        for message in batch.messages:
            if not message.is_control:
                named = {"origin": message.origin, "number": message.number}
                step.note("recover", group=self.state.group, peer=sender, cause="answered", **named)
        failure = self.current.get(batch.failed)
        if failure is None or failure.is_over:
            self._take(step, batch.failed, list(batch.messages))
        else:
            failure.batches.append(batch.messages)
            self._finish(step, failure)

    def _finish(self, step: Step, failure: FailedNode) -> None:
        if failure.expects is None or len(failure.batches) < failure.expects:
            return
        self._take(step, failure.failed, [one for batch in failure.batches for one in batch])
        failure.is_over = True
        queue, failure.queue = failure.queue, []
        for kept in queue:
            self._diffuse(step, failure, kept)

    def _take(self, step: Step, failed: str, messages: list[Message]) -> None:
        """As if the failed node had sent them."""
        if self.state.options.batches == "sorted":
            messages.sort(key=lambda message: CLASSES[message.kind])
        for message in messages:
            if failed == self.state.view.parent:
                self.propagation.take(step, message, OWN, "instead", failed)
            else:
                self.propagation.take(step, message, OWN, "child", failed)

    # --- diffusion ---------------------------------------------------------------------------

    def route(self, step: Step, failed: str, kept: Kept) -> None:
        """A message for a failed node: kept for it, and sent to the others by way of CO."""
        failure = self.current[failed]
        self.state.send(step, failed, kept)
        if failure.is_over:
            self._diffuse(step, failure, kept)
        else:
            failure.queue.append(kept)

    def _diffuse(self, step: Step, failure: FailedNode, kept: Kept, besides: str = "") -> None:
        state = self.state
        to = [failure.coordinator]
        if failure.coordinator == state.name:
            to = [name for name in failure.correspondents if name not in (state.name, besides)]
        for name in to:
            state.counters["diffused"] += 1
            state.send(step, name, Kept(kept.origin, kept.sequence, failure.failed))

    def take_instead(self, step: Step, sender: str, item: Item) -> bool:
        """An item in place of a failed node's. Whether it was new."""
        state, failed = self.state, item.instead
        failure = self.current.get(failed)
        if failure is None and state.view.coordinator_of(failed) == state.name:
            state.counters["returned"] += 1
            returned = Returned(state.group, failed, *item.message.key)
            step.send(state.link(sender).node, returned)
            return False
        source: Source = "child" if failed in state.view.children else "instead"
        new = self.propagation.take(step, item.message, OWN, source, failed)
        if new and failure is not None and failure.coordinator == state.name:
            self._diffuse(step, failure, Kept(*item.message.key), besides=sender)
        return new

    def returned(self, step: Step, packet: Returned) -> None:
        """CO says that the failed node is back: it gets the message from us."""
        if (packet.origin, packet.sequence) in self.state.log:
            self.state.send(step, packet.failed, Kept(packet.origin, packet.sequence))

    def end(self, step: Step, failed: str) -> None:
        """The failed node is back."""
        failure = self.current.pop(failed, None)
        if failure is not None and not failure.is_over:
            self._take(step, failed, [one for batch in failure.batches for one in batch])

    def _tell(self, step: Step, names: tuple[str, ...], packet: Packet) -> None:
        to = tuple(self.state.link(name).node for name in names if name != self.state.name)
        if to:
            step.send(to, packet)

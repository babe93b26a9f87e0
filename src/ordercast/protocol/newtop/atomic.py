"""A group without any order: all or none of its members deliver an event, within a view.

Rules.
 1. An event is delivered when it comes in its origin's stream: each sender's events in the order in
    which they were cast, and no order between senders. Nothing is waited for, in no other group
    either, and nobody waits for this group.
 2. A member's confirmation that others are gone divides its stream: what it cast before belongs to
    the view that it was in, what comes after to the view to come, and waits for that.
 3. The view is installed when the same confirmation of every live member is here. So all that these
    sent before is delivered, and of those who are gone all have the same: agreement saw to it.
 4. If a member is gone before it has confirmed, the exclusions are made one: nobody who stays has
    its confirmation, for what one of them has of its stream they all have. The view without all of
    them comes at the last confirmation.

What it does not do: agree on who is gone, which is done as in every group (`group.py`).
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from ordercast.kernel.family import Plan
from ordercast.kernel.step import Step
from ordercast.protocol.newtop.group import Group
from ordercast.protocol.newtop.ordering import Ordering
from ordercast.protocol.newtop.packets import Confirm, Data, Message, State, Turn
from ordercast.protocol.newtop.suspicion import Detection
from ordercast.types import Event, NodeId, Payloads

Held: TypeAlias = deque[Data | Detection]


class AtomicGroup(Group):
    kind = "atomic"
    is_ordered = False

    def __init__(self, me: NodeId, plan: Plan, members: tuple[NodeId, ...], order: Ordering):
        super().__init__(me, plan, members, order)
        # By member: what of its stream waits for a view, events and confirmations, oldest first.
        self.held: dict[NodeId, Held] = {one: deque() for one in members}
        # By member: what it confirmed that is not installed here.
        self.said: dict[NodeId, list[Detection]] = {one: [] for one in members}
        self.due: list[list[Detection]] = []  # for each pending view: what was confirmed for it

    # --- bounds: nobody waits for this group, and it waits for nobody ----------------------------

    def deliverable_up_to(self) -> int:
        return self.order.clock.value

    def bound(self) -> int:
        return self.order.clock.value

    def _delivered_up_to(self) -> int:
        if self.is_full:
            return self.told_up_to
        return min(self.received_by_all(), self._delivered_here())

    def _delivered_here(self) -> int:
        """All up to here is delivered, as far as it was received."""
        waiting = [
            one.order for held in self.held.values() for one in held if isinstance(one, Data)
        ]
        return min(waiting) - 1 if waiting else self.order.clock.value

    def settle(self, step: Step, head: int | None, bound: int) -> None:
        super().settle(step, None, self._delivered_here())

    # --- delivery --------------------------------------------------------------------------------

    def submit(self, step: Step, payloads: Payloads, size: int) -> Event:
        data = self._cast_event(step, payloads, size)
        self._admit_event(step, self.me, data)
        return self.event(data, None)

    def _admit_event(self, step: Step, sender: NodeId, message: Data | Turn) -> None:
        assert isinstance(message, Data)
        if self.has_begun and not self.held[sender]:
            step.deliver(self.event(message, None))
        else:
            self.held[sender].append(message)

    def _admit(self, step: Step, sender: NodeId, message: Message) -> None:
        super()._admit(step, sender, message)
        if isinstance(message, Confirm):
            self._note_confirmation(sender, tuple(message.detection))

    def _note_confirmation(self, sender: NodeId, detection: Detection) -> None:
        """Each is said once: a second one would divide the stream for ever."""
        pending = any(detection in confirmed for confirmed in self.due)
        installed = detection in self.suspicions.done and not pending
        if installed or detection in self.said[sender]:
            self.contradictions += 1
            self.exclude_soon(sender, "contradicts")
        else:
            self._mark(sender, detection)

    def _mark(self, sender: NodeId, detection: Detection) -> None:
        """What comes after this in a stream belongs to another view."""
        self.held[sender].append(detection)
        self.said[sender].append(detection)

    def _deliver_held(self, step: Step, member: NodeId, confirmed: list[Detection]) -> None:
        """What waits of a stream, up to the last of these confirmations, and past no other."""
        held = self.held[member]
        while held and (isinstance(held[0], Data) or held[0] in confirmed):
            first = held.popleft()
            if isinstance(first, Data):
                step.deliver(self.event(first, None))
                continue
            self.said[member].remove(first)
            if first == confirmed[-1]:
                return

    def begin(self, step: Step, message: State) -> None:
        super().begin(step, message)
        for member in self.views.members:
            self._deliver_held(step, member, [])

    def has_undelivered(self, of: tuple[NodeId, ...]) -> bool:
        return any(self.held.get(one) for one in of)

    # --- views -----------------------------------------------------------------------------------

    def _exclude(self, step: Step, detection: Detection, via: tuple[NodeId, int] | None) -> None:
        gone = tuple(peer for peer, _ in detection)
        if self.initiator in gone and not self.has_state:
            self.is_over = True
        self._mark(self.me, detection)
        place = self._first_unsaid(gone)
        self.views.exclude_with_those_from(place, gone)
        confirmed = [one for each in self.due[place:] for one in each]
        self.due[place:] = [[*confirmed, detection]]

    def _first_unsaid(self, gone: tuple[NodeId, ...]) -> int:
        """The first of the pending views that one of these did not live to confirm."""
        for place, confirmed in enumerate(self.due):
            if any(confirmed[-1] not in self.said[peer] for peer in gone):
                return place
        return len(self.due)

    def agree(self, step: Step) -> bool:
        moved = super().agree(step)
        while self._is_due():
            self.install(step)
            moved = True
        return moved

    def _is_due(self) -> bool:
        """Whether all who are to be in the next view have confirmed it."""
        return (
            bool(self.due)
            and self.has_begun
            and all(self.due[0][-1] in self.said[peer] for peer in self.live)
        )

    def next_cut(self) -> int | None:
        return None  # views come at confirmations, not at numbers

    def install(self, step: Step) -> None:
        confirmed = self.due.pop(0)
        for member in self.views.members:
            self._deliver_held(step, member, confirmed)
        view, install = self.views.install()
        self._report(step, view, install)
        for peer in install.gone:
            self._discard(step, peer)
        for member in view.members:
            self._deliver_held(step, member, [])

    def _discard(self, step: Step, peer: NodeId) -> None:
        """What it cast in a view that we are not in."""
        del self.said[peer]
        for one in self.held.pop(peer):
            if isinstance(one, Data):
                self._lose(step, one)

    def counters(self) -> dict[str, int]:
        waiting = sum(isinstance(one, Data) for held in self.held.values() for one in held)
        return {**super().counters(), "waiting": waiting}

"""A group without any order: all or none of its members deliver an event, within a view.

Rules.
 1. An event is delivered when it arrives in its origin's stream: each sender's events in the order
    in which they were cast, and no order between senders. It waits for no other member and no
    other group, and no other group waits for this one.
 2. A member's confirmation that others are gone divides its stream: events before it belong to the
    old view; events after it belong to the next view, and wait for it.
 3. The view is installed when the same confirmation of every live member has arrived. So everything
    that these members sent before it is delivered, and all have the same packets of the excluded
    members: the agreement made sure of that.
 4. If a member is excluded before it has confirmed, the exclusions become one: no remaining member
    has its confirmation, for all of them have the same of its stream. The view without all of the
    excluded is installed at the last confirmation.

What it does not do: agree on failures, which is the same in every group (`agreement.py`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from ordercast.kernel.step import Step
from ordercast.protocol.newtop.packets import Data, Turn
from ordercast.protocol.newtop.phase import Phase
from ordercast.protocol.newtop.placement import Placement
from ordercast.protocol.newtop.suspicion import Detection, Via
from ordercast.types import NodeId

if TYPE_CHECKING:
    from ordercast.protocol.newtop.epoch import GroupEpoch

Undelivered: TypeAlias = deque[Data | Detection]


class Unordered(Placement):
    kind = "atomic"
    is_ordered = False

    def __init__(self, me: NodeId, members: tuple[NodeId, ...]) -> None:
        # By member: events and confirmations of its stream that wait for a view, oldest first.
        self.undelivered: dict[NodeId, Undelivered] = {one: deque() for one in members}
        # By member: what it confirmed that is not installed here.
        self.confirmed: dict[NodeId, list[Detection]] = {one: [] for one in members}
        self.due: list[list[Detection]] = []  # for each pending view: what was confirmed for it

    # --- bounds: no group waits for this one ---------------------------------------------------

    def deliverable_up_to(self, epoch: GroupEpoch) -> int:
        return epoch.order.clock.value

    def delivered_up_to(self, epoch: GroupEpoch) -> int:
        numbers = [
            one.order
            for waiting in self.undelivered.values()
            for one in waiting
            if isinstance(one, Data)
        ]
        return min(numbers) - 1 if numbers else epoch.order.clock.value

    # --- delivery ----------------------------------------------------------------------------

    def place_own(self, epoch: GroupEpoch, step: Step, data: Data) -> int | None:
        self.enqueue(epoch, step, epoch.me, data)
        return None

    def enqueue(self, epoch: GroupEpoch, step: Step, sender: NodeId, message: Data | Turn) -> None:
        assert isinstance(message, Data)
        if epoch.phase is Phase.BEGUN and not self.undelivered[sender]:
            epoch.deliver(step, message, None)
        else:
            self.undelivered[sender].append(message)

    def note_confirmation(self, epoch: GroupEpoch, sender: NodeId, detection: Detection) -> None:
        """Each is sent once: a second one would divide the stream for ever."""
        pending = any(detection in confirmed for confirmed in self.due)
        installed = detection in epoch.agreement.suspicions.done and not pending
        if installed or detection in self.confirmed[sender]:
            epoch.agreement.contradict(epoch, sender)
        else:
            self._divide(sender, detection)

    def _divide(self, sender: NodeId, detection: Detection) -> None:
        """What follows in this stream belongs to another view."""
        self.undelivered[sender].append(detection)
        self.confirmed[sender].append(detection)

    def _drain(
        self, epoch: GroupEpoch, step: Step, member: NodeId, confirmed: list[Detection]
    ) -> None:
        """Delivers what waits of a stream, up to the last of these confirmations and past no
        other."""
        waiting = self.undelivered[member]
        while waiting and (isinstance(waiting[0], Data) or waiting[0] in confirmed):
            first = waiting.popleft()
            if isinstance(first, Data):
                epoch.deliver(step, first, None)
                continue
            self.confirmed[member].remove(first)
            if first == confirmed[-1]:
                return

    def begin(self, epoch: GroupEpoch, step: Step) -> None:
        for member in epoch.views.members:
            self._drain(epoch, step, member, [])

    def has_undelivered(self, epoch: GroupEpoch, of: tuple[NodeId, ...]) -> bool:
        return any(self.undelivered.get(one) for one in of)

    def count_waiting(self, epoch: GroupEpoch) -> int:
        return sum(
            isinstance(one, Data) for waiting in self.undelivered.values() for one in waiting
        )

    # --- views -------------------------------------------------------------------------------

    def exclude(self, epoch: GroupEpoch, step: Step, detection: Detection, via: Via) -> None:
        gone = tuple(peer for peer, _ in detection)
        if epoch.initiator in gone and epoch.phase is Phase.AWAITING_STATE:
            epoch.phase = Phase.FAILED
        self._divide(epoch.me, detection)
        place = self._first_unconfirmed(gone)
        epoch.views.exclude_merged(place, gone)
        confirmed = [one for each in self.due[place:] for one in each]
        self.due[place:] = [[*confirmed, detection]]

    def _first_unconfirmed(self, gone: tuple[NodeId, ...]) -> int:
        """The first pending view that one of these did not live to confirm."""
        for place, confirmed in enumerate(self.due):
            if any(confirmed[-1] not in self.confirmed[peer] for peer in gone):
                return place
        return len(self.due)

    def install_due(self, epoch: GroupEpoch, step: Step) -> bool:
        moved = False
        while self._is_due(epoch):
            self.install(epoch, step)
            moved = True
        return moved

    def _is_due(self, epoch: GroupEpoch) -> bool:
        """Whether all members of the next view have confirmed it."""
        return (
            bool(self.due)
            and epoch.phase is Phase.BEGUN
            and all(self.due[0][-1] in self.confirmed[peer] for peer in epoch.live)
        )

    def install(self, epoch: GroupEpoch, step: Step) -> None:
        confirmed = self.due.pop(0)
        for member in epoch.views.members:
            self._drain(epoch, step, member, confirmed)
        view, pending = epoch.install_next(step)
        for peer in pending.gone:
            self._discard(epoch, step, peer)
        for member in view.members:
            self._drain(epoch, step, member, [])

    def _discard(self, epoch: GroupEpoch, step: Step, peer: NodeId) -> None:
        """What it cast in a view that we are not in."""
        del self.confirmed[peer]
        for one in self.undelivered.pop(peer):
            if isinstance(one, Data):
                epoch.lose(step, one)

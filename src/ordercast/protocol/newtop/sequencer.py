"""A group whose order one member decides: the sequencer (Newtop, sections 4.2 and 4.3).

Rules.
 1. An event travels in its origin's stream like any other, but has no place in the order yet. The
    sequencer, the smallest member of the view, assigns one: a `Turn`, numbered by the sequencer.
    (In the paper events go to the sequencer alone, which multicasts them. Here all members have
    them, so nothing is sent again when the sequencer fails.)
 2. The bound of the group is the last number of the sequencer's stream: an event with a turn is
    delivered without waiting for the other members. A turn whose event has not arrived waits for
    it, unless the origin is agreed to be gone: then no remaining member has the event.
 3. A member that has cast an event here sends nothing in other groups until the event has its turn,
    because what it sends later must have a larger number.
 4. Exclusion of other members: the cut is the number of the sequencer's confirmation. The sequencer
    orders none of their events afterwards.
 5. Exclusion of the sequencer: the cut is its last number. With that view the next sequencer takes
    over, and assigns a turn to every event that has none. Events of excluded members that have none
    are discarded.

What it promises less. A turn may be delivered before any other member has it. If the sequencer
then fails, its successor may order the same events differently. So members that stay together
agree, but a member that crashed, or is in another partition, may have delivered two events in the
other order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.kernel.step import Step
from ordercast.protocol.newtop.flow import WINDOWS_RETAINED
from ordercast.protocol.newtop.packets import Data, Turn
from ordercast.protocol.newtop.placement import Placement
from ordercast.protocol.newtop.suspicion import Detection, Via
from ordercast.types import NodeId

if TYPE_CHECKING:
    from ordercast.protocol.newtop.epoch import GroupEpoch


class BySequencer(Placement):
    kind = "sequenced"

    def __init__(self, me: NodeId, members: tuple[NodeId, ...]) -> None:
        self.sequencer = members[0]
        self.ordered_before = 0  # everything up to here was ordered by earlier sequencers
        # Of members that are agreed to be gone, until the view without them: the last number.
        self.last_numbers: dict[NodeId, int] = {}
        self.undelivered: dict[NodeId, dict[int, Data]] = {one: {} for one in members}
        self.ordered = dict.fromkeys(members, 0)  # by origin: its last event that has a turn
        self.passed = dict.fromkeys(members, 0)  # by origin: its last event whose turn is over
        self.early: list[tuple[NodeId, Turn]] = []  # turns of members that are not sequencer yet
        # By member and origin: the last event that it assigned a turn to.
        self.turns: dict[NodeId, dict[NodeId, int]] = {one: {} for one in members}
        # An event with a turn is lost: the sequencer's later turns may depend on it.
        self.is_void = False

    def deliverable_up_to(self, epoch: GroupEpoch) -> int:
        if self.sequencer == epoch.me:
            return epoch.order.clock.value
        if self.sequencer in self.last_numbers:
            return max(self.ordered_before, self.last_numbers[self.sequencer])
        return max(self.ordered_before, epoch.streams.up_to(self.sequencer))

    def delivered_up_to(self, epoch: GroupEpoch) -> int:
        """Without a quorum: what we have and what may be ordered. With one, an event without a turn
        does not count: if its origin and the sequencer are excluded, nobody ever delivers it."""
        up_to = super().delivered_up_to(epoch)
        if epoch.voter is not None:
            for waiting in self.undelivered.values():
                for data in waiting.values():
                    up_to = min(up_to, data.order - 1)
                    break  # those after it have larger numbers
        return up_to

    def blocks_others(self, epoch: GroupEpoch) -> bool:
        return self.ordered[epoch.me] < epoch.window.counter

    def may_order(self, epoch: GroupEpoch, sender: NodeId, turn: Turn) -> bool:
        """Each event once, and none that its origin's window would not have let it send."""
        known = epoch.streams.received.acknowledged(sender)
        if turn.origin not in epoch.members or known is None or turn.order <= known:
            return turn.origin in epoch.members  # relayed packets may be old
        last = self.turns[sender].get(turn.origin, 0)
        limit = WINDOWS_RETAINED * epoch.options.window
        return last < turn.number <= self.passed[turn.origin] + limit

    # --- turns -------------------------------------------------------------------------------

    def place_own(self, epoch: GroupEpoch, step: Step, data: Data) -> int | None:
        self.undelivered[epoch.me][data.number] = data
        return self._assign_turns(epoch, step, (epoch.me,))

    def enqueue(self, epoch: GroupEpoch, step: Step, sender: NodeId, message: Data | Turn) -> None:
        if isinstance(message, Turn):
            self._enqueue_turn(epoch, sender, message)
        else:
            self.undelivered[sender][message.number] = message
            self._assign_turns(epoch, step, (sender,))

    def _enqueue_turn(self, epoch: GroupEpoch, sender: NodeId, turn: Turn) -> None:
        epoch.order.queue.push(sender, turn)
        self.turns[sender][turn.origin] = turn.number
        if sender == self.sequencer:
            self.ordered[turn.origin] = max(self.ordered[turn.origin], turn.number)
        else:
            self.early.append((sender, turn))

    def _assign_turns(
        self, epoch: GroupEpoch, step: Step, origins: tuple[NodeId, ...]
    ) -> int | None:
        """Assigns a turn to each event of these origins that has none, if we are the sequencer.

        Returns the number of the last turn.
        """
        order = None
        if self.sequencer == epoch.me:
            for origin in origins:
                waiting = self.undelivered[origin]
                while self.ordered[origin] + 1 in waiting:
                    self.ordered[origin] += 1
                    turn = Turn(epoch.name, *epoch.head(), origin, self.ordered[origin])
                    epoch.cast(step, turn)
                    epoch.order.queue.push(epoch.me, turn)
                    order = turn.order
        return order

    def has_undelivered(self, epoch: GroupEpoch, of: tuple[NodeId, ...]) -> bool:
        return any(self.undelivered.get(one) for one in of) or super().has_undelivered(epoch, of)

    def is_ready(self, epoch: GroupEpoch, message: Data | Turn) -> bool:
        return (
            message.number in self.undelivered.get(message.origin, {})
            or message.number <= self.passed[message.origin]
            or message.origin not in (epoch.me, *epoch.live)
        )

    def deliver(
        self, epoch: GroupEpoch, step: Step, numberer: NodeId, message: Data | Turn
    ) -> None:
        origin, number = message.origin, message.number
        if numberer != self.sequencer or number <= self.passed[origin]:
            return  # a turn of a member that never became the sequencer of our view
        data = self.undelivered.get(origin, {}).get(number)
        if data is None or self.is_void:
            self.is_void = True  # the next sequencer orders the remaining events again
            return
        assert origin in epoch.views.members, "an event is delivered in a view of its sender"
        del self.undelivered[origin][number]
        self.passed[origin] = number
        epoch.deliver(step, data, message.order)

    # --- exclusion ---------------------------------------------------------------------------

    def exclude(self, epoch: GroupEpoch, step: Step, detection: Detection, via: Via) -> None:
        gone = tuple(peer for peer, _ in detection)
        views = epoch.views
        heir = min((epoch.me, *epoch.live))  # the sequencer once all pending views are installed
        self.last_numbers.update(detection)
        if heir in gone:
            known = [each.cut for each in views.pending if each.cut is not None]
            cut = max([self.last_numbers[heir], self.ordered_before, *known])
            views.exclude_with_undecided(gone, cut)
        elif heir == epoch.me:
            views.exclude_next(gone, epoch.streams.last_order)
        elif via is not None and via[0] == heir:
            views.exclude_next(gone, via[1])
        else:
            views.exclude_next(gone, None)

    def learn_cut(
        self, epoch: GroupEpoch, sender: NodeId, detection: Detection, order: int
    ) -> None:
        if sender == min((epoch.me, *epoch.live)):
            epoch.views.set_cut(tuple(sorted(peer for peer, _ in detection)), order)

    def install(self, epoch: GroupEpoch, step: Step) -> None:
        view, pending = epoch.install_next(step)
        for peer in pending.gone:
            del self.last_numbers[peer]
        if self.sequencer in pending.gone:
            assert pending.cut is not None
            self.ordered_before = max(self.ordered_before, pending.cut)
            self.sequencer, self.is_void = view.members[0], False
            self.ordered = dict(self.passed)
            early, self.early = self.early, []
            for sender, turn in early:
                if sender == self.sequencer:
                    self.ordered[turn.origin] = max(self.ordered[turn.origin], turn.number)
                elif sender in view.members:
                    self.early.append((sender, turn))
            self._assign_turns(epoch, step, (epoch.me, *epoch.live))
        for peer in pending.gone:
            del self.turns[peer]
            for data in self.undelivered.pop(peer).values():
                epoch.lose(step, data)

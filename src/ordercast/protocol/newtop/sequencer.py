"""A group whose order one member decides: the sequencer (Newtop, sections 4.2 and 4.3).

Rules.
 1. An event travels in its origin's stream as ever, but has no place in the order yet. The
    sequencer, the smallest member of the view, gives it one: a `Turn`, numbered by the sequencer.
    (The paper sends events to the sequencer alone, which sends them on. So they all have them, and
    whoever comes after the sequencer needs nothing sent again.)
 2. The group's bound is the last number of the sequencer's stream: what has a turn is delivered
    without waiting for the other members. A turn whose event is not here yet is waited for, unless
    its origin is agreed to be gone: then nobody who stays has it.
 3. A member that has cast an event here sends nothing in other groups until it has its turn: what
    is sent later must have a larger number.
 4. Exclusion of others than the sequencer: the cut is the number of the sequencer's confirmation.
    It orders nothing of theirs afterwards.
 5. Exclusion of the sequencer: the cut is its last number. At that view the next one takes over and
    gives a turn to all that has none. What those who are gone sent and has none is discarded.

What it promises less. A turn may be delivered before anybody else has it. If the sequencer is then
gone, its successor may order the same events otherwise. So members that stay together agree, but
one that died, or went another way, may have delivered two events in the other order.
"""

from __future__ import annotations

from ordercast.kernel.family import Plan
from ordercast.kernel.step import Step
from ordercast.protocol.newtop.flow import WINDOWS_KEPT
from ordercast.protocol.newtop.group import Group
from ordercast.protocol.newtop.ordering import Ordering
from ordercast.protocol.newtop.packets import Data, Turn
from ordercast.protocol.newtop.suspicion import Detection
from ordercast.types import Event, NodeId, Payloads


class SequencedGroup(Group):
    kind = "sequenced"

    def __init__(self, me: NodeId, plan: Plan, members: tuple[NodeId, ...], order: Ordering):
        super().__init__(me, plan, members, order)
        self.sequencer = members[0]
        self.base = 0  # all up to here was ordered by earlier sequencers
        self.last_numbers: dict[NodeId, int] = {}  # of those agreed to be gone, until installed
        self.events: dict[NodeId, dict[int, Data]] = {one: {} for one in members}  # undelivered
        self.ordered = dict.fromkeys(members, 0)  # by origin: its last event that has a turn
        self.passed = dict.fromkeys(members, 0)  # by origin: its last event whose turn is over
        self.early: list[tuple[NodeId, Turn]] = []  # turns of who is not our sequencer yet
        # By member and origin: the last event that it gave a turn to.
        self.turns: dict[NodeId, dict[NodeId, int]] = {one: {} for one in members}
        # An event with a turn is lost: what its sequencer ordered afterwards may follow from it.
        self.is_void = False

    def deliverable_up_to(self) -> int:
        if self.sequencer == self.me:
            return self.order.clock.value
        if self.sequencer in self.last_numbers:
            return max(self.base, self.last_numbers[self.sequencer])
        return max(self.base, self.streams.up_to(self.sequencer))

    @property
    def blocks_others(self) -> bool:
        return self.ordered[self.me] < self.window.counter

    def may_order(self, sender: NodeId, turn: Turn) -> bool:
        """Each event once, and none that its origin's window would not have let it send."""
        known = self.streams.received.acknowledged(sender)
        if turn.origin not in self.members or known is None or turn.order <= known:
            return turn.origin in self.members  # what is relayed may be old
        last = self.turns[sender].get(turn.origin, 0)
        return last < turn.number <= self.passed[turn.origin] + WINDOWS_KEPT * self.options.window

    # --- turns -------------------------------------------------------------------------------

    def submit(self, step: Step, payloads: Payloads, size: int) -> Event:
        data = self._cast_event(step, payloads, size)
        self.events[self.me][data.number] = data
        order = self._give_turns(step, (self.me,))
        return self.event(data, order or None)

    def _admit_event(self, step: Step, sender: NodeId, message: Data | Turn) -> None:
        if isinstance(message, Turn):
            self._admit_turn(sender, message)
        else:
            self.events[sender][message.number] = message
            self._give_turns(step, (sender,))

    def _admit_turn(self, sender: NodeId, turn: Turn) -> None:
        self.order.waiting.push(sender, turn)
        self.turns[sender][turn.origin] = turn.number
        if sender == self.sequencer:
            self.ordered[turn.origin] = max(self.ordered[turn.origin], turn.number)
        else:
            self.early.append((sender, turn))

    def _give_turns(self, step: Step, origins: tuple[NodeId, ...]) -> int:
        """Orders what of these has no turn yet, if that is ours to do. Returns the last number."""
        order = 0
        if self.sequencer == self.me:
            for origin in origins:
                waiting = self.events[origin]
                while self.ordered[origin] + 1 in waiting:
                    self.ordered[origin] += 1
                    turn = Turn(self.name, *self._head(), origin, self.ordered[origin])
                    self._cast(step, turn)
                    self.order.waiting.push(self.me, turn)
                    order = turn.order
        return order

    def has_undelivered(self, of: tuple[NodeId, ...]) -> bool:
        return any(self.events.get(one) for one in of) or super().has_undelivered(of)

    def is_ready(self, message: Data | Turn) -> bool:
        return (
            message.number in self.events.get(message.origin, {})
            or message.number <= self.passed[message.origin]
            or message.origin not in (self.me, *self.live)
        )

    def hand_over(self, step: Step, numberer: NodeId, message: Data | Turn) -> None:
        origin, number = message.origin, message.number
        if numberer != self.sequencer or number <= self.passed[origin]:
            return  # of one who never became the sequencer of our view
        data = self.events.get(origin, {}).get(number)
        if data is None or self.is_void:
            self.is_void = True  # the next sequencer orders anew what is here
            return
        assert origin in self.views.members, "an event is delivered in a view of its sender"
        del self.events[origin][number]
        self.passed[origin] = number
        step.deliver(self.event(data, message.order))

    # --- exclusion ---------------------------------------------------------------------------

    def _exclude(self, step: Step, detection: Detection, via: tuple[NodeId, int] | None) -> None:
        gone = tuple(peer for peer, _ in detection)
        heir = min((self.me, *self.live))  # who orders once all that was agreed on is installed
        self.last_numbers.update(detection)
        if heir in gone:
            known = [each.cut for each in self.views.pending if each.cut is not None]
            cut = max([self.last_numbers[heir], self.base, *known])
            self.views.exclude_with_the_unsaid(gone, cut)
        elif heir == self.me:
            self.views.exclude_in_turn(gone, self.streams.last_order)
        elif via is not None and via[0] == heir:
            self.views.exclude_in_turn(gone, via[1])
        else:
            self.views.exclude_in_turn(gone, None)

    def _learn_cut(self, sender: NodeId, detection: Detection, order: int) -> None:
        if sender == min((self.me, *self.live)):
            self.views.say_cut(tuple(sorted(peer for peer, _ in detection)), order)

    def install(self, step: Step) -> None:
        view, install = self.views.install()
        self._report(step, view, install)
        for peer in install.gone:
            del self.last_numbers[peer]
        if self.sequencer in install.gone:
            assert install.cut is not None
            self.base = max(self.base, install.cut)
            self.sequencer, self.is_void = view.members[0], False
            self.ordered = dict(self.passed)
            early, self.early = self.early, []
            for sender, turn in early:
                if sender == self.sequencer:
                    self.ordered[turn.origin] = max(self.ordered[turn.origin], turn.number)
                elif sender in view.members:
                    self.early.append((sender, turn))
            self._give_turns(step, (self.me, *self.live))
        for peer in install.gone:
            del self.turns[peer]
            for data in self.events.pop(peer).values():
                self._lose(step, data)

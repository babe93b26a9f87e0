"""A member of totally ordered groups: one machine for all such groups of a process.

What it decides: when an event is delivered and a view installed, over all groups together. The
rules of the order are in `ordering.py`, those of one group in `group.py`.

A group is made of the first lives of its members, all of which are there from the beginning. Its
views only shrink (Newtop, section 3). A process that died and starts again is in no view, and
cannot send: it would have to form a new group with the others.

What it does not do: form groups, keep anything on disk, or merge what was parted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.machine import Machine, Plan
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.newtop.group import Group
from ordercast.protocol.newtop.options import Options, SequencedOptions
from ordercast.protocol.newtop.ordering import Ordering
from ordercast.protocol.newtop.packets import PACKETS, Numbered
from ordercast.protocol.newtop.sequencer import SequencedGroup
from ordercast.types import Event, NodeId, Payloads, event_number


class Member:
    def __init__(self, me: NodeId, plans: tuple[Plan, ...]) -> None:
        self.me = me
        self.groups = tuple(plan.group for plan in plans)
        self.order = Ordering()
        self.joined: dict[str, Group] = {}  # those that we are in
        for plan in plans if me.incarnation == 0 else ():
            assert isinstance(plan.options, Options)
            members = tuple(sorted(NodeId(name, 0) for name in plan.members))
            options = plan.options
            sequenced = isinstance(options, SequencedOptions) and options.by == "sequencer"
            kind = SequencedGroup if sequenced else Group
            group = kind(me, plan, members, self.order)
            self.joined[plan.group] = self.order.groups[plan.group] = group

    # --- doors -------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        for group in self.joined.values():
            step.install(group.views.current())
        self._settle(step)

    def accepts(self, group: str, now: int) -> bool:
        joined = self.joined.get(group)
        return joined is not None and not joined.window.is_full and not self._is_blocked(group)

    def _is_blocked(self, group: str) -> bool:
        """An event of ours elsewhere may get any number yet: what we send now must come after."""
        return any(other.blocks_others for name, other in self.joined.items() if name != group)

    def stable_up_to(self, group: str) -> int:
        joined = self.joined.get(group)
        stable = joined.window.stable_counter if joined else 0
        return event_number(self.me.incarnation, stable) if stable else 0

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        joined = self.joined[group]
        assert not (joined.window.is_full or self._is_blocked(group)), "the driver asks first"
        if size > joined.options.window_size:
            raise UsageError(
                f"a batch of {size} bytes does not fit the window of "
                f"{joined.options.window_size} (window_size) of group {group!r}"
            )
        self._wake(step)
        event = joined.submit(step, payloads, size)
        self._settle(step)
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if not isinstance(packet, PACKETS):
            raise PeerError(f"{sender} sent {type(packet).__name__}, which total does not know")
        assert isinstance(packet, Numbered)
        group = self.joined.get(packet.group)
        if group is None:
            return  # we left it, or were never in it in this life
        group.refuse_nonsense(sender, packet)
        self._wake(step)
        group.receive(step, sender, packet)
        self._settle(step)

    def expire(self, step: Step, timer: Timer) -> None:
        assert isinstance(timer, str)
        group = self.joined.get(timer)
        if group is None:
            return
        self._wake(step)
        group.tick(step)
        self._settle(step)

    def told(self, step: Step, token: Hashable, arrived: bool) -> None:
        raise AssertionError("total sends nothing by status")

    def throttle(self, step: Step, group: str, full: bool) -> None:
        joined = self.joined.get(group)
        if joined is not None:
            self._wake(step)
            joined.is_full = full
            joined.is_asked = joined.is_asked or not full
            self._settle(step)

    def provide(self, step: Step, group: str, token: Hashable, state: bytes | None) -> None:
        raise AssertionError("total asks for no state")

    def figures(self, group: str) -> dict[str, int]:
        joined = self.joined.get(group)
        return joined.figures() if joined else {"present": 0}

    def leave(self, step: Step, group: str) -> None:
        """What of ours is under way is still delivered by the others, up to the packet `Leave`."""
        joined = self.joined.pop(group, None)
        if joined is not None:
            self._wake(step)
            joined.leave(step)
            del self.order.groups[group]
            self.order.waiting.forget(group)
            step.set_timer(group, None)
            self._settle(step)

    # --- delivery ----------------------------------------------------------------------------

    def _wake(self, step: Step) -> None:
        for group in self.joined.values():
            group.awake(step.now)

    def _settle(self, step: Step) -> None:
        """All that follows from what has just happened, in all groups."""
        moved = True
        while moved:
            moved = False
            for group in self.joined.values():
                moved |= group.agree(step)
            moved |= self._deliver(step)
        head, bound = self.order.head(), self.order.deliverable_up_to()
        for group in self.joined.values():
            group.settle(step, head, bound)

    def _deliver(self, step: Step) -> bool:
        order = self.order
        bound = order.deliverable_up_to()
        moved = False
        while True:
            first, cut = order.waiting.head(), order.next_cut()
            if first is not None and first <= bound and (cut is None or first <= cut[0]):
                numberer, message = order.waiting.peek()
                group = self.joined[message.group]
                if not group.is_ready(message):
                    return moved
                order.waiting.pop()
                group.hand_over(step, numberer, message)
            elif cut is not None and cut[0] <= bound:
                self.joined[cut[1]].install(step)
                bound = order.deliverable_up_to()  # a new sequencer may have been at work already
            else:
                return moved
            moved = True


def build(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, kept: Sequence[Packet]
) -> list[Machine]:
    """One machine for all groups: what can be delivered depends on all of them."""
    return [Member(me, plans)]

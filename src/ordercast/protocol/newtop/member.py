"""A member of totally ordered groups: one machine for all such groups of a process.

What it decides: when an event is delivered and a view installed, over all groups together, and
when a member goes over from one formation of a group to the next. The rules of the order are in
`ordering.py`, those of one group in `group.py`, those of invitations in `formation.py`.

Going over.
 1. When a formation is agreed to, each member begins its stream there, and submits nothing any
    more to the formation that it is in. It stays in that one, and delivers, until it has the state.
 2. The initiator waits until all have begun, and until it has delivered all that those who come
    along have cast where they were with it. Then it leaves there, asks its application for its
    state, and casts that as the first thing in the new formation.
 3. The state takes its place in the order, and with it come the first view and the right to submit.
    The members then leave where they were. So what those of the initiator's part have cast is in
    the state, and nothing is delivered without it.
 4. If the initiator is excluded before its state is there, the formation comes to nothing. The
    members go on where they were.

What it does not do: keep anything on disk, or merge what parts of a group did apart.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random

from ordercast.errors import PeerError, UsageError
from ordercast.kernel import inputs
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.newtop.formation import Forming, Founding
from ordercast.protocol.newtop.group import Group
from ordercast.protocol.newtop.kinds import kind_of
from ordercast.protocol.newtop.options import Options
from ordercast.protocol.newtop.ordering import Ordering
from ordercast.protocol.newtop.packets import (
    PACKETS,
    Data,
    Null,
    Numbered,
    OfFormations,
    State,
    Turn,
)
from ordercast.protocol.newtop.refusals import refuse_nonsense
from ordercast.types import Event, NodeId, Payloads, Refused, event_number

LARGEST_STATE = 32 << 20
"""Bytes of an application's state: it travels in one packet."""


class Member:
    takes = (
        inputs.Backpressure,
        inputs.Join,
        inputs.Form,
        inputs.Vote,
        inputs.StateProvided,
        inputs.Leave,
    )

    def __init__(self, me: NodeId, plans: tuple[Plan, ...]) -> None:
        self.me = me
        self.groups = tuple(plan.group for plan in plans)
        self.order = Ordering()
        self.forming: dict[str, Forming] = {}  # by name
        self.joined: dict[str, Group] = {}  # formations that we are in, by label
        self._asked: dict[str, str] = {}  # by name: the formation that the state is asked for
        self._is_drained = True  # no packet waits for what follows from it
        self._counters: dict[str, tuple[int, int]] = {}  # of groups that we left in this life
        for plan in plans:
            assert isinstance(plan.options, Options)
            kind = kind_of(plan.options)
            forming = self.forming[plan.group] = Forming(me, plan, kind)
            if plan.formed and me.incarnation == 0:
                members = tuple(sorted(NodeId(name, 0) for name in plan.members))
                group = kind(me, plan, members, self.order)
                self.joined[plan.group] = self.order.groups[plan.group] = group
                forming.current = group

    # --- doors -------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        for forming in self.forming.values():
            if forming.current is not None:
                step.install(forming.current.views.current())
        for forming in self.forming.values():
            forming.begin(step)
            if forming.founded is not None:
                self._carry_out(step, forming)
        self._settle(step)

    def on(self, step: Step, given: Input) -> None:
        match given:
            case inputs.Backpressure(group, full):
                self._throttle(step, group, full)
            case inputs.Join(plan):
                self._join(step, plan)
            case inputs.Form(group, members):
                self.forming[group].form(step, members, told=True)
                self._carry_out(step, self.forming[group])
            case inputs.Vote(group, formation, yes, why):
                if group in self.forming:
                    self.forming[group].answer(step, formation, yes, why)
                    self._carry_out(step, self.forming[group])
            case inputs.StateProvided(group, token, state):
                self._provide(step, group, token, state)
            case inputs.Leave(group):
                self._leave(step, group)

    def _join(self, step: Step, plan: Plan) -> None:
        assert isinstance(plan.options, Options) and plan.group not in self.forming
        forming = Forming(self.me, plan, kind_of(plan.options))
        forming.counter, forming.events = self._counters.pop(plan.group, (0, 0))
        self.forming[plan.group] = forming
        self.groups = tuple(self.forming)
        forming.begin(step)
        self._carry_out(step, forming)

    def accepts(self, group: str, now: int) -> bool:
        forming = self.forming.get(group)
        if forming is None or forming.current is None or forming.next is not None:
            return False
        return not forming.current.window.is_full and not self._is_blocked(forming.current)

    def _is_blocked(self, group: Group) -> bool:
        """An event of ours elsewhere may get any number yet: what we send now must come after."""
        return group.is_ordered and any(
            other.blocks_others for other in self.joined.values() if other is not group
        )

    def blocked_by(self, group: str) -> str:
        forming = self.forming.get(group)
        if forming is None or forming.current is None or forming.next is not None:
            return "view"
        return "window" if forming.current.window.is_full else "rule"

    def stable_up_to(self, group: str) -> int:
        forming = self.forming.get(group)
        current = (forming.current or forming.next) if forming is not None else None
        if current is None:
            return 0
        stable = current.starts.get(self.me, 0) + current.window.stable_counter
        return event_number(self.me.incarnation, stable) if stable else 0

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        assert self.accepts(group, step.now), "the driver asks first"
        current = self.forming[group].current
        assert current is not None
        if size > current.options.window_size:
            raise UsageError(
                f"a batch of {size} bytes does not fit the window of "
                f"{current.options.window_size} (window_size) of group {group!r}"
            )
        self._wake(step)
        event = current.submit(step, payloads, size)
        self.forming[group].events += 1
        self._settle(step)
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        """What follows from events and null messages is left for `drain`."""
        if not isinstance(packet, Data | Turn | Null) or packet.label not in self.joined:
            self.drain(step)
            self._receive_rare(step, sender, packet)
            return
        group = self.joined[packet.label]
        refuse_nonsense(group, sender, packet)
        if self._is_drained:
            self._wake(step)
            self._is_drained = False
        group.receive(step, sender, packet)

    def drain(self, step: Step) -> None:
        if not self._is_drained:
            self._is_drained = True
            self._settle(step)

    def _receive_rare(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if not isinstance(packet, PACKETS):
            raise PeerError(f"{sender} sent {type(packet).__name__}, which total does not know")
        if isinstance(packet, Numbered):
            group = self.joined.get(packet.label)
            if group is not None:
                refuse_nonsense(group, sender, packet)
                self._wake(step)
                group.receive(step, sender, packet)
                self._settle(step)
                return
        forming = self.forming.get(packet.group)
        if forming is None:
            return  # we left it
        if isinstance(packet, Numbered):
            forming.keep_early(step, sender, packet)
        else:
            assert isinstance(packet, OfFormations)
            forming.receive(step, sender, packet)
        self._carry_out(step, forming)

    def expire(self, step: Step, timer: Timer) -> None:
        if isinstance(timer, tuple):
            what, name = timer
            forming = self.forming.get(name)
            if forming is not None:
                forming.expire(step, what)
                self._carry_out(step, forming)
            return
        assert isinstance(timer, str)
        group = self.joined.get(timer)
        if group is None:
            return
        self._wake(step)
        group.tick(step)
        self._settle(step)

    def _throttle(self, step: Step, group: str, full: bool) -> None:
        self._wake(step)
        for joined in self._formations_of(group):
            joined.is_full = full
            joined.is_asked = joined.is_asked or not full
        self._settle(step)

    def _provide(self, step: Step, group: str, token: Hashable, state: bytes | None) -> None:
        forming = self.forming.get(group)
        if forming is None or self._asked.get(group) != token:
            return  # we left the group meanwhile
        del self._asked[group]
        if state is not None and len(state) > LARGEST_STATE:
            why = f"its state of {len(state)} bytes is more than {LARGEST_STATE}: none is given"
            step.tell(Refused(group, why))
            state = None
        assert forming.next is not None
        self._wake(step)
        forming.next.give_state(step, state)
        self._settle(step)

    def counters(self, group: str) -> dict[str, int]:
        forming = self.forming.get(group)
        if forming is None:
            return {"present": 0}
        counters = forming.current.counters() if forming.current else {"present": 0}
        return {**counters, "forming": int(forming.is_busy or forming.wish is not None)}

    def _leave(self, step: Step, group: str) -> None:
        """What of ours is under way is still delivered by the others, up to the packet `Leave`."""
        forming = self.forming.pop(group, None)
        if forming is not None:
            self._wake(step)
            forming.leave(step)
            self._counters[group] = forming.counter, forming.events
            self._asked.pop(group, None)
            for joined in self._formations_of(group):
                self._depart(step, joined)
            self.groups = tuple(self.forming)
            self._settle(step)

    # --- formations --------------------------------------------------------------------------

    def _formations_of(self, group: str) -> list[Group]:
        return [joined for joined in self.joined.values() if joined.name == group]

    def _carry_out(self, step: Step, forming: Forming) -> None:
        """A formation that all have agreed to comes into being."""
        founding, forming.founded = forming.founded, None
        if founding is not None:
            self._found(step, forming, founding)
        self._wake(step)
        self._settle(step)

    def _found(self, step: Step, forming: Forming, founding: Founding) -> None:
        formation, initiator, members, early = founding
        current = forming.current
        group = forming.kind(self.me, forming.plan, members, self.order)
        group.is_full = current is not None and current.is_full
        group.found(step, formation, initiator, forming.events)
        self.joined[group.label] = self.order.groups[group.label] = group
        forming.next = group
        if current is not None and initiator in current.live:
            current.move(step, formation)
        for sender, message in early:
            try:
                refuse_nonsense(group, sender, message)
            except PeerError:  # nobody to tell: it is not what came just now
                group.exclude_soon(sender, "nonsense")
            else:
                group.receive(step, sender, message)

    def _go_over(self, step: Step) -> bool:
        """Whatever is due of members that are on their way from one formation to another."""
        moved = False
        for name, forming in self.forming.items():
            following = forming.next
            if following is None:
                continue
            if following.has_begun:
                if forming.current is not None:
                    self._depart(step, forming.current)
                forming.has_begun(step)
                moved = True
            elif following.is_over:
                self._depart(step, following)
                forming.has_failed(step)
                moved = True
            elif following.initiator == self.me and name not in self._asked:
                moved |= self._ask_state(step, forming, following)
        return moved

    def _ask_state(self, step: Step, forming: Forming, following: Group) -> bool:
        """The initiator has delivered all that belongs into its state."""
        current = forming.current
        if following.has_state or any(peer not in following.starts for peer in following.live):
            return False
        if current is not None:
            if not self._has_all_of(current, following):
                return False
            self._depart(step, current)
            forming.current = None
        self._asked[forming.plan.group] = following.formation
        step.ask_state(forming.plan.group, following.formation)
        return True

    def _has_all_of(self, current: Group, following: Group) -> bool:
        """Whether all is delivered that who goes over, and we, have cast where we are."""
        to, bound = following.formation, self.order.deliverable_up_to()
        for peer in following.live:
            if peer in current.live:
                moved_to, order = current.moves.get(peer, ("", 0))
                if moved_to != to or order > bound:
                    return False
        return not (current.views.pending or current.has_undelivered((self.me, *following.live)))

    def _depart(self, step: Step, group: Group) -> None:
        group.leave(step)
        del self.joined[group.label]
        del self.order.groups[group.label]
        self.order.waiting.forget(group.label)
        step.set_timer(group.label, None)
        if group.formation or group.name in self.forming:
            step.note("leave", group=group.label)

    # --- delivery ----------------------------------------------------------------------------

    def _wake(self, step: Step) -> None:
        for group in self.joined.values():
            group.awake(step.now)

    def _settle(self, step: Step) -> None:
        """All that follows from what has just happened, in all groups."""
        moved = True
        while moved:
            moved = False
            for group in list(self.joined.values()):
                moved |= group.agree(step)
            moved |= self._deliver(step)
            moved |= self._go_over(step)
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
                group = self.joined[message.label]
                if isinstance(message, State):
                    order.waiting.pop()
                    group.begin(step, message)
                    self._go_over(step)
                    bound = order.deliverable_up_to()
                else:
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

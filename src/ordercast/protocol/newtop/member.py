"""A member of totally ordered groups: one machine for all such groups of a process.

What it decides: when an event is delivered and a view installed, over all groups together. The
rules of the order are in `ordering.py`, those of one group in `epoch.py`, those of invitations in
`formation.py`, and those of moving to the next formation in `transitions.py`.

What it does not do: merge the states of the sides of a partition. It persists nothing but foundings
(`bond.py`), and its vote in groups with a quorum (`protocol/primary`).
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
from ordercast.protocol.newtop import giving, taking
from ordercast.protocol.newtop.attempt import Agreed
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.formation import NamedGroup
from ordercast.protocol.newtop.kinds import placement_of
from ordercast.protocol.newtop.options import NewtopOptions
from ordercast.protocol.newtop.ordering import Ordering
from ordercast.protocol.newtop.packets import (
    PACKETS,
    Data,
    FoundingRecord,
    Null,
    Numbered,
    OfFormations,
    State,
    Turn,
)
from ordercast.protocol.newtop.refusals import refuse_invalid
from ordercast.protocol.newtop.transitions import Transitions
from ordercast.protocol.primary.packets import PrimaryAttempt, PrimaryReport, VoterRecord
from ordercast.protocol.primary.voter import Voter
from ordercast.types import Event, NodeId, Payloads, Secured, event_number

FREQUENT = (Data, Turn, Null)
"""Packets of which many arrive together."""


class NewtopMember:
    takes = (
        inputs.Backpressure,
        inputs.Join,
        inputs.Acquainted,
        inputs.Forgotten,
        inputs.Form,
        inputs.Vote,
        inputs.StateProvided,
        inputs.Leave,
    )

    def __init__(self, me: NodeId, plans: tuple[Plan, ...], records: Sequence[Packet] = ()) -> None:
        self.me = me
        # Of groups that we are not in: foundings that we started in.
        self._records: dict[str, Packet] = {
            record.group: record for record in records if isinstance(record, FoundingRecord)
        }
        # Of earlier incarnations, by group; and the votes of this one, also in groups that it left.
        self._votes = {one.group: one for one in records if isinstance(one, VoterRecord)}
        self._voters: dict[str, Voter] = {}
        self.groups = tuple(plan.group for plan in plans)
        self.joined: dict[str, GroupEpoch] = {}  # the epochs that we are in, by label
        self.order = Ordering(self.joined)
        self.named: dict[str, NamedGroup] = {}  # by name
        self.transitions = Transitions(me, self.joined, self.order, self.named)
        self._is_drained = True  # no packet waits for what follows from it
        # Of groups that we left in this incarnation: formations initiated, events submitted.
        self._counters: dict[str, tuple[int, int]] = {}
        for plan in plans:
            named = self._add(plan)
            if plan.formed and plan.entry is None and me.incarnation == 0:
                members = tuple(sorted(NodeId(name, 0) for name in plan.members))
                placement = named.placement(me, members)
                epoch = GroupEpoch(me, plan, members, self.order, placement, voter=named.voter)
                self.joined[epoch.label] = named.current = epoch

    def _add(self, plan: Plan) -> NamedGroup:
        assert isinstance(plan.options, NewtopOptions) and plan.group not in self.named
        record = self._records.pop(plan.group, None)
        records = () if record is None else (record,)
        voter = self._voter(plan) if plan.options.quorum == "majority" else None
        named = NamedGroup(self.me, plan, placement_of(plan.options), records, voter)
        self.named[plan.group] = named
        return named

    def _voter(self, plan: Plan) -> Voter:
        group = plan.group
        if group not in self._voters:
            first = plan.members if plan.entry is None else ()
            self._voters[group] = Voter(self.me, group, first, self._votes.get(group))
        return self._voters[group]

    # --- inputs ------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        for named in self.named.values():
            if named.current is not None:
                named.current.show(step, named.current.views.current())
        for named in self.named.values():
            named.start(step)
            if isinstance(named.attempt, Agreed):
                self._conclude(step, named)
        self._follow_up(step)

    def on(self, step: Step, given: Input) -> None:
        match given:
            case inputs.Backpressure(group, full):
                self._throttle(step, group, full)
            case inputs.Join(plan):
                self._join(step, plan)
            case inputs.Acquainted(group, names):
                self._give(step, group, inputs.Acquainted, names)
            case inputs.Forgotten(group, name):
                self._give(step, group, inputs.Forgotten, name)
            case inputs.Form(group, members):
                self._give(step, group, inputs.Form, members, True)
            case inputs.Vote(group, formation, yes, why):
                self._give(step, group, inputs.Vote, formation, yes, why)
            case inputs.StateProvided():
                self._provide(step, given)
            case inputs.Leave(group):
                self._leave(step, group)

    def _give(self, step: Step, group: str, what: Hashable, *arguments: object) -> None:
        """An input of one group name."""
        named = self.named.get(group)
        if named is not None:
            named.give(step, what, *arguments)
            self._conclude(step, named)

    def _join(self, step: Step, plan: Plan) -> None:
        named = self._add(plan)
        named.counter, named.events = self._counters.pop(plan.group, (0, 0))
        self.groups = tuple(self.named)
        named.start(step)
        self._conclude(step, named)

    def accepts(self, group: str, now: int) -> bool:
        epoch = self._open_epoch(group)
        # Others retain our events until we report them too, which we do not while we are full.
        if epoch is None or epoch.window.is_full or epoch.is_full:
            return False
        if not self.named[group].is_primary:
            return False
        return not self._is_blocked(epoch)

    def _open_epoch(self, group: str) -> GroupEpoch | None:
        named = self.named.get(group)
        return None if named is None else named.open_epoch

    def _is_blocked(self, epoch: GroupEpoch) -> bool:
        """An own event in another group has no number yet: what we send now must come after it."""
        return epoch.placement.is_ordered and any(
            other.placement.blocks_others(other)
            for other in self.joined.values()
            if other is not epoch
        )

    def blocked_by(self, group: str) -> str:
        epoch = self._open_epoch(group)
        if epoch is None:
            return "view"
        if not self.named[group].is_primary:
            return "quorum"
        return "window" if epoch.window.is_full or epoch.is_full else "rule"

    def remembers(self, group: str, name: str) -> bool:
        named = self.named.get(group)
        return named is not None and named.started.remembers(name)

    def stable_up_to(self, group: str) -> int:
        named = self.named.get(group)
        epoch = (named.current or named.entering) if named is not None else None
        if epoch is None:
            return 0
        stable = epoch.starts.get(self.me, 0) + epoch.window.stable_counter
        return event_number(self.me.incarnation, stable) if stable else 0

    def behind(self, group: str) -> tuple[NodeId, ...]:
        named = self.named.get(group)
        epoch = (named.current or named.entering) if named is not None else None
        oldest = epoch.window.oldest if epoch is not None else None
        return () if epoch is None or oldest is None else epoch.streams.behind(oldest)

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        assert self.accepts(group, step.now), "the driver asks first"
        named = self.named[group]
        epoch = named.current
        assert epoch is not None
        if size > epoch.options.window_size:
            raise UsageError(
                f"a batch of {size} bytes does not fit the window of "
                f"{epoch.options.window_size} (window_size) of group {group!r}"
            )
        self._advance_clocks(step)
        event = epoch.submit(step, payloads, size)
        named.events += 1
        self._follow_up(step)
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        """What follows from events and null messages waits for `drain`."""
        if not isinstance(packet, FREQUENT) or packet.label not in self.joined:
            self.drain(step)
            self._receive_rare(step, sender, packet)
            return
        epoch = self.joined[packet.label]
        refuse_invalid(epoch, sender, packet)
        if self._is_drained:
            self._advance_clocks(step)
            self._is_drained = False
        epoch.receive(step, sender, packet)

    def drain(self, step: Step) -> None:
        if not self._is_drained:
            self._is_drained = True
            self._follow_up(step)

    def _receive_rare(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if not isinstance(packet, PACKETS):
            raise PeerError(f"{sender} sent {type(packet).__name__}, which total does not know")
        if isinstance(packet, PrimaryReport | PrimaryAttempt):
            self._receive_vote(step, sender, packet)
            return
        if isinstance(packet, Numbered):
            epoch = self.joined.get(packet.label)
            if epoch is None:
                self._give(step, packet.group, Numbered, sender, packet)
                return
            refuse_invalid(epoch, sender, packet)
            if isinstance(packet, State):
                packet = epoch.parts.complete(sender, packet)
            self._advance_clocks(step)
            epoch.receive(step, sender, packet)
            self._follow_up(step)
            return
        assert isinstance(packet, OfFormations)
        named = self.named.get(packet.group)
        if named is not None:  # else we have left the group
            named.receive(step, sender, packet)
            self._conclude(step, named)

    def _receive_vote(
        self, step: Step, sender: NodeId, packet: PrimaryReport | PrimaryAttempt
    ) -> None:
        named = self.named.get(packet.group)
        if named is None:
            return  # we have left the group
        if not named.gathering.may_be_member(sender):
            raise PeerError(f"{sender} is not a member of {packet.group}")
        if named.voter is None:
            raise PeerError(f"{sender} votes in {packet.group}, which has no quorum")
        named.voter.receive(step, sender, packet)
        self._conclude(step, named)

    def expire(self, step: Step, timer: Timer) -> None:
        if isinstance(timer, tuple):
            what, group = timer
            self._give(step, group, what)
            return
        assert isinstance(timer, str)
        epoch = self.joined.get(timer)
        if epoch is not None:
            self._advance_clocks(step)
            epoch.tick(step)
            self._follow_up(step)

    def _throttle(self, step: Step, group: str, full: bool) -> None:
        self._advance_clocks(step)
        for epoch in self._epochs_of(group):
            epoch.is_full = full
            epoch.is_solicited = epoch.is_solicited or not full
        self._follow_up(step)

    def _provide(self, step: Step, given: inputs.StateProvided) -> None:
        named = self.named.get(given.group)
        if named is not None:  # else we have left the group meanwhile
            self._advance_clocks(step)
            giving.answer_state(named, step, str(given.token), given.state, given.failure)
            self._follow_up(step)

    def counters(self, group: str) -> dict[str, int]:
        named = self.named.get(group)
        if named is None:
            return {"present": 0}
        counters = named.current.counters() if named.current else {"present": 0}
        forming = not named.is_idle or named.gathering.request is not None
        return {**counters, "forming": int(forming)}

    def _leave(self, step: Step, group: str) -> None:
        """The other members still deliver our events, up to the packet `Leave`."""
        named = self.named.pop(group, None)
        if named is not None:
            self._advance_clocks(step)
            named.leave(step)
            self._counters[group] = named.counter, named.events
            if named.started.record is not None:
                self._records[group] = named.started.record
            for epoch in self._epochs_of(group):
                self.transitions.depart(step, epoch)
            if named.voter is not None:
                named.voter.forget_state()
            self.groups = tuple(self.named)
            self._follow_up(step)

    # --- formations --------------------------------------------------------------------------

    def _epochs_of(self, group: str) -> list[GroupEpoch]:
        return [epoch for epoch in self.joined.values() if epoch.name == group]

    def _conclude(self, step: Step, named: NamedGroup) -> None:
        """Ends an input of one group name: an epoch that all have agreed on is started."""
        if isinstance(named.attempt, Agreed):
            self.transitions.start(step, named, named.attempt)
        self._advance_clocks(step)
        self._follow_up(step)

    # --- delivery ----------------------------------------------------------------------------

    def _advance_clocks(self, step: Step) -> None:
        for epoch in self.joined.values():
            epoch.advance_clock(step.now)

    def _follow_up(self, step: Step) -> None:
        """Everything that follows from an input, in all groups."""
        moved = True
        while moved:
            moved = False
            for epoch in list(self.joined.values()):
                moved |= epoch.agree(step)
            moved |= self._deliver(step)
            moved |= self.transitions.advance(step)
        head, bound = self.order.head(), self.order.delivered_up_to()
        if self.transitions.awaits:
            head = max(head or 0, self.transitions.awaits)
        for epoch in self.joined.values():
            epoch.maintain(step, head, bound)
        if self._voters:
            self._secure(step)

    def _secure(self, step: Step) -> None:
        """In a primary view all of whose members are there, what is stable is secured: each later
        primary view has a member of this one, and so its state."""
        for named in self.named.values():
            epoch = named.current
            if named.voter is None or epoch is None or epoch.views.pending or not named.is_primary:
                continue
            above = epoch.starts.get(self.me, 0)
            up_to = above + epoch.window.stable_counter
            if epoch.window.stable_counter and up_to > named.secured:
                named.secured = up_to
                numbers = (event_number(self.me.incarnation, one) for one in (above + 1, up_to))
                step.notify(Secured(named.plan.group, *numbers))

    def _deliver(self, step: Step) -> bool:
        order = self.order
        bound, order.blocked_at = order.deliverable_up_to(), None
        moved = False
        while True:
            first, cut = order.queue.head(), order.next_cut()
            if first is not None and first <= bound and (cut is None or first <= cut[0]):
                numberer, message = order.queue.peek()
                epoch = self.joined[message.label]
                if isinstance(message, State):
                    if not taking.has_state(epoch, step, message):
                        order.blocked_at = first
                        return moved
                    order.queue.pop()
                    epoch.begin(step, message)
                    self.transitions.advance(step)
                    bound = order.deliverable_up_to()
                else:
                    if not epoch.placement.is_ready(epoch, message):
                        order.blocked_at = first
                        return moved
                    order.queue.pop()
                    epoch.placement.deliver(epoch, step, numberer, message)
            elif cut is not None and cut[0] <= bound:
                epoch = self.joined[cut[1]]
                epoch.placement.install(epoch, step)
                bound = order.deliverable_up_to()  # a new sequencer may have assigned turns
            else:
                return moved
            moved = True


def build(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    """One machine for all groups: what it may deliver in one depends on the others."""
    return [NewtopMember(me, plans, records)]

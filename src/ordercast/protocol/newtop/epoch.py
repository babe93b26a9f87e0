"""One epoch of a group at one member: a formation, from its start until the member leaves it.

What it decides: what is sent in the group, what takes effect of what is received, when an epoch has
begun, and when a null message is due. How an event gets its place in the order is a strategy
(`placement.py`); how members agree on failures is in `agreement.py`. Both are given the epoch with
every call.

Rules.
 1. Every packet takes a fresh number of the process's one clock, names the number before it, and
    goes by link to all live members. It reports how far its sender has delivered. Agreement
    messages are numbered like events, so a member that has a later packet of a sender has all its
    earlier ones, received or relayed.
 2. The bound of the group: no live member will send anything numbered up to there.
 3. A formation that was voted on starts with a `Start` of each member. When its initiator has all
    of them it casts the `State`, whose number is above all of theirs. Events are submitted after
    that. So nothing in the epoch is numbered at or below our own start. A member that has delivered
    the same as the initiator where both come from has that state, and is not sent it.
 4. A member sends a null message when it has been silent for `prompt_after` and others wait for
    what only it can say: a number above what is to be delivered, or that it has delivered more.
    Otherwise it sends one every `silence_limit`: links lose nothing, so it says nothing twice.
 5. A member that waits for another group's numbers solicits them, once for each number: a member
    whose number is lower answers with a null message. Only liveness depends on it.
 6. A view without members that have only gone ahead to the formation that we are entering waits:
    for the next event or view here, or for that formation to fail. If it begins, nobody sees a view
    of those who were left for a moment.

What it does not do: deliver, which depends on all groups of the process together (`member.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ordercast.kernel.clocks import PatientClock
from ordercast.kernel.family import Plan
from ordercast.kernel.step import Step
from ordercast.protocol.newtop import taking
from ordercast.protocol.newtop.agreement import Agreement
from ordercast.protocol.newtop.flow import SendWindow, retained_limit
from ordercast.protocol.newtop.history import Delivered
from ordercast.protocol.newtop.options import NewtopOptions, stretched
from ordercast.protocol.newtop.ordering import Ordering
from ordercast.protocol.newtop.packets import (
    Confirm,
    Copy,
    Data,
    DeliveryDigest,
    Leave,
    Message,
    Move,
    Null,
    Refute,
    Retract,
    Start,
    State,
    Suspect,
    Turn,
)
from ordercast.protocol.newtop.phase import Phase
from ordercast.protocol.newtop.stability import Streams
from ordercast.protocol.newtop.state_parts import ReceivedParts, SentStates
from ordercast.protocol.newtop.views import PendingView, Views
from ordercast.types import (
    Event,
    NodeId,
    Partitioned,
    Payloads,
    Refused,
    View,
    event_number,
    label_of,
)

if TYPE_CHECKING:
    from ordercast.protocol.newtop.placement import Placement
    from ordercast.protocol.primary.voter import Voter


BEGUN = Phase.BEGUN  # looked up hundreds of thousands of times


class GroupEpoch:
    def __init__(
        self,
        me: NodeId,
        plan: Plan,
        members: tuple[NodeId, ...],
        order: Ordering,
        placement: Placement,
        formation: str = "",
        initiator: NodeId | None = None,
        founding: str = "",
        voter: Voter | None = None,
    ) -> None:
        assert isinstance(plan.options, NewtopOptions) and me in members
        options = plan.options
        self.me = me
        self.name = plan.group
        self.formation = formation  # "": the group existed from the beginning
        self.label = label_of(plan.group, formation) if formation else plan.group
        self.founding = founding  # the formation that founded an open group; "": it is closed
        self.options = options
        self.silence_limit = stretched(options.silence_limit, len(members))
        self.suspicion_limit = stretched(options.suspicion_limit, len(members))
        self.order = order
        self.placement = placement
        self.voter = voter  # None: no view is the primary one
        self.members = frozenset(members)  # all that ever belonged to it; never iterated
        others = tuple(one for one in members if one != me)
        shown = founding if options.reform == "ask" else ""
        self.views = Views(plan.group, me, members, formation, shown)
        self.streams = Streams(me, others, retained_limit(options))
        self.agreement = Agreement(others)
        self.window = SendWindow(options)
        self.reported_up_to = 0  # how far we last reported that we have delivered
        self.stable = 0  # everything up to here is stable, and no longer retained
        self.patience = PatientClock()
        self.cast_at = 0  # when we last cast anything, as others saw time pass
        self.timer_after = 0  # what our timer is set to; 0: it is not set yet
        self.is_solicited = False  # another member solicits a number that we have not reached
        self.solicited_up_to = 0  # the largest number that we have solicited
        self.is_full = False  # the application takes no more: we report no further deliveries
        self.departed: dict[NodeId, None] = {}  # members that announced that they leave
        self.moves: dict[NodeId, tuple[str, int]] = {}  # who moves to which formation, and when
        self.initiator = initiator  # None: the group existed from the beginning
        self.phase = Phase.BEGUN if initiator is None else Phase.AWAITING_STATE
        # By member that has started: how many events it submitted in earlier epochs.
        self.starts: dict[NodeId, int] = {}
        self.floor = 0  # nothing of this epoch is numbered up to here
        self.is_founding = False  # the members of an open group found it: all must have started
        self.delivered = Delivered(formation, members)
        self.previous: GroupEpoch | None = None  # where we come from, until this one has begun
        self.setback = ""  # why we could not begin, if that may be otherwise the next time
        self.awaits_copy = False  # we asked the initiator for the state that it had left out
        self.copy: Copy | None = None  # its answer
        self.parts = ReceivedParts()  # of a state that is on its way
        self.giving = SentStates(self.streams)  # large ones that are on their way from us
        self.moving_to: tuple[str, NodeId] | None = None  # the formation that we enter, and whose
        self.waiting_views: list[View] = []  # views without members that have gone ahead to it

    @property
    def live(self) -> tuple[NodeId, ...]:
        return self.views.live

    # --- bounds ------------------------------------------------------------------------------

    def received_by_all(self) -> int:
        """No live member, ourselves included, will send anything numbered up to here."""
        clock = self.order.clock.value
        received = self.streams.received.stable_up_to(clock)
        return received if received < clock else clock

    def bound(self) -> int:
        """Nothing new will arrive at or below it, the state to begin with included."""
        up_to = self.placement.deliverable_up_to(self)
        if self.phase is not BEGUN and self._awaits_state():
            assert self.initiator is not None
            up_to = min(up_to, self.streams.up_to(self.initiator))
        return up_to if up_to > self.floor else self.floor

    def _awaits_state(self) -> bool:
        """Whether the state may still arrive, and takes a place in the order."""
        return (
            self.phase is not Phase.STATE_QUEUED
            and self.placement.is_ordered
            and self.initiator in self.views.live
        )

    def next_cut(self) -> int | None:
        return self.views.next_cut()

    def _delivered_up_to(self) -> int:
        """What we report as delivered. It stands still while we are full, so that others wait."""
        if self.is_full:
            return self.reported_up_to
        return min(self.received_by_all(), self.placement.delivered_up_to(self))

    # --- an epoch begins ---------------------------------------------------------------------

    def start(self, step: Step, counter: int) -> None:
        """All have voted for this epoch. We submitted `counter` events in earlier ones."""
        assert self.phase is Phase.AWAITING_STATE and not self.starts
        self.starts[self.me] = counter
        self.cast(step, Start(self.name, *self.head(), counter))
        self.floor = self.streams.last_order

    def cast_state(
        self,
        step: Step,
        state: bytes | None,
        history: DeliveryDigest | None,
        along: tuple[NodeId, ...],
        failure: str = "",
        *,
        retry: bool = False,
    ) -> None:
        """All have started. This is the state that they begin with, or why there is none.

        The members `along` come from where we come from, with this history: it is left out.
        """
        report = None if self.voter is None else self.voter.report
        message = State(
            *(self.name, *self.head(), state, history), failure=failure, voter=report, retry=retry
        )
        left_out = tuple(one for one in self.live if one in along)
        self.cast(step, message, ())
        self.giving.send(step, tuple(one for one in self.live if one not in along), message)
        if left_out:
            step.send(left_out, msgspec.structs.replace(message, state=None, is_left_out=True))
        self._queue_state(self.me, message)

    def hear(self, sender: NodeId) -> None:
        if sender in self.live:
            self.agreement.suspicions.last_heard[sender] = self.patience.time

    def _queue_state(self, sender: NodeId, message: State) -> None:
        self.phase = Phase.STATE_QUEUED
        self.order.queue.push(sender, message)

    def _receive_state(self, sender: NodeId, message: State) -> None:
        if self.phase is Phase.AWAITING_STATE and message.order > self.floor:
            self._queue_state(sender, message)
        elif self.phase is Phase.AWAITING_STATE:
            self.phase = Phase.FAILED  # its initiator did not wait for our start

    def begin(self, step: Step, message: State) -> None:
        """The state is delivered at its place in the order, and the first view with it."""
        if self.phase is Phase.FAILED:
            return
        assert self.phase is Phase.STATE_QUEUED and self.initiator is not None
        if self.voter is not None and not self.voter.may_take(self.initiator, message.voter):
            self.phase = Phase.FAILED
            step.notify(Refused(self.name, f"{self.initiator} lacks the state of a primary view"))
            return
        if self.initiator != self.me and not taking.has_same(self, message):
            given = self.copy or message
            if given.failure:
                taking.do_without(self, step, given.failure, message.retry)
                return
            step.give_state(self.name, given.state)
        self.phase = Phase.BEGUN
        self.previous = self.copy = None
        self.delivered.begin(message.history)
        if self.voter is not None:
            self.voter.take(message.voter, self.is_founding, self.views.members)
        self.show(step, self.views.current())
        self.placement.begin(self, step)

    # --- sending -----------------------------------------------------------------------------

    def submit(self, step: Step, payloads: Payloads, size: int) -> Event:
        data = Data(self.name, *self.head(), self.me, self.window.counter + 1, payloads, size)
        self.cast(step, data)
        self.window.append(data.order, size)
        return self.event(data, self.placement.place_own(self, step, data))

    def leave(self, step: Step) -> None:
        self.is_full = True  # we deliver nothing more, and must not report it as delivered
        self.giving.hurry(step)
        self.cast(step, Leave(self.name, *self.head()))

    def move(self, step: Step, to: str) -> None:
        """We move to another formation: we submit no more events in this one."""
        self.cast(step, Move(self.name, *self.head(), to))

    def head(self, solicits: int = 0) -> tuple[str, int, int, int, int]:
        """What every packet of our stream starts with, after the name: the formation, a fresh
        number, the one before it, how far we have delivered, and the number that we solicit."""
        order = self.order.clock.tick()
        self.reported_up_to = max(self.reported_up_to, self._delivered_up_to())
        return self.formation, order, self.streams.last_order, self.reported_up_to, solicits

    def cast(self, step: Step, message: Message, to: tuple[NodeId, ...] | None = None) -> None:
        """To all live members, unless the rest of them gets another copy."""
        self.streams.append_own(message)
        to = self.views.live if to is None else to
        if self.giving.behind:
            to = tuple(one for one in to if one not in self.giving.behind)
        if to:
            step.send(to, message)
        self.cast_at, self.is_solicited = self.patience.passed, False

    def number_of(self, message: Data | Turn) -> int:
        """The number of an event, which continues over the epochs of an incarnation."""
        before = self.starts.get(message.origin, 0)
        return event_number(message.origin.incarnation, before + message.number)

    def event(self, data: Data, order: int | None) -> Event:
        made = self.name, data.origin, self.number_of(data), data.payloads
        return Event(*made, order=order, size=data.size, formation=self.formation)

    def deliver(self, step: Step, data: Data, order: int | None) -> None:
        if self.waiting_views:
            self._show_views(step)
        self.delivered.add(data.origin, order is not None)
        step.deliver(self.event(data, order))

    # --- receiving ---------------------------------------------------------------------------

    def known_up_to(self, sender: NodeId) -> int:
        """The last number that we have of a live member, withheld or not."""
        withheld = self.agreement.suspicions.withheld.get(sender)
        return max(self.streams.up_to(sender), withheld[-1].order if withheld else 0)

    def receive(self, step: Step, sender: NodeId, message: Message) -> None:
        suspicions = self.agreement.suspicions
        if sender not in self.views.live or sender in suspicions.overrun:
            return
        if sender in suspicions.suspected:
            suspicions.withhold(sender, message, self.streams.limit.size)
        elif message.order > self.streams.up_to(sender):
            self.apply(step, sender, message)

    def apply(self, step: Step, sender: NodeId, message: Message) -> None:
        """The next packet of a stream takes effect, received or relayed."""
        self.streams.append(sender, message)
        self.order.clock.witness(message.order)
        self.agreement.suspicions.last_heard[sender] = self.patience.time
        asked = message.solicits
        if asked and (
            self.streams.last_order < asked
            or self.reported_up_to < min(asked, self._delivered_up_to())
        ):
            self.is_solicited = True
        match message:
            case Data() | Turn():
                self.placement.enqueue(self, step, sender, message)
            case Null():
                pass
            case Suspect():
                self.agreement.note_suspicion(self, sender, message)
            case Retract():
                self.agreement.forget_suspicion(sender, message)
            case Refute():
                self.agreement.forget_suspicion(sender, message)
                self.agreement.take_refutation(self, step, message)
            case Confirm():
                detection = tuple(message.detection)
                self.agreement.suspicions.confirmed[sender].append((detection, message.order))
                self.placement.note_confirmation(self, sender, detection)
            case Leave():
                self.departed[sender] = None
                self.agreement.suspicions.forced.setdefault(sender, "left")
            case Move():
                self.moves[sender] = (message.to, message.order)
            case Start():
                self._note_start(sender, message)
            case State():
                self._receive_state(sender, message)

    def _note_start(self, sender: NodeId, message: Start) -> None:
        """The others may need as long again: in a large group all must be connected first."""
        self.starts[sender] = message.counter
        for peer in self.live:
            if peer not in self.starts:
                self.hear(peer)

    # --- views -------------------------------------------------------------------------------

    def exclude_soon(self, peer: NodeId, cause: str) -> None:
        """Suspects a member, and again whenever others refute that."""
        if peer in self.live:
            self.agreement.suspicions.forced.setdefault(peer, cause)

    def agree(self, step: Step) -> bool:
        """Applies the rules of agreement until none has anything to do. True if one had."""
        moved = self.agreement.agree(self, step)
        if not self.placement.is_ordered:
            moved |= self.placement.install_due(self, step)
        return moved

    def lose(self, step: Step, event: Data | Turn) -> None:
        origin, number = event.origin.name, self.number_of(event)
        step.note("lose", group=self.label, origin=origin, number=number, cause="discarded")

    def install_next(self, step: Step) -> tuple[View, PendingView]:
        """Installs a view, and notifies the application of members that it lost."""
        view, pending = self.views.install()
        if self.phase is not Phase.BEGUN:
            if self.initiator in pending.gone:
                self.phase = Phase.FAILED
            return view, pending
        if all(map(self._has_gone_ahead, pending.gone)):
            self.waiting_views.append(view)
            return view, pending
        self._show_views(step)
        self.show(step, view)
        lost = tuple(one for one in pending.gone if one not in self.departed)
        if lost:
            step.notify(Partitioned(self.name, view, lost))
        return view, pending

    def _has_gone_ahead(self, member: NodeId) -> bool:
        """Whether it has left this formation for the one that we are entering."""
        if self.moving_to is None or member not in self.departed:
            return False
        to, initiator = self.moving_to
        return member == initiator or self.moves.get(member, ("", 0))[0] == to

    def stay(self, step: Step) -> None:
        """The formation that we were entering has failed."""
        self.moving_to = None
        self._show_views(step)

    def _show_views(self, step: Step) -> None:
        for view in self.waiting_views:
            self.show(step, view)
        self.waiting_views = []

    def show(self, step: Step, view: View) -> None:
        step.install(view)
        if self.voter is not None:
            self.voter.install(step, view)

    # --- time, stability, null messages ------------------------------------------------------

    def advance_clock(self, now: int) -> None:
        """Every input starts with it: time has passed."""
        self.patience.advance(now, self.timer_after, self.options.prompt_after)

    def tick(self, step: Step) -> None:
        self.agreement.suspect_late(self, step)
        self.timer_after = 0  # the timer has run out

    def maintain(self, step: Step, head: int | None, bound: int) -> None:
        """Discards what is stable, casts a null message if one is due, and sets the timer.

        `head` is the number that the process waits for, `bound` is how far it has delivered.
        """
        own = self.received_by_all()
        waits_for = 0
        if self.placement.is_ordered and head is not None and head > self.bound():
            waits_for = head
        if not self.placement.is_ordered or self.voter is not None:
            bound = self.placement.delivered_up_to(self)
        own = min(own, bound)
        stable = min(own, self.streams.delivered.stable_up_to(own))
        if stable > self.stable:
            self.stable = stable
            self.streams.discard_up_to(stable)
            self.window.discard_up_to(stable)
        options = self.options
        silence = self.silence_limit
        if self.views.live:
            if self.is_busy(waits_for, own):
                silence = options.prompt_after
            pause = options.prompt_after if self._has_news(waits_for, own) else self.silence_limit
            if self.is_solicited or self.patience.passed - self.cast_at >= pause:
                self.cast(step, Null(self.name, *self.head(waits_for)))
                self.solicited_up_to = max(self.solicited_up_to, waits_for)
        if not 0 < self.timer_after <= silence:
            left = silence - (self.patience.passed - self.cast_at)
            self.timer_after = max(options.prompt_after, left)
            step.set_timer(self.label, self.timer_after)

    def is_busy(self, waits_for: int, deliverable: int) -> bool:
        """Whether we wait for others, or any of them may wait for us."""
        return bool(
            waits_for
            or self.phase is not BEGUN
            or self.streams.unstable_events
            or self._has_news(waits_for, deliverable)
            or self.views.pending
            or self.agreement.suspicions.suspected
        )

    def _has_news(self, waits_for: int, deliverable: int) -> bool:
        """Whether a null message of ours would say what others wait for, or what we wait for."""
        streams = self.streams
        return (
            streams.last_order < streams.newest_placed
            or waits_for > self.solicited_up_to
            or (not self.is_full and self.reported_up_to < min(streams.newest_event, deliverable))
        )

    def counters(self) -> dict[str, int]:
        return {
            "present": len(self.live) + 1,
            "unstable": self.window.count,
            "held": sum(retained.count for retained in self.streams.retained.values()),
            "waiting": self.placement.count_waiting(self),
            "suspected": len(self.agreement.suspicions.suspected),
            "contradictions": self.agreement.contradictions,
        }

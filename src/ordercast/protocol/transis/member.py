"""A member of a group with virtual synchrony: its inputs, and how it goes from view to view.

What it decides: when it proposes, is ready, and installs a view. The rules are those of
`change.py`; what happens in a view is in `configuration.py`, who is merged with in `courting.py`.

Rules of its own.
 1. Packets of another configuration than ours are dropped: a link that was cut brings its backlog
    after the heal. Only `Hello` starts a merge.
 2. Views are shown to the application from the first one on that has as many members as are
    expected (`founding.awaited`), or in which something is delivered.
 3. A member that leaves casts what waits, and says how much it has cast. The others exclude it when
    they have that. If a cut binds it already, what waits is lost.

What it does not do: persist anything but its vote in groups with a quorum (`franchise.py`). A new
incarnation is a new member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ordercast.errors import PeerError, UsageError
from ordercast.kernel import inputs
from ordercast.kernel.clocks import PatientClock
from ordercast.kernel.family import Build, Plan
from ordercast.kernel.founding import awaited, awaiting
from ordercast.kernel.inputs import Input
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step, Timer
from ordercast.protocol.primary.packets import PrimaryAttempt, PrimaryReport
from ordercast.protocol.primary.voter import refuse_report
from ordercast.protocol.transis import refusals
from ordercast.protocol.transis.announcing import Announcer
from ordercast.protocol.transis.carrier import Carriage
from ordercast.protocol.transis.configuration import OpenConfiguration
from ordercast.protocol.transis.franchise import Franchise
from ordercast.protocol.transis.history import DeliveryHistory, Sides
from ordercast.protocol.transis.merging import Differences
from ordercast.protocol.transis.multicast import carriage_of
from ordercast.protocol.transis.options import SynchronyOptions, service_of
from ordercast.protocol.transis.packets import (
    PACKETS,
    Cast,
    ConfigurationId,
    Court,
    Decline,
    Failed,
    Fetch,
    Fetched,
    Hello,
    Installed,
    Joined,
    Joint,
    Leave,
    Probe,
    Proposal,
    Ready,
    Recall,
    Recalled,
    State,
    StatePart,
    Status,
    Summary,
)
from ordercast.protocol.transis.states import StateExchange
from ordercast.protocol.transis.suggestion import Decision
from ordercast.types import Event, Merged, NodeId, Payloads, View, Waiting, event_number

TICK = "tick"
FREQUENT = (Cast, Status, Summary)
Ballot = PrimaryReport | PrimaryAttempt
Past = Recall | Recalled | State | StatePart


class SynchronyMember:
    takes = (
        *(inputs.Backpressure, inputs.Acquainted, inputs.Leave),
        *(inputs.CaughtUp, inputs.DifferenceWanted, inputs.StateProvided),
    )
    gathers = True  # so acknowledgements to several senders leave as one, or with an event
    configuration_type = OpenConfiguration
    carriage_of: Callable[[SynchronyOptions, Random], Carriage] = staticmethod(carriage_of)
    franchise_type = Franchise
    history_type = DeliveryHistory
    states_type = StateExchange

    def __init__(
        self, me: NodeId, plan: Plan, chance: Random, records: Sequence[Packet] = ()
    ) -> None:
        assert isinstance(plan.options, SynchronyOptions)
        self.me = me
        self.group = plan.group
        self.groups: tuple[str, ...] = (plan.group,)
        self.options = plan.options
        self.announcer = Announcer(me, plan, chance.random())
        self.carriage = self.carriage_of(self.options, chance)
        self.own = self.carriage.own_events(self.options)
        self.franchise: Franchise | None = None  # None: every view may submit
        if self.options.quorum == "majority":
            self.franchise = self.franchise_type(me, plan, self.own, records)
        self.history = self.history_type(int(self.options.history))
        self.differences = Differences(plan.group, me, self.history)
        self.states = self.states_type(plan.group, me, self.options, self.franchise)
        self.clock = PatientClock()
        self.serial = 0  # proposals made in this incarnation
        self.changes = 0  # views installed
        self.is_full = False  # the application cannot take more
        self.entry = plan.entry
        self.has_begun = False  # the application has a view
        self.has_left = False
        self.view: View  # of our configuration
        self._alarm: int | None = None  # when our timer runs out; patient time
        self._asleep = int(self.options.silence_limit)  # what it was set to
        self._is_usual = False  # nothing came since then but events and acknowledgements
        self._is_drained = True  # no packet waits for what follows from it
        members: tuple[NodeId, ...] = (me,)
        if plan.formed and plan.entry is None and me.incarnation == 0:
            members = tuple(sorted(NodeId(name, 0) for name in plan.members))
        # One of several members is above all those that they could have come from.
        self._enter(ConfigurationId(min(2, len(members)), members[0], 0), members)

    def _enter(self, cid: ConfigurationId, members: tuple[NodeId, ...], sides: Sides = ()) -> None:
        """A configuration begins, with nothing sent or received."""
        time, self._is_usual = self.clock.time, False
        self.current = self.configuration_type(
            *(self.me, self.group, self.options, cid, members),
            *(self.own, self.history, self.states, self.carriage, time),
        )
        self.view = self.current.view(sides[0] if sides else members)
        self.history.enter(cid, members, self.view.id, sides)
        if not sides:
            self.states.begin(cid)
        self._throttle()
        self.announcer.courting.installed(members, time)
        self.announcer.names.tell(node.name for node in members)  # we may be split from them

    def _throttle(self) -> None:
        """Nothing is admitted while the application is full, or waits for a state."""
        self.current.graph.is_full = self.is_full or self.states.is_waiting

    # --- inputs ------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        self._advance(step)
        if self.has_left:  # and comes again, as the same incarnation
            self.has_left = self.has_begun = self.is_full = False
            self.serial += 1
            # Above all that we were in, and all that others may have installed with us.
            former = (self.current.cid, *self.current.change.readied)
            height = 1 + max(cid.height for cid in former)
            self.history.clear()
            self._enter(ConfigurationId(height, self.me, self.serial), (self.me,))
        self.announcer.courting.announce_soon(self.clock.time)
        self._show(step)
        self._follow_up(step)

    def accepts(self, group: str, now: int) -> bool:
        must_wait = self.current.change.stage == 2 or self.states.is_waiting
        if self.franchise is not None and (must_wait or not self.franchise.is_primary):
            return False
        return self.has_begun and not self.has_left and self.own.accepts(must_wait)

    def blocked_by(self, group: str) -> str:
        must_wait = self.current.change.stage == 2 or self.states.is_waiting
        if not self.has_begun or must_wait:
            return "view"
        is_outside = self.franchise is not None and not self.franchise.is_primary
        return "quorum" if is_outside else "window"

    def stable_up_to(self, group: str) -> int:
        stable = self.own.stable_counter
        return event_number(self.me.incarnation, stable) if stable else 0

    def submit(
        self, step: Step, group: str, payloads: Payloads, size: int, service: str = ""
    ) -> Event:
        assert self.accepts(group, step.now), "the host asks first"
        if size > self.options.window_size:
            raise UsageError(
                f"a batch of {size} bytes does not fit the window of "
                f"{self.options.window_size} (window_size) of group {group!r}"
            )
        chosen = service_of(service or self.options.service)
        self._advance(step)
        counter = self.own.submit(payloads, size, chosen)
        number = event_number(self.me.incarnation, counter)
        self._follow_up(step)
        return Event(self.group, self.me, number, payloads, size=size, service=chosen)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        """What follows from events and acknowledgements waits for `drain`, or for a submission."""
        current = self.current
        if not isinstance(packet, FREQUENT):
            if not self._is_drained:
                self._follow_up(step)
            self._receive_rare(step, sender, packet)
            return
        place = current.graph.places.get(sender)
        if packet.cid != current.cid or place in current.graph.frozen:
            return  # of one that does not come along we may have missed something already
        if place is None:
            raise PeerError(f"{sender} is not a member of view {current.cid} of {self.group}")
        if isinstance(packet, Cast):
            current.carrier.refuse_cast(current.graph, sender, place, packet)
        elif isinstance(packet, Status):
            current.carrier.refuse_status(current.graph, sender, place, packet)
        else:
            refusals.refuse_summary(current.graph, current.gathers, sender, packet)
        if self._is_drained:
            self._advance(step)
            self._is_drained = False
        current.patience.heard[sender] = self.clock.time
        if isinstance(packet, Cast):
            if not self.has_begun:
                self._begin(step)
            current.take(step, place, packet)
        elif isinstance(packet, Status):
            current.take_status(place, packet)
        else:
            current.take_summary(place, packet)

    def drain(self, step: Step) -> None:
        if not self._is_drained:
            self._follow_up(step)

    def expire(self, step: Step, timer: Timer) -> None:
        assert timer == TICK
        self._alarm = None
        self._advance(step)
        time, current = self.clock.time, self.current
        late = current.late(step, time, self.announcer.courting.view_of)
        self._grow(step, (), (*current.silent(step, time), *late))
        self._grow(step, (), self.states.silent_givers(time))
        if self.states.is_overdue(step, current.cid, time):
            current.change.repeat()
        self._throttle()
        current.beat(step, time)
        self.announcer.tick(step, current, time)
        self._follow_up(step)

    def on(self, step: Step, given: Input) -> None:
        self._is_usual = False
        self._advance(step)
        match given:
            case inputs.Backpressure(full=full):
                self.is_full = full
                self._throttle()
                self.current.admit_held(step)
            case inputs.StateProvided():
                self.states.provide(step, given)
                self._throttle()
                self.current.admit_held(step)
            case inputs.Acquainted(names=names):
                self.announcer.names.tell(names)
                self.announcer.courting.announce_soon(self.clock.time)
            case inputs.CaughtUp(view=view):
                if self.franchise is not None:
                    self.franchise.catch_up(view)
            case inputs.DifferenceWanted(view=view, side=side):
                self.differences.want(step, view, side, self.current.members)
            case inputs.Leave():
                self._leave(step)
                return
        self._follow_up(step)

    def counters(self, group: str) -> dict[str, int]:
        return {
            **self.current.counters(),
            "unstable": self.own.unstable,
            "waiting": len(self.own.waiting),
            "proposals": self.serial,
            "changes": self.changes,
            "history": self.history.size,
        }

    def _leave(self, step: Step) -> None:
        current = self.current
        current.cast_waiting(step, self.clock.time, everything=True)
        self.states.begin(current.cid)
        for counter in self.own.give_up():
            current.lose(step, self.me, counter)
        if self.franchise is not None:
            self.franchise.leave()
        current.carrier.leave(step)
        if current.others:
            step.send(current.others, Leave(self.group, current.cid, current.graph.sent))
        self.has_left = True
        self.differences.clear()
        self._alarm = None
        step.set_timer(TICK, None)

    # --- packets of changes and meetings -----------------------------------------------------

    def _receive_rare(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if not isinstance(packet, PACKETS):
            raise PeerError(f"{sender} sent {type(packet).__name__}, which synchrony does not know")
        current, announcer = self.current, self.announcer
        change = current.change
        refusals.refuse_strangers(announcer.names, sender, packet)
        if isinstance(packet, Ballot):
            self._receive_vote(step, sender, packet)
            return
        if isinstance(packet, Past):
            self._receive_past(step, sender, packet)
            return
        if not refusals.counts(packet, sender, current):
            return
        refusals.refuse_climbers(current.cid.height, sender, packet)
        current.carrier.refuse_rare(change, sender, packet)
        self._advance(step)
        time, self._is_usual = self.clock.time, False
        by_link = not isinstance(packet, Hello | Probe)
        if sender in current.patience.heard and by_link and not isinstance(packet, Installed):
            current.patience.heard[sender] = time
        match packet:
            case Hello():
                self._grow(step, *announcer.receive_hello(step, sender, packet, current, time))
            case Probe():
                current.take_probe(step, sender, packet, time)
            case Court():
                announcer.receive_court(step, packet, current, time)
            case Decline():
                announcer.receive_decline(packet, current, time)
            case Proposal():
                self._note_suspects(step, change.hear(sender, packet))
                if change.stage == 2:
                    change.freeze(current.graph)
                    current.admit_held(step)
            case Ready():
                change.readies[sender] = packet
            case Installed():
                if refusals.is_elsewhere(packet, sender, current):
                    self._grow(step, (), (sender,))
                else:
                    self._install(step, change.readied[packet.cid], packet.joint)
            case Fetch():
                current.carrier.answer(step, sender, packet, time)
            case Fetched():
                if not self.has_begun:
                    self._begin(step)
                current.take_fetched(step, sender, packet)
            case Leave():
                current.leaving[sender] = packet.sent
        self._follow_up(step)

    def _receive_vote(self, step: Step, sender: NodeId, packet: Ballot) -> None:
        if self.franchise is None:
            raise PeerError(f"{sender} votes in {packet.group}, which has no quorum")
        if isinstance(packet, PrimaryReport):
            refuse_report(sender, packet.report)
            refusals.refuse_leaper(self.franchise.voter.standing, sender, packet.report)
        self._advance(step)
        self.franchise.receive(step, sender, packet)
        self._follow_up(step)

    def _receive_past(self, step: Step, sender: NodeId, packet: Past) -> None:
        """These are about a view that both were in, whichever we are in now."""
        current = self.current
        if isinstance(packet, Recall):
            self.history.refuse(sender, packet)
            step.send(sender, self.history.recall(packet))
        elif isinstance(packet, Recalled):
            self.differences.receive(step, sender, packet, current.members)
        else:
            self.states.receive(step, sender, packet)
            self._throttle()
            current.admit_held(step)
        self._is_usual = False
        self._advance(step)
        if sender in current.patience.heard:
            current.patience.heard[sender] = self.clock.time
        self._follow_up(step)

    # --- everything that follows from an input -----------------------------------------------

    def _advance(self, step: Step) -> None:
        self.clock.advance(step.now, self._asleep, self._asleep)

    def _follow_up(self, step: Step) -> None:
        self._is_drained = True
        change = self.current.change
        if change.stage or change.dirty or self.current.leaving:
            while self._advance_change(step):
                pass
        self.current.follow_up(step, self.clock.time)
        if self.franchise is not None:
            self.franchise.follow_up(step, self.states.is_waiting)
        self._set_alarm(step)

    def _set_alarm(self, step: Step) -> None:
        """Our one timer is set to what is next. It may run out early, and is set again then."""
        time, current = self.clock.time, self.current
        is_usual, self._is_usual = self._is_usual and not current.change.stage, True
        if is_usual and self._alarm is not None and self._alarm <= current.acknowledges_by():
            return  # nothing else comes sooner by events and acknowledgements
        soonest = min(current.deadline(time), self.announcer.deadline(current, time))
        if (state_at := self.states.deadline) is not None:
            soonest = min(soonest, state_at)
        if self._alarm is None or soonest < self._alarm:
            self._alarm = soonest
            after = max(0, soonest - time)
            self._asleep = max(after, self.options.silence_limit // 4)  # less is no stall
            step.set_timer(TICK, after)

    # --- changes -----------------------------------------------------------------------------

    def _grow(self, step: Step, joined: Joined, failed: Failed) -> None:
        if joined or failed:
            self._note_suspects(step, self.current.change.grow(joined, failed))

    def _note_suspects(self, step: Step, failed: list[NodeId]) -> None:
        for node in failed:
            step.note("suspect", group=self.group, peer=node.name)

    def _advance_change(self, step: Step) -> bool:
        """One more step of the change, if there is one. True: look again."""
        current, graph = self.current, self.current.graph
        change = current.change
        if current.leaving:
            self._grow(step, (), current.take_leavers())
        if change.may_propose(self.clock.time):
            self._propose(step)
            return True
        decision = change.decide()
        if decision is None:
            return False
        if decision.id not in change.readied:
            if current.is_short(step, decision, self.clock.time):
                self._grow(step, (), tuple(change.contradicting(graph, decision)))
                return False
            others = tuple(node for node in decision.members if node != self.me)
            lineage = self.states.after(current.cid, decision.cut)
            ready = change.ready(self.group, graph, decision, lineage)
            if others:
                step.send(others, ready)
        agreed = change.joint()
        if agreed is None:
            return False
        self._install(step, *agreed)
        return True

    def _propose(self, step: Step) -> None:
        self.serial += 1
        self.current.propose(step, self.serial, self.clock.time)

    def _install(self, step: Step, decision: Decision, joint: Joint) -> None:
        former, time = self.current, self.clock.time
        failed = tuple(former.change.suggestion.failed)
        former.end(step, decision, joint, is_shown=self.has_begun)
        self.history.leave(decision.cut, decision.came_with)
        self.states.end(former.cid, decision.cut)
        self.changes += 1
        sides = tuple(side for _, side in decision.sides)
        self._enter(decision.id, decision.members, sides)
        self.current.came_from = {node: cid for cid, side in decision.sides for node in side}
        self.announcer.rest(failed, former, decision.members, time)
        self._show(step, sides)
        self.states.installed(step, decision, joint, time)
        self._throttle()
        if self.current.others:
            step.send(self.current.others, Installed(self.group, decision.id, joint))
        for node, proposal in former.change.early.items():
            self._note_suspects(step, self.current.change.hear(node, proposal))
        self.differences.installed(step, decision.came_with, decision.members)
        # We have proposed more since then: that is the next change.
        self._grow(step, (), tuple(node for node in failed if node in decision.members))

    # --- views -------------------------------------------------------------------------------

    def _show(self, step: Step, sides: Sides = ()) -> None:
        count = len(self.view.members)
        if self.has_begun or count >= awaited(self.entry):
            self._begin(step)
            if len(sides) > 1:
                self.states.put(step, Merged(self.group, self.view, sides))
            if self.franchise is not None:
                self.franchise.install(step, self.view)
        else:
            why = awaiting(self.entry, [member.name for member in self.view.members])
            self.states.put(step, Waiting(self.group, (), why, step.now))

    def _begin(self, step: Step) -> None:
        self.has_begun = True
        self.states.put(step, self.view)


def built_of(kind: type[SynchronyMember]) -> Build:
    """One machine a group, with its vote."""

    def build(
        me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
    ) -> list[Machine]:
        return [kind(me, plan, chance, records) for plan in plans]

    return build


build = built_of(SynchronyMember)

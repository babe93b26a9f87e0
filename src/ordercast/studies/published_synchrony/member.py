"""One machine of the published protocol: its graph, the rules of the figures, and delivery.

Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication groups (Transis,
1992). faults.py has Figure 3, joins.py Figures 5 to 7, delivery.py what is delivered and Figure 8.

Here is the environment that the paper assumes (section 2):
 1. A broadcast goes to every machine of the group by link, whatever its configuration is. So links
    bring each machine's messages in order and lose none, until their sender crashes; what it left
    to only some is recovered from these, if a message follows it (graph.py).
 2. A message is acknowledged by the next one of each member, or by an empty one after
    `prompt_after`, where the service needs that.
 3. Communication with a machine breaks when nothing was heard of it for `detect`, and again after
    as long; or when an input says so. Any packet of a machine outside of CCS is a foreign message.
 4. A machine that restarts stays silent: incarnations are not part of this study.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step, Timer
from ordercast.studies.published_synchrony.delivery import Changes, Consent
from ordercast.studies.published_synchrony.faults import Faults
from ordercast.studies.published_synchrony.graph import IdealGraph
from ordercast.studies.published_synchrony.inputs import CommunicationBreak, Intercept
from ordercast.studies.published_synchrony.joins import Joins
from ordercast.studies.published_synchrony.names import Machines, common, united, without
from ordercast.studies.published_synchrony.options import MembershipOptions
from ordercast.studies.published_synchrony.packets import CASTS, Beat, Cast, Kind, Need
from ordercast.types import Event, NodeId, Payloads, View, event_number, view_identity

COUNTERS = "data ack FA AJ JOIN assents discarded recovered suppressed".split()


class PublishedMember:
    takes: Collection[type[Input]] = (CommunicationBreak, Intercept)

    def __init__(self, me: NodeId, plan: Plan, chance: Random) -> None:
        assert isinstance(plan.options, MembershipOptions)
        self.me, self.name, self.group = me, me.name, plan.group
        self.groups: tuple[str, ...] = (plan.group,)
        self.options = plan.options
        self.others = tuple(NodeId(name) for name in plan.members if name != me.name)
        self.graph = IdealGraph(plan.members, self.options.limit)
        begins = self._first_members(plan)
        self.members: Machines = begins  # CCS without those whose removal was assented to
        self.faults = Faults(self)
        self.joins = Joins(self, self.faults)
        self.delivery = Changes(self.graph, self.options, begins)
        self._is_silent = me.incarnation > 0
        self._events = 0
        self._heard: dict[str, int] = {}
        self._unacknowledged = False  # a message came that the timer `ack` will acknowledge
        self._counters = dict.fromkeys(COUNTERS, 0)

    def _first_members(self, plan: Plan) -> Machines:
        for side in self.options.sides:
            if self.name in side:
                return tuple(sorted(side))
        listed = [name for side in self.options.sides for name in side]
        return (self.name,) if listed else plan.members

    # --- inputs -------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        if self._is_silent:
            return
        self._install(step, self.delivery.configuration())
        if self.options.detect is not None:
            self._heard = {node.name: step.now for node in self.others}
            step.set_timer("beat", self.options.beat)

    def accepts(self, group: str, now: int) -> bool:
        return not self._is_silent and self.graph.count(self.name) < self.options.limit

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        self._events += 1
        number = event_number(self.me.incarnation, self._events)
        self._broadcast(step, "data", number=number, payloads=payloads, size=size)
        self._deliver(step)
        return Event(group, self.me, number, payloads, size=size, service=self.options.service)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if self._is_silent:
            return
        if isinstance(packet, Cast):
            self.graph.refuse(packet)
            self._heard[sender.name] = step.now
            blocked = self._blocked()
            if packet.sender in blocked and not self.graph.needs(packet, blocked):
                self._counters["discarded"] += 1
                return
            self._counters["recovered"] += packet.sender != sender.name
            self.graph.take(packet, sender.name)
            while (cast := self.graph.enter()) is not None:
                self._enter(step, cast)
            self._ask(step)
        elif isinstance(packet, Need):
            for cast in self.graph.range(packet.sender, packet.first, packet.last):
                step.send(sender, cast)
        elif isinstance(packet, Beat):
            self._heard[sender.name] = step.now
            self._notice(step, sender.name)
        self._deliver(step)

    def expire(self, step: Step, timer: Timer) -> None:
        if timer == "alpha":
            self.joins.alpha_expires(step)
        elif timer == "ack":
            if self._unacknowledged:
                self._broadcast(step, "ack")
        elif timer == "beat" and self.options.detect is not None:
            step.send(tuple(node.name for node in self.others), Beat(self.group), DATAGRAM)
            for name in self._watched():
                if step.now - self._heard.get(name, 0) > self.options.detect:
                    self._heard[name] = step.now
                    self._break(step, name)
            step.set_timer("beat", self.options.beat)
        self._deliver(step)

    def on(self, step: Step, given: Input) -> None:
        if self._is_silent:
            return
        if isinstance(given, CommunicationBreak):
            self._break(step, given.peer)
        elif isinstance(given, Intercept) and self.options.joins:
            self.joins.intercept(step)
        self._deliver(step)

    def stable_up_to(self, group: str) -> int:
        return 0

    def counters(self, group: str) -> dict[str, int]:
        return {**self._counters, "pending": self.delivery.pending, "stage": self.joins.stage}

    # --- the rules of the figures, as messages enter the graph ----------------------------------

    def _enter(self, step: Step, cast: Cast) -> None:
        self.delivery.add(cast)
        if cast.kind == "data" and not self._unacknowledged and self.options.service != "causal":
            self._unacknowledged = True
            step.set_timer("ack", self.options.prompt_after)
        said = (cast.joining, cast.before)
        if cast.kind == "AJ" and self.options.joins:
            self.joins.receive_attempt(step, cast.sender, cast.joining)
        elif cast.kind == "JOIN" and self.options.joins:
            self.joins.receive_join(step, cast.sender, said)
            if self.joins.last_joins.get(cast.sender) == said:
                self.delivery.hold(cast)
        elif cast.kind == "FA":
            self._enter_fault(step, cast)
        else:
            self._notice(step, cast.sender)

    def _enter_fault(self, step: Step, cast: Cast) -> None:
        excludes = self.options.own_removal == "excludes" and self.name in cast.faulty
        known = united(self.members, self.joins.joining)
        is_late = self.options.late == "ignored" and not common(cast.faulty, known)
        if excludes or is_late:
            self.delivery.drop(cast)
        if self.joins.stage:
            self.joins.receive_fault(step, cast.sender, cast.faulty, (cast.joining, cast.before))
        elif cast.sender in self.members:
            self.faults.receive(step, cast.sender, cast.faulty)
        else:
            self._notice(step, cast.sender)

    def _notice(self, step: Step, sender: str) -> None:
        """A message came: is it a foreign one?"""
        if self.options.joins and sender not in self.members and sender != self.name:
            self.joins.intercept(step)

    def _break(self, step: Step, peer: str) -> None:
        if self.joins.stage:
            self.joins.communication_breaks(step, peer)
        else:
            self.faults.communication_breaks(step, peer)

    def _watched(self) -> Machines:
        names = self.joins.accept if self.joins.stage == 2 else self.members
        return without(names, (self.name,))

    # --- what the rules may do (`Environment`) --------------------------------------------------

    def broadcast_fault(
        self, step: Step, faulty: Machines, joining: Machines = (), before: Machines = ()
    ) -> None:
        self._broadcast(step, "FA", faulty=faulty, joining=joining, before=before)

    def broadcast_attempt(self, step: Step) -> None:
        self._broadcast(step, "AJ", joining=self.members)

    def broadcast_join(self, step: Step, joining: Machines, before: Machines) -> None:
        cast = self._broadcast(step, "JOIN", joining=joining, before=before)
        if cast is not None:
            self.delivery.hold(cast)

    def suspect(self, step: Step, faulty: Machines) -> None:
        for name in without(faulty, (self.name,)):
            step.note("suspect", group=self.group, peer=name)

    def block(self, step: Step, faulty: Machines) -> None:
        self.suspect(step, faulty)
        self.graph.discard(faulty)

    def assent_to_faults(self, faulty: Machines) -> None:
        self._counters["assents"] += 1
        # Figure 7 assents to faults within CCS, Figure 3 to F as it is.
        narrow = self.joins.stage > 0 or self.options.late == "ignored"
        self.delivery.release_faults(faulty, self.members if narrow else None)
        self.members = without(self.members, faulty)

    def assent_to_join(self, joining: Machines, before: Machines, after: Machines) -> None:
        self._counters["assents"] += 1
        self.delivery.release_joins(joining, before)
        # Those of F_before that are no members change nothing, and would hold up the JOIN messages.
        self.delivery.release_faults(united(before, after), joining)
        self.members = without(without(joining, before), after)

    def reject_joins(self, joining: Machines, before: Machines) -> None:
        self.delivery.reject_joins(joining, before)

    def set_alpha(self, step: Step) -> None:
        step.set_timer("alpha", self.options.alpha)

    # --- the environment ------------------------------------------------------------------------

    def _blocked(self) -> Machines:
        """Machines whose messages do not enter the graph. Without joins that is for ever."""
        if self.options.joins:
            leaving = without(self.delivery.members, self.members)
        else:
            leaving = without(self.graph.names, self.members)
        return united(united(self.faults.faulty, self.joins.faulty), leaving)

    def _broadcast(
        self,
        step: Step,
        kind: Kind,
        faulty: Machines = (),
        joining: Machines = (),
        before: Machines = (),
        number: int = 0,
        payloads: Payloads | None = None,
        size: int = 0,
    ) -> Cast | None:
        """A new node of the graph, which follows all that is in it. None: it is one too many."""
        past = self.graph.past()
        counter = self.graph.count(self.name) + 1
        if counter > self.options.limit:
            self._counters["suppressed"] += 1
            return None
        height = self.graph.height + 1
        cast = CASTS[kind](
            *(self.group, self.name, counter, past, height, faulty, joining, before),
            number=number,
            payloads=payloads or [],
            size=size,
        )
        self._counters[kind] += 1
        self._unacknowledged = False
        self.graph.add(cast)
        self.delivery.add(cast)
        step.send(self.others, cast)
        return cast

    def _ask(self, step: Step) -> None:
        for missing in self.graph.missing():
            packet = Need(self.group, missing.sender, missing.first, missing.last)
            step.send(NodeId(missing.ask), packet)

    def _deliver(self, step: Step) -> None:
        while True:
            active = common(self.members, self.delivery.members)
            found = self.delivery.take_next(active)
            if found is None:
                return
            if isinstance(found, Consent):
                self._install(step, found)
            else:
                origin = NodeId(found.sender)
                event = Event(
                    self.group,
                    origin,
                    found.number,
                    found.payloads,
                    size=found.size,
                    service=self.options.service,
                )
                step.deliver(event)

    def _install(self, step: Step, found: Consent) -> None:
        identity = view_identity(self.group, "published", *found.members, *found.expected)
        step.install(View(self.group, identity, tuple(map(NodeId, found.members))))

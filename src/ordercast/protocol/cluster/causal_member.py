"""A member of a causal cluster: gossip below, causal order above, recovery beside.

From Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency, 2011, sections 3, 5 and 6, Algorithm 5. docs/causal.md says
where and why this differs.

Rules.
 1. Only who owns a ticket makes events. Its stamp is its clock, with the next entry of its ticket.
    It delivers its own event at once, keeps it for others, and spreads it.
 2. What comes by gossip is kept for others, and goes to the causal order (causality.py).
 3. An event that still waits after `time_to_terminate`, when gossip must be over, makes us ask for
    what it waits for, once. After `time_to_recover` it is forced: what is missing is skipped, and
    said to be lost.
 4. Members tell each other their clocks. What somebody else has and we lack is asked for in the
    same way, again and again, but nothing is forced for it: so the last event of a ticket, which
    nothing follows, is not missed in silence.
 5. Who comes asks where the cluster is (joining.py) and neither delivers nor makes anything before
    it knows, or has good reason to believe that it is among the first.
 6. While the application cannot take more nothing is delivered. What comes is kept for others, and
    for ourselves as long as there is room.

Times are counted in rounds of our own: who was stalled gives nothing up for that while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from operator import gt
from random import Random

from ordercast.errors import PeerError
from ordercast.kernel import inputs
from ordercast.kernel.buffers import Limit
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.losses import Losses
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, STATUS, Step, Timer
from ordercast.protocol.cluster.causality import CausalOrder, Delivery, Span, index_and_entry
from ordercast.protocol.cluster.joining import Joining
from ordercast.protocol.cluster.member import Spreader, parts
from ordercast.protocol.cluster.moving import Moving
from ordercast.protocol.cluster.options import CausalOptions
from ordercast.protocol.cluster.ownership import Fixed
from ordercast.protocol.cluster.packets import (
    Ask,
    ClusterMembership,
    Digest,
    Membership,
    Recover,
    Recovered,
    Update,
    Updates,
    Welcome,
)
from ordercast.protocol.cluster.partial_view import Roster
from ordercast.protocol.cluster.recovery import RecoveryBuffer, Requests
from ordercast.types import Event, NodeId, Payloads, event_number

ANSWER = Limit(500, 4 << 20)
"""What one request is answered with, at the most."""
MOST_WELCOMES = 64
"""Newcomers that are answered within the time of one recovery."""
MOST_OF_A_GAP = 50_000
"""Losses that are told of one jump: a liar may name events that never were, by the billion."""
DIGEST_ROUNDS = 4
"""How often a member tells one other its clock."""


class CausalMember(Spreader[Update]):
    takes: Collection[type[Input]] = (*Spreader.takes, inputs.StateProvided)
    membership = ClusterMembership

    def __init__(self, me: NodeId, plan: Plan, chance: Random) -> None:
        super().__init__(me, plan, chance)
        assert isinstance(plan.options, CausalOptions)
        self.options = options = plan.options
        limit = Limit(options.waiting, options.waiting_size)
        self.order = CausalOrder(options.tickets, limit)
        self.buffer = RecoveryBuffer(
            options.tickets,
            Limit(options.recovery_buffer, options.recovery_size),
            by_age=options.replace == "age",
        )
        self.requests = Requests(options.waiting)
        self.joining: Joining | None = Joining(options.rounds_to_join)
        self.now = 0  # rounds of ours
        self.sequence = 0  # paper: seq_p; own events of this epoch
        # Events that wait, with the round in which they are to be asked for, and forced.
        self.terminating: deque[tuple[int, int]] = deque()
        self.recovering: deque[tuple[int, int]] = deque()
        # What other members' clocks say that we lack, and since when.
        self.behind_since: int | None = None
        self.ahead: tuple[tuple[int, ...], str] | None = None
        self.losses: Losses[int] = Losses(MOST_OF_A_GAP)
        self.welcomed: dict[str, int] = {}  # who asked where we are, and until when that is enough
        self.tickets: Fixed | Moving = Fixed(me, plan)
        self.late = 0  # events that came after they had been skipped
        self.recovered = 0

    # --- doors -------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        """At first, or again: who comes again knows how far it was, and goes on from there."""
        super().start(step)
        if self.joining is None:
            self.joining = Joining(self.options.rounds_to_join)
            self.order.forget()
            self.requests.forget()
            self.terminating.clear()
            self.recovering.clear()
            self.ahead = self.behind_since = None
        self._start_tickets(step)
        if not self.sampler.sample(1):
            self._settle(step, [0] * self.options.tickets)

    def _start_tickets(self, step: Step) -> None:
        if self.tickets.index is not None:
            step.note("ticket", group=self.group, index=self.tickets.index, cause="acquired")

    def _has_room(self) -> bool:
        index = self.tickets.index
        return (
            self.joining is None
            and index is not None
            and self.order.clock[index] < self.tickets.entry(self.sequence + 1)
            and super()._has_room()
        )

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        assert self._has_room(), "the driver asks first"
        self._refuse_size(size)
        index = self.tickets.index
        assert index is not None
        self._count(size)
        update = self._make(index, self.made, payloads, size)
        event = self._event(update, 0)
        step.deliver(event)
        self._begin_spreading(step, update)
        return event

    def _make(self, index: int, number: int, payloads: Payloads, size: int) -> Update:
        self.sequence += 1
        clock = self.order.clock
        base = clock[index] if self.sequence == 1 else 0
        stamp = (*clock[:index], self.tickets.entry(self.sequence), *clock[index + 1 :])
        update = Update(index, stamp, self.me, number, payloads, size, base)
        self.order.made(update)
        self.buffer.add(update, 0)
        return update

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if isinstance(packet, Updates):
            news = self.spreading.news(packet.updates)
            for _, age in (*news.unknown, *news.changed):
                self._refuse_age(sender, age)
            for update, _ in news.unknown:
                self.tickets.refuse_nonsense(sender, update, self.sequence)
            news = news._replace(unknown=self._believed(step, news.unknown))
            if packet.roster is not None:
                self._receive_roster(step, sender, packet.roster)
            self.sampler.heard(sender)
            self.spreading.admit(news)
            for update, age in news.unknown:
                self._take(step, update, age, asked=False)
        elif isinstance(packet, Recovered):
            self._receive_recovered(step, sender, packet)
        elif isinstance(packet, Recover):
            self._receive_recover(step, sender, packet)
        elif isinstance(packet, Digest):
            self._receive_digest(step, sender, packet)
        elif isinstance(packet, Membership):
            self._receive_roster(step, sender, packet.roster)
        elif isinstance(packet, Ask):
            self._receive_ask(step, sender, packet)
        elif isinstance(packet, Welcome):
            self._receive_welcome(step, sender, packet)
        else:
            raise PeerError(f"{sender} sent {type(packet).__name__}, which causal does not know")

    def expire(self, step: Step, timer: Timer) -> None:
        super().expire(step, timer)
        self.now += 1
        self._tell_losses(step)
        if self.joining is not None:
            self._ask_where_we_are(step)
            return
        while self.terminating and self.terminating[0][0] <= self.now and not self.full:
            _, key = self.terminating.popleft()
            self._terminate(step, key)
        while self.recovering and self.recovering[0][0] <= self.now and not self.full:
            _, key = self.recovering.popleft()
            self._deliver(step, self.order.force(key))
        for key in self.requests.give_up(self.now - self.options.rounds_to_recover):
            self._note_event(step, "recover", *index_and_entry(key), cause="failed")
        if self.options.digests:
            self._compare_clocks(step)

    def on(self, step: Step, given: Input) -> None:
        match given:
            case inputs.StateProvided(token=(str(name), tuple(clock)), state=state):
                # The state is that of the time at which somebody came and asked for it.
                self._send(step, name, Welcome(self.group, clock, clock, state), large=True)
                return
        super().on(step, given)
        match given:
            case inputs.Backpressure(full=False) if self.joining is None:
                for update in self.buffer.all():  # what came meanwhile and is still kept
                    self._admit(step, update, 0)
            case inputs.Leave():
                self._leave_tickets(step)

    def _leave_tickets(self, step: Step) -> None:
        if self.tickets.index is not None:
            step.note("ticket", group=self.group, index=self.tickets.index, cause="released")

    def counters(self, group: str) -> dict[str, int]:
        return {
            **super().counters(group),
            "waiting": len(self.order),
            "asked": len(self.requests),
            "recovered": self.recovered,
            "late": self.late,
            "kept": len(self.buffer),
        }

    def _believed(self, step: Step, updates: list[tuple[Update, int]]) -> list[tuple[Update, int]]:
        """Those events whose makers own the ticket, where that is not a matter of course."""
        return updates

    # --- events ------------------------------------------------------------------------------

    def _take(self, step: Step, update: Update, age: int, *, asked: bool) -> None:
        """An event came, by gossip or because it was asked for."""
        self.buffer.add(update, age)
        if self.joining is not None:
            self.joining.early(update, age)
        elif not self.full:
            self._admit(step, update, age, asked=asked)

    def _admit(self, step: Step, update: Update, age: int, *, asked: bool = False) -> None:
        if self.requests.came(update.key):
            self.recovered += 1
            self._note_event(step, "recover", update.index, update.entry, cause="answered")
        if self.order.is_obsolete(update) or update.key in self.order:
            self.late += asked and self.order.is_obsolete(update)
            return
        delivered = self.order.admit(update, age)
        if update.key in self.order:  # also if it was asked for: what precedes it may be gone
            self.terminating.append((self.now + self.options.rounds_to_terminate, update.key))
        self._deliver(step, delivered)
        while self.order.over_limit:
            self._deliver(step, self.order.force_oldest())

    def _deliver(self, step: Step, delivered: list[Delivery]) -> None:
        for update, hops, skipped in delivered:
            for span in skipped:
                self.losses.add(span.ticket, range(span.first, span.last + 1))
            self._tell_losses(step)
            if self._is_for_the_application(step, update):
                step.deliver(self._event(update, hops))

    def _is_for_the_application(self, step: Step, update: Update) -> bool:
        return True

    def _terminate(self, step: Step, key: int) -> None:
        """Gossip is over, and the event still waits: what it waits for is asked for."""
        update = self.order.peek(key)
        if update is None:
            return
        self._ask_for(step, self.order.missing(update), None)
        self.recovering.append((self.now + self.options.rounds_to_recover, key))

    def _tell_losses(self, step: Step) -> None:
        for index, entry in self.losses.take():
            self.lost += self._note_event(step, "lose", index, entry, cause="unrecovered")

    # --- recovery ----------------------------------------------------------------------------

    def _ask_for(self, step: Step, spans: list[Span], somebody: str | None) -> None:
        """Asks for events that are neither here nor asked for already.

        `somebody` said that he has them; otherwise it goes as `recovery` says.
        """
        if self.options.recovery == "off":
            return
        new = self.requests.new(spans, self.order.__contains__, self.now)
        if not new:
            return
        asked: dict[tuple[str, ...], list[Span]] = {}
        if somebody is not None:
            asked[(somebody,)] = new
        elif self.options.asked:
            asked[self.sampler.sample(self.options.asked)] = new
        else:
            for span in new:
                owner = self.tickets.owner(span.ticket, span.last)
                is_other = owner is not None and owner != self.me.name
                to = (owner,) if owner is not None and is_other else self.sampler.sample(1)
                asked.setdefault(to, []).append(span)
        for names, wanted in asked.items():
            ranges = [(span.ticket, span.first, span.last) for span in wanted]
            step.send(names, Recover(self.group, ranges), DATAGRAM)
            peer = names[0] if len(names) == 1 else None
            for span in wanted:
                for entry in range(span.first, span.last + 1):
                    self._note_event(step, "recover", span.ticket, entry, peer=peer, cause="asked")

    def _receive_recover(self, step: Step, sender: NodeId, packet: Recover) -> None:
        spans = []
        for index, first, last in packet.ranges:
            if index >= self.options.tickets or first > last:
                raise PeerError(f"{sender} asks for {first} to {last} of ticket {index}")
            if self.tickets.never_made(index, last, self.sequence):
                raise PeerError(f"{sender} asks for what {self.me} never made")
            spans.append(Span(index, first, last))
        found = self.buffer.find(spans, ANSWER.count)
        size = 0
        for place, update in enumerate(found):
            size += update.size
            if size > ANSWER.size and place:
                found = found[:place]
                break
        self._hand_over(step, sender.name, found)

    def _hand_over(self, step: Step, name: str, updates: list[Update]) -> None:
        if not updates:
            return
        entries = [(update, 0) for update in updates]
        for part, channel in parts(entries, self.settings.transport == "status"):
            self._send(step, name, Recovered(self.group, part), large=channel is STATUS)

    def _receive_recovered(self, step: Step, sender: NodeId, packet: Recovered) -> None:
        for update, _ in packet.updates:
            self.tickets.refuse_nonsense(sender, update, self.sequence)
        for update, _ in self._believed(step, packet.updates):
            self.spreading.remember(update.key)
            self._take(step, update, self.options.hops, asked=True)

    def _send(self, step: Step, name: str, packet: Packet, *, large: bool) -> None:
        if large:
            step.send(name, packet, STATUS, name)
        else:
            step.send(name, packet, DATAGRAM)

    # --- clocks ------------------------------------------------------------------------------

    def _compare_clocks(self, step: Step) -> None:
        """Tells one member our clock, and asks for what another has and gossip did not bring."""
        if self.now % DIGEST_ROUNDS == 0:
            step.send(self.sampler.sample(1), Digest(self.group, self.order.stamp), DATAGRAM)
        if self.ahead is None or self.behind_since is None or self.full:
            return
        if self.now - self.behind_since >= self.options.rounds_to_terminate:
            clock, name = self.ahead
            self.ahead = self.behind_since = None
            self._ask_for(step, self.order.behind(clock), name)

    def _receive_digest(self, step: Step, sender: NodeId, packet: Digest) -> None:
        self.tickets.refuse_clock(sender, packet.clock)
        if self.joining is not None:
            return
        if self.ahead is None and self.order.behind(packet.clock):
            self.ahead, self.behind_since = (packet.clock, sender.name), self.now
        if not packet.is_answer and any(map(gt, self.order.clock, packet.clock)):
            step.send(sender.name, Digest(self.group, self.order.stamp, True), DATAGRAM)

    # --- joining -----------------------------------------------------------------------------

    def _ask_where_we_are(self, step: Step) -> None:
        assert self.joining is not None
        begin = self.joining.round(self.options.tickets)
        if begin is not None:
            if self.options.state and self.joining.is_welcome:
                step.give_state(self.group, None)  # somebody is there, and gave none
            self._settle(step, begin)
            return
        ask = Ask(self.group, self.options.state)
        step.send(self.sampler.sample(1), ask, DATAGRAM)

    def _receive_ask(self, step: Step, sender: NodeId, packet: Ask) -> None:
        """Answered once in a while: who asks every round is not given everything every round."""
        name, now = sender.name, self.now
        if self.joining is not None or self.welcomed.get(name, now) > now:
            return
        self.welcomed = {each: until for each, until in self.welcomed.items() if until > now}
        if len(self.welcomed) >= MOST_WELCOMES:
            return
        self.welcomed[name] = now + self.options.rounds_to_recover
        floor = tuple(map(min, self.buffer.floor, self.order.clock))  # it lets go of what waits too
        self._send(step, name, Welcome(self.group, floor, self.order.stamp), large=False)
        if packet.state and self.options.state:
            step.ask_state(self.group, (name, self.order.stamp))
        else:
            self._hand_over(step, name, self.buffer.all())

    def _receive_welcome(self, step: Step, sender: NodeId, packet: Welcome) -> None:
        for clock in (packet.clock, packet.target):
            self.tickets.refuse_clock(sender, clock)
            self.tickets.refuse_own(sender, clock, self.sequence)
        if any(map(gt, packet.clock, packet.target)):
            raise PeerError(f"{sender} begins beyond its own clock")
        if packet.state is not None and packet.clock != packet.target:
            raise PeerError(f"{sender} gives a state that does not fit its clock")
        if self.joining is None:
            return
        if packet.state is None and self.options.state:
            self.joining.welcome()  # the state follows, when the application over there gets to it
        elif packet.state is None:
            self._settle(step, packet.clock)
        elif not any(map(gt, self.order.clock, packet.clock)):  # or it lacks what we delivered
            step.give_state(self.group, packet.state)
            self._settle(step, packet.clock)

    def _settle(self, step: Step, clock: Sequence[int]) -> None:
        """We know where to begin. What came meanwhile counts from here on."""
        assert self.joining is not None
        early, self.joining = self.joining.updates(), None
        clock = list(map(max, self.order.clock, clock))
        self.order.begin(clock)
        self.buffer.begin(clock)
        for update, age in early:
            if not self.order.is_obsolete(update):
                self._admit(step, update, age)

    # --- words -------------------------------------------------------------------------------

    def _packet(self, entries: list[tuple[Update, int]], roster: Roster | None) -> Packet:
        return Updates(self.group, entries, roster)

    def _event(self, update: Update, hops: int) -> Event:
        return Event(
            self.group,
            update.origin,
            event_number(update.origin.incarnation, update.number),
            update.payloads,
            index=update.index,
            stamp=update.stamp,
            hops=hops,
            size=update.size,
        )

    def _note_event(self, step: Step, kind: str, index: int, entry: int, **columns: object) -> bool:
        """False: there is no such event, or nobody has told us whose it is."""
        event = self.tickets.event_of(index, entry)
        if event is not None:
            origin, number = event
            step.note(kind, group=self.group, index=index, origin=origin, number=number, **columns)
        return event is not None

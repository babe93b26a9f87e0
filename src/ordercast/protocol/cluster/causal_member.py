"""A member of a causal cluster: gossip below, causal order above, recovery beside.

From Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency, 2011, sections 3, 5 and 6, Algorithm 5. docs/causal.md says
where and why this differs.

Rules.
 1. Only the owner of a ticket creates events (ownership.py). Their stamps are its clock, with the
    next entry of its ticket. It delivers its own event at once, buffers it and spreads it.
 2. An event that gossip brings is buffered for others, and enqueued in causal order (causality.py).
 3. An event that still waits after `time_to_terminate`, when gossip must be over, makes us ask for
    what it waits for, once (recovery.py). After `time_to_recover` it is delivered all the same:
    what is missing is skipped, and reported as lost.
 4. Members compare their clocks (digests.py), so that the last events are not missed.
 5. A member that joins asks where the cluster is (joining.py). Until it knows, or those are there
    that may begin the cluster (beginning.py), it neither delivers nor creates events.
 6. While the application cannot take more, no event is delivered. Events that arrive are buffered
    for others, and are delivered later as long as the buffer still has them.

What a member does in each of its two phases:

  input          joining                              running
  an event       is collected                         is enqueued, and delivered in its turn
  a round        asks where the cluster is            asks for what is missing, then skips it
  Digest         is ignored                           is compared with our clock
  Ask            says that its sender is joining too  is answered, within limits
  Welcome        says where to begin: now running     is ignored
  start (again)  goes on                              joins again, from the clock that it had

Times are counted in rounds of our own: a member that was stalled gives up nothing for that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import gt
from random import Random

from msgspec import structs

from ordercast.errors import PeerError
from ordercast.kernel import inputs
from ordercast.kernel.buffers import Limit
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.losses import Losses
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, STATUS, Step, Timer
from ordercast.protocol.cluster.beginning import Beginning, Given, Majority, Votes
from ordercast.protocol.cluster.causality import CausalOrder, EntryRange, OrderedUpdate
from ordercast.protocol.cluster.choosing import Election
from ordercast.protocol.cluster.digests import Digests
from ordercast.protocol.cluster.joining import PATIENCE, Joining, Newcomers
from ordercast.protocol.cluster.member import Spreader
from ordercast.protocol.cluster.moving import TICKETS, Moving, TicketsFor, leased_tickets
from ordercast.protocol.cluster.options import CausalOptions
from ordercast.protocol.cluster.ownership import Fixed, TicketOwnership
from ordercast.protocol.cluster.packets import (
    Ask,
    ClusterMembership,
    Digest,
    OfCluster,
    Recover,
    Recovered,
    Update,
    Updates,
    Welcome,
)
from ordercast.protocol.cluster.recovery import Recovery
from ordercast.protocol.cluster.returning import Returning
from ordercast.protocol.cluster.running import Running, due
from ordercast.protocol.cluster.sampler import Roster
from ordercast.protocol.cluster.updaters import updaters_of
from ordercast.protocol.tickets.packets import About
from ordercast.types import Event, NodeId, Payloads, event_number

MOST_LATE = 4
"""Rounds: one that comes later comes after a stall."""
MOST_OF_A_GAP = 50_000
"""Losses that are reported of one gap: a liar may name events that never were, by the billion."""


class CausalMember(Spreader[Update]):
    def __init__(
        self,
        me: NodeId,
        plan: Plan,
        chance: Random,
        tickets_for: TicketsFor | None = None,
        persisted: Sequence[Packet] = (),
    ) -> None:
        """`tickets_for`: who decides about tickets. None: they are fixed."""
        super().__init__(me, plan, chance)
        assert isinstance(plan.options, CausalOptions)
        self.options = options = plan.options
        self.order = order = CausalOrder(
            options.tickets, Limit(options.waiting, options.waiting_size)
        )
        self.ownership: TicketOwnership
        if tickets_for is None:
            self.ownership = Fixed(me, plan, order)
        else:
            self.ownership = Moving(me, plan, order, tickets_for, self.sampler, chance, persisted)
        self.takes = (*Spreader.takes, inputs.StateProvided, *self.ownership.takes)
        self.recovery = Recovery(me, plan.group, options, self.sampler, self.ownership, order)
        self.newcomers = Newcomers(options.rounds_to_recover)
        fixed = options.ownership == "fixed"
        self.updaters = updaters_of(plan) if fixed else plan.members
        self.entry = plan.entry
        # Whether this name ever was in the cluster: then its tickets exist, and if they are ours to
        # guard, our records say so.
        self._was_in = plan.entry is not None and bool(plan.entry.last)
        self.choice = Election(me, 0 if plan.entry is None else plan.entry.expect, persisted)
        self.phase: Joining | Running = self._joining(plan.formed and me.incarnation == 0)
        self.now = 0  # rounds of ours
        self.last_round = 0  # when that was
        self.losses: Losses[int] = Losses(MOST_OF_A_GAP)
        self.late = 0  # events that came after they had been skipped
        self.ownership.count_members(self._others)

    # --- inputs ------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        """A member that starts again knows its clock, and goes on from there."""
        super().start(step)
        if isinstance(self.phase, Running):
            self.phase = self._joining(formed=False)
            self.order.forget()
            self.recovery.requests.forget()
        self.ownership.start(step)
        if self._knows_where_it_is():
            self._found(step)

    def _knows_where_it_is(self) -> bool:
        """Whether there is nobody to ask."""
        if self.entry is None:
            return not self.sampler.sample(1)
        return self.entry.founds and not self.entry.asks and not self.sampler.known()

    def accepts(self, group: str, now: int) -> bool:
        return (
            isinstance(self.phase, Running) and self._has_room() and self.ownership.may_create(now)
        )

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        assert isinstance(self.phase, Running) and self._has_room(), "the driver asks first"
        self._refuse_size(size)
        index = self.ownership.index
        assert index is not None
        self._count(size)
        update = self.ownership.create(step, index, self.made, payloads, size)
        self.recovery.buffer.add(update, 0)
        event = self._event(update, 0)
        step.deliver(event)
        self._begin_spreading(step, update)
        return event

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        if not isinstance(packet, OfCluster):
            if self.ownership.receive(step, sender, packet):
                self._announce(step)
            if not isinstance(packet, About) or packet.cluster in (0, self.ownership.cluster):
                self._present(step, sender)
            return
        if packet.cluster and self.ownership.is_strange(step, sender, packet.cluster):
            return
        if isinstance(packet, Updates):
            self._receive_updates(step, sender, packet)
        elif isinstance(packet, Recovered):
            self._receive_recovered(step, sender, packet)
        elif isinstance(packet, Recover):
            self.recovery.answer(step, sender, packet)
        elif isinstance(packet, Digest):
            self.ownership.refuse_clock(sender, packet.clock)
            if isinstance(self.phase, Running):
                self.ownership.learn_cluster(step, packet.cluster)
                self.phase.digests.receive(step, sender.name, packet, self.now)
        elif isinstance(packet, ClusterMembership):
            self._receive_roster(step, sender, packet.roster, self._is_of_ours(packet))
        elif isinstance(packet, Ask):
            self._receive_ask(step, sender, packet)
        elif isinstance(packet, Welcome):
            self._receive_welcome(step, sender, packet)
        if not isinstance(packet, ClusterMembership) and self._is_of_ours(packet):
            self._present(step, sender)
        self.ownership.compare_epochs(step)

    def expire(self, step: Step, timer: Timer) -> None:
        if timer == TICKETS:
            if self.ownership.tick(step):
                self._announce(step)
            if isinstance(self.phase, Running):  # before, it says what it waits for itself
                self.ownership.tell_shortage(step, self._absent())
            return
        super().expire(step, timer)
        self.now += 1
        self._report_losses(step)
        if isinstance(self.phase, Joining):
            self._ask_where_we_are(step, self.phase)
        else:
            self._ask_and_skip(step, self.phase)
        self.ownership.compare_epochs(step)
        self._announce(step)

    def _others(self) -> int:
        return 0 if self.presence is None else len(self.presence)

    def _absent(self) -> list[str]:
        """With whom we were in the cluster, as far as they are not there now."""
        if self.entry is None or self.presence is None:
            return []
        here = {self.me.name, *(one.name for one in self.presence.members())}
        return [name for name in self.entry.last if name not in here]

    def on(self, step: Step, given: Input) -> None:
        match given:
            case inputs.StateProvided(token=(str(name), tuple(clock)), state=state, failure=why):
                # The state is that of the time at which the newcomer asked for it.
                self.newcomers.served(name)
                state = b"" if state is None and not why else state  # that is an answer, too
                step.send(name, self._welcome(clock, clock, state, why), STATUS, name)
            case inputs.StatusResult(token=str()) | inputs.Acquainted():
                super().on(step, given)
            case inputs.StatusResult() | inputs.Seek() | inputs.Retire():
                if self.ownership.on(step, given):
                    self._announce(step)
            case inputs.Backpressure(full=full):
                super().on(step, given)
                if not full and isinstance(self.phase, Running):
                    for update in self.recovery.buffer.all():  # what came meanwhile
                        self._enqueue(step, self.phase, update, 0)
            case inputs.Leave():
                super().on(step, given)
                self.ownership.leave(step)

    def may_go(self, group: str) -> bool:
        """Not who has promised another to let it begin: it must not forget that."""
        is_bound = isinstance(self.phase, Joining) and self.choice.promise is not None
        return not is_bound and self.ownership.may_go()

    def has_heirs(self, group: str, now: int) -> bool:
        return self.ownership.has_heirs(now)

    def counters(self, group: str) -> dict[str, int]:
        return {
            **super().counters(group),
            "waiting": len(self.order),
            "asked": len(self.recovery.requests),
            "recovered": self.recovery.recovered,
            "late": self.late,
            "buffered": len(self.recovery.buffer),
            **self.ownership.counters(),
        }

    # --- events ------------------------------------------------------------------------------

    def _receive_updates(self, step: Step, sender: NodeId, packet: Updates) -> None:
        news = self.spreading.news(packet.updates)
        self._refuse_ages(sender, news)
        for update, _ in news.unknown:
            self.ownership.refuse_nonsense(sender, update)
        believed = self.ownership.believed(step, news.unknown)
        if believed is not news.unknown:
            news = news._replace(unknown=believed)
        if news.unknown:
            self.ownership.learn_cluster(step, packet.cluster)
        if packet.roster is not None:
            self._receive_roster(step, sender, packet.roster, self._is_of_ours(packet))
        self.sampler.heard(sender)
        self.spreading.add(news)
        for update, age in news.unknown:
            self._arrived(step, update, age, asked=False)

    def _receive_recovered(self, step: Step, sender: NodeId, packet: Recovered) -> None:
        for update, _ in packet.updates:
            self.ownership.refuse_nonsense(sender, update)
        self.ownership.learn_cluster(step, packet.cluster)
        for update, _ in self.ownership.believed(step, packet.updates):
            self.spreading.remember(update.key)
            self._arrived(step, update, self.options.hops, asked=True)

    def _is_of_ours(self, packet: OfCluster) -> bool:
        """Or of none. One that is in none yet takes the members of no cluster for its own."""
        return packet.cluster == 0 or packet.cluster == self.ownership.cluster

    def _arrived(self, step: Step, update: Update, age: int, *, asked: bool) -> None:
        """An event arrived, by gossip or because it was asked for."""
        self.recovery.buffer.add(update, age)
        if isinstance(self.phase, Joining):
            self.phase.early(update, age)
        elif not self.full:
            self._enqueue(step, self.phase, update, age, asked=asked)

    def _enqueue(
        self, step: Step, running: Running, update: Update, age: int, *, asked: bool = False
    ) -> None:
        order = self.order
        self.recovery.arrived(step, update)
        if order.is_obsolete(update):
            self.late += asked
        elif update.key not in order:
            delivered = order.enqueue(update, age)
            if update.key in order:  # also if it was asked for: what precedes it may be gone
                asking = self.now + self.options.rounds_to_terminate
                running.terminating.append((asking, update.key))
            self._deliver(step, delivered)
            while order.over_limit:
                self._deliver(step, order.force_oldest())
        if asked and self.ownership.reveals_more and update.key in order:
            # Gossip is over for what only this event names: it is asked for at once.
            self._ask_for(step, order.missing(update))

    def _deliver(self, step: Step, delivered: list[OrderedUpdate]) -> None:
        for update, hops, skipped in delivered:
            for span in skipped:
                self.losses.add(span.ticket, range(span.first, span.last + 1))
            if self.losses:
                self._report_losses(step)
            if self.ownership.is_for_the_application(step, update):
                step.deliver(self._event(update, hops))

    def _report_losses(self, step: Step) -> None:
        for index, entry in self.losses.take():
            self.lost += self.ownership.note(step, "lose", index, entry, cause="unrecovered")

    def _announce(self, step: Step) -> None:
        """Spreads the announcement of our lease, if a new one can begin."""
        if isinstance(self.phase, Running):
            update = self.ownership.announcement(step, self.made + 1, self._ask_for)
            if update is not None:
                self.recovery.buffer.add(update, 0)
                self._begin_spreading(step, update)

    # --- what is missing ---------------------------------------------------------------------

    def _ask_for(self, step: Step, spans: list[EntryRange]) -> None:
        self.recovery.ask(step, spans, self.now)

    def _ask_and_skip(self, step: Step, running: Running) -> None:
        options, order = self.options, self.order
        if not self.full:
            for key in due(running.terminating, self.now):
                update = order.peek(key)
                if update is not None:
                    self._ask_for(step, order.missing(update))
                    running.recovering.append((self.now + options.rounds_to_recover, key))
            for key in due(running.recovering, self.now):
                self._deliver(step, order.force(key))
        self.recovery.give_up(step, self.now - options.rounds_to_recover)
        if options.digests:
            running.digests.round(step, self.now)
            ahead = None if self.full else running.digests.due(self.now)
            if ahead is not None:
                self.recovery.ask(step, order.behind(ahead.clock), self.now, ahead.name)

    # --- joining -----------------------------------------------------------------------------

    def _joining(self, formed: bool) -> Joining:
        patience, needs_state = self.options.rounds_to_join, self.options.state
        rounds = PATIENCE * patience
        beginning: Beginning = Given()
        if self.entry is not None:
            beginning = Votes(self.me, self.entry, patience, self.choice)
            if len(self.entry.last) > 1:
                beginning = Returning(self.me.name, self.entry.last, patience)
        elif not formed:
            beginning = Majority(self.me.name, self.updaters, rounds)
        return Joining(patience, beginning, needs_state=needs_state)

    def _ask_where_we_are(self, step: Step, joining: Joining) -> None:
        if self.entry is not None:
            if step.now - self.last_round > MOST_LATE * self.options.round:
                joining.beginning.stalled()
            self.last_round = step.now
        clock = joining.round(self.options.tickets)
        self._keep_promise(step)
        if clock is None:
            question = joining.beginning.question(self.group, self.options.state)
            asked = dict.fromkeys((*self.sampler.sample(1), *joining.beginning.favourite()))
            if asked:
                question = structs.replace(question, cluster=self.ownership.cluster)
                step.send(tuple(asked), question, DATAGRAM)
            waiting = joining.waiting(self.group, step.now) if joining.is_late else None
            if waiting is not None:
                step.notify(waiting)
            return
        if joining.is_first:
            self._found(step)
        else:
            self.begin(step, clock)

    def _keep_promise(self, step: Step) -> None:
        record = self.choice.record(self.group)
        if record is not None:
            step.persist(record)

    def _found(self, step: Step) -> None:
        """We are the first, or among them."""
        creates_tickets = self.entry is not None and not self._was_in
        self.begin(step, [0] * self.options.tickets)
        if creates_tickets:
            self.ownership.found(step)

    def _receive_ask(self, step: Step, sender: NodeId, packet: Ask) -> None:
        name = sender.name
        if isinstance(self.phase, Joining):
            self.phase.beginning.heard(sender, packet)
            return
        if not self.newcomers.may_answer(name, self.now):
            return
        buffer, order = self.recovery.buffer, self.order
        floor = tuple(map(min, buffer.floor, order.clock))  # it drops events that wait, too
        step.send(name, self._welcome(floor, order.stamp), DATAGRAM)
        if packet.state and self.options.state:
            if self.newcomers.may_serve(name):
                step.ask_state(self.group, (name, order.stamp))
        else:
            self.recovery.hand_over(step, name, buffer.all())

    def _receive_welcome(self, step: Step, sender: NodeId, packet: Welcome) -> None:
        for clock in (packet.clock, packet.target):
            self.ownership.refuse_clock(sender, clock)
            self.ownership.refuse_own(sender, clock)
        if any(map(gt, packet.clock, packet.target)):
            raise PeerError(f"{sender} begins beyond its own clock")
        if packet.state is not None and packet.clock != packet.target:
            raise PeerError(f"{sender} gives a state that does not fit its clock")
        self.ownership.learn_cluster(step, packet.cluster)
        if isinstance(self.phase, Running):
            return
        if packet.failure:
            why = f"{sender} could not give its state: {packet.failure}"
            step.give_state(self.group, None, why)
        elif packet.state is None and self.options.state:
            self.phase.welcome(sender.name)  # its application gives the state when it has read
        elif packet.state is None:
            self.begin(step, packet.clock)
        elif not any(map(gt, self.order.clock, packet.clock)):  # or it lacks what we delivered
            step.note("join", group=self.group, cause="state")  # which has what came before
            step.give_state(self.group, packet.state)
            self.begin(step, packet.clock)

    def begin(self, step: Step, clock: Sequence[int]) -> None:
        """Joining ends at this clock: the events beyond it that were collected are enqueued."""
        assert isinstance(self.phase, Joining)
        early, rounds = self.phase.updates(), self.options.rounds_to_terminate
        digests = Digests(self.group, rounds, self.sampler, self.ownership, self.order)
        self.phase = running = Running(digests)
        self._was_in = True
        clock = list(map(max, self.order.clock, clock))
        self.order.begin(clock)
        self.recovery.buffer.begin(clock)
        self._enter(step)
        for update, age in early:
            if not self.order.is_obsolete(update):
                self._enqueue(step, running, update, age)

    # --- words -------------------------------------------------------------------------------

    def _packet(self, entries: list[tuple[Update, int]], roster: Roster | None) -> Packet:
        return Updates(self.group, entries, roster, cluster=self.ownership.cluster)

    def about_members(self, roster: Roster) -> Packet:
        return ClusterMembership(self.group, roster, cluster=self.ownership.cluster)

    def _welcome(
        self,
        clock: tuple[int, ...],
        target: tuple[int, ...],
        state: bytes | None = None,
        failure: str = "",
    ) -> Welcome:
        cluster = self.ownership.cluster
        return Welcome(self.group, clock, target, state, failure, cluster=cluster)

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


def build(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    """One machine a cluster: clusters know nothing of each other."""
    machines: list[Machine] = []
    for plan in plans:
        assert isinstance(plan.options, CausalOptions)
        tickets_for = None if plan.options.ownership == "fixed" else leased_tickets
        machines.append(CausalMember(me, plan, chance, tickets_for, records))
    return machines

"""Tickets that change hands: our own lease, and who made which events in the leases of others.

A lease is one ticket in one epoch. Its first entry is no event but its announcement, which travels
as events do: by gossip, in causal order, asked for where it is missing. It names the entry that the
lease continues from, so no member waits for what the former owner of the ticket made beyond that.
What the former owner still sends is obsolete at every member that has the announcement.

Rules.
 1. No event is created before the announcement. The announcement waits until we have what the lease
    replicas had that granted the ticket, but not longer than for any recovery.
 2. No event is created while the tickets do not permit it, at that very time.
 3. A lease has one maker, and its numbers follow its entries. The first event that arrives says
    which; an event that says otherwise is not believed, and counted.
 4. A member that sees its own ticket in a higher epoch is no longer its owner.
 5. The events of an incarnation come before those of the next one. Where tickets are fixed both use
    one entry, and so have one order; here the next incarnation may own another ticket. An event
    that comes after one of a later incarnation is obsolete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, NamedTuple, TypeAlias

from ordercast.errors import PeerError
from ordercast.kernel import inputs
from ordercast.kernel.clocks import merge
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.cluster.causality import CausalOrder
from ordercast.protocol.cluster.options import CausalOptions
from ordercast.protocol.cluster.ownership import AskFor, TicketOwnership
from ordercast.protocol.cluster.packets import Update
from ordercast.protocol.cluster.sampler import Sampler
from ordercast.protocol.cluster.updaters import founder_of
from ordercast.protocol.tickets.entries import epoch_of, sequence_of
from ordercast.protocol.tickets.interface import TicketNews, TicketPacket, Tickets
from ordercast.protocol.tickets.leased import Leased
from ordercast.protocol.tickets.rules import Rules
from ordercast.types import NodeId, Payloads, Updating, event_number

TICKETS = "tickets"
"""The timer of the part that decides about tickets."""
ANNOUNCED = 1
"""The sequence of an announcement; the first event follows it."""
MOST_ORIGINS = 4096
"""Makers of events whose incarnations are remembered."""
MOST_EPOCHS = 8
"""Leases of one ticket that are remembered: what came before is obsolete everywhere."""


Clock: TypeAlias = Callable[[], tuple[int, ...]]
TicketsFor: TypeAlias = Callable[[NodeId, Plan, Sampler, Clock, Random, Sequence[Packet]], Tickets]
"""Makes a member's part in deciding about tickets; the last is what it persisted earlier."""


def leased_tickets(
    me: NodeId,
    plan: Plan,
    sampler: Sampler,
    clock: Clock,
    chance: Random,
    persisted: Sequence[Packet],
) -> Tickets:
    options = plan.options
    assert isinstance(options, CausalOptions)
    rules = Rules(options.tickets, int(options.lease), options.drift, options.guards)
    return Leased(
        me,
        plan.group,
        rules,
        sampler.known,
        chance,
        clock=clock,
        persisted=persisted,
        members=plan.members if plan.entry is None and founder_of(plan) == me.name else (),
        opens=plan.entry is not None,
    )


class LeaseMaker(NamedTuple):
    """The owner of a lease, and the number that its first event has at its maker."""

    owner: NodeId
    first: int

    def number(self, sequence: int) -> int:
        return self.first + sequence - ANNOUNCED - 1


class OwnLease:
    """Our lease, while it lasts.

    granted    its announcement waits: no event is created yet
    announced  events are created
    suspended  it has run out, and may still be renewed: no event is created
    """

    def __init__(self, ticket: int, until: int | None, patience: int) -> None:
        self.ticket = ticket
        self.until = until  # as the trace has it
        self.patience = patience  # rounds that the announcement still waits
        self.state: Literal["granted", "announced", "suspended"] = "granted"


class Moving(TicketOwnership):
    takes = (inputs.Seek, inputs.Retire)
    # The first event of a lease names the end of the lease before.
    reveals_more = True

    def __init__(
        self,
        me: NodeId,
        plan: Plan,
        order: CausalOrder,
        tickets_for: TicketsFor,
        sampler: Sampler,
        chance: Random,
        persisted: Sequence[Packet],
    ) -> None:
        super().__init__(me, plan, order)
        options = plan.options
        assert isinstance(options, CausalOptions)
        self.part = tickets_for(me, plan, sampler, self._how_far, chance, persisted)
        # `index` is set once our lease was announced.
        self.target: tuple[int, ...] = (0,) * self._entries  # what we must have before that
        self.refused = 0
        self.outlived = 0  # events that came after those of their maker's next incarnation
        self._longest_wait = options.rounds_to_terminate + options.rounds_to_recover
        self._incarnations: dict[str, int] = {}  # by maker: the latest of which we have an event
        # By ticket, then by epoch.
        self._makers: list[dict[int, LeaseMaker]] = [{} for _ in range(self._entries)]
        self._lease: OwnLease | None = None

    def _how_far(self) -> tuple[int, ...]:
        return self._order.stamp

    # --- inputs ------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        self._act(step, self.part.start(step))
        step.set_timer(TICKETS, self.part.period)

    def leave(self, step: Step) -> None:
        self._seek(step, False)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> bool:
        if not isinstance(packet, TicketPacket):
            return super().receive(step, sender, packet)
        return self._act(step, self.part.receive(step, sender, packet))

    def tick(self, step: Step) -> bool:
        step.set_timer(TICKETS, self.part.period)
        return self._act(step, self.part.tick(step, self.sequence))

    def on(self, step: Step, given: Input) -> bool:
        match given:
            case inputs.StatusResult(token, arrived):
                return self._act(step, self.part.acknowledged(step, token, arrived))
            case inputs.Seek(wanted=wanted):
                return self._seek(step, wanted)
            case inputs.Retire():
                self._seek(step, False)
                self.part.retire(step)
        return False

    def _seek(self, step: Step, wanted: bool) -> bool:
        if wanted:
            step.note("ticket", group=self._group, cause="wanted")
        else:
            self._end(step, "released")
        sequence = self.sequence if self.part.ticket is not None else 0
        return self._act(step, self.part.seek(step, wanted, sequence, self._order.stamp))

    @property
    def cluster(self) -> int:
        return self.part.cluster if isinstance(self.part, Leased) else 0

    def is_strange(self, step: Step, sender: NodeId, cluster: int) -> bool:
        return isinstance(self.part, Leased) and self.part.is_strange(step, sender, cluster)

    def learn_cluster(self, step: Step, cluster: int) -> None:
        if isinstance(self.part, Leased):
            self.part.learn_cluster(step, cluster)

    def count_members(self, count: Callable[[], int]) -> None:
        if isinstance(self.part, Leased):
            self.part.others = count

    def found(self, step: Step) -> None:
        if isinstance(self.part, Leased):
            self._act(step, self.part.found(step))

    def tell_shortage(self, step: Step, absent: Sequence[str]) -> None:
        if isinstance(self.part, Leased):
            self.part.tell_shortage(step, absent)

    def may_go(self) -> bool:
        return self.part.may_go()

    def has_heirs(self, now: int) -> bool:
        return self.part.has_heirs(now)

    def counters(self) -> dict[str, int]:
        ours = {"not_believed": self.refused, "outlived": self.outlived}
        return {**ours, **self.part.counters()}

    # --- our own lease -----------------------------------------------------------------------

    @property
    def ticket(self) -> int | None:
        return self.part.ticket

    @property
    def epoch(self) -> int:
        return self.part.epoch

    def may_create(self, now: int) -> bool:
        return super().may_create(now) and self.part.may_create(now)

    def create(self, step: Step, index: int, number: int, payloads: Payloads, size: int) -> Update:
        assert self.part.may_create(step.now), "the driver asks first, at the same time"
        return super().create(step, index, number, payloads, size)

    def _act(self, step: Step, news: TicketNews) -> bool:
        """Reports what became of our ticket to the trace and to the application."""
        part, lease = self.part, self._lease
        if lease is not None and (news.lost is not None or part.ticket != lease.ticket):
            self._end(step, "disconnected")
        if news.clock:
            self.target = merge(self.target, news.clock)
        if news.acquired:
            self._begin(step)
        elif self._lease is not None:
            self._follow(step, self._lease)
        return news.acquired

    def _begin(self, step: Step) -> None:
        ticket = self.part.ticket
        assert ticket is not None
        base = tuple(self.part.base * (place == ticket) for place in range(self._entries))
        self.target = merge(self.target, base)
        self.index, self.sequence = None, 0
        self._lease = OwnLease(ticket, self.part.valid_until(), self._longest_wait)
        self._note_ticket(step, self._lease, "acquired")

    def _follow(self, step: Step, lease: OwnLease) -> None:
        """Our lease may have been renewed, or have run out."""
        until = self.part.valid_until()
        if until is not None and lease.until is not None and until > lease.until:
            lease.until = until
            self._note_ticket(step, lease, "renewed")
        may_create = self.part.may_create(step.now)
        if lease.state == "announced" and not may_create:
            lease.state = "suspended"
            step.notify(Updating(self._group, "suspended", lease.ticket))
        elif lease.state == "suspended" and may_create:
            lease.state = "announced"
            step.notify(Updating(self._group, "resumed", lease.ticket))

    def announcement(self, step: Step, number: int, ask: AskFor) -> Update | None:
        lease = self._lease
        if lease is None or lease.state != "granted" or not self.part.may_create(step.now):
            return None
        ticket = lease.ticket
        if self._order.clock[ticket] >= self.entry(ANNOUNCED):
            return None  # of tickets that can have two owners: the other one was first
        behind = self._order.behind(self.target)
        if behind and lease.patience > 0:
            lease.patience -= 1
            ask(step, behind)
            return None
        self._makers[ticket][self.part.epoch] = LeaseMaker(self._me, number)
        self.index, lease.state = ticket, "announced"
        self._remember(self._me)
        step.notify(Updating(self._group, "acquired", ticket))
        return self.create(step, ticket, number, [], 0)

    def compare_epochs(self, step: Step) -> None:
        ticket = self.part.ticket
        if ticket is None:
            return
        epoch = epoch_of(self._order.clock[ticket])
        if epoch > self.part.epoch:
            self._act(step, self.part.heard(step, ticket, epoch, None))

    def _end(self, step: Step, cause: Literal["released", "disconnected"]) -> None:
        """Our lease ends: it was released, or another member has the ticket."""
        lease = self._lease
        if lease is None:
            return
        self._lease = self.index = None
        step.note("ticket", group=self._group, index=lease.ticket, cause=cause)
        step.notify(Updating(self._group, cause, lease.ticket))

    def _note_ticket(self, step: Step, lease: OwnLease, cause: str) -> None:
        columns = {} if lease.until is None else {"until": lease.until}
        step.note("ticket", group=self._group, index=lease.ticket, cause=cause, **columns)

    # --- leases of others --------------------------------------------------------------------

    def owner(self, index: int, entry: int) -> str | None:
        maker = self._makers[index].get(epoch_of(entry))
        return None if maker is None else maker.owner.name

    def event_of(self, index: int, entry: int) -> tuple[str, int] | None:
        maker = self._makers[index].get(epoch_of(entry))
        sequence = sequence_of(entry)
        if maker is None or sequence <= ANNOUNCED:
            return None
        number = maker.number(sequence)
        return maker.owner.name, event_number(maker.owner.incarnation, number)

    def is_for_the_application(self, step: Step, update: Update) -> bool:
        if sequence_of(update.entry) == ANNOUNCED:
            return False
        origin = update.origin
        if self._incarnations.get(origin.name, 0) > origin.incarnation:
            self.outlived += 1
            self.note(step, "lose", update.index, update.entry, cause="obsolete")
            return False
        self._remember(origin)
        return True

    def _remember(self, origin: NodeId) -> None:
        self._incarnations[origin.name] = origin.incarnation
        while len(self._incarnations) > MOST_ORIGINS:
            del self._incarnations[next(iter(self._incarnations))]

    def believed(self, step: Step, updates: list[tuple[Update, int]]) -> list[tuple[Update, int]]:
        found = []
        for update, age in updates:
            is_new = self._learn(update)
            if is_new is None:
                continue
            found.append((update, age))
            if is_new:
                epoch = epoch_of(update.entry)
                self._act(step, self.part.heard(step, update.index, epoch, update.origin))
        return found

    def _learn(self, update: Update) -> bool | None:
        """Whether an event is the first of its lease. None: the lease has another maker."""
        sequence = sequence_of(update.entry)
        first = update.number - max(0, sequence - ANNOUNCED - 1)
        makers, epoch = self._makers[update.index], epoch_of(update.entry)
        maker = makers.get(epoch)
        if maker is not None:
            if maker == (update.origin, first):
                return False
            self.refused += 1
            return None
        makers[epoch] = LeaseMaker(update.origin, first)
        while len(makers) > MOST_EPOCHS:
            del makers[min(makers)]
        return True

    # --- what no member that follows the rules would send --------------------------------------

    def never_made(self, index: int, entry: int) -> bool:
        part = self.part
        return (
            part.keeps_entries
            and index == part.ticket
            and epoch_of(entry) == part.epoch
            and entry > self.entry(self.sequence)
        )

    def refuse_nonsense(self, sender: NodeId, update: Update) -> None:
        self.refuse_clock(sender, update.stamp)
        entry, origin = update.entry, update.origin
        epoch, place = epoch_of(entry), sequence_of(entry)
        if not epoch or not place or bool(update.payloads) == (place == ANNOUNCED):
            raise PeerError(f"{sender} sent an event of {origin} as entry {entry}")
        if epoch_of(update.base) >= epoch or (update.base and place > ANNOUNCED):
            raise PeerError(f"{sender} sent an event of {origin} whose numbers go backwards")
        if update.number < place - ANNOUNCED:
            raise PeerError(f"{sender} sent event {update.number} of {origin} as entry {entry}")
        self.refuse_own(sender, update.stamp)
        if origin == self._me and epoch > max(self._makers[update.index], default=0):
            raise PeerError(f"{sender} spreads what {origin} never made")

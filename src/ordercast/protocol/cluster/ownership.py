"""Who owns which ticket, and so may create events: the strategy that a causal member is given.

`Fixed` (`ownership = "fixed"`): a list of names says who owns tickets 0, 1 and so on, for ever. The
epoch of a ticket is the incarnation of its owner, so a restarted owner never repeats an entry.

`Moving` (moving.py): tickets change hands, by leases unless a family brings another way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from ordercast.errors import PeerError
from ordercast.kernel.family import Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.cluster.causality import CausalOrder, EntryRange
from ordercast.protocol.cluster.packets import Update
from ordercast.protocol.cluster.updaters import updaters_of
from ordercast.protocol.tickets.entries import entry_of, epoch_of, sequence_of
from ordercast.types import NodeId, Payloads, event_number

AskFor: TypeAlias = Callable[[Step, list[EntryRange]], None]


class TicketOwnership(ABC):
    """Which ticket this member owns, and who made an event: a strategy of a causal member.

    Methods that return a bool return True where a ticket was acquired in that call. The defaults
    are those of tickets that never change hands.
    """

    takes: Collection[type[Input]] = ()
    # Whether an event that was asked for can name events that no stamp has named before.
    reveals_more = False

    @property
    def cluster(self) -> int:
        """The id of the cluster that we are in. 0: not known, or tickets have no need of one."""
        return 0

    def __init__(self, me: NodeId, plan: Plan, order: CausalOrder) -> None:
        self.index: int | None = None  # the ticket with which this member creates events
        self.sequence = 0  # paper: seq_p; own events of this epoch
        self._me = me
        self._group = plan.group
        self._order = order
        self._entries = self._owned = len(order.clock)  # tickets, and those that have owners

    # --- own events --------------------------------------------------------------------------

    @property
    @abstractmethod
    def ticket(self) -> int | None:
        """The ticket that is ours, even if no event may be created with it yet."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The epoch of our ticket."""

    def entry(self, sequence: int) -> int:
        """The stamp's entry of our event with this place in our epoch."""
        return entry_of(self.epoch, sequence)

    def may_create(self, now: int) -> bool:
        index = self.index
        return index is not None and self._order.clock[index] < self.entry(self.sequence + 1)

    def create(self, step: Step, index: int, number: int, payloads: Payloads, size: int) -> Update:
        """Our next event: its stamp is our clock, with the next entry of our ticket."""
        self.sequence += 1
        clock = self._order.clock
        base = clock[index] if self.sequence == 1 else 0
        stamp = (*clock[:index], self.entry(self.sequence), *clock[index + 1 :])
        update = Update(index, stamp, self._me, number, payloads, size, base)
        self._order.made(update)
        return update

    # --- inputs ------------------------------------------------------------------------------

    @abstractmethod
    def start(self, step: Step) -> None:
        """The member starts, or starts again after it left."""

    @abstractmethod
    def leave(self, step: Step) -> None:
        """The member leaves."""

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> bool:
        raise PeerError(f"{sender} sent {type(packet).__name__}, which causal does not know")

    def tick(self, step: Step) -> bool:
        raise AssertionError("fixed tickets set no timer")

    def on(self, step: Step, given: Input) -> bool:
        return False

    def announcement(self, step: Step, number: int, ask: AskFor) -> Update | None:
        """What makes a new lease known, as soon as it can begin; `number` is its first event's."""
        return None

    def compare_epochs(self, step: Step) -> None:
        """The clock may have moved: a ticket that it shows in a higher epoch is not ours."""
        return

    def is_strange(self, step: Step, sender: NodeId, cluster: int) -> bool:
        """Whether a packet is of another cluster than ours, both being known: it is counted."""
        return False

    def learn_cluster(self, step: Step, cluster: int) -> None:
        """A packet that we believe is of this cluster: if we knew of none, it is ours."""
        return

    def count_members(self, count: Callable[[], int]) -> None:
        """How many others are in our cluster, where they are not listed."""
        return

    def found(self, step: Step) -> None:
        """We began the cluster, where its members are not listed."""
        return

    def tell_shortage(self, step: Step, absent: Sequence[str]) -> None:
        """Once in a while: says if the application wants to update, and nobody can let it.

        `absent`: members that were in the cluster, and are not there.
        """
        return

    def may_go(self) -> bool:
        return True

    def has_heirs(self, now: int) -> bool:
        return False

    def counters(self) -> dict[str, int]:
        return {}

    # --- events of others --------------------------------------------------------------------

    @abstractmethod
    def owner(self, index: int, entry: int) -> str | None:
        """The member that made an event. None: not known."""

    @abstractmethod
    def event_of(self, index: int, entry: int) -> tuple[str, int] | None:
        """The origin and the number of an event, from its id. None: not known, or no such event."""

    def believed(self, step: Step, updates: list[tuple[Update, int]]) -> list[tuple[Update, int]]:
        """The events whose makers own the ticket."""
        return updates

    def is_for_the_application(self, step: Step, update: Update) -> bool:
        return True

    def note(self, step: Step, kind: str, index: int, entry: int, **columns: object) -> bool:
        """Writes what became of an event to the trace. False: `event_of` does not know it."""
        event = self.event_of(index, entry)
        if event is not None:
            origin, number = event
            step.note(kind, group=self._group, index=index, origin=origin, number=number, **columns)
        return event is not None

    # --- what no member that follows the rules would send --------------------------------------

    @abstractmethod
    def never_made(self, index: int, entry: int) -> bool:
        """Whether this would be an event of ours that does not exist."""

    @abstractmethod
    def refuse_nonsense(self, sender: NodeId, update: Update) -> None:
        """Raises PeerError for an event that its maker cannot have made."""

    def refuse_clock(self, sender: NodeId, clock: tuple[int, ...]) -> None:
        if len(clock) != self._entries:
            raise PeerError(
                f"{sender} sent a stamp of {len(clock)} entries; this cluster has {self._entries}"
            )
        if self._owned < self._entries and any(clock[self._owned :]):
            raise PeerError(f"{sender} sent a stamp with an entry of a ticket that nobody owns")

    def refuse_own(self, sender: NodeId, clock: tuple[int, ...]) -> None:
        ticket = self.ticket
        if ticket is None or clock[ticket] <= self._order.clock[ticket]:
            return  # what we have delivered exists: that is the rule, and asking costs more
        if self.never_made(ticket, clock[ticket]):
            raise PeerError(f"{sender} knows of what {self._me} never made")


class Fixed(TicketOwnership):
    """Tickets that a list of names assigns for ever."""

    def __init__(self, me: NodeId, plan: Plan, order: CausalOrder) -> None:
        super().__init__(me, plan, order)
        self._updaters = updaters_of(plan)
        self._owned = len(self._updaters)
        self.index = self._updaters.index(me.name) if me.name in self._updaters else None

    @property
    def ticket(self) -> int | None:
        return self.index

    @property
    def epoch(self) -> int:
        return self._me.incarnation

    def start(self, step: Step) -> None:
        self._note_ticket(step, "acquired")

    def leave(self, step: Step) -> None:
        self._note_ticket(step, "released")

    def _note_ticket(self, step: Step, cause: str) -> None:
        if self.index is not None:
            step.note("ticket", group=self._group, index=self.index, cause=cause)

    def owner(self, index: int, entry: int) -> str | None:
        return self._updaters[index]

    def event_of(self, index: int, entry: int) -> tuple[str, int] | None:
        return self._updaters[index], event_number(epoch_of(entry), sequence_of(entry))

    def never_made(self, index: int, entry: int) -> bool:
        return index == self.index and entry > self.entry(self.sequence)

    def refuse_nonsense(self, sender: NodeId, update: Update) -> None:
        self.refuse_clock(sender, update.stamp)
        index, origin = update.index, update.origin
        if index >= self._owned or origin.name != self._updaters[index]:
            raise PeerError(
                f"{sender} sent an event of {origin}, which does not own ticket {index}"
            )
        entry = update.entry
        place = sequence_of(entry)
        if epoch_of(entry) != origin.incarnation or place != update.number:
            raise PeerError(f"{sender} sent event {update.number} of {origin} as entry {entry}")
        if not place or (update.base >= entry if place == 1 else update.base):
            raise PeerError(f"{sender} sent an event of {origin} whose numbers go backwards")
        self.refuse_own(sender, update.stamp)
        if origin == self._me and update.number > self.sequence:
            raise PeerError(f"{sender} spreads what {origin} never made")

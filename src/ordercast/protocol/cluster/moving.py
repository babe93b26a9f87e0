"""Tickets that change hands: our own tenure, and who made which events in others'.

A tenure is one ticket in one epoch. Its first entry is no event but its announcement, which travels
as events do: by gossip, in causal order, asked for where it is missing. It names the entry that the
tenure goes on from, so nobody waits for what the ticket's former owner made beyond that; and once
it is there, what the former owner still sends is obsolete.

Rules.
 1. Nothing is made before the announcement, nor that before we have what those had who granted the
    ticket, or have waited for it as long as for any recovery.
 2. Nothing is made while the tickets do not say that it may be, at that very time.
 3. A tenure has one maker, and its numbers follow its entries: whoever says otherwise is not
    believed, and counted. The first word counts.
 4. Whoever sees its own ticket in a higher epoch is no longer its owner.
 5. A life's events come before those of its next life. Where tickets are fixed both have one entry,
    and so one order; here the next life may have another ticket. What comes after it is obsolete.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ordercast.errors import PeerError
from ordercast.kernel.clocks import merge
from ordercast.kernel.step import Step
from ordercast.protocol.cluster.packets import SEQUENCE_BITS, Update
from ordercast.protocol.tickets.tenure import News, Tickets
from ordercast.types import NodeId, Updating, event_number

_SEQUENCE = (1 << SEQUENCE_BITS) - 1
ANNOUNCED = 1
"""The sequence of an announcement; the first event follows it."""
MOST_ORIGINS = 4096
"""Makers of events whose lives are remembered."""
MOST_EPOCHS = 8
"""Tenures of one ticket that are remembered: what came before is obsolete everywhere."""


class Title(NamedTuple):
    """Whose tenure it is, and what number the first event of it has at its maker."""

    owner: NodeId
    first: int

    def number(self, sequence: int) -> int:
        return self.first + sequence - ANNOUNCED - 1


class Noted(NamedTuple):
    """What the trace says of our ticket."""

    ticket: int
    epoch: int
    until: int | None


class Moving:
    def __init__(self, me: NodeId, group: str, entries: int, part: Tickets) -> None:
        self.part = part
        self.index: int | None = None  # the ticket of our tenure, once that was announced
        self.target: tuple[int, ...] = (0,) * entries  # what we must have before that
        self.patience = 0  # and how many rounds are waited for it
        self.refused = 0
        self.outlived = 0  # events that came after those of their maker's next life
        self._lives: dict[str, int] = {}  # by maker: the latest life of which we have an event
        self._me = me
        self._group = group
        self._entries = entries
        self._titles: list[dict[int, Title]] = [{} for _ in range(entries)]  # by ticket and epoch
        self._noted: Noted | None = None
        self._suspended = False

    # --- our own tenure ----------------------------------------------------------------------

    def entry(self, sequence: int) -> int:
        """The stamp's entry of our event with this place in our tenure."""
        return self.part.epoch << SEQUENCE_BITS | sequence

    def act(self, step: Step, news: News, patience: int) -> None:
        """What has become of our ticket: for the trace, the application and ourselves."""
        part, noted = self.part, self._noted
        if noted is not None and (news.lost is not None or part.ticket != noted.ticket):
            self.over(step, "disconnected")
        if news.clock:
            self.target = merge(self.target, news.clock)
        if news.acquired:
            ticket = part.ticket
            assert ticket is not None
            base = tuple(part.base * (place == ticket) for place in range(self._entries))
            self.target = merge(self.target, base)
            self.index, self.patience = None, patience
            self._note(step, "acquired")
        elif self._noted is not None:
            until = part.valid_until()
            if until is not None and self._noted.until is not None and until > self._noted.until:
                self._note(step, "renewed")
        if self.index is not None and self._suspended == part.may_create(step.now):
            self._suspended = not self._suspended
            told = Updating(self._group, "suspended" if self._suspended else "resumed", self.index)
            step.tell(told)

    def announced(self, step: Step, first: int) -> None:
        """From here on we may make events; the first of them has this number."""
        ticket = self.part.ticket
        assert ticket is not None
        self._titles[ticket][self.part.epoch] = Title(self._me, first)
        self.index, self._suspended = ticket, False
        self._live(self._me)
        step.tell(Updating(self._group, "acquired", ticket))

    def over(self, step: Step, cause: Literal["released", "disconnected"]) -> None:
        """Our tenure ends: it was given back, or somebody else has the ticket."""
        if self._noted is None:
            return
        ticket, self._noted, self.index = self._noted.ticket, None, None
        step.note("ticket", group=self._group, index=ticket, cause=cause)
        step.tell(Updating(self._group, cause, ticket))

    def _note(self, step: Step, cause: str) -> None:
        part = self.part
        assert part.ticket is not None
        until = part.valid_until()
        self._noted = Noted(part.ticket, part.epoch, until)
        columns = {} if until is None else {"until": until}
        step.note("ticket", group=self._group, index=part.ticket, cause=cause, **columns)

    # --- others' -----------------------------------------------------------------------------

    def owner(self, index: int, entry: int) -> str | None:
        """Who made an event. None: nobody has told us."""
        title = self._titles[index].get(entry >> SEQUENCE_BITS)
        return None if title is None else title.owner.name

    def event_of(self, index: int, entry: int) -> tuple[str, int] | None:
        """The origin and the number of an event, from its id. None: there is no such event."""
        title = self._titles[index].get(entry >> SEQUENCE_BITS)
        sequence = entry & _SEQUENCE
        if title is None or sequence <= ANNOUNCED:
            return None
        number = title.number(sequence)
        return title.owner.name, event_number(title.owner.incarnation, number)

    def is_announcement(self, update: Update) -> bool:
        return update.entry & _SEQUENCE == ANNOUNCED

    def is_outlived(self, update: Update) -> bool:
        """Whether we have events of a later life of its maker. Otherwise now of this one."""
        origin = update.origin
        if self._lives.get(origin.name, 0) > origin.incarnation:
            self.outlived += 1
            return True
        self._live(origin)
        return False

    def _live(self, origin: NodeId) -> None:
        self._lives[origin.name] = origin.incarnation
        while len(self._lives) > MOST_ORIGINS:
            del self._lives[next(iter(self._lives))]

    def learn(self, update: Update) -> bool | None:
        """Whose tenure an event is of. True: we had not heard of it. None: of another's."""
        sequence = update.entry & _SEQUENCE
        first = update.number - max(0, sequence - ANNOUNCED - 1)
        titles, epoch = self._titles[update.index], update.entry >> SEQUENCE_BITS
        title = titles.get(epoch)
        if title is not None:
            if title == (update.origin, first):
                return False
            self.refused += 1
            return None
        titles[epoch] = Title(update.origin, first)
        while len(titles) > MOST_EPOCHS:
            del titles[min(titles)]
        return True

    # --- what no member that follows the rules would send --------------------------------------

    def refuse_clock(self, sender: NodeId, clock: tuple[int, ...]) -> None:
        if len(clock) != self._entries:
            raise PeerError(
                f"{sender} sent a stamp of {len(clock)} entries; this cluster has {self._entries}"
            )

    def refuse_own(self, sender: NodeId, clock: tuple[int, ...], sequence: int) -> None:
        ticket = self.part.ticket
        if ticket is not None and self.never_made(ticket, clock[ticket], sequence):
            raise PeerError(f"{sender} knows of what {self._me} never made")

    def never_made(self, index: int, entry: int, sequence: int) -> bool:
        """Whether this would be an event of our tenure that does not exist."""
        part = self.part
        return (
            part.keeps_entries
            and index == part.ticket
            and entry >> SEQUENCE_BITS == part.epoch
            and entry > self.entry(sequence)
        )

    def refuse_nonsense(self, sender: NodeId, update: Update, sequence: int) -> None:
        self.refuse_clock(sender, update.stamp)
        entry, origin = update.entry, update.origin
        epoch, place = entry >> SEQUENCE_BITS, entry & _SEQUENCE
        if not epoch or not place or bool(update.payloads) == (place == ANNOUNCED):
            raise PeerError(f"{sender} sent an event of {origin} as entry {entry}")
        if update.base >> SEQUENCE_BITS >= epoch or (update.base and place > ANNOUNCED):
            raise PeerError(f"{sender} sent an event of {origin} whose numbers go backwards")
        if update.number < place - ANNOUNCED:
            raise PeerError(f"{sender} sent event {update.number} of {origin} as entry {entry}")
        self.refuse_own(sender, update.stamp, sequence)
        if origin == self._me and epoch > max(self._titles[update.index], default=0):
            raise PeerError(f"{sender} spreads what {origin} never made")

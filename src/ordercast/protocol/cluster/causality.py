"""The causality layer: optimistic causal order of what gossip brings in any order, or not at all.

From Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency, 2011, section 5.1 and Algorithm 5. What that leaves open is
decided here, and in docs/causal.md.

Words. An entry says which event of a ticket (tickets/entries.py).

  obsolete     an event whose entry is not beyond the clock: it, or what follows it, was delivered.
               That also finds doubles, and events that are sent in an epoch that is over.
  missing      what an event waits for: all that its stamp names beyond the clock, but itself. The
               event before the first of an epoch is the one that its `base` names.
  deliverable  neither obsolete nor missing anything.
  skipped      what a forced delivery jumps over.

Rules.
 1. A deliverable event is delivered at once, and then whatever waited for it alone.
 2. Another one waits. For each ticket it waits only for the last event that its stamp names, for
    that one waits for those before it.
 3. Forcing an event delivers all that wait and precede it, and then it, in causal order, although
    others are missing; these are skipped, and obsolete from then on.
 4. Stamps that contradict each other (of two owners in two epochs) cannot hold it up: where
    everything left precedes something else, the one with the smallest stamp goes first.

What it does not do: keep time, ask for what is missing, or decide when to force.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import compress
from operator import gt
from typing import NamedTuple

from ordercast.kernel.buffers import Limit
from ordercast.kernel.holdback import HoldBack
from ordercast.protocol.cluster.packets import INDEX_BITS, Update
from ordercast.protocol.tickets.entries import entry_of, epoch_of

_INDEX = (1 << INDEX_BITS) - 1


def index_and_entry(key: int) -> tuple[int, int]:
    """Takes an id apart that is one number."""
    return key & _INDEX, key >> INDEX_BITS


class EntryRange(NamedTuple):
    """Consecutive events of one ticket, in one epoch."""

    ticket: int
    first: int  # entries, both included
    last: int

    def events(self) -> Iterable[int]:
        """Their ids, as `Update.key` has them."""
        return (entry << INDEX_BITS | self.ticket for entry in range(self.first, self.last + 1))


class HeldUpdate(NamedTuple):
    update: Update
    hops: int


class OrderedUpdate(NamedTuple):
    update: Update
    hops: int
    skipped: tuple[EntryRange, ...] = ()  # what it jumped over


class CausalOrder:
    """The clock of one member, and what waits for it."""

    def __init__(self, tickets: int, limit: Limit) -> None:
        self.clock = [0] * tickets  # paper: T_p
        self.dropped = 0  # events that became obsolete while they waited
        self._places = tuple(range(tickets))
        self._held: HoldBack[int, HeldUpdate] = HoldBack(limit)  # paper: H_p and R
        self._stamp: tuple[int, ...] | None = None  # the clock as a tuple, while it stands still

    @property
    def stamp(self) -> tuple[int, ...]:
        if self._stamp is None:
            self._stamp = tuple(self.clock)
        return self._stamp

    def begin(self, clock: Iterable[int]) -> None:
        """Starts here: all that is not beyond this clock is before our time."""
        self.clock = list(clock)
        self._stamp = None

    def forget(self) -> None:
        """Nothing waits any more. The clock stays."""
        self._held = HoldBack(self._held.limit)

    def is_obsolete(self, update: Update) -> bool:
        return update.entry <= self.clock[update.index]

    def made(self, update: Update) -> None:
        """An own event, which its maker delivers at once."""
        assert update.predecessor <= self.clock[update.index] < update.entry
        self.clock[update.index] = update.entry
        self._stamp = None

    def enqueue(self, update: Update, hops: int) -> list[OrderedUpdate]:
        """Enqueues an event that is not obsolete. Returns what is delivered now, in order."""
        assert not self.is_obsolete(update)
        index, stamp, clock = update.index, update.stamp, self.clock
        ahead = list(compress(self._places, map(gt, stamp, clock)))
        before = update.predecessor
        if len(ahead) == 1 and before <= clock[index]:
            delivered = [OrderedUpdate(update, hops)]
            released = self._move(index, update.entry)
            return delivered + self._run(released) if released else delivered
        waits = [stamp[place] << INDEX_BITS | place for place in ahead if place != index]
        if before > clock[index]:
            waits.append(before << INDEX_BITS | index)
        released = self._held.enqueue(
            update.key, HeldUpdate(update, hops), tuple(waits), update.size
        )
        return self._run(released)

    def force(self, key: int) -> list[OrderedUpdate]:
        """Delivers a waiting event, and before it all that wait and precede it."""
        waiting = self._held.peek(key)
        if waiting is None:
            return []
        stamp = waiting.update.stamp
        before = [
            held for held in self._held.items() if stamp[held.update.index] >= held.update.entry
        ]
        delivered: list[OrderedUpdate] = []
        for held in _in_causal_order(before):
            delivered += self._force_one(held)
        return delivered

    def peek(self, key: int) -> Update | None:
        """An event that waits."""
        held = self._held.peek(key)
        return None if held is None else held.update

    def waiting(self) -> list[Update]:
        """All that wait, oldest first."""
        return [held.update for held in self._held.items()]

    def newest(self) -> int:
        """The id of the event that began to wait last."""
        return self._held.held[-1]

    def force_oldest(self) -> list[OrderedUpdate]:
        return self.force(self._held.held[0])

    def missing(self, update: Update) -> list[EntryRange]:
        """What must be delivered before this event and was not, whether it waits here or not."""
        return self.behind(update.stamp, update)

    def behind(self, clock: Iterable[int], update: Update | None = None) -> list[EntryRange]:
        """What lies between our clock and another one."""
        found = []
        for index, (theirs, ours) in enumerate(zip(clock, self.clock, strict=True)):
            if update is not None and index == update.index:
                theirs = update.predecessor
            if theirs > ours:
                found.append(_span(index, ours, theirs))
        return found

    def __contains__(self, key: int) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    @property
    def over_limit(self) -> bool:
        return self._held.over_limit

    # --- moving the clock --------------------------------------------------------------------

    def _force_one(self, held: HeldUpdate) -> list[OrderedUpdate]:
        update = held.update
        self._held.abandon(update.key)
        if self.is_obsolete(update):
            self.dropped += 1
            return []
        skipped = tuple(self.missing(update))
        released: list[HeldUpdate] = []
        for index in list(compress(self._places, map(gt, update.stamp, self.clock))):
            released += self._move(index, update.stamp[index])
        return [OrderedUpdate(update, held.hops, skipped), *self._run(released)]

    def _run(self, released: list[HeldUpdate]) -> list[OrderedUpdate]:
        """Delivers what waits for nothing any more, and all that this releases."""
        delivered: list[OrderedUpdate] = []
        ready = deque(released)
        while ready:
            held = ready.popleft()
            update = held.update
            if self.is_obsolete(update):
                self.dropped += 1
                continue
            delivered.append(OrderedUpdate(update, held.hops))
            ready.extend(self._move(update.index, update.entry))
        return delivered

    def _move(self, index: int, entry: int) -> list[HeldUpdate]:
        """One entry of the clock goes on. Returns what waits for nothing any more."""
        before = self.clock[index]
        self.clock[index] = entry
        self._stamp = None
        if not self._held:
            return []
        if entry - before == 1:
            return self._held.satisfy(entry << INDEX_BITS | index)
        # Entries were jumped over: events that wait for one of them wait no more, and those of them
        # that wait themselves are obsolete.
        released: list[HeldUpdate] = []
        for key in dict.fromkeys((*self._held.awaited(), *self._held.held)):
            if key & _INDEX == index and before < key >> INDEX_BITS <= entry:
                self.dropped += key in self._held
                released += self._held.satisfy(key)
        return released


def _span(index: int, after: int, last: int) -> EntryRange:
    """From behind one entry to another. The length of epochs before the last is not known."""
    epoch = epoch_of(last)
    first = after + 1 if epoch_of(after) == epoch else entry_of(epoch, 1)
    return EntryRange(index, first, last)


def _in_causal_order(held: list[HeldUpdate]) -> list[HeldUpdate]:
    """Each behind all that precede it. Honest stamps grow along causality, and so do their sums."""
    rest = sorted(held, key=lambda one: sum(one.update.stamp))
    ordered = []
    while rest:
        place = next(
            (at for at, one in enumerate(rest) if not _has_predecessor(one.update, rest)), 0
        )
        ordered.append(rest.pop(place))
    return ordered


def _has_predecessor(update: Update, others: list[HeldUpdate]) -> bool:
    return any(
        update.stamp[other.update.index] >= other.update.entry
        for other in others
        if other.update is not update
    )

"""Recovery: what is buffered for others, what we asked for, and who is asked.

From Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency, 2011, section 5: every process buffers the last events that it
saw; what a process misses it asks for once, from the event's maker or from k random members.

Rules.
 1. The buffer has a limit. The event that came first goes first, or the one that had travelled
    furthest, of which there are most copies.
 2. An event is asked for once. A member that still lacks it when it receives a digest again may ask
    again, as the sender of the digest must have it, or have had it.
 3. Beyond its `floor` a buffer has everything that its member delivered: from there a newcomer can
    begin without missing anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable

from ordercast.errors import PeerError
from ordercast.kernel.buffers import Limit
from ordercast.kernel.step import DATAGRAM, STATUS, Step
from ordercast.protocol.cluster.causality import CausalOrder, EntryRange, index_and_entry
from ordercast.protocol.cluster.member import parts
from ordercast.protocol.cluster.options import CausalOptions
from ordercast.protocol.cluster.ownership import TicketOwnership
from ordercast.protocol.cluster.packets import (
    INDEX_BITS,
    MOST_RANGES,
    Recover,
    Recovered,
    Update,
)
from ordercast.protocol.cluster.sampler import Sampler
from ordercast.protocol.tickets.entries import epoch_of
from ordercast.types import NodeId

ANSWER = Limit(500, 4 << 20)
"""The most that one request is answered with."""
OLDEST_AGE = 63
MOST_LOOKED_AT = 4096


class RecoveryBuffer:  # paper: B
    def __init__(self, tickets: int, limit: Limit, by_age: bool) -> None:
        self.limit = limit
        self.size = 0  # bytes
        self.floor = [0] * tickets
        self._by_age = by_age
        self._age_of: dict[int, int] = {}  # by key: in which of the following it is
        self._buffered: dict[int, OrderedDict[int, Update]] = {}  # by age, where that matters

    def add(self, update: Update, age: int) -> None:
        key = update.key
        if key in self._age_of:
            return
        age = min(age, OLDEST_AGE) if self._by_age else 0
        self._age_of[key] = age
        self._buffered.setdefault(age, OrderedDict())[key] = update
        self.size += update.size
        while len(self._age_of) > self.limit.count or self.size > self.limit.size:
            self._drop()

    def begin(self, clock: Iterable[int]) -> None:
        """What is not beyond this clock was before our time, so we cannot have it."""
        self.floor = list(map(max, self.floor, clock))

    def find(self, spans: Iterable[EntryRange], most: int) -> list[Update]:
        """Those of the events asked for that are buffered, at most so many.

        A request for more than there can be, or for the same again and again, costs us no more
        than one look at all that there is.
        """
        wanted: dict[int, list[tuple[int, int]]] = {}
        for ticket, first, last in sorted(spans):
            merged = wanted.setdefault(ticket, [])
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        found: list[Update] = []
        for ticket, ranges in wanted.items():
            if sum(last - first + 1 for first, last in ranges) <= len(self._age_of):
                keys = (
                    key
                    for first, last in ranges
                    for key in EntryRange(ticket, first, last).events()
                )
                updates = [update for update in map(self.get, keys) if update is not None]
            else:
                starts = [first for first, _ in ranges]
                updates = [
                    update
                    for update in self.all()
                    if update.index == ticket
                    and (place := bisect_right(starts, update.entry))
                    and update.entry <= ranges[place - 1][1]
                ]
                updates.sort(key=lambda update: update.entry)
            found += updates[: most - len(found)]
        return found

    def get(self, key: int) -> Update | None:
        age = self._age_of.get(key)
        return None if age is None else self._buffered[age][key]

    def all(self) -> list[Update]:
        """All that is buffered, in the order in which it came where age does not matter."""
        return [update for buffered in self._buffered.values() for update in buffered.values()]

    def __len__(self) -> int:
        return len(self._age_of)

    def _drop(self) -> None:
        oldest = max(age for age, buffered in self._buffered.items() if buffered)
        key, update = self._buffered[oldest].popitem(last=False)
        del self._age_of[key]
        self.size -= update.size
        self.floor[update.index] = max(self.floor[update.index], update.entry)


class Requests:
    """What was asked for and has not come."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._asked: OrderedDict[int, int] = OrderedDict()  # key: the round in which it was asked
        # By ticket and epoch: up to here everything is here, was asked for, or was before our time.
        # Many events wait for the same ones, and each is looked at once.
        self._looked_at: dict[tuple[int, int], int] = {}

    def new(
        self, spans: Iterable[EntryRange], is_here: Callable[[int], bool], now: int
    ) -> list[EntryRange]:
        """Of these, what is not here and was not asked for: to be asked for now, joined."""
        found: list[EntryRange] = []
        for ticket, first, last in spans:
            room = self.limit - len(self._asked)
            # Where there are too many, the latest: they are the likeliest to be had.
            epoch = (ticket, epoch_of(last))
            first = max(first, self._looked_at.get(epoch, 0) + 1)
            left_out = last - room + 1 > first
            first = max(first, last - room + 1)
            for entry in range(first, last + 1):
                key = entry << INDEX_BITS | ticket
                if key in self._asked or is_here(key):
                    continue
                if found and found[-1].ticket == ticket and found[-1].last == entry - 1:
                    found[-1] = found[-1]._replace(last=entry)
                elif len(found) < MOST_RANGES:
                    found.append(EntryRange(ticket, entry, entry))
                else:
                    return found
                self._asked[key] = now
            if not left_out:
                self._looked_at[epoch] = max(last, self._looked_at.get(epoch, 0))
                while len(self._looked_at) > MOST_LOOKED_AT:
                    del self._looked_at[next(iter(self._looked_at))]
        return found

    def forget(self) -> None:
        self._asked.clear()
        self._looked_at.clear()

    def came(self, key: int) -> bool:
        """An event arrived. True: it had been asked for."""
        return self._asked.pop(key, None) is not None

    def give_up(self, before: int) -> list[int]:
        """Forgets what was asked for before a round, so that it may be asked for again."""
        gone = []
        while self._asked:
            key, asked = next(iter(self._asked.items()))
            if asked >= before:
                break
            del self._asked[key]
            gone.append(key)
            ticket, entry = index_and_entry(key)
            epoch = (ticket, epoch_of(entry))
            self._looked_at[epoch] = min(self._looked_at.get(epoch, 0), entry - 1)
        return gone

    def __len__(self) -> int:
        return len(self._asked)


class Recovery:
    """What one member buffers for others, and asks others for."""

    def __init__(
        self,
        me: NodeId,
        group: str,
        options: CausalOptions,
        sampler: Sampler,
        ownership: TicketOwnership,
        order: CausalOrder,
    ) -> None:
        limit = Limit(options.recovery_buffer, options.recovery_size)
        self.buffer = RecoveryBuffer(options.tickets, limit, by_age=options.replace == "age")
        self.requests = Requests(options.waiting)
        self.recovered = 0  # events that came because they were asked for
        self._me = me
        self._group = group
        self._options = options
        self._sampler = sampler
        self._ownership = ownership
        self._order = order

    # --- what we lack ------------------------------------------------------------------------

    def ask(self, step: Step, spans: list[EntryRange], now: int, holder: str | None = None) -> None:
        """Asks for events that are neither here nor asked for already.

        `holder` said that it has them; without one the option `recovery` says who is asked.
        """
        if self._options.recovery == "off":
            return
        new = self.requests.new(spans, self._order.__contains__, now)
        if not new:
            return
        asked: dict[tuple[str, ...], list[EntryRange]] = {}
        if holder is not None:
            asked[(holder,)] = new
        elif self._options.asked:
            asked[self._sampler.sample(self._options.asked)] = new
        else:
            for span in new:
                owner = self._ownership.owner(span.ticket, span.last)
                is_other = owner is not None and owner != self._me.name
                to = (owner,) if owner is not None and is_other else self._sampler.sample(1)
                asked.setdefault(to, []).append(span)
        for names, wanted in asked.items():
            ranges = [(span.ticket, span.first, span.last) for span in wanted]
            question = Recover(self._group, ranges, cluster=self._ownership.cluster)
            step.send(names, question, DATAGRAM)
            peer = names[0] if len(names) == 1 else None
            for span in wanted:
                for entry in range(span.first, span.last + 1):
                    self._note(step, span.ticket, entry, peer=peer, cause="asked")

    def arrived(self, step: Step, update: Update) -> None:
        """An event arrived, asked for or not."""
        if self.requests.came(update.key):
            self.recovered += 1
            self._note(step, update.index, update.entry, cause="answered")

    def give_up(self, step: Step, before: int) -> None:
        """Forgets what was asked for before this round, so that it may be asked for again."""
        for key in self.requests.give_up(before):
            self._note(step, *index_and_entry(key), cause="failed")

    def _note(self, step: Step, index: int, entry: int, **columns: object) -> None:
        self._ownership.note(step, "recover", index, entry, **columns)

    # --- what others lack --------------------------------------------------------------------

    def answer(self, step: Step, sender: NodeId, packet: Recover) -> None:
        spans = []
        for index, first, last in packet.ranges:
            if index >= self._options.tickets or first > last:
                raise PeerError(f"{sender} asks for {first} to {last} of ticket {index}")
            if self._ownership.never_made(index, last):
                raise PeerError(f"{sender} asks for what {self._me} never made")
            spans.append(EntryRange(index, first, last))
        found = self.buffer.find(spans, ANSWER.count)
        size = 0
        for place, update in enumerate(found):
            size += update.size
            if size > ANSWER.size and place:
                found = found[:place]
                break
        self.hand_over(step, sender.name, found)

    def hand_over(self, step: Step, name: str, updates: list[Update]) -> None:
        if not updates:
            return
        entries = [(update, 0) for update in updates]
        for part, channel in parts(entries, self._options.transport == "status"):
            token = name if channel is STATUS else None
            answer = Recovered(self._group, part, cluster=self._ownership.cluster)
            step.send(name, answer, channel, token)

"""Recovery: what is kept for others, and what was asked for.

From Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency, 2011, section 5: every process keeps the last events that it
saw; what a process misses it asks for once, from the event's maker or from k members by chance.

Rules.
 1. The buffer has a limit. What goes first is what came first, or what had travelled furthest, for
    of that there are most copies.
 2. An event is asked for once. Whoever lacks it still when a member tells its clock again may ask
    again, as that member must have it, or have had it.
 3. Beyond its `floor` a buffer has everything that its member delivered: from there a newcomer can
    begin without missing anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable

from ordercast.kernel.buffers import Limit
from ordercast.protocol.cluster.causality import Span, index_and_entry
from ordercast.protocol.cluster.packets import (
    INDEX_BITS,
    MOST_RANGES,
    SEQUENCE_BITS,
    Update,
)

OLDEST_AGE = 63
MOST_LOOKED_AT = 4096


class RecoveryBuffer:  # paper: B
    def __init__(self, tickets: int, limit: Limit, by_age: bool) -> None:
        self.limit = limit
        self.size = 0  # bytes
        self.floor = [0] * tickets
        self._by_age = by_age
        self._age_of: dict[int, int] = {}  # by key: in which of the following it is
        self._kept: dict[int, OrderedDict[int, Update]] = {}  # by age, where that matters

    def add(self, update: Update, age: int) -> None:
        key = update.key
        if key in self._age_of:
            return
        age = min(age, OLDEST_AGE) if self._by_age else 0
        self._age_of[key] = age
        self._kept.setdefault(age, OrderedDict())[key] = update
        self.size += update.size
        while len(self._age_of) > self.limit.count or self.size > self.limit.size:
            self._drop()

    def begin(self, clock: Iterable[int]) -> None:
        """What is not beyond this clock was before our time, so we cannot have it."""
        self.floor = list(map(max, self.floor, clock))

    def find(self, spans: Iterable[Span], most: int) -> list[Update]:
        """Those of the events asked for that are kept, at most so many.

        Whoever asks for more than there can be, or for the same again and again, costs us no more
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
                keys = (key for first, last in ranges for key in Span(ticket, first, last).events())
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
        return None if age is None else self._kept[age][key]

    def all(self) -> list[Update]:
        """All that is kept, in the order in which it came where age does not matter."""
        return [update for kept in self._kept.values() for update in kept.values()]

    def __len__(self) -> int:
        return len(self._age_of)

    def _drop(self) -> None:
        oldest = max(age for age, kept in self._kept.items() if kept)
        key, update = self._kept[oldest].popitem(last=False)
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

    def new(self, spans: Iterable[Span], is_here: Callable[[int], bool], now: int) -> list[Span]:
        """Of these, what is not here and was not asked for: to be asked for now, joined."""
        found: list[Span] = []
        for ticket, first, last in spans:
            room = self.limit - len(self._asked)
            # Where there are too many, the latest: they are the likeliest to be had.
            epoch = (ticket, last >> SEQUENCE_BITS)
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
                    found.append(Span(ticket, entry, entry))
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
            epoch = (ticket, entry >> SEQUENCE_BITS)
            self._looked_at[epoch] = min(self._looked_at.get(epoch, 0), entry - 1)
        return gone

    def __len__(self) -> int:
        return len(self._asked)

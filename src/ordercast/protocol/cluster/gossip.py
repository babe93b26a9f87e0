"""Spreading events by gossip: rounds, fan-out, ages, termination.

The algorithm is ETTB, estimated-time-to-terminate balls-and-bins (Koldehofe: Buffer management in
probabilistic peer-to-peer communication protocols, 2003), as the cluster papers use it: a message
is a ball, a process a bin, and an event is thrown again in every round until it has grown old.

Rules.
 1. An event has an age, in hops. Its maker has it at age 0. It is relayed once a round at ages 0 to
    `hops`, each time one hop older, and then it terminates here.
 2. Of an event that comes again the smaller age counts. It still dies everywhere, for the smallest
    age of all grows by one a round. With the greater age (`keep = "oldest"`) a chain of members
    whose rounds follow closely on each other ages an event in no time, and it dies too early where
    rounds are not in step: docs/planner.md has the figures.
 3. A message holds at most so many events, the youngest first, for of the older ones there are
    copies enough. Of equally old ones chance decides. An own event does not age before it has left
    once.
 4. The ids of the last events are remembered, so that one that terminated is not taken for new.
    The memory is bounded: a member that delivers exactly once must check for itself.

Pure: it knows neither what an event is nor to whom it goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from random import Random
from typing import Generic, NamedTuple, Protocol, TypeVar

from ordercast.kernel.buffers import Bounded
from ordercast.types import NodeId


class Item(Protocol):
    """What is spread: anything with an id."""

    @property
    def key(self) -> Hashable: ...


T = TypeVar("T", bound=Item)

REMEMBERED = 4096
"""Events of one maker, counted back from its newest, of which we know which have come."""
MOST_MAKERS = 1 << 16
"""Makers that are remembered: more than a group has members, or a peer invents names."""


class News(NamedTuple, Generic[T]):
    """What was new in one message."""

    unknown: list[tuple[T, int]]
    changed: list[tuple[T, int]]  # known, but of an age that counts
    again: int  # copies of what was known


class Spreading(Generic[T]):
    """What one member is spreading."""

    __slots__ = (
        "_active",
        "_chance",
        "_history",
        "_hops",
        "_keep_oldest",
        "_most",
        "_unsent",
        "again",
        "not_relayed",
        "started",
    )

    def __init__(
        self, hops: int, most: int, history: int, chance: Random, *, keep_oldest: bool = False
    ) -> None:
        self._hops = hops
        self._most = most  # events of one message
        self._history: Bounded[Hashable] = Bounded(history)
        self._chance = chance
        self._keep_oldest = keep_oldest
        self._active: dict[Hashable, tuple[T, int]] = {}  # with their ages
        self._unsent: dict[Hashable, None] = {}  # own events that have not left yet
        self.started = 0  # own events
        self.again = 0  # copies of what was known
        self.not_relayed = 0  # relays that a full message had no room for

    def start(self, item: T, *, sent: bool = False) -> None:
        """Spreads an own event, which has left for the first time already or not."""
        key = item.key
        self.started += 1
        self._history.add(key)
        if not sent:
            self._unsent[key] = None
        if not sent or self._hops > 0:
            self._active[key] = (item, 1 if sent else 0)

    def news(self, entries: list[tuple[T, int]]) -> News[T]:
        """What is new in what came by gossip. Changes nothing: it may still be refused."""
        active, history, oldest = self._active, self._history.keys, self._keep_oldest
        fresh: dict[Hashable, tuple[T, int]] = {}
        changed: list[tuple[T, int]] = []
        for entry in entries:
            item, age = entry
            key = item.key
            known = active.get(key)
            if known is None:
                if key not in history:
                    first = fresh.setdefault(key, entry)
                    if age > first[1] if oldest else age < first[1]:
                        fresh[key] = entry
            elif age > known[1] if oldest else age < known[1]:
                changed.append(entry)
        unknown = list(fresh.values())
        return News(unknown, changed, len(entries) - len(unknown))

    def add(self, news: News[T]) -> None:
        """Spreads what was new from now on, and lets ages count that changed."""
        active, hops = self._active, self._hops
        for item, age in news.changed:
            key = item.key
            known = active.get(key)  # it may have come twice in one message
            if known is None:
                continue
            if age > hops:
                del active[key]
            elif age > known[1] if self._keep_oldest else age < known[1]:
                active[key] = (known[0], age)  # only the age of the copy was checked
        for item, age in news.unknown:
            key = item.key
            if self._history.add(key) and age <= hops:
                active[key] = (item, age)
        self.again += news.again

    def remember(self, key: Hashable) -> None:
        """What came by another way is not new if gossip brings it."""
        self._history.add(key)

    def round(self) -> list[tuple[T, int]]:
        """What this round's message holds, with the ages at which it arrives."""
        active = self._active
        if not active:
            return []
        if len(active) <= self._most:
            chosen = list(active.values())
            self._unsent.clear()
        else:
            keys = list(active)
            self._chance.shuffle(keys)
            keys.sort(key=lambda key: active[key][1])  # stable: chance decides among equals
            chosen = [active[key] for key in keys[: self._most]]
            self.not_relayed += len(keys) - self._most
            for key in keys[: self._most]:
                self._unsent.pop(key, None)
        hops, unsent = self._hops, self._unsent
        self._active = {
            key: (item, age + (key not in unsent))
            for key, (item, age) in active.items()
            if age < hops or key in unsent
        }
        return [(item, age + 1) for item, age in chosen]

    @property
    def unsent(self) -> int:
        """Own events that wait for their first relay."""
        return len(self._unsent)

    @property
    def active(self) -> int:
        return len(self._active)


class SeenRumours:
    """Which events of whom have come: exactly, as far as that can be remembered.

    For each name there is the newest incarnation, its newest number, and a bit for each number
    before. An older event counts as having come: it is too late for it. So nothing is ever
    taken twice, as long as no more than MOST_MAKERS names are used.
    """

    __slots__ = ("_makers",)

    def __init__(self) -> None:
        # By name: incarnation, newest number, bits. The first that was heard goes first.
        self._makers: OrderedDict[str, tuple[int, int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._makers)

    def first_time(self, origin: NodeId, number: int) -> bool:
        incarnation, newest, bits = self._makers.get(origin.name, (-1, 0, 0))
        if origin.incarnation != incarnation:
            if origin.incarnation < incarnation:
                return False
            self._makers[origin.name] = (origin.incarnation, number, 1)
            if len(self._makers) > MOST_MAKERS:
                self._makers.popitem(last=False)
            return True
        if number > newest:
            ahead = number - newest
            bits = (bits << ahead | 1) & _ALL if ahead < REMEMBERED else 1
            self._makers[origin.name] = (incarnation, number, bits)
            return True
        if newest - number >= REMEMBERED:  # first, or a liar makes us shift by a trillion bits
            return False
        bit = 1 << newest - number
        if bits & bit:
            return False
        self._makers[origin.name] = (incarnation, newest, bits | bit)
        return True


_ALL = (1 << REMEMBERED) - 1

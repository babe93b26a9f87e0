"""The causal graph of one machine: the ideal one that the paper assumes of Transis (section 2).

Amir, Dolev, Kramer, Malki: Membership algorithms for multicast communication groups (Transis,
1992).

Rules.
 1. A message enters when all that it follows has entered; so order of entry preserves causality.
 2. What is missing is recovered from the machine that sent us a message that follows it. Nobody
    ever forgets a message, so that machine has it. The paper's cut vectors only spare this work,
    and are not here.
 3. What comes from a blocked machine does not enter, unless it is recovered because a message of
    another one follows it (footnote a of Figure 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ordercast.errors import PeerError
from ordercast.studies.published_synchrony.names import Machines
from ordercast.studies.published_synchrony.packets import Cast


class Missing(NamedTuple):
    """Messages that have not come, and who has them."""

    sender: str
    first: int
    last: int
    ask: str


class IdealGraph:
    def __init__(self, names: Machines, limit: int) -> None:
        self.names = names
        self.limit = limit
        self.height = 0
        self._place = {name: place for place, name in enumerate(names)}
        self._messages: list[list[Cast]] = [[] for _ in names]
        # Not entered yet, by sender and counter, and who sent it to us.
        self._waiting: dict[tuple[str, int], tuple[Cast, str]] = {}
        self._asked: dict[tuple[str, str], int] = {}  # by whom and of whom: how far

    def past(self) -> tuple[int, ...]:
        return tuple(map(len, self._messages))

    def count(self, name: str) -> int:
        return len(self._messages[self._place[name]])

    def range(self, name: str, first: int, last: int) -> list[Cast]:
        return self._messages[self._place[name]][first - 1 : last]

    def follows(self, later: Cast, earlier: Cast) -> bool:
        return later.past[self._place[earlier.sender]] >= earlier.counter

    def covers(self, name: str, cast: Cast) -> bool:
        """Whether the last message of a machine follows this one, or is it."""
        last = self.last(name)
        return last is not None and (last.key == cast.key or self.follows(last, cast))

    def last(self, name: str) -> Cast | None:
        sent = self._messages[self._place[name]]
        return sent[-1] if sent else None

    def refuse(self, cast: Cast) -> None:
        """PeerError: no machine can have sent this."""
        if cast.sender not in self._place or len(cast.past) != len(self.names):
            raise PeerError(f"a message of {cast.sender!r}, about other machines than ours")
        if cast.past[self._place[cast.sender]] != cast.counter - 1:
            raise PeerError(f"message {cast.counter} of {cast.sender} does not follow its own")
        if max(cast.past) > self.limit or cast.counter > self.limit:
            raise PeerError(f"{cast.sender} speaks of more than {self.limit} messages of a machine")

    def take(self, cast: Cast, came_from: str) -> None:
        """A message that may enter now or later: `enter` says when."""
        if cast.counter > self.count(cast.sender):
            self._waiting.setdefault(cast.key, (cast, came_from))

    def enter(self) -> Cast | None:
        """The next message that can enter has entered."""
        for key, (cast, _) in self._waiting.items():
            if all(wanted <= len(have) for wanted, have in self._compared(cast)):
                del self._waiting[key]
                if cast.counter > self.count(cast.sender):
                    self.add(cast)
                    return cast
                return self.enter()
        return None

    def _compared(self, cast: Cast) -> Iterator[tuple[int, list[Cast]]]:
        return zip(cast.past, self._messages, strict=True)

    def add(self, cast: Cast) -> None:
        self._messages[self._place[cast.sender]].append(cast)
        self.height = max(self.height, cast.height)

    def discard(self, blocked: Machines) -> None:
        """What has not entered yet of these machines does not. What needs it asks for it again."""
        for sender, counter in list(self._waiting):
            if sender in blocked:
                del self._waiting[sender, counter]
        for asked, sender in list(self._asked):
            if sender in blocked:
                del self._asked[asked, sender]

    def needs(self, cast: Cast, blocked: Machines) -> bool:
        """Whether a message of a machine that is not blocked waits for this one."""
        place = self._place[cast.sender]
        return any(
            waiting.past[place] >= cast.counter
            for waiting, _ in self._waiting.values()
            if waiting.sender not in blocked
        )

    def missing(self) -> list[Missing]:
        """What waiting messages need, and what nobody has been asked for yet."""
        found = []
        for cast, came_from in self._waiting.values():
            for place, name in enumerate(self.names):
                first, last = len(self._messages[place]) + 1, cast.past[place]
                first = max(first, self._asked.get((came_from, name), 0) + 1)
                while first <= last and (name, first) in self._waiting:
                    first += 1
                if first <= last:
                    self._asked[came_from, name] = last
                    found.append(Missing(name, first, last, came_from))
        return found

"""Four services: when an admitted event is delivered.

Rules (Transis, section 3.2; the order is that of Lamport's clock).
 1. A basic event is delivered when it is admitted. It overtakes others on purpose.
 2. A causal event is delivered when all events before it that are not basic have been.
 3. An agreed event is delivered when it is the first, by (height, origin), of all agreed and safe
    events that were not, and no member can send one before it. What a member sends is above all
    that it has; so one whose name is greater than the origin's need not have this event.
 4. A safe event is delivered when an agreed one in its place would be, and all members have it.
 5. At the end of a configuration what is left is delivered in the same order, without waiting for
    members that do not come along. The application knows: a transitional view is before it.

The first agreed or safe event by (height, origin) is always the first of its origin: what its
origin sent before it has a smaller height.

What it does not do: decide what is admitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import le

from ordercast.kernel.clocks import Vector
from ordercast.protocol.transis.graph import Position
from ordercast.protocol.transis.packets import Cast

THE_END = (1 << 62, 0)
"""A position after all events."""


class Deliveries:
    def __init__(self, count: int) -> None:
        self.queues: list[deque[Cast]] = [deque() for _ in range(count)]  # by member, in order
        self.causal = 0  # causal events in them
        self.waiting = 0  # all events in them

    def add(self, place: int, cast: Cast) -> None:
        """An event that is not basic was admitted."""
        self.queues[place].append(cast)
        self.waiting += 1
        self.causal += cast.service == "causal"

    def done(self, received: Sequence[int]) -> list[int]:
        """By member: how many of its events were delivered, without gaps; basic ones count."""
        return [
            queue[0].seq - 1 if queue else up_to
            for queue, up_to in zip(self.queues, received, strict=True)
        ]

    def take_due(
        self, received: Sequence[int], horizon: Position, stable: Vector
    ) -> list[tuple[int, Cast]]:
        """What is delivered now, in order."""
        due: list[tuple[int, Cast]] = []
        while self.waiting:
            if self.causal and self._take_causal(received, due):
                continue
            place = self._first_ordered()
            if place is None:
                break
            cast = self.queues[place][0]
            if not self.may_deliver(place, cast, horizon, stable):
                break
            self._pop(place, due)
        return due

    def may_deliver(self, place: int, cast: Cast, horizon: Position, stable: Vector) -> bool:
        """Of the first agreed or safe event."""
        if (cast.height, place) >= horizon:
            return False
        return cast.service == "agreed" or stable[place] >= cast.seq

    def cut_off(self, cut: Vector) -> list[tuple[int, Cast]]:
        """Takes away what is beyond the end. There is something only if a member has lied."""
        beyond: list[tuple[int, Cast]] = []
        for place, queue in enumerate(self.queues):
            while queue and queue[-1].seq > cut[place]:
                cast = queue.pop()
                self.waiting -= 1
                self.causal -= cast.service == "causal"
                beyond.append((place, cast))
        return beyond

    def take_rest(self, received: Sequence[int]) -> list[tuple[int, Cast]]:
        """All that is left."""
        due: list[tuple[int, Cast]] = []
        while self.waiting:
            if self.causal and self._take_causal(received, due):
                continue
            place = self._first_ordered()
            assert place is not None, "a causal event waits for an ordered one, or for none"
            self._pop(place, due)
        return due

    def _take_causal(self, received: Sequence[int], due: list[tuple[int, Cast]]) -> bool:
        done = self.done(received)
        moved = False
        for place, queue in enumerate(self.queues):
            while queue and queue[0].service == "causal":
                cast = queue[0]
                done[place] = cast.seq  # its own entry counts itself
                if not all(map(le, cast.vector, done)):
                    done[place] = cast.seq - 1
                    break
                self._pop(place, due)
                done[place] = queue[0].seq - 1 if queue else received[place]
                moved = True
        return moved

    def _first_ordered(self) -> int | None:
        found, (lowest, _) = None, THE_END
        for place, queue in enumerate(self.queues):
            if queue:
                cast = queue[0]
                if cast.height < lowest and cast.service != "causal":
                    found, lowest = place, cast.height
        return found

    def _pop(self, place: int, due: list[tuple[int, Cast]]) -> None:
        cast = self.queues[place].popleft()
        self.waiting -= 1
        self.causal -= cast.service == "causal"
        due.append((place, cast))

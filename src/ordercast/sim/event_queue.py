"""What will happen, in order of virtual time; ties in the order in which they were added.

A calendar: entries lie in slots of a fixed span of time, and a slot is put in order when its time
comes. That takes about half the time of one heap for all, because sorting a slot once is cheaper
than moving every entry up and down a large heap. The end of a run is an entry like any other, so
that the loop need not look at the time.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
QueueEntry: TypeAlias = tuple[int, int, Callable[[Any], None], Any]
"""When, the ticket that orders what happens at the same time, what, and its one argument."""

SLOT_BITS = 16
"""A slot spans 2**16 ns: far less than a delay, so few entries are added to the one that is on."""
LAST_TICKET = 1 << 62


class _Over(Exception):
    """The time until which the event queue was to run has come."""


class EventQueue:
    __slots__ = ("_late", "_number", "_order", "_ticket", "_today", "done", "now", "slots")

    def __init__(self) -> None:
        self.now = 0  # nanoseconds of true virtual time
        self.done = 0  # how many entries have happened
        self._ticket = 0  # of the entry that was added last
        self._number = 0  # of the slot that is on
        self._today: list[QueueEntry] = []  # what is left of it, the next one last
        self._late: list[QueueEntry] = []  # what was added to it since it was put in order
        self.slots: dict[int, list[QueueEntry]] = {0: self._late}  # by number: this and later ones
        self._order: list[int] = []  # a heap of the numbers of later slots

    def add(self, at: int, act: Callable[[T], None], argument: T) -> None:
        """Lets something happen, now or later."""
        self._ticket = ticket = self._ticket + 1
        slot = self.slots.get(at >> SLOT_BITS)
        if slot is None:
            slot = self.new_slot(at >> SLOT_BITS)
        slot.append((at, ticket, act, argument))

    def tickets(self, count: int) -> int:
        """The last of those that were used, for a caller that adds up to so many entries itself."""
        last = self._ticket
        self._ticket += count
        return last

    def run(self, until: int, at_most: int) -> bool:
        """Lets everything up to `until` happen. False if `at_most` entries were not enough."""
        until = int(until)  # it becomes `now`, which packets may carry: a Duration could not be
        slot = self.slots.get(until >> SLOT_BITS)
        if slot is None:
            slot = self.new_slot(until >> SLOT_BITS)
        slot.append((until, LAST_TICKET, _end, None))
        left, begun, late = at_most, 0, self._late
        try:
            while True:
                if late:
                    self._fit_in()
                today = self._today
                if not today:  # on to the next slot that has entries
                    del self.slots[self._number]
                    self._number = number = heappop(self._order)
                    self._today = today = self.slots[number]
                    self.slots[number] = late
                    if len(today) > 1:
                        today.sort(reverse=True)
                if left <= len(today):  # the last ones are counted
                    if not left and today[-1][2] is not _end:
                        return False
                    today = [today.pop()]
                begun = len(today)
                while today:
                    self.now, _, act, argument = today.pop()
                    act(argument)
                    if late:
                        break
                left -= begun - len(today)
                begun = 0
        except _Over:
            return True
        finally:
            if begun:  # what raised has not happened
                left -= begun - len(today) - 1
            self.done += at_most - left

    def new_slot(self, number: int) -> list[QueueEntry]:
        """A slot that has no entries yet."""
        assert number > self._number, "nothing happens in the past"
        slot: list[QueueEntry] = []
        self.slots[number] = slot
        heappush(self._order, number)
        return slot

    def _fit_in(self) -> None:
        self._today += self._late
        self._today.sort(reverse=True)
        self._late.clear()


def _end(_: None) -> None:
    raise _Over

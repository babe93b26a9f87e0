"""The order of delivery over all groups of a process: one clock, one queue, one bound.

Rules (Newtop, sections 4.1 and 4.3).
 1. One logical clock a process numbers whatever it sends in any group, so the number of an event
    is above the numbers of all that its sender had seen.
 2. A group's bound is a number that nothing new can come at or below. The process's bound is the
    smallest of its groups' (safe1'). What is numbered up to there is delivered.
 3. It is delivered by number, and where numbers are equal, by the id of who numbered it (safe2).
    A process uses a number once in all its groups, so that is one order for everybody.
 4. A view is installed after all events of any group that are numbered up to its cut.

What it does not do: know how a group comes to its bound.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Protocol, TypeAlias

from ordercast.kernel.clocks import LogicalClock
from ordercast.protocol.newtop.packets import Data, State, Turn
from ordercast.types import NodeId

Item: TypeAlias = Data | Turn | State
Entry: TypeAlias = tuple[int, NodeId, int, Item]


class Bounded(Protocol):
    """A group, as far as the order needs to know it."""

    label: str

    def bound(self) -> int: ...

    def next_cut(self) -> int | None: ...


class Waiting:
    """Events that were received and not delivered, of all groups, smallest first.

    An event that a sequencer orders waits as its turn, which says when it comes.
    """

    __slots__ = ("_heap", "_pushed")

    def __init__(self) -> None:
        # The count of pushes keeps events from being compared, whatever a peer numbers twice.
        self._heap: list[Entry] = []
        self._pushed = 0

    def push(self, numberer: NodeId, data: Item) -> None:
        self._pushed += 1
        heappush(self._heap, (data.order, numberer, self._pushed, data))

    def head(self) -> int | None:
        """The number of the event that comes next."""
        return self._heap[0][0] if self._heap else None

    def peek(self) -> tuple[NodeId, Item]:
        _, numberer, _, data = self._heap[0]
        return numberer, data

    def pop(self) -> None:
        heappop(self._heap)

    def drop(self, label: str, gone: tuple[NodeId, ...], above: int) -> list[Item]:
        """Takes out what these numbered in a group above a number. Returns it in order."""
        dropped = [entry for entry in self._heap if _is_beyond(entry, label, gone, above)]
        if dropped:
            kept = [entry for entry in self._heap if not _is_beyond(entry, label, gone, above)]
            heapify(kept)
            self._heap = kept
        return [data for _, _, _, data in sorted(dropped, key=lambda entry: entry[:3])]

    def forget(self, label: str) -> None:
        """We left the group."""
        self._heap = [entry for entry in self._heap if entry[3].label != label]
        heapify(self._heap)

    def holds(self, label: str, numberers: tuple[NodeId, ...]) -> bool:
        """Whether anything of these waits in a group."""
        return any(entry[1] in numberers and entry[3].label == label for entry in self._heap)

    def count_of(self, label: str) -> int:
        return sum(entry[3].label == label for entry in self._heap)

    def __len__(self) -> int:
        return len(self._heap)


def _is_beyond(entry: Entry, label: str, gone: tuple[NodeId, ...], above: int) -> bool:
    return entry[0] > above and entry[1] in gone and entry[3].label == label


class Ordering:
    """What all groups of a process share."""

    def __init__(self) -> None:
        self.clock = LogicalClock()  # paper: LC
        self.waiting = Waiting()
        self.groups: dict[str, Bounded] = {}  # those that bound the delivery, by label

    def deliverable_up_to(self) -> int:  # paper: D_i
        """Everything numbered up to here was received, in every group."""
        bound = self.clock.value
        for group in self.groups.values():
            bound = min(bound, group.bound())
        return bound

    def next_cut(self) -> tuple[int, str] | None:
        """The cut of the next view to be installed, and in which group."""
        cuts = [
            (cut, group.label)
            for group in self.groups.values()
            if (cut := group.next_cut()) is not None
        ]
        return min(cuts, default=None)

    def head(self) -> int | None:
        """The number of whatever comes next, an event or a view."""
        first, cut = self.waiting.head(), self.next_cut()
        if cut is None:
            return first
        return cut[0] if first is None else min(first, cut[0])

"""The order of delivery over all groups of a process: one clock, one queue, one bound.

Rules (Newtop, sections 4.1 and 4.3).
 1. One logical clock numbers everything that the process sends in any group, so the number of an
    event is above the numbers of everything that its sender had received.
 2. Nothing new can arrive in a group at or below its bound. The bound of the process is the
    smallest of its groups' (safe1'). Events numbered up to there are delivered.
 3. They are delivered by number, and events with the same number by the id of the member that
    numbered them (safe2). A process uses a number once in all its groups, so all processes have
    the same order.
 4. A view is installed after all events of any group that are numbered up to its cut.
 5. Delivery may stop below the bound, in all groups: at a state that was left out and is needed, or
    at a turn whose event has not arrived. Nothing from there on counts as delivered.

What it does not do: know how a group computes its bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Protocol, TypeAlias

from ordercast.kernel.clocks import LogicalClock
from ordercast.protocol.newtop.packets import Data, State, Turn
from ordercast.types import NodeId

Placed: TypeAlias = Data | Turn | State
"""What has a place in the order."""
Queued: TypeAlias = tuple[int, NodeId, int, Placed]


class OrderedGroup(Protocol):
    """A group, as far as the order needs to know it."""

    label: str

    def bound(self) -> int: ...

    def next_cut(self) -> int | None: ...


class DeliveryQueue:
    """Events of all groups that were received and not delivered, smallest first.

    An event that a sequencer orders is queued as its turn, which has its place.
    """

    __slots__ = ("_heap", "_pushed")

    def __init__(self) -> None:
        # The count of pushes avoids that events are compared, should a peer use a number twice.
        self._heap: list[Queued] = []
        self._pushed = 0

    def push(self, numberer: NodeId, data: Placed) -> None:
        self._pushed += 1
        heappush(self._heap, (data.order, numberer, self._pushed, data))

    def head(self) -> int | None:
        """The number of the next event."""
        return self._heap[0][0] if self._heap else None

    def peek(self) -> tuple[NodeId, Placed]:
        _, numberer, _, data = self._heap[0]
        return numberer, data

    def pop(self) -> None:
        heappop(self._heap)

    def drop(self, label: str, gone: tuple[NodeId, ...], above: int) -> list[Placed]:
        """Removes what these numbered in a group above a number. Returns it in order."""
        dropped = [entry for entry in self._heap if _is_beyond(entry, label, gone, above)]
        if dropped:
            self._heap = [one for one in self._heap if not _is_beyond(one, label, gone, above)]
            heapify(self._heap)
        return [data for _, _, _, data in sorted(dropped, key=lambda entry: entry[:3])]

    def forget(self, label: str) -> None:
        """We left the group."""
        self._heap = [entry for entry in self._heap if entry[3].label != label]
        heapify(self._heap)

    def holds(self, label: str, numberers: tuple[NodeId, ...]) -> bool:
        """Whether anything that these numbered is queued in a group."""
        return any(entry[1] in numberers and entry[3].label == label for entry in self._heap)

    def count_of(self, label: str) -> int:
        return sum(entry[3].label == label for entry in self._heap)

    def __len__(self) -> int:
        return len(self._heap)


def _is_beyond(entry: Queued, label: str, gone: tuple[NodeId, ...], above: int) -> bool:
    return entry[0] > above and entry[1] in gone and entry[3].label == label


class Ordering:
    """What all groups of a process share."""

    def __init__(self, groups: Mapping[str, OrderedGroup]) -> None:
        self.clock = LogicalClock()  # paper: LC
        self.queue = DeliveryQueue()
        self.groups = groups  # the epochs that the process is in, by label; its member adds them
        # The number of the next event, if something that it needs is not here: a state, an event.
        self.blocked_at: int | None = None

    def deliverable_up_to(self) -> int:  # paper: D_i
        """Everything numbered up to here was received, in every group."""
        bound = self.clock.value
        for group in self.groups.values():
            one = group.bound()
            if one < bound:
                bound = one
        return bound

    def delivered_up_to(self) -> int:
        """Everything numbered up to here is delivered, when an input has taken effect."""
        bound = self.deliverable_up_to()
        return bound if self.blocked_at is None else min(bound, self.blocked_at - 1)

    def next_cut(self) -> tuple[int, str] | None:
        """The cut of the next view to be installed, and in which group."""
        first: tuple[int, str] | None = None
        for group in self.groups.values():
            cut = group.next_cut()
            if cut is not None and (first is None or (cut, group.label) < first):
                first = cut, group.label
        return first

    def head(self) -> int | None:
        """The number of what is next, an event or a view."""
        first, cut = self.queue.head(), self.next_cut()
        if cut is None:
            return first
        return cut[0] if first is None else min(first, cut[0])

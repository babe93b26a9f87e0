"""The state vectors, and how they grow: Table 1 and Figure 2.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994), section 3. Children are named instead
of numbered. V^P is kept by a child of what it knows of its parent, and MV by every node of all.

Figure 2 counts arrivals: MV[o] grows by one with any message of o that is above it, and so does
every other entry, whatever the message's own number is. With `vector = "next"` a message that is
not the next one of its origin waits instead (rule of this study, not of the paper).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ordercast.studies.published_feed.packets import OWN, UP, Message, VectorValue

Place = Literal["old", "next", "later"]


class StateVector:
    """V of one node, or what another one knows of it."""

    __slots__ = ("down", "local", "sent_down", "sent_up", "up")

    def __init__(self, children: Iterable[str] = ()) -> None:
        self.up = 0  # U: of the messages from its parent
        self.down = dict.fromkeys(children, 0)  # D: of those from each child
        self.local = 0  # L: of those that it made
        self.sent_down = 0  # W
        self.sent_up = 0  # W'

    @classmethod
    def of(cls, value: VectorValue) -> StateVector:
        found = cls()
        found.up, found.down, found.local = value.up, dict(value.down), value.local
        found.sent_down, found.sent_up = value.sent_down, value.sent_up
        return found

    def value(self) -> VectorValue:
        return VectorValue(self.up, dict(self.down), self.local, self.sent_down, self.sent_up)

    def note_previous(self, previous: str) -> None:
        """A message came from this node: as its `m_prev` says, where that one has it from."""
        if previous == UP:
            self.up += 1
        elif previous == OWN:
            self.local += 1
        elif previous in self.down:
            self.down[previous] += 1


class StateVectors:
    """V, V^P, V^C and MV of one node."""

    def __init__(self, name: str, children: Iterable[str], siblings: Iterable[str]) -> None:
        children = tuple(children)
        self.name = name
        self.own = StateVector(children)  # V
        self.parent = StateVector(siblings)  # V^P
        self.made_by_child = dict.fromkeys(children, 0)  # V^C
        self.received: dict[str, int] = {}  # MV

    # --- MV ---

    def place(self, message: Message) -> Place:
        last = self.received.get(message.origin, 0)
        if message.sequence <= last:
            return "old"
        return "next" if message.sequence == last + 1 else "later"

    def count_received(self, origin: str) -> None:
        """As printed: by one, and not up to the message's own number."""
        self.received[origin] = self.received.get(origin, 0) + 1

    # --- Figure 2 ---

    def generate(self) -> int:
        """A message is made here: its number."""
        self.own.local += 1
        self.own.sent_down += 1
        self.own.sent_up += 1
        self.count_received(self.name)
        return self.own.local

    def take_from_parent(self, previous: str) -> None:
        self.own.up += 1
        self.own.sent_down += 1
        self.parent.sent_down += 1
        self.parent.note_previous(previous)

    def take_instead_of_parent(self) -> None:
        """Section 5: V^P is that of the failed parent, and stands still."""
        self.own.up += 1
        self.own.sent_down += 1

    def take_from_child(self, child: str, origin: str) -> None:
        self.own.sent_down += 1
        self.own.sent_up += 1
        if child in self.own.down:  # it may have moved away, and with it its entries
            self.own.down[child] += 1
            self.made_by_child[child] += origin == child

    def recover(self, peer: str, is_parent: bool) -> None:
        """Section 5.3: a message that was missed; W follows when all have come."""
        if is_parent:
            self.own.up += 1
        elif peer in self.own.down:
            self.own.down[peer] += 1

    def send_to_parent(self, count: int = 1) -> None:
        self.parent.down[self.name] = self.parent.down.get(self.name, 0) + count

    def acknowledged_by_parent(self, stands_still: bool) -> None:
        self.own.up += 1
        if not stands_still:
            self.parent.sent_down += 1

    # --- Figure 3 ---

    def add_child(self, child: str) -> None:
        self.own.down[child] = 0
        self.made_by_child[child] = 0

    def remove_child(self, child: str) -> None:
        self.own.down.pop(child, None)
        self.made_by_child.pop(child, None)

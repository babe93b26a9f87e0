"""The packets of the published feed, and the two records that a node has on disk.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994), sections 3 to 5. `m_prev` is a name
here: that of the child from which the sender has a message, UP if it came from the sender's parent,
OWN if the sender made it. Vectors name children too, instead of numbering them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ordercast.kernel.packet import Count, Number, Packet, Value
from ordercast.types import INCARNATION_BITS, NodeId, Payloads, event_number

MOST_NODES = 64
MOST_MESSAGES = 100_000
"""Messages that a node may have in its log: nothing in it is ever removed."""
OWN = ""
UP = "^"

NodeName = Annotated[str, Meta(min_length=1, max_length=100)]
SomeNodes = Annotated[tuple[NodeName, ...], Meta(max_length=MOST_NODES)]
Counts = Annotated[dict[NodeName, Count], Meta(max_length=MOST_NODES)]
Incarnation = Annotated[int, Meta(ge=0, lt=1 << INCARNATION_BITS)]
Kind = Literal["normal", "reply", "join", "drop"]
Source = Literal["parent", "old parent", "instead", "child", "recovered"]
"""What the sender of a message is to its receiver; "instead": it stands for the failed parent."""
CLASSES: dict[Kind, int] = {"normal": 0, "reply": 1, "join": 2, "drop": 2}
"""Section 5.1: in which order a batch is sorted."""


class Message(Value, frozen=True):
    """One message of the feed: the origin's n-th, whatever incarnation made it."""

    origin: NodeName
    sequence: Number
    incarnation: Incarnation
    kind: Kind
    payloads: Payloads = msgspec.field(default_factory=list)
    size: Count = 0
    reply: tuple[NodeName, int] | None = None  # the event that it answers
    # Control messages: who moves, and (join) to whom, with its own children.
    mover: str = ""
    target: str = ""
    row: SomeNodes = ()

    @property
    def key(self) -> tuple[str, int]:
        return self.origin, self.sequence

    @property
    def is_control(self) -> bool:
        return self.kind in ("join", "drop")

    @property
    def number(self) -> int:
        return event_number(self.incarnation, self.sequence)

    def carries(self) -> tuple[int, int, int]:
        return len(self.payloads), self.size, 16_384


class VectorValue(Value, frozen=True):
    """V of a node, as others are told it."""

    up: Count  # U
    down: Counts  # D_1 to D_n, by child
    local: Count  # L
    sent_down: Count  # W
    sent_up: Count  # W'


class Row(Value, frozen=True):
    """A row of View: the correspondents of one node."""

    parent: str  # "": it is the root
    children: SomeNodes


# --- propagation (section 3) -----------------------------------------------------------------


class Item(Packet, frozen=True, tag="feed-published.item"):
    """A message to a correspondent, or (section 5.2) in place of a failed one."""

    tag: Number  # VS: its place in what this node has sent to that one
    message: Message
    previous: str  # m_prev
    instead: str = ""  # the failed node for which it is diffused

    def carries(self) -> tuple[int, int, int]:
        return self.message.carries()

    def makers(self) -> tuple[str]:
        return (self.message.origin,)


class Ack(Packet, frozen=True, tag="feed-published.ack"):
    """An item was taken, or was a duplicate: then Figure 2 does not count it."""

    tag: Number
    new: bool
    instead: str = ""


class Beat(Packet, frozen=True, tag="feed-published.beat"):
    """A sign of life to children."""


# --- reorganisation (Figure 3) ---------------------------------------------------------------


class Granted(Packet, frozen=True, tag="feed-published.granted"):
    """ack(V_NP, View_NP[1])"""

    vector: VectorValue
    row: Row


class AddChild(Packet, frozen=True, tag="feed-published.add-child"):
    child: NodeName


class DeleteChild(Packet, frozen=True, tag="feed-published.delete-child"):
    child: NodeName


# --- failures (Figure 4, sections 5.1 to 5.3) ------------------------------------------------


class Ask(Packet, frozen=True, tag="feed-published.ask"):
    """Steps 1 and 2, by the coordinator: this node has failed, and what are your vectors?"""

    failed: NodeName
    incarnation: Incarnation  # of it: another one is not meant
    correspondents: SomeNodes  # of it


class Report(Packet, frozen=True, tag="feed-published.report"):
    """By the parent of the failed node: its V. By a child: its V^P."""

    failed: NodeName
    vector: VectorValue
    received: Count = 0  # by the parent: V^C.L_j


What = Literal["down", "up", "made"]
"""Which messages: those sent downwards, sent upwards, or made by the failed node."""


class Resend(Value, frozen=True):
    """Steps 5 to 8: send the last so many of these."""

    to: SomeNodes
    what: What
    count: Number


class Order(Packet, frozen=True, tag="feed-published.order"):
    """All that one correspondent is asked for, and how many batches it will get."""

    failed: NodeName
    resends: Annotated[tuple[Resend, ...], Meta(max_length=4 * MOST_NODES)]
    expects: Count


class Batch(Packet, frozen=True, tag="feed-published.batch"):
    failed: NodeName
    messages: tuple[Message, ...]

    def carries(self) -> tuple[int, int, int]:
        found = [message.carries() for message in self.messages]
        return sum(one[0] for one in found), sum(one[1] for one in found), 16_384

    def makers(self) -> tuple[str, ...]:
        return tuple(message.origin for message in self.messages)


class Returned(Packet, frozen=True, tag="feed-published.returned"):
    """By the coordinator: the failed node is back, send this to it."""

    failed: NodeName
    origin: NodeName
    sequence: Number


class Hello(Packet, frozen=True, tag="feed-published.hello"):
    """I have recovered: what have you kept for me?"""


class Flushed(Packet, frozen=True, tag="feed-published.flushed"):
    """That was all; by a parent with its V."""

    vector: VectorValue | None = None


class Resumed(Packet, frozen=True, tag="feed-published.resumed"):
    """My recovery is over; to children with V."""

    vector: VectorValue | None = None


# --- on disk ---------------------------------------------------------------------------------


class Logged(Packet, frozen=True, tag="feed-published.logged"):
    """One message of the log."""

    message: Message
    previous: str


class SavedLink(Value, frozen=True):
    peer: NodeName
    node: NodeId
    sent: Count  # VS
    received: Count  # VR
    unacknowledged: tuple[tuple[int, str, int, str], ...]  # tag, origin, sequence, instead
    kept: tuple[tuple[str, int, str], ...]  # origin, sequence, instead


class SavedWait(Value, frozen=True):
    """A message that waits for the one before it (`vector = "next"`)."""

    message: Message
    previous: str
    source: Source
    peer: str


class Saved(Packet, frozen=True, tag="feed-published.saved"):
    """All that a node has beside its log."""

    own: Row
    of_parent: Row
    of_children: dict[str, SomeNodes]
    vector: VectorValue
    parent_vector: VectorValue
    made_by_children: Counts  # V^C
    received: Counts  # MV
    links: tuple[SavedLink, ...]
    waiting: tuple[SavedWait, ...]
    target: str  # of a move that is not over
    old_parent: str
    old_vector: VectorValue | None
    held: tuple[tuple[str, int], ...]

    def slot(self) -> Hashable | None:
        return "saved"


PACKETS: tuple[type[Packet], ...] = (
    Item,
    Ack,
    Beat,
    Granted,
    AddChild,
    DeleteChild,
    Ask,
    Report,
    Order,
    Batch,
    Returned,
    Hello,
    Flushed,
    Resumed,
    Logged,
    Saved,
)

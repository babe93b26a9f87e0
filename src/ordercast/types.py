"""The frozen values that every room may use: who, what and in which company."""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import blake2b
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

Payloads: TypeAlias = list[bytes]
"""The application messages of one batch, in order. Nobody changes the list once it is submitted."""

INCARNATION_BITS = 22
COUNTER_BITS = 40
"""An event number is `incarnation << 40 | counter`, so a restarted origin never repeats one."""


class NodeId(
    msgspec.Struct,
    frozen=True,
    order=True,
    array_like=True,
    cache_hash=True,
    gc=False,
    forbid_unknown_fields=True,
):
    """One life of one process: a restart keeps the name and takes the next incarnation."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    incarnation: Annotated[int, Meta(ge=0, lt=1 << INCARNATION_BITS)] = 0

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation}" if self.incarnation else self.name


class Event(msgspec.Struct, frozen=True, gc=False):
    """A batch of application messages: the unit that is ordered, delivered or lost, never split.

    (group, origin.name, number) identifies it. The next four fields are filled by the families
    that have them, and reach the trace under the same names. The formation is which of the groups
    that bore this name one after the other it belongs to (see `label_of`).
    """

    group: str
    origin: NodeId
    number: int
    payloads: Payloads
    index: int | None = None
    stamp: tuple[int, ...] | None = None
    order: int | None = None
    hops: int | None = None
    size: int = 0  # bytes of the payloads, counted where they were submitted
    formation: str = ""


class View(msgspec.Struct, frozen=True):
    """The members of a group as this member has them from here on in its stream of events."""

    group: str
    id: int
    members: tuple[NodeId, ...]
    formation: str = ""


class Subgroup(msgspec.Struct, frozen=True):
    """A view that others are missing from though they did not leave: they crashed, or went on
    without us. Comes right after the view."""

    group: str
    view: View  # who came along
    gone: tuple[NodeId, ...]  # and who did not


class Invitation(msgspec.Struct, frozen=True):
    """Somebody wants the group formed anew of these. Asks the application whether we come."""

    group: str
    formation: str
    initiator: NodeId
    members: tuple[NodeId, ...]


class Refused(msgspec.Struct, frozen=True):
    """A formation that the application waits for does not come about, and why.

    Nothing has changed: who is in a group is still in it, and may ask again.
    """

    group: str
    why: str


class StateWanted(msgspec.Struct, frozen=True):
    """Asks the application for its state, as it is after all that it was handed before this."""

    group: str
    token: Hashable  # comes back with the answer


class StateGiven(msgspec.Struct, frozen=True):
    """Another member's state, to begin with: what is handed over afterwards follows it.

    None: others have one, and none of them gave it in time.
    """

    group: str
    state: bytes | None


class Updating(msgspec.Struct, frozen=True):
    """What has become of this member's right to send, in groups where it takes one.

    acquired      it may send from here on
    suspended     for now nobody can say whether it still may: sends wait
    resumed       it still may
    released      it gave the right back, as it was asked to
    disconnected  somebody else has it now, or will have: what was not sent is not sent
    """

    group: str
    cause: Literal["acquired", "suspended", "resumed", "released", "disconnected"]
    ticket: int  # which of the group's tickets this is about

    @property
    def may_send(self) -> bool:
        return self.cause in ("acquired", "resumed")


def event_number(incarnation: int, counter: int) -> int:
    """The number of an origin's counter-th event (from 1) in one of its lives."""
    assert 0 < counter < 1 << COUNTER_BITS and 0 <= incarnation < 1 << INCARNATION_BITS
    return incarnation << COUNTER_BITS | counter


def label_of(group: str, formation: str) -> str:
    """What the trace calls a group: those that bear one name one after the other are many."""
    return f"{group}+{formation}" if formation else group


def name_of(label: str) -> str:
    """The name of a group by what the trace calls it."""
    return label.partition("+")[0]


def view_identity(group: str, *parts: object) -> int:
    """63 bits that are equal exactly where group and parts are equal (but for hash collisions)."""
    text = "\x00".join([group, *map(str, parts)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1

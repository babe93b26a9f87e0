"""What a machine can be given besides messages, packets and timers: one frozen value an input.

The three hot inputs (`submit`, `receive`, `expire`) are methods of a machine. Every other one is
a value of a class below, or of a family's own, and reaches the machine through `Machine.on`. A
machine lists in `takes` the classes that it takes, and is given no others: so no machine needs a
stub for what other families have.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.errors import UsageError, unknown_word
from ordercast.types import NodeId

if TYPE_CHECKING:
    from ordercast.kernel.family import Plan


@dataclass(frozen=True, slots=True)
class Input:
    """The base of all inputs that are values."""


def named_input(takes: Collection[type[Input]], word: str, values: Mapping[str, Any]) -> Input:
    """The one of these inputs that has this name, with these values, as a file has them."""
    kinds = {kind.__name__: kind for kind in takes if kind not in GIVEN_BY_HOST}
    if word not in kinds:
        raise UsageError(unknown_word("input", word, kinds))
    try:
        return msgspec.convert(dict(values), kinds[word], strict=False)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(f"input {word}: {error}") from error


@dataclass(frozen=True, slots=True)
class StatusResult(Input):
    """The answer to a STATUS send: the packet arrived, or it is unknown whether it did."""

    token: Hashable
    arrived: bool


@dataclass(frozen=True, slots=True)
class Backpressure(Input):
    """The application cannot take more for now (or can again): senders should wait."""

    group: str
    full: bool


LARGEST_STATE = 32 << 20
"""Bytes of an application's state that a member can give to another."""


@dataclass(frozen=True, slots=True)
class StateProvided(Input):
    """The application's state, which `step.ask_state` asked for; None: it has none.

    Or why it could not give it: then whoever needs it does not begin.
    """

    group: str
    token: Hashable
    state: bytes | None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Leave(Input):
    """The application leaves the group. The machine notifies the other members.

    Afterwards a machine of this group alone is given nothing but `start`, and that only in families
    whose members may come back.
    """

    group: str


@dataclass(frozen=True, slots=True)
class Seek(Input):
    """The application wants to send where that takes a permit, or no longer does.

    A permit that is no longer wanted is given back. The machine reports what becomes of it by
    `step.notify` of an `Updating`.
    """

    group: str
    wanted: bool


@dataclass(frozen=True, slots=True)
class Retire(Input):
    """The application is about to leave: what other members need this one for is handed over first.

    The machine is a `Retiring` one, which says when that is done.
    """

    group: str


@dataclass(frozen=True, slots=True)
class Join(Input):
    """One more group for a machine that serves all groups of a process (`Machine.groups` grows)."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Acquainted(Input):
    """Nodes that are in the group, or seem to be, and can be addressed by name. Only ever more."""

    group: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forgotten(Input):
    """The operator says that the node of this name is in no group, and will not come back."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class Form(Input):
    """The application wants the group re-formed, of all members that are there, or of these.

    The members of our part go on: the others take over the state of our application. The machine
    reports the outcome by views, and by `step.notify` of a `Partitioned`, an `Invitation` or a
    `Refused`.
    """

    group: str
    members: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Relocate(Input):
    """In a group that is a tree: the member should have this one as its parent, if that can be."""

    group: str
    to: str  # a name


@dataclass(frozen=True, slots=True)
class Vote(Input):
    """The application's answer to an `Invitation`; ignored when that formation is over."""

    group: str
    formation: str
    yes: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class CaughtUp(Input):
    """The application has all that members which are up to date had when this primary view began,
    and what was delivered since; ignored when that view is over. See `Primary.up_to_date`."""

    group: str
    view: int


@dataclass(frozen=True, slots=True)
class DifferenceWanted(Input):
    """The application wants to know what another side delivered before it merged with ours.

    The machine answers by `step.notify` of a `Difference`.
    """

    group: str
    view: int  # the one in which they merged
    side: tuple[NodeId, ...]  # as `Merged` named it


GIVEN_BY_HOST = (StatusResult, Join, Leave)
"""Part of something larger that a host does: only the host gives them."""

"""The options of Newtop groups: ordered by all, by a sequencer, or not at all. Defaults work."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from ordercast.kernel.family import Level
from ordercast.units import MILLISECOND, Duration, Size, take_units

PERSONAL = frozenset({"invitations", "gives_state", "when_split"})
"""Options that need not be the same at all members."""
CALM_GROUP = 16
"""The limits of silence hold for groups up to this size. In a larger one they are longer."""


def stretched(limit: int, members: int) -> int:
    """A limit of silence in a group of so many members.

    Each member hears from each other one. Beyond a size the limits grow with the members, so that
    none of them sends, or receives, more heartbeats than in a group of that size.
    """
    return limit * max(members, CALM_GROUP) // CALM_GROUP


class NewtopOptions(Level, frozen=True, kw_only=True):
    window: Annotated[int, Meta(ge=1, le=100_000)] = 64  # own events that are not stable yet
    window_size: Size = Size(4 << 20)  # and their bytes
    # The longest silence of a member: while others wait for it, and while it is idle.
    prompt_after: Duration = Duration(20 * MILLISECOND)
    silence_limit: Duration = Duration(250 * MILLISECOND)  # paper: omega
    suspicion_limit: Duration = Duration(1000 * MILLISECOND)  # paper: Omega
    # Whether sides of a partition that hear of each other re-form the group automatically.
    reform: Literal["ask", "auto"] = "ask"
    # Whether the application votes on invitations.
    invitations: Literal["accept", "ask"] = "accept"
    # Whether the application can give its state to members that join.
    gives_state: bool = True
    # Where events may be submitted: on each side of a partition, or in the primary view only.
    quorum: Literal["none", "majority"] = "none"
    # What becomes of a send outside of the primary view.
    when_split: Literal["raise", "wait"] = "raise"

    def __post_init__(self) -> None:
        take_units(self)
        if self.prompt_after <= 0:
            raise ValueError("prompt_after must be longer than nothing")
        if self.silence_limit < self.prompt_after:
            raise ValueError("silence_limit must be at least prompt_after")
        # A null message may be in flight for as long as the receiver waits for the next one.
        if self.suspicion_limit < 2 * self.silence_limit:
            raise ValueError("suspicion_limit must be at least two silence_limits")


class SequencedOptions(NewtopOptions, frozen=True):
    """The same for groups that a sequencer orders."""


class AtomicOptions(NewtopOptions, frozen=True):
    """The same for groups whose events have no order."""


class Total(NewtopOptions, frozen=True):
    """One order of all messages of all such groups, agreed views; see docs/total.md."""

    by: Literal["everyone", "sequencer"] = "everyone"  # who decides the order


class Atomic(AtomicOptions, frozen=True):
    """To all members of a view or to none, in no order between senders; see docs/total.md."""

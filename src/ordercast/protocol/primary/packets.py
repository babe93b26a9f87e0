"""What the members of a view tell each other about primary views, and what they persist.

Both packets travel by link to the members of one view, and name that view. Members are names, not
incarnations: a restarted member has the vote that it had.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated

from msgspec import Meta

from ordercast.kernel.packet import Packet, Value

MOST_MEMBERS = 100
MOST_ATTEMPTS = 64
"""Attempts of which a member does not know what became. With so many it makes no further one."""
Name = Annotated[str, Meta(min_length=1, max_length=100)]
ATTEMPT_BITS = 62
AttemptNumber = Annotated[int, Meta(ge=0, lt=1 << ATTEMPT_BITS)]
ViewId = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class PrimaryView(Value, frozen=True):
    """A view that was the primary one, or that was attempted to be. Number and members name it."""

    number: AttemptNumber  # grows along the chain of primary views; 0: the configured members
    # Names, sorted. None of number 0: the group is open, and its founders are not known here.
    members: Annotated[tuple[Name, ...], Meta(max_length=MOST_MEMBERS)]


class VoterStanding(Value, frozen=True):
    """What one member knows, and never forgets."""

    number: AttemptNumber  # the highest that it has attempted
    last: PrimaryView  # the last primary view that it formed, or heard of in an attempt
    # Views that it attempted since, and does not know whether another member formed them.
    attempts: Annotated[tuple[PrimaryView, ...], Meta(max_length=MOST_ATTEMPTS)] = ()


class Coverage(Value, frozen=True):
    """What the state of an application has: all that was secured in this primary view and before,
    and in each of these later attempts, if another member formed it."""

    last: PrimaryView
    attempts: Annotated[tuple[PrimaryView, ...], Meta(max_length=MOST_ATTEMPTS)] = ()
    # Equal where two states have the same deliveries. 0: none, or they are equal in every view.
    branch: ViewId = 0


class VoterReport(Value, frozen=True):
    """What one member knows, and what its application has."""

    standing: VoterStanding
    coverage: Coverage

    @property
    def size(self) -> int:
        """In bytes, at the most."""
        views = (self.standing.last, *self.standing.attempts)
        views += (self.coverage.last, *self.coverage.attempts)
        return 256 + sum(64 + 128 * len(one.members) for one in views)


class PrimaryReport(Packet, frozen=True, tag="primary.report"):
    """The sender has installed this view. This is what it knows of earlier ones."""

    view: ViewId
    report: VoterReport

    def carries(self) -> tuple[int, int, int]:
        return 0, 0, 1024 + self.report.size


class PrimaryAttempt(Packet, frozen=True, tag="primary.attempt"):
    """The sender attempts to make this view the primary one: it has persisted that."""

    view: ViewId
    number: AttemptNumber


class VoterRecord(Packet, frozen=True, tag="primary.voter"):
    """On disk: a member's standing in one group. The newest one counts."""

    standing: VoterStanding

    def slot(self) -> Hashable:
        return self.group


PACKETS = (PrimaryReport, PrimaryAttempt)
RECORDS = (VoterRecord,)

"""Where a member is on its way to a new formation, and what it remembers of other formations.

The states of one group name at one member, and what leads from one to the next. `formation.py` has
the table of what each input does in each state.

    Idle      nothing is under way
    Voting    the members vote on an invitation        from Idle, by inviting or being invited
    Agreed    all have voted yes                       from Voting
    Entering  the epoch has started, without a state   from Agreed, within the same input

From Voting a no leads back to Idle, and from Entering the state of the initiator or its failure.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, TypeVar

from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.packets import DeliveryDigest, Message, Vote, application_bytes
from ordercast.protocol.newtop.phase import Phase
from ordercast.types import NodeId

MOST_REMEMBERED = 16
"""Formations of which a member remembers votes that arrived before the invitation, or that they
have ended."""


MOST_EARLY = 256
"""Packets of one sender in a formation that we have not started in, before we reject it. Their
bytes are limited like those of a stream that is retained."""


class Idle:
    """Nothing is under way: the member stays in the formation that it is in, or in none."""


class Voting:
    """The members vote on a formation."""

    def __init__(
        self,
        formation: str,
        initiator: NodeId,
        members: tuple[NodeId, ...],
        founds: bool = False,
        founding: str = "",
    ) -> None:
        self.formation = formation
        self.initiator = initiator
        self.members = members
        self.founds = founds  # an open group that nobody is in yet
        self.founding = formation if founds else founding  # which founded it
        self.yes: dict[NodeId, None] = {}
        self.early: dict[NodeId, list[Message]] = {}  # packets of members that have started

    def add_early(self, sender: NodeId, message: Message, largest: int) -> bool:
        """Stores a packet of a member that has started. False: it has sent too much."""
        early = self.early.setdefault(sender, [])
        early.append(message)
        return len(early) <= MOST_EARLY and sum(map(application_bytes, early)) <= largest

    @property
    def missing(self) -> int:
        """How many votes are missing."""
        return len(self.members) - len(self.yes)


class Agreed(NamedTuple):
    """All members have voted yes, and the epoch is to be started. No input meets this state."""

    formation: str
    initiator: NodeId
    members: tuple[NodeId, ...]
    founds: bool
    early: list[tuple[NodeId, Message]]
    founding: str


class Entering:
    """The member has started in an epoch, and submits nothing until the epoch has begun."""

    def __init__(self, epoch: GroupEpoch, since: int) -> None:
        self.epoch = epoch
        self.since = since
        self.awaits_application = False  # the initiator's application was asked for its state
        # The application is notified for whom we wait, once that takes longer; and the last news.
        self.is_long = False
        self.told: tuple[tuple[str, ...], str] | None = None
        # The initiator's: what it delivered where it came from, and with whom it was there.
        self.history: DeliveryDigest | None = None
        self.along: tuple[NodeId, ...] = ()

    def wait(self) -> tuple[tuple[str, ...], str]:
        """For whom we wait, and why."""
        epoch, initiator = self.epoch, self.epoch.initiator
        assert initiator is not None
        late = tuple(one.name for one in epoch.live if one not in epoch.starts)
        if late:
            return late, f"{initiator} re-forms the group, and these have not started in it"
        why = f"{initiator} re-forms the group, and"
        if epoch.phase is Phase.AWAITING_STATE or epoch.awaits_copy:
            return (initiator.name,), f"{why} has not given the state of its application"
        return (initiator.name,), f"{why} not all have said where its state comes in the order"


Attempt: TypeAlias = Idle | Voting | Agreed | Entering
Value = TypeVar("Value")


class OtherFormations:
    """What a member remembers of formations that it is not in, up to a limit."""

    def __init__(self) -> None:
        self._votes: dict[str, dict[NodeId, Vote]] = {}  # that arrived before the invitation
        self._ended: dict[str, None] = {}  # formations that we rejected, or left

    def has_ended(self, formation: str) -> bool:
        return formation in self._ended

    def end(self, formation: str) -> None:
        _remember(self._ended, formation, None)
        self._votes.pop(formation, None)

    def add_vote(self, sender: NodeId, vote: Vote) -> None:
        """A no replaces a yes, and not the other way round."""
        if not self.has_ended(vote.formation):
            votes = _remember(self._votes, vote.formation, {})
            if not vote.yes or sender not in votes:
                votes[sender] = vote

    def take_votes(self, formation: str) -> dict[NodeId, Vote]:
        return self._votes.pop(formation, {})

    def __len__(self) -> int:
        """Formations of which votes are remembered."""
        return len(self._votes)


def _remember(values: dict[str, Value], key: str, value: Value) -> Value:
    """Adds a value, and removes the oldest beyond the limit."""
    found = values.setdefault(key, value)
    while len(values) > MOST_REMEMBERED:
        del values[next(iter(values))]
    return found

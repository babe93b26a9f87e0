"""Which members gossip is sent to, as the rest of a cluster sees it.

`Sampler` chooses them, and `Roster` is what members send each other for it. `Everybody` knows all
names and sends nothing; `Lpbcast` (lpbcast.py) and `Cyclon` (cyclon.py) know a bounded part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from random import Random
from typing import Annotated, Protocol, TypeAlias

from msgspec import Meta

from ordercast.errors import PeerError
from ordercast.kernel.packet import Value
from ordercast.types import NodeId

MOST_NAMED = 40
"""Members in one list of a roster. With names of a hundred letters both lists take 9 KB."""
OLDEST = 1 << 20

Age = Annotated[int, Meta(ge=0, le=OLDEST)]


class RosterKind(IntEnum):
    """What a roster is about."""

    GOSSIP = 0  # goes with a gossip message
    SHUFFLE = 1  # half of an exchange
    ANSWER = 2  # the other half
    SUBSCRIBE = 3  # its sender wants to be known
    WALK = 4  # a member wants to be known; the age counts how often it was passed on
    WELCOME = 5  # names for a member that subscribed
    FAREWELL = 6  # its sender leaves


ALL_KINDS = tuple(RosterKind)
"""By number."""


class Roster(Value, frozen=True):
    """What members send each other about who is there."""

    kind: Annotated[int, Meta(ge=0, le=int(max(RosterKind)))]
    here: Annotated[list[tuple[NodeId, Age]], Meta(max_length=MOST_NAMED)]  # ages in rounds
    gone: Annotated[list[tuple[NodeId, Age]], Meta(max_length=MOST_NAMED)]  # that left

    def names(self) -> list[str]:
        """Of those that are there."""
        return [node.name for node, _ in self.here]


Letter: TypeAlias = tuple[str, Roster]
"""To whom, by name, and what."""


class Sampler(Protocol):
    """Knows to whom gossip can be sent."""

    def start(self) -> list[Letter]:
        """What is sent first."""

    def round(self) -> list[Letter]:
        """Called once a round, before `sample` and `piggyback`."""

    def sample(self, count: int) -> tuple[str, ...]:
        """Up to so many different names, never ours, chosen by chance."""

    def piggyback(self) -> Roster | None:
        """What goes with the gossip of this round; if there is one, gossip goes in every round."""

    def receive(self, sender: NodeId, roster: Roster) -> list[Letter]:
        """A roster came. PeerError, before anything changed, if it breaks the rules."""

    def acquainted(self, names: Iterable[str]) -> list[Letter]:
        """More names that can be addressed, where members are not listed."""

    def heard(self, sender: NodeId) -> None:
        """Any packet came from this member."""

    def failed(self, name: str) -> None:
        """A send to this name was not answered."""

    def leave(self) -> list[Letter]:
        """We leave: what is sent last."""

    def known(self) -> tuple[str, ...]:
        """The members that we know, sorted: for people and tests."""


class Everybody:
    """Full knowledge of a list that does not change."""

    __slots__ = ("_chance", "_me", "_names")

    def __init__(self, me: NodeId, names: Iterable[str], chance: Random) -> None:
        self._me = me.name
        # The tuple itself, ourselves included: in a simulated group of thousands it is shared.
        self._names = names if isinstance(names, tuple) else tuple(sorted({*names}))
        self._chance = chance

    def start(self) -> list[Letter]:
        return []

    def round(self) -> list[Letter]:
        return []

    def sample(self, count: int) -> tuple[str, ...]:
        chosen = self._chance.sample(self._names, min(count + 1, len(self._names)))
        return tuple([name for name in chosen if name != self._me][:count])

    def piggyback(self) -> Roster | None:
        return None

    def receive(self, sender: NodeId, roster: Roster) -> list[Letter]:
        raise PeerError(f"{sender} sent a roster, but here every member knows all others")

    def acquainted(self, names: Iterable[str]) -> list[Letter]:
        return []

    def heard(self, sender: NodeId) -> None:
        pass

    def failed(self, name: str) -> None:
        pass

    def leave(self) -> list[Letter]:
        return []

    def known(self) -> tuple[str, ...]:
        return tuple(name for name in self._names if name != self._me)


def check_roster(
    me: NodeId, sender: NodeId, roster: Roster, kinds: Sequence[RosterKind]
) -> RosterKind:
    """PeerError if a roster breaks the rules; bytes were checked by the codec, values were not."""
    if sender.name == me.name:
        raise PeerError(f"{sender} bears our name")
    if roster.kind not in kinds:
        raise PeerError(f"{sender} sent a roster of kind {roster.kind}, which is not used here")
    kind = ALL_KINDS[roster.kind]
    for listed in (roster.here, roster.gone):
        if len(listed) > MOST_NAMED:
            raise PeerError(f"{sender} names {len(listed)} members; {MOST_NAMED} are the most")
        for _, age in listed:
            if not 0 <= age <= OLDEST:
                raise PeerError(f"{sender} sent an age that no member has")
    if kind in (RosterKind.GOSSIP, RosterKind.ANSWER, RosterKind.WELCOME):
        return kind
    here = [node for node, _ in roster.here]
    if kind is RosterKind.SUBSCRIBE and here != [sender]:
        raise PeerError(f"{sender} subscribes for another member")
    if kind is RosterKind.SHUFFLE and sender not in here:
        raise PeerError(f"{sender} shuffles without naming itself")
    if kind is RosterKind.WALK and len(here) != 1:
        raise PeerError(f"{sender} passes on {len(here)} subscriptions in one")
    if kind is RosterKind.FAREWELL and (here or [node for node, _ in roster.gone] != [sender]):
        raise PeerError(f"{sender} says farewell for another member")
    return kind

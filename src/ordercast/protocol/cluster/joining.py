"""Joining a cluster: where a newcomer begins, and how often newcomers are answered.

A member that began at nothing would miss all earlier events. So a newcomer collects what gossip
brings and asks one member in every round where the cluster is. It begins in one of three ways:

  welcomed  A member answered with a clock, and sends all events beyond it that it has delivered, as
            far as they are buffered; or with its clock and the application's state at that clock.
  first     No member answered, no event arrived, and those that may begin the cluster are joining
            too (beginning.py): it begins at nothing.
  late      No member answered, but events arrived. The one of them that no other precedes is the
            first that we deliver: what its stamp names beside itself comes before our time. Where
            the application needs a state, this takes those that may begin the cluster, too.

A member that is joining itself answers nobody, so members that start together find in the end that
they are the first. Patience alone is no reason to begin: a newcomer that is cut off asks on, and
is welcomed when it is connected. Events from before our time are not lost to us: we were not there.

Nor is it a reason to begin without the application's state. A member whose application is slow to
give it answers all the same, and as long as one answers, the newcomer waits, and asks others too.
"""

from __future__ import annotations

from ordercast.protocol.cluster.beginning import Beginning, Given
from ordercast.protocol.cluster.packets import Update
from ordercast.types import Waiting
from ordercast.units import SECOND

MOST_EARLY = 4096
PATIENCE = 10
"""How many times longer a newcomer waits that was answered, and not given the state yet."""
NOT_GIVEN = "{} was asked for the state, and its application has not given it: does it read?"
MOST_WELCOMES = 64
"""Newcomers that are answered within the time of one recovery."""


class Joining:
    """A member that does not know yet where the cluster is."""

    def __init__(
        self, patience: int, beginning: Beginning | None = None, *, needs_state: bool = False
    ) -> None:
        self._patience = patience
        self.left = patience  # rounds
        self.beginning = Given() if beginning is None else beginning
        self.is_first = False  # it ended because we are the first
        self._needs_state = needs_state
        self._giver = ""  # a member that answered, and whose application has not given its state
        self._welcomed = 0  # rounds ago
        self._early: dict[int, tuple[Update, int]] = {}
        self._since: int | None = None
        self._told: Waiting | None = None
        self._told_at = 0

    def early(self, update: Update, age: int) -> None:
        """Collects an event that may be from before our time."""
        if not self._early and not self._giver:
            self.left = self._patience  # its sender can answer: we go on asking
        self._early[update.key] = (update, age)
        if len(self._early) > MOST_EARLY:
            del self._early[next(iter(self._early))]

    def welcome(self, giver: str) -> None:
        """A member answered, and the application's state follows: that is worth a long wait."""
        self._giver = giver
        self.left = PATIENCE * self._patience

    @property
    def is_late(self) -> bool:
        """Whether we have waited for so long that the application is notified."""
        return self.left <= 0 or self._welcomed >= self._patience

    def round(self, tickets: int) -> list[int] | None:
        """Counts a round without an answer. Returns the clock to begin at, if there is one now."""
        self.left -= 1
        self._welcomed += bool(self._giver)
        self.beginning.round()
        if self.left > 0:
            return None
        self._giver, self._welcomed = "", 0  # it is gone, and its state with it
        if not self.beginning.may_begin() and (self._needs_state or not self._early):
            return None
        if self._early:
            return self._before_the_first()
        self.is_first = True
        return [0] * tickets

    def _before_the_first(self) -> list[int]:
        first = min((update for update, _ in self._early.values()), key=lambda one: sum(one.stamp))
        clock = list(first.stamp)
        clock[first.index] = first.predecessor
        return clock

    def updates(self) -> list[tuple[Update, int]]:
        return list(self._early.values())

    def waiting(self, group: str, now: int) -> Waiting | None:
        """For whom we wait and why, after our patience: what is new, at most once a second."""
        if self._since is None:
            self._since = self._told_at = now
        if now - self._told_at < SECOND:
            return None
        on, why = self.beginning.waits_for()
        if self._giver:
            on, why = (self._giver,), NOT_GIVEN.format(self._giver)
        news = Waiting(group, on, why, self._since)
        if news == self._told:
            return None
        self._told, self._told_at = news, now
        return news


class Newcomers:
    """Answers each newcomer once in a while: one that asks every round is not sent everything."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._until: dict[str, int] = {}  # by newcomer: until when its answer is enough
        self._served: dict[str, None] = {}  # newcomers for which our application is asked

    def may_answer(self, name: str, now: int) -> bool:
        if self._until.get(name, now) > now:
            return False
        self._until = {each: until for each, until in self._until.items() if until > now}
        if len(self._until) >= MOST_WELCOMES:
            return False
        self._until[name] = now + self._rounds
        return True

    def may_serve(self, name: str) -> bool:
        """Whether the application is asked for its state now: once, until it has answered."""
        if name in self._served or len(self._served) >= MOST_WELCOMES:
            return False
        self._served[name] = None
        return True

    def served(self, name: str) -> None:
        self._served.pop(name, None)

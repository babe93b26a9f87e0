"""Joining a cluster: where a newcomer begins, and how often newcomers are answered.

A member that began at nothing would miss all earlier events. So a newcomer collects what gossip
brings and asks one member in every round where the cluster is. It begins in one of three ways:

  welcomed  A member answered with a clock, and sends all events beyond it that it has delivered, as
            far as they are buffered; or with its clock and the application's state at that clock.
  first     No member answered, and no event arrived: we are among the first, and begin at nothing.
  late      No member answered, but events arrived. The one of them that no other precedes is the
            first that we deliver: what its stamp names beside itself comes before our time.

A member that is joining itself answers nobody, so members that start together find in the end that
they are the first. Events from before our time are not lost to us: we were not there.
"""

from __future__ import annotations

from ordercast.protocol.cluster.packets import Update

MOST_EARLY = 4096
PATIENCE = 10
"""How many times longer a newcomer that was answered waits for the application's state."""
MOST_WELCOMES = 64
"""Newcomers that are answered within the time of one recovery."""


class Joining:
    """A member that does not know yet where the cluster is."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self.left = patience  # rounds
        self.is_welcome = False
        self._early: dict[int, tuple[Update, int]] = {}

    def early(self, update: Update, age: int) -> None:
        """Collects an event that may be from before our time."""
        if not self._early and not self.is_welcome:
            self.left = self._patience  # its sender can answer: we go on asking
        self._early[update.key] = (update, age)
        if len(self._early) > MOST_EARLY:
            del self._early[next(iter(self._early))]

    def welcome(self) -> None:
        """A member answered, and the application's state follows: that is worth a long wait."""
        if not self.is_welcome:
            self.is_welcome = True
            self.left = PATIENCE * self._patience

    def round(self, tickets: int) -> list[int] | None:
        """Counts a round without an answer. Returns the clock to begin at after the last one."""
        self.left -= 1
        if self.left > 0:
            return None
        if not self._early:
            return [0] * tickets
        first = min((update for update, _ in self._early.values()), key=lambda one: sum(one.stamp))
        clock = list(first.stamp)
        clock[first.index] = first.predecessor
        return clock

    def updates(self) -> list[tuple[Update, int]]:
        return list(self._early.values())


class Newcomers:
    """Answers each newcomer once in a while: one that asks every round is not sent everything."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._until: dict[str, int] = {}  # by newcomer: until when its answer is enough

    def may_answer(self, name: str, now: int) -> bool:
        if self._until.get(name, now) > now:
            return False
        self._until = {each: until for each, until in self._until.items() if until > now}
        if len(self._until) >= MOST_WELCOMES:
            return False
        self._until[name] = now + self._rounds
        return True

"""Coming into a cluster: where to begin.

A member that began at nothing would miss all that ever was. So it collects what gossip brings and
asks, every round, one member where the cluster is. Three ways to begin:

  welcomed  somebody told where: a clock, and all events beyond it that it has delivered, as far as
            they are kept; or its clock and the application's state at it.
  first     nobody told, and nothing came: we are among the first, and begin at nothing.
  late      nobody told, but events came. Then the one of them that no other precedes is the first
            of our time: what its stamp names beside itself is before it.

Nobody is told where by a member that does not know itself, so members that start together find in
the end that they are the first. What is before our time is not lost to us: we were not there.
"""

from __future__ import annotations

from ordercast.protocol.cluster.packets import Update

MOST_EARLY = 4096
PATIENCE = 10
"""So many times longer who was answered waits for the application's state."""


class Joining:
    def __init__(self, patience: int) -> None:
        self._patience = patience
        self.left = patience  # rounds
        self.is_welcome = False
        self._early: dict[int, tuple[Update, int]] = {}

    def early(self, update: Update, age: int) -> None:
        """An event came before we know whether it is of our time."""
        if not self._early and not self.is_welcome:
            self.left = self._patience  # somebody is there who can tell: we go on asking
        self._early[update.key] = (update, age)
        if len(self._early) > MOST_EARLY:
            del self._early[next(iter(self._early))]

    def welcome(self) -> None:
        """Somebody is there who will tell more: that is worth a long wait."""
        if not self.is_welcome:
            self.is_welcome = True
            self.left = PATIENCE * self._patience

    def round(self, tickets: int) -> list[int] | None:
        """One more round went by without an answer. The clock to begin at, if that was enough."""
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

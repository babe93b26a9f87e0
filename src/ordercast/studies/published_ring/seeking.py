"""How a process finds a coordinator that may give it a ticket: Init of Algorithms 1 and 2.

It asks a member for its view, takes a ticket that is free there (the one it prefers, or by chance),
and sends CJOIN to the coordinator of that ticket. A process that is rejected tries again later. The
paper sends CJOIN "to a known coordinator", and suggests the choice by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ordercast.studies.published_ring.packets import Ask, Cjoin, Ring, View
from ordercast.studies.published_ring.ring import Cview


class Seeking:
    """One process that looks for a ticket."""

    def __init__(
        self,
        me: str,
        group: str,
        tickets: int,
        preferred: int | None,
        known: Callable[[], Sequence[str]],
        chance: Random,
        pause: int,
        begins: int = 0,
    ) -> None:
        self.me = me
        self.group = group
        self.tickets = tickets
        self.preferred = preferred  # a ticket that it would rather have
        self.pause = pause  # nanoseconds, about, between two tries
        self.begins = begins  # when it tries for the first time
        self.again = 0  # when to try again, if nothing comes of what was sent
        self._denied = False  # the last CJOIN came to nothing: now anything but that one
        self._known = known
        self._chance = chance

    def ask(self, now: int, patience: int) -> tuple[str, Ring] | None:
        """The member to ask for its view; None: there is none, or it is too early."""
        if now < self.begins:
            self.again = self.begins
            return None
        others = [name for name in self._known() if name != self.me]
        if not others:
            self.rest(now)
            return None
        self.again = now + patience
        return self._chance.choice(others), Ask(self.group)

    def choose(self, now: int, sender: str, view: View) -> tuple[str, Ring] | None:
        """The member to send CJOIN to; None: the member that answered is no coordinator."""
        if not view.seats:
            self.rest(now)
            return None
        cview = Cview(self.tickets, view.seats)
        free = cview.free()
        preferred = self.preferred if self.preferred in free and not self._denied else None
        self._denied = False
        if preferred is None and free:
            preferred = self._chance.choice(free)
        seat = cview.coordinator(preferred) if preferred is not None else None
        # A stale view may name ourselves, from the time when we were a coordinator.
        to = sender if seat is None or seat.name == self.me else seat.name
        return to, Cjoin(self.group, preferred)

    def deny(self, now: int) -> None:
        """CJOIN was rejected, or did not arrive."""
        self._denied = True
        self.rest(now)

    def rest(self, now: int) -> None:
        self.again = now + self._chance.randrange(self.pause // 2, self.pause) + 1

"""What all members of a ring must have alike, and what a process knows of its own Sends."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ordercast.protocol.tickets.entries import MOST_TICKETS
from ordercast.studies.published_ring.packets import MOST_KNOWN, RingSeat


class RingRules(NamedTuple):
    """What all members of a cluster must have alike."""

    tickets: int
    k: int  # of 2k + 1 predecessors, k may fail
    round: int  # T_R, nanoseconds
    delay: int  # δ: a status comes within it
    p_exclude: float = 1.0
    grace: int = 2  # rounds in which a newcomer need not hear ALIVE
    more_rounds: int = 0  # that a temporary coordinator waits beyond dist(p, q) - 1

    def checked(self) -> RingRules:
        assert 1 <= self.tickets <= MOST_TICKETS and self.k >= 0 and 2 * self.k + 1 <= MOST_KNOWN
        assert 0 < 4 * self.delay <= self.round, "an exclusion must fit into a round"
        return self


class Sent(NamedTuple):
    """The token of a status. `serial` is 0 where the sender does not wait for it."""

    what: Literal["ackcjoin", "update", "exclude", "seek", "ring"]
    serial: int


class PendingSend(NamedTuple):
    """The Send whose status we wait for."""

    sent: Sent
    to: str
    given: tuple[RingSeat, ...]  # R, if it carried one

"""Algorithm 4: a process that could not reach its successor takes over what lies between.

Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting
configurable levels of consistency (2011), section 4.2.

 1. EXCLUDE goes to the next successor in Cview, and to the next after that, until one is reached.
    ImmedSucc moves along at once, before any process has agreed. If it would come to ourselves, or
    the process that was reached does not answer, we assume that we failed ourselves.
 2. The process that was reached, q, answers with L_q.
 3. REQCOORD goes to all in L_q and R_p, ourselves included. Those not between p and q agree.
 4. After 2δ, k + 1 agreements make us temporary coordinator for dist(p, q) - 1 rounds. With fewer
    we assume that we failed ourselves.

The object is one run of it. It has no numbers, as in the paper: any answer from the right process
counts, however late.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.studies.published_ring.packets import RingSeat
from ordercast.studies.published_ring.ring import between


class Exclusion:
    def __init__(self, tickets: int, own: int, needed: int) -> None:
        self.tickets = tickets
        self.own = own  # our ticket
        self.needed = needed  # k + 1
        self.successor: RingSeat | None = None  # q, once a process is asked
        self.reached = False  # EXCLUDE arrived there
        self.known: tuple[RingSeat, ...] | None = None  # L_q, once it answered
        self.asked: tuple[str, ...] = ()  # L_q and R_p, once they were asked
        self.agreed: dict[str, None] = {}
        self.until = 0  # when we stop to wait for the answer that is due next
        self.out: tuple[RingSeat, ...] = ()  # the owners that are excluded, as far as we knew

    def turn_to(self, seat: RingSeat) -> None:
        """EXCLUDE is sent to the next one."""
        self.successor, self.reached, self.known = seat, False, None

    def awaits(self, name: str) -> bool:
        """Whether L of this process is what we wait for."""
        return self.known is None and self.successor is not None and self.successor.name == name

    @property
    def may_request(self) -> bool:
        return self.reached and self.known is not None and not self.asked

    def request(self, given: Sequence[RingSeat]) -> tuple[str, ...]:
        """The processes to send REQCOORD to: those of L_q that we sent to our successor (R_p)."""
        assert self.known is not None
        names = {seat.name for seat in self.known}
        self.asked = tuple(seat.name for seat in given if seat.name in names)
        return self.asked

    def agree(self, name: str) -> None:
        if name in self.asked:
            self.agreed[name] = None

    @property
    def interval(self) -> tuple[int, ...]:
        """E_pq: the tickets that would be ours."""
        assert self.successor is not None
        return between(self.tickets, self.own, self.successor.ticket)

    @property
    def succeeded(self) -> bool:
        return len(self.agreed) >= self.needed

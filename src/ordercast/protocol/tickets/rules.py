"""The rules of a cluster's tickets, and the times that follow from them."""

from __future__ import annotations

from typing import NamedTuple

TICKS_A_LEASE = 4


class Rules(NamedTuple):
    """What all members of a cluster must have alike."""

    tickets: int
    lease: int  # D, nanoseconds
    drift: float  # how far the rate of a clock may be from true
    guards: int  # 2k + 1 at the most

    @property
    def wait(self) -> int:
        """W: a lease of D on one clock is over on any other, if both are within the bound."""
        return int(self.lease * (1 + self.drift) / (1 - self.drift)) + 1

    @property
    def tick(self) -> int:
        return self.lease // TICKS_A_LEASE

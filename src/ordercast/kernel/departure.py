"""How a member leaves its group in an orderly way: the same rules live and in the simulator.

Rules.
 1. A member that leaves submits nothing more. It waits until the others have what it submitted, for
    `FLUSH_TIME` at most: a member may never answer, and the others can get it from each other.
 2. Where it takes a permit to send, the member then retires (the input `Retire`), and waits while
    the others need it, for `longest` at most. Before one lease has passed it does not know which
    members are there, and which of them are about to leave.
 3. A member that nobody needs forgets its records. If it joins again, it is as a new member. Only
    the bootstrap node never does: it could bootstrap its cluster a second time.

A world waits by its own clock, and asks here what for.
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.kernel.family import Family, Plan
from ordercast.kernel.machine import Machine, Retiring
from ordercast.units import SECOND

FLUSH_TIME = 2 * SECOND
LEASES_TO_RETIRE = 6
"""How many leases a retiring member waits, at most. By then the members that guard a permit have
surely replaced one of theirs, if they can at all."""


class Departure(NamedTuple):
    """Of one member from one group."""

    family: Family
    plan: Plan

    def is_underway(self, waiting: bool, submitted_up_to: int, stable_up_to: int) -> bool:
        """Whether something of ours may not be with all others. `waiting`: it is not even sent."""
        return waiting or (self.family.tells_stability and stable_up_to < submitted_up_to)

    @property
    def lease(self) -> int | None:
        """None: there is nothing to hand over."""
        permit = self.family.permit if self.family.needs_permit(self.plan) else None
        return None if permit is None else permit.lease(self.plan.options)

    @property
    def longest(self) -> int:
        """How long a member that has retired waits, at most."""
        return LEASES_TO_RETIRE * (self.lease or 0)

    def is_needed(self, machine: Machine | None, elapsed: int, now: int) -> bool:
        """Whether there is something to hand over, and somebody who takes it.

        `elapsed` is the time since the member retired, `now` what its own clock shows.
        """
        if not isinstance(machine, Retiring) or machine.may_go(self.plan.group):
            return False
        return elapsed < (self.lease or 0) or machine.has_heirs(self.plan.group, now)

    def forgets_records(self, machine: Machine | None, name: str) -> bool:
        """Whether the member of this name, which leaves now, forgets what it persisted."""
        permit = self.family.permit if self.family.needs_permit(self.plan) else None
        if permit is None or permit.bootstrap_node(self.plan) == name:
            return False
        return not isinstance(machine, Retiring) or machine.may_go(self.plan.group)

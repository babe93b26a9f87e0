"""How far this member's own sends have come in a group, for all who wait for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ordercast.net.condition import Condition


class Progress:
    __slots__ = (
        "changed",
        "delivered_up_to",
        "ended",
        "group",
        "has_quorum",
        "knows_stability",
        "late",
        "reason",
        "secured_up_to",
        "stable_up_to",
        "submitted_up_to",
    )

    def __init__(self, group: str, knows_stability: bool, has_quorum: bool = False) -> None:
        self.group = group
        self.knows_stability = knows_stability  # whether members know who has what
        self.has_quorum = has_quorum  # whether only the primary view may send
        self.submitted_up_to = 0  # the number of our last event
        self.delivered_up_to = 0  # the number of our last event that was delivered here
        self.stable_up_to = 0  # our events up to this number are with every present member
        self.secured_up_to = 0  # and up to this one in the state of every later primary view
        self.ended: Exception | None = None  # why the group is closed
        # For whom it waits, and why: the end of a sentence that says that something took too long.
        self.reason: Callable[[], str] = str
        # The same of a message that not all have: who has not acknowledged it, and why.
        self.late: Callable[[], str] = str
        self.changed = Condition()  # of anything about sends, permits and formations

    async def change(self) -> None:
        """Until something has changed. Raises why the group is closed."""
        if self.ended is not None:
            raise self.ended
        await self.changed.wait()
        if self.ended is not None:
            raise self.ended

    async def wait_while(self, busy: Callable[[], bool], seconds: float) -> None:
        """Until that is over, for some time at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while busy():
                    await self.change()

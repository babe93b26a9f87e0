"""When a name that does not answer is called again.

Two parts of a group must find each other after any partition, so a name is not given up after a
fixed time. But nodes come and go, and each that is gone would be called for ever. So a pause grows
with the time for which a name has not answered: 200 calls are enough for a million of the shortest
pauses, and parts meet again within a sixteenth of the time for which they were apart.

What it does not do: count time. Callers count it in rounds of their own.
"""

from __future__ import annotations

PARTS = 16


def pause_after(unanswered: int, shortest: int) -> int:
    """Until the next call of a name that has not answered for so long."""
    return max(shortest, unanswered // PARTS)

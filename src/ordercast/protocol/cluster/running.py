"""A member of a causal cluster that knows where the cluster is: what it waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ordercast.protocol.cluster.digests import Digests


class Running:
    """What it waits for ends with this phase."""

    def __init__(self, digests: Digests) -> None:
        # Events that wait, each with the round in which we ask for what it waits for, and the
        # round in which that is skipped. Earliest first.
        self.terminating: deque[tuple[int, int]] = deque()
        self.recovering: deque[tuple[int, int]] = deque()
        self.digests = digests


def due(queue: deque[tuple[int, int]], now: int) -> Iterator[int]:
    """The events whose round has come, taken from the queue."""
    while queue and queue[0][0] <= now:
        yield queue.popleft()[1]

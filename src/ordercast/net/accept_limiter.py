"""The accept limiter: who may begin a handshake, before anything is read or allocated.

Limits on half-open connections, in all and a source, and on handshakes a second and source.
Pure: the time comes with the question. What is remembered is bounded: the source that was quiet
longest is forgotten first, which can only let it in again.
"""

from __future__ import annotations

from collections import OrderedDict

from ordercast.units import SECOND

SOURCES = 4096


class AcceptLimiter:
    def __init__(
        self, half_open: int = 128, half_open_a_source: int = 64, a_second: int = 64
    ) -> None:
        self.half_open = half_open
        self.half_open_a_source = half_open_a_source
        self.a_second = a_second
        self.refused = 0
        self.open_now = 0  # connections that are half open
        self._sources: OrderedDict[str, list[int]] = OrderedDict()  # open now, tokens, last time

    def __len__(self) -> int:
        """Sources that are remembered."""
        return len(self._sources)

    def enter(self, source: str, now: int) -> bool:
        """A connection came in. True: it may greet, and `leave` must be called when it is done."""
        entry = self._sources.pop(source, None) or [0, self.a_second * SECOND, now]
        self._sources[source] = entry
        full = self.a_second * SECOND  # in nanoseconds, so that nothing is rounded
        entry[1] = min(full, entry[1] + (now - entry[2]) * self.a_second)
        entry[2] = now
        too_many = self.open_now >= self.half_open or entry[0] >= self.half_open_a_source
        if too_many or entry[1] < SECOND:
            self.refused += 1
            self._forget()
            return False
        entry[0] += 1
        entry[1] -= SECOND
        self.open_now += 1
        self._forget()
        return True

    def leave(self, source: str) -> None:
        """A connection that had entered has greeted, or is gone."""
        self.open_now -= 1
        entry = self._sources.get(source)
        if entry is not None:
            entry[0] = max(0, entry[0] - 1)

    def _forget(self) -> None:
        while len(self._sources) > SOURCES:
            self._sources.popitem(last=False)

"""A member's own clock: it may stand off true time, and run fast or slow."""

from __future__ import annotations

BILLION = 10**9


class Clock:
    """Piecewise linear: each change starts a new piece where the clock stands."""

    __slots__ = ("_local_base", "_rate", "_true_base")

    def __init__(self) -> None:
        self._true_base = 0
        self._local_base = 0
        self._rate = BILLION  # local nanoseconds in a true second

    def read(self, now: int) -> int:
        return self._local_base + (now - self._true_base) * self._rate // BILLION

    def jump(self, now: int, by: int) -> None:
        self._local_base, self._true_base = self.read(now) + by, now

    def drift(self, now: int, rate: float) -> None:
        """From now on gains (or loses) so many seconds a second: 0.01 gains 1 %."""
        self._local_base, self._true_base = self.read(now), now
        self._rate = round(BILLION * (1 + rate))
        assert self._rate > 0, "a clock runs forwards"

    def span(self, local: int) -> int:
        """How much true time passes while this clock counts so many nanoseconds."""
        return local if self._rate == BILLION else -(-local * BILLION // self._rate)

    def true_time(self, local: int) -> int:
        """When this clock shows so much, if nothing changes it."""
        return self._true_base + self.span(local - self._local_base)

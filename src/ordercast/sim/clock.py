"""A member's own clock: it may stand off true time, and run fast or slow."""

from __future__ import annotations

BILLION = 10**9


class Clock:
    """One straight piece of a clock's course. A change gives a new clock, from where it stands."""

    __slots__ = ("_local_base", "_rate", "_true_base", "is_true")

    def __init__(self, true_base: int = 0, local_base: int = 0, rate: int = BILLION) -> None:
        assert rate > 0, "a clock runs forwards"
        self._true_base = true_base
        self._local_base = local_base
        self._rate = rate  # local nanoseconds in a true second
        self.is_true = true_base == local_base and rate == BILLION

    def read(self, now: int) -> int:
        return self._local_base + (now - self._true_base) * self._rate // BILLION

    def jumped(self, now: int, by: int) -> Clock:
        """This clock set forward now, or back."""
        return Clock(now, self.read(now) + by, self._rate)

    def drifting(self, now: int, rate: float) -> Clock:
        """This clock if it gains from now on so many seconds a second: 0.01 gains 1 %."""
        return Clock(now, self.read(now), round(BILLION * (1 + rate)))

    def span(self, local: int) -> int:
        """How much true time passes while this clock counts so many nanoseconds."""
        return local if self._rate == BILLION else -(-local * BILLION // self._rate)

    def true_time(self, local: int) -> int:
        """When this clock shows so much, if nothing changes it."""
        return self._true_base + self.span(local - self._local_base)


TRUE = Clock()
"""True time, which every process shows until something is wrong with its clock."""

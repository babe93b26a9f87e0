"""A rate limit for log lines: strangers decide how often something is refused, not how much is
logged.

So many lines are logged in each period; the rest are counted, and reported in one line when the
period is over. Pure: the time comes with the question.
"""

from __future__ import annotations

from ordercast.units import SECOND


class LogRateLimit:
    def __init__(self, most: int = 50, period: int = 10 * SECOND) -> None:
        self.most = most
        self.period = period
        self._began: int | None = None  # when the period began that is running
        self._logged = 0  # in that period
        self._suppressed = 0  # since `suppressed` last reported

    def allows(self, now: int) -> bool:
        """Whether one more line may be logged, which then counts."""
        if self._began is None or now - self._began >= self.period:
            self._began, self._logged = now, 0
        if self._logged >= self.most:
            self._suppressed += 1
            return False
        self._logged += 1
        return True

    def suppressed(self, now: int, ending: bool = False) -> int:
        """How many lines were left out, once their period is over, or at the end. Only once."""
        if self._began is None or (now - self._began < self.period and not ending):
            return 0
        count, self._suppressed = self._suppressed, 0
        return count

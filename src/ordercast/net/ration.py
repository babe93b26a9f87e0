"""A ration of log lines: strangers decide how often something is refused, not how much is logged.

So many lines are said in each period; the rest are counted, and told in one line when the period
is over. Pure: the time comes with the question.
"""

from __future__ import annotations

from ordercast.units import SECOND


class Ration:
    def __init__(self, most: int = 50, period: int = 10 * SECOND) -> None:
        self.most = most
        self.period = period
        self._began: int | None = None  # when the period began that is running
        self._said = 0  # in that period
        self._unsaid = 0  # since `unsaid` last told

    def take(self, now: int) -> bool:
        """Whether one more line may be said."""
        if self._began is None or now - self._began >= self.period:
            self._began, self._said = now, 0
        if self._said >= self.most:
            self._unsaid += 1
            return False
        self._said += 1
        return True

    def unsaid(self, now: int, ending: bool = False) -> int:
        """How many lines were left out, once their period is over, or at the end. Told once."""
        if self._began is None or (now - self._began < self.period and not ending):
            return 0
        count, self._unsaid = self._unsaid, 0
        return count

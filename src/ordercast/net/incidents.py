"""What peers and strangers cause: always counted, and logged within a limit."""

from __future__ import annotations

import logging
import time
from collections import Counter

from ordercast.net.log_rate_limit import LogRateLimit

log = logging.getLogger("ordercast.net")


class Incidents:
    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._limit = LogRateLimit()

    def count(self, what: str, times: int = 1) -> None:
        self.counters[what] += times

    def warn(self, message: str, *values: object) -> None:
        """A warning that peers can cause: logged within the limit, and in one line each."""
        if self._limit.allows(time.monotonic_ns()):
            text = message % values
            if not text.isprintable():
                text = "".join(each if each.isprintable() else "?" for each in text)
            log.warning("%s", text)

    def report_suppressed(self, ending: bool = False) -> None:
        count = self._limit.suppressed(time.monotonic_ns(), ending)
        if count:
            log.warning("%d more refusals like these were counted, but not logged", count)

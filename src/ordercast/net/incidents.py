"""What peers and strangers cause: always counted, and logged within a limit."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TypeVar

from ordercast.net.log_rate_limit import LogRateLimit
from ordercast.units import SECOND

log = logging.getLogger("ordercast.net")

REPEATED = 600 * SECOND
"""How long the same refusal is not logged again: a node that is refused tries again and again."""
PASSING = 4 * SECOND
"""After a crash a name is taken for a moment, until its former incarnation is missed. A refusal for
that reason counts when it is repeated after so long."""
MOST_REMEMBERED = 256
"""Refusals that are remembered, of each kind."""
T = TypeVar("T")


class Incidents:
    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.refused_by: dict[str, str] = {}  # by place where we dialled last: what went wrong
        self._limit = LogRateLimit()
        self._logged: dict[str, int] = {}  # refusals, and when
        self._passing: dict[str, int] = {}  # refusals that may be over soon, and since when

    def count(self, what: str, times: int = 1) -> None:
        self.counters[what] += times

    def warn(self, message: str, *values: object) -> None:
        """A warning that peers can cause: logged within the limit, and in one line each."""
        if self._limit.allows(time.monotonic_ns()):
            text = message % values
            if not text.isprintable():
                text = "".join(each if each.isprintable() else "?" for each in text)
            log.warning("%s", text)

    def is_passing(self, reason: str) -> bool:
        """Whether a name is taken by a node that may be its own former incarnation, and for so
        short a time that this may explain it."""
        now = time.monotonic_ns()
        since = self._passing.get(reason, now)
        if now - since > REPEATED:
            since = now
        _remember(self._passing, reason, since)
        return now - since < PASSING

    def refusal(self, message: str, who: str, reason: str) -> None:
        """A greeting was refused, here or by a peer: logged when the reason is a new one."""
        now, text = time.monotonic_ns(), message % (who, reason)
        if now - self._logged.get(text, -REPEATED) >= REPEATED:
            _remember(self._logged, text, now)
            self.warn("%s", text)

    def refused(self, place: str, what: str) -> None:
        """What answers at a place that we dialled does not talk to us: what it did, in words."""
        _remember(self.refused_by, place, what)

    def answers_no_more(self, place: str) -> None:
        """Nobody is there now, so what was there before is no reason for anything."""
        self.refused_by.pop(place, None)

    def report_suppressed(self, ending: bool = False) -> None:
        count = self._limit.suppressed(time.monotonic_ns(), ending)
        if count:
            log.warning("%d more refusals like these were counted, but not logged", count)


def _remember(known: dict[str, T], key: str, value: T) -> None:
    """The newest last; beyond the limit the oldest goes."""
    known.pop(key, None)
    known[key] = value
    if len(known) > MOST_REMEMBERED:
        del known[next(iter(known))]

"""What tickets came to in one run, in numbers: how often they were had, and how long it took.

Plain functions of one run's rows, as measure.py has them; `metrics_tickets.py` has the same figures
as DataFrames over a lake. How often and how long is counted by check/tenures.py. Beyond that:

  access  of the wishes for a ticket, the share that was granted within one lease. Wishes from
          before anybody had one are left out, as there was no cluster yet; and so are those that
          ended earlier without a grant: who wished died, changed its mind, or the run was over
  use     how many tickets were in the hands of the living, on average over time, from the first
          grant to the last row
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ordercast.check.tenures import tenures_of
from ordercast.trace.schema import Row
from ordercast.units import SECOND

TICKET_FIGURES = (
    "ticket_granted",
    "ticket_refused",
    "ticket_given_back",
    "ticket_lost",
    "ticket_reclaimed",
    "ticket_wait_mean",
    "ticket_wait_p50",
    "ticket_wait_p99",
    "ticket_reclaim_mean",
    "ticket_reclaim_p50",
    "ticket_reclaim_p99",
    "ticket_access",
    "ticket_use",
)

Who = tuple[str, str]
"""A group and a process."""


class Span(NamedTuple):
    """From one time to another: a wish, if a grant ended it (`granted`) or not; or a tenure."""

    begin: int
    end: int
    granted: bool = False


def measure_tickets(rows: list[Row], lease_ns: int | None = None) -> dict[str, float]:
    """The figures of one run; none of one without tickets."""
    found = [row for row in rows if row.kind in ("ticket", "crash", "start")]
    if not any(row.kind == "ticket" for row in found):
        return {}
    counted = tenures_of(found)
    figures: dict[str, float] = {
        "ticket_granted": counted.granted,
        "ticket_refused": counted.refused,
        "ticket_given_back": counted.given_back,
        "ticket_lost": counted.lost,
        "ticket_reclaimed": len(counted.reclaims),
    }
    for name, times in (("wait", counted.waits), ("reclaim", counted.reclaims)):
        if times:
            seconds = np.array(times, dtype=np.float64) / SECOND
            p50, p99 = np.percentile(seconds, [50, 99])
            figures[f"ticket_{name}_mean"] = float(seconds.mean())
            figures[f"ticket_{name}_p50"] = float(p50)
            figures[f"ticket_{name}_p99"] = float(p99)
    return figures | _over_time(found, max(row.at for row in rows), lease_ns)


def _over_time(rows: list[Row], last: int, lease_ns: int | None) -> dict[str, float]:
    wishes, tenures = wishes_and_tenures(rows, last)
    if not tenures:
        return {}
    first = min(one.begin for one in tenures)
    figures: dict[str, float] = {}
    if last > first:
        held = sum(one.end - one.begin for one in tenures)
        figures["ticket_use"] = held / (last - first)
    if lease_ns:
        asked = [one for one in wishes if one.begin >= first]
        granted = sum(one.granted and one.end - one.begin <= lease_ns for one in asked)
        waited = sum(one.end - one.begin > lease_ns for one in asked)
        if granted + waited:
            figures["ticket_access"] = granted / (granted + waited)
    return figures


def wishes_and_tenures(rows: Iterable[Row], last: int) -> tuple[list[Span], list[Span]]:
    """Of the rows about tickets and lives, in whatever order; the run's last row is at `last`."""
    follow = _Follow()
    for row in sorted(rows, key=lambda row: (row.at, row.process, row.incarnation, row.step)):
        if row.kind == "ticket":
            follow.ticket(row)
        else:
            follow.dies(row)
    for who in list(follow.wished):
        follow.end_wish(who, last)
    for who in list(follow.held):
        follow.end_tenure(who, last)
    return follow.wishes, follow.tenures


class _Follow:
    def __init__(self) -> None:
        self.wished: dict[Who, int] = {}  # since when
        self.held: dict[Who, tuple[int, int]] = {}  # the ticket, and since when
        self.wishes: list[Span] = []
        self.tenures: list[Span] = []

    def ticket(self, row: Row) -> None:
        who = (row.group or "", row.process)
        ticket = row.index or 0
        if row.cause == "wanted":
            if who not in self.held:
                self.wished.setdefault(who, row.at)
        elif row.cause == "acquired":
            if who in self.held and self.held[who][0] == ticket:
                return  # the same owner, in a higher epoch
            self.end_tenure(who, row.at)
            self.end_wish(who, row.at, granted=True)
            self.held[who] = (ticket, row.at)
        elif row.cause in ("released", "disconnected"):
            self.end_tenure(who, row.at)
            self.end_wish(who, row.at)
            if row.cause == "disconnected":
                self.wished[who] = row.at

    def dies(self, row: Row) -> None:
        """A crash, or a start, before which an earlier life must have ended."""
        for who in [who for who in self.held if who[1] == row.process]:
            self.end_tenure(who, row.at)
        for who in [who for who in self.wished if who[1] == row.process]:
            self.end_wish(who, row.at)

    def end_wish(self, who: Who, at: int, *, granted: bool = False) -> None:
        since = self.wished.pop(who, None)
        if since is not None:
            self.wishes.append(Span(since, at, granted))

    def end_tenure(self, who: Who, at: int) -> None:
        held = self.held.pop(who, None)
        if held is not None:
            self.tenures.append(Span(held[1], at))

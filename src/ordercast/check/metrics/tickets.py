"""What became of tickets: how often they were granted, how long that took, and who had them.

granted    a process that had another ticket, or none, acquired one
refused    a claim was rejected, because another process has the ticket
given back, lost
reclaimed  a ticket was acquired whose owner had died with it, or had lost it
wait       from the request (`wanted`, or the loss of a ticket, after which it is wanted again) to
           `acquired`; a process that has a ticket requests none
reclaim    from the death or the loss to the next owner's `acquired`
access     of the requests, the share that was granted within one lease. Requests from before the
           first grant do not count, as there was no cluster yet; nor do those that ended earlier
           without a grant: the process died, changed its mind, or the run was over
use        how many tickets live processes had, on average over time, from the first grant to the
           last row
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ordercast.check.metric import Breakdown, MeasuredRun, Metric, summary
from ordercast.trace.schema import Row
from ordercast.units import SECOND

Who: TypeAlias = tuple[str, str]
"""A group and a process."""


class TicketCounts(NamedTuple):
    granted: int = 0
    refused: int = 0
    given_back: int = 0
    lost: int = 0
    waits: tuple[int, ...] = ()  # nanoseconds, one for every grant that was waited for
    reclaims: tuple[int, ...] = ()  # one for every ticket that was reclaimed


class TicketGrant(NamedTuple):
    group: str
    process: str
    ticket: int
    at: int  # nanoseconds
    wait: float | None  # seconds; None: it was not requested
    reclaim: float | None  # seconds; None: it was free
    left_by: str | None  # the last owner, if it died with the ticket or lost it
    left: str | None  # "died" or "lost"


class _Request(NamedTuple):
    begin: int
    end: int
    granted: bool


def counted(run: MeasuredRun) -> TicketCounts:
    return run.once(_followed).counts()


def together(several: Sequence[TicketCounts]) -> TicketCounts:
    """Of several runs."""
    return TicketCounts(
        sum(one.granted for one in several),
        sum(one.refused for one in several),
        sum(one.given_back for one in several),
        sum(one.lost for one in several),
        tuple(wait for one in several for wait in one.waits),
        tuple(reclaim for one in several for reclaim in one.reclaims),
    )


# --- following the rows ----------------------------------------------------------------------


class _Tickets:
    """Follows the rows about tickets, crashes and starts of one run, in order of time."""

    def __init__(self) -> None:
        self.grants: list[tuple[Row, int | None, Row | None]] = []  # its wait, what orphaned it
        self.requests: list[_Request] = []
        self.held_time = 0
        self.causes = {"refused": 0, "released": 0, "disconnected": 0}
        self._requested: dict[Who, int] = {}  # since when
        self._held: dict[Who, tuple[int, int]] = {}  # the ticket, and since when
        self._orphaned: dict[tuple[str, int], Row] = {}  # by group and ticket: by which row

    def follow(self, rows: Iterable[Row], last: int) -> None:
        """Rows in whatever order; the last row of the run is at `last`."""
        for row in sorted(rows, key=lambda row: (row.at, row.process, row.incarnation, row.step)):
            if row.kind == "ticket":
                self._ticket(row)
            else:
                self._dies(row)
        for who in list(self._requested):
            self._end_request(who, last)
        for who in list(self._held):
            self._end_hold(who, last)

    def counts(self) -> TicketCounts:
        return TicketCounts(
            len(self.grants),
            self.causes["refused"],
            self.causes["released"],
            self.causes["disconnected"],
            tuple(wait for _, wait, _ in self.grants if wait is not None),
            tuple(row.at - orphan.at for row, _, orphan in self.grants if orphan is not None),
        )

    def _ticket(self, row: Row) -> None:
        who, ticket = (row.group or "", row.process), row.index or 0
        if row.cause in self.causes:
            self.causes[row.cause] += 1
        if row.cause == "wanted":
            if who not in self._held:
                self._requested.setdefault(who, row.at)
        elif row.cause == "acquired":
            if who in self._held and self._held[who][0] == ticket:
                return  # the same owner, in a higher epoch
            self._end_hold(who, row.at)
            since = self._end_request(who, row.at, granted=True)
            wait = None if since is None else row.at - since
            self.grants.append((row, wait, self._orphaned.pop((who[0], ticket), None)))
            self._held[who] = (ticket, row.at)
        elif row.cause in ("released", "disconnected"):
            self._end_hold(who, row.at)
            self._end_request(who, row.at)
            if row.cause == "disconnected":
                self._requested[who] = row.at
                self._orphaned.setdefault((who[0], ticket), row)

    def _dies(self, row: Row) -> None:
        """A crash, or a start, before which an earlier incarnation must have ended."""
        for who in [who for who in self._held if who[1] == row.process]:
            self._orphaned.setdefault((who[0], self._held[who][0]), row)
            self._end_hold(who, row.at)
        for who in [who for who in self._requested if who[1] == row.process]:
            self._end_request(who, row.at)

    def _end_request(self, who: Who, at: int, *, granted: bool = False) -> int | None:
        """Since when the ticket was requested."""
        since = self._requested.pop(who, None)
        if since is not None:
            self.requests.append(_Request(since, at, granted))
        return since

    def _end_hold(self, who: Who, at: int) -> None:
        if who in self._held:
            self.held_time += at - self._held.pop(who)[1]


def _followed(run: MeasuredRun) -> _Tickets:
    tickets = _Tickets()
    found = [row for row in run.rows if row.kind in ("ticket", "crash", "start")]
    if any(row.kind == "ticket" for row in found):
        tickets.follow(found, run.once(_last))
    return tickets


def _last(run: MeasuredRun) -> int:
    return max(row.at for row in run.rows)


def _first_grant(run: MeasuredRun) -> int | None:
    return min((row.at for row, _, _ in run.once(_followed).grants), default=None)


def _has_tickets(run: MeasuredRun) -> bool:
    return any(row.kind == "ticket" for row in run.rows)


# --- metrics ---------------------------------------------------------------------------------


def grants(run: MeasuredRun) -> list[TicketGrant]:
    found = []
    for row, wait, orphan in run.once(_followed).grants:
        waited = None if wait is None else wait / SECOND
        reclaim = left_by = left = None
        if orphan is not None:
            reclaim, left_by = (row.at - orphan.at) / SECOND, orphan.process
            left = "lost" if orphan.kind == "ticket" else "died"
        who = (row.group or "", row.process)
        found.append(TicketGrant(*who, row.index or 0, row.at, waited, reclaim, left_by, left))
    return found


def _count(name: str, field: str, says: str) -> Metric:
    def value(run: MeasuredRun) -> float | None:
        if not run.once(_has_tickets):
            return None
        found = getattr(run.once(counted), field)
        return len(found) if isinstance(found, tuple) else float(found)

    return Metric(f"ticket_{name}", "tickets", says, value)


def _access(run: MeasuredRun) -> float | None:
    lease, first = run.times.lease, run.once(_first_grant)
    if not lease or first is None:
        return None
    asked = [one for one in run.once(_followed).requests if one.begin >= first]
    granted = sum(one.granted and one.end - one.begin <= lease for one in asked)
    waited = sum(one.end - one.begin > lease for one in asked)
    return granted / (granted + waited) if granted + waited else None


def _use(run: MeasuredRun) -> float | None:
    first = run.once(_first_grant)
    if first is None or run.once(_last) <= first:
        return None
    return run.once(_followed).held_time / (run.once(_last) - first)


GRANTS = Breakdown("grants", "Every ticket that was granted", TicketGrant, grants)
METRICS = (
    _count("granted", "granted", "Tickets granted"),
    _count("refused", "refused", "Claims rejected, because another process has the ticket"),
    _count("given_back", "given_back", "Tickets released"),
    _count("lost", "lost", "Tickets lost"),
    _count("reclaimed", "reclaims", "Tickets granted after their owner had died or lost them"),
    *summary(
        "ticket_wait",
        "s",
        "From the request, or the loss of a ticket, to the grant",
        lambda run: run.once(counted).waits,
    ),
    *summary(
        "ticket_reclaim",
        "s",
        "From an owner's death or loss to the next owner",
        lambda run: run.once(counted).reclaims,
    ),
    Metric("ticket_access", "share", "Requests granted within a lease", _access),
    Metric("ticket_use", "tickets", "Tickets that live processes have, over time", _use),
)

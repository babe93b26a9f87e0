"""Two owners of one ticket: how it came to that, read off the trace.

For every pair of ownerships of one ticket that overlap. `granter` is who sent the ACKCJOIN, so the
trace must hold packets (level wire).

  lost status   the later owner's granter excluded the earlier one within a round after that had got
                the ticket from the same granter: a status of ACKCJOIN was lost (CE-2b)
  stays         the later owner's granter excluded the earlier one, which goes on for at most two
                rounds (CE-2), or longer: `stays on` (CE-1, CE-4, CE-5)
  two givers    the earlier owner was not excluded by that granter: it got the ticket from somebody
                else, who was, or who did the excluding (CE-3)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ordercast.trace.schema import Row
from ordercast.units import SECOND

FOREVER = 1 << 62


class Owned(NamedTuple):
    ticket: int
    process: str
    start: int
    end: int
    granter: str  # empty: it founded the cluster


class Overlap(NamedTuple):
    earlier: Owned
    later: Owned
    shape: str

    @property
    def lasts(self) -> int:
        return min(self.earlier.end, self.later.end) - self.later.start


def overlaps(rows: Sequence[Row], round_: int = SECOND) -> list[Overlap]:
    owned = sorted(ownerships(rows), key=lambda one: (one.start, one.process))
    excluded = [row for row in rows if row.kind == "exclude"]
    return [
        Overlap(one, two, _shape(one, two, excluded, round_))
        for place, one in enumerate(owned)
        for two in owned[place + 1 :]
        if one.ticket == two.ticket and one.process != two.process and two.start < one.end
    ]


def _shape(one: Owned, two: Owned, excluded: Sequence[Row], round_: int) -> str:
    times = [
        row.at
        for row in excluded
        if row.process == two.granter
        and (row.index, row.peer) == (one.ticket, one.process)
        and one.start <= row.at <= two.start
    ]
    if not times:
        return "two givers"
    if one.granter == two.granter and times[0] - one.start < round_:
        return "lost status"
    return "stays" if one.end - times[-1] <= 2 * round_ else "stays on"


def ownerships(rows: Sequence[Row]) -> Iterator[Owned]:
    """Every ownership; it ends with the life at the latest."""
    granted: dict[str, str] = {}
    held: dict[str, Row] = {}
    for row in rows:
        name = row.process
        if row.kind == "receive" and row.message == "Ackcjoin":
            granted[name] = row.peer or ""
        elif (row.kind == "ticket" and row.cause != "wanted") or row.kind in ("crash", "stop"):
            if name in held:
                began = held.pop(name)
                yield Owned(began.index or 0, name, began.at, row.at, granted.get(name, ""))
            if row.cause == "acquired":
                held[name] = row
    for name, began in held.items():
        yield Owned(began.index or 0, name, began.at, FOREVER, granted.get(name, ""))

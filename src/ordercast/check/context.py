"""What stands around a witness, for pictures.

A witness is the fewest rows that show a break. Of what is missing somewhere it can show only that
it is there elsewhere: one row. A picture says more with the whole course of the event: where it was
sent, who delivered or gave it up, and who died meanwhile.
"""

from __future__ import annotations

from ordercast.check.laws import LAWS
from ordercast.check.verdict import Verdict
from ordercast.trace.schema import Row, Trace

MOST_ROWS = 16
MOST_PROCESSES = 10


def rows_around(trace: Trace, verdict: Verdict) -> tuple[Row, ...]:
    """The witness, and where something is missing all that happened to its events."""
    if not _shows_absence(verdict):
        return verdict.witness
    events = {(row.group, row.origin, row.number) for row in verdict.witness if row.number}
    makers = {row.origin for row in verdict.witness}
    more = [
        row
        for row in trace.rows
        if row.kind in ("submit", "deliver", "lose")
        and (row.kind != "deliver" or row.process != row.origin)  # that one has it is no news
        and (row.group, row.origin, row.number) in events
    ]
    first = min((row.at for row in (*verdict.witness, *more)), default=0)
    deaths = [
        row
        for row in trace.rows
        if row.kind == "crash" and row.process in makers and row.at >= first
    ]
    together = tuple(dict.fromkeys((*verdict.witness, *more, *deaths)))
    return together if len(together) <= MOST_ROWS else verdict.witness


def who_was_there(trace: Trace, verdict: Verdict) -> tuple[str, ...]:
    """The processes in a picture of it: all members, if they are few and something is missing."""
    groups = {row.group for row in verdict.witness}
    names = {row.process for row in trace.rows if row.kind == "join" and row.group in groups}
    if not _shows_absence(verdict) or len(names) > MOST_PROCESSES:
        return ()
    return tuple(sorted(names))


def _shows_absence(verdict: Verdict) -> bool:
    law = LAWS.get(verdict.law)
    return law is not None and law.shows_absence

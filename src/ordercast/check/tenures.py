"""What became of tickets in a run: how often they were had, and how long that took.

  granted    a process that had none acquired one
  refused    a claim was turned down, because somebody else has the ticket
  given back, lost
  reclaimed  a ticket was acquired whose owner had died with it, or had lost it

A wait lasts from `wanted` (or the loss of a ticket, after which it is wanted again) to `acquired`.
A reclaim lasts from the death or the loss to the next owner's `acquired`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ordercast.trace.schema import Row


class Tenures(NamedTuple):
    granted: int = 0
    refused: int = 0
    given_back: int = 0
    lost: int = 0
    waits: tuple[int, ...] = ()  # nanoseconds, one for every grant that was waited for
    reclaims: tuple[int, ...] = ()  # one for every ticket that was reclaimed


def together(several: Sequence[Tenures]) -> Tenures:
    """Of several runs."""
    return Tenures(
        sum(one.granted for one in several),
        sum(one.refused for one in several),
        sum(one.given_back for one in several),
        sum(one.lost for one in several),
        tuple(wait for one in several for wait in one.waits),
        tuple(reclaim for one in several for reclaim in one.reclaims),
    )


def tenures_of(rows: Iterable[Row]) -> Tenures:
    """From the rows of one run, in whatever order."""
    kinds = ("ticket", "crash", "start", "stop")
    found = sorted(
        (row for row in rows if row.kind in kinds),
        key=lambda row: (row.at, row.process, row.incarnation, row.step),
    )
    tally = _Tally()
    for row in found:
        if row.kind == "ticket":
            tally.ticket(row)
        elif row.kind != "stop":
            tally.dies(row)
    return tally.result()


class _Tally:
    def __init__(self) -> None:
        self._held: dict[tuple[str, str], int] = {}  # by group and process: its ticket
        self._wanted: dict[tuple[str, str], int] = {}  # since when
        self._orphaned: dict[tuple[str, int], int] = {}  # by group and ticket: since when
        self._counts = {"granted": 0, "refused": 0, "given_back": 0, "lost": 0}
        self._waits: list[int] = []
        self._reclaims: list[int] = []

    def ticket(self, row: Row) -> None:
        who = (row.group or "", row.process)
        if row.cause == "wanted":
            self._wanted.setdefault(who, row.at)
            return
        if row.cause == "refused":
            self._counts["refused"] += 1
            return
        ticket = row.index or 0
        if row.cause == "acquired":
            self._acquired(row, who, ticket)
        elif row.cause == "released":
            self._held.pop(who, None)
            self._wanted.pop(who, None)
            self._counts["given_back"] += 1
        elif row.cause == "disconnected":
            self._held.pop(who, None)
            self._wanted[who] = row.at
            self._orphaned.setdefault((who[0], ticket), row.at)
            self._counts["lost"] += 1

    def _acquired(self, row: Row, who: tuple[str, str], ticket: int) -> None:
        if self._held.get(who) == ticket:
            return  # the same owner, in a higher epoch
        self._held[who] = ticket
        self._counts["granted"] += 1
        since = self._wanted.pop(who, None)
        if since is not None:
            self._waits.append(row.at - since)
        since = self._orphaned.pop((who[0], ticket), None)
        if since is not None:
            self._reclaims.append(row.at - since)

    def dies(self, row: Row) -> None:
        """A crash, or a start, before which an earlier life must have ended."""
        for who in [who for who in self._held if who[1] == row.process]:
            self._orphaned.setdefault((who[0], self._held.pop(who)), row.at)
        for who in [who for who in self._wanted if who[1] == row.process]:
            del self._wanted[who]

    def result(self) -> Tenures:
        return Tenures(**self._counts, waits=tuple(self._waits), reclaims=tuple(self._reclaims))

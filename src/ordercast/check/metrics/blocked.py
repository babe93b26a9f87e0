"""How often a process had to wait before it could submit, and how long."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.check.metric import Breakdown, MeasuredRun, Metric
from ordercast.types import name_of
from ordercast.units import SECOND


class Blocked(NamedTuple):
    process: str
    cause: str | None
    times: int
    blocked_time: float


class _Wait(NamedTuple):
    process: str
    cause: str | None
    took: int


def _waits(run: MeasuredRun) -> list[_Wait]:
    """A wait lasts until the next submission of the process in the group, whichever formation.

    Of several waits in a row the first lasts until then, and the others lie inside it; a wait that
    no submission ended lasted for nothing that could be measured.
    """
    found: list[_Wait] = []
    since: dict[tuple[str, int, str | None], tuple[int, int]] = {}  # when, and the place in `found`
    for row in run.rows:
        if row.kind not in ("blocked", "submit"):
            continue
        key = (row.process, row.incarnation, row.group and name_of(row.group))
        if row.kind == "blocked":
            since.setdefault(key, (row.at, len(found)))
            found.append(_Wait(row.process, row.cause, 0))
        elif key in since:
            at, place = since.pop(key)
            found[place] = found[place]._replace(took=row.at - at)
    return found


def _by_cause(run: MeasuredRun) -> list[Blocked]:
    several: dict[tuple[str, str | None], list[int]] = {}
    for wait in run.once(_waits):
        several.setdefault((wait.process, wait.cause), []).append(wait.took)
    return [Blocked(*key, len(times), sum(times) / SECOND) for key, times in several.items()]


BLOCKED = Breakdown("blocked", "Waits to submit, by process and cause", Blocked, _by_cause)
METRICS = (
    Metric(
        "blocked",
        "times",
        "Times that a process had to wait before it could submit",
        lambda run: len(run.once(_waits)),
    ),
    Metric(
        "blocked_time",
        "s",
        "How long processes waited before they could submit, in all",
        lambda run: sum(wait.took for wait in run.once(_waits)) / SECOND,
    ),
)

"""Events and their deliveries: how many there were."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import TypeAlias

from ordercast.check.given_up import lost_numbers
from ordercast.check.metric import MeasuredRun, Metric
from ordercast.trace.schema import Row
from ordercast.units import SECOND

Event: TypeAlias = tuple[str | None, str | None, int | None]
"""Group, origin and number. Traces of other systems may have no groups."""


def event_of(row: Row) -> Event:
    return row.group, row.origin, row.number


def submitted_at(run: MeasuredRun) -> dict[Event, int]:
    return {event_of(row): row.at for row in run.rows if row.kind == "submit"}


def deliveries(run: MeasuredRun) -> list[Row]:
    return [row for row in run.rows if row.kind == "deliver"]


def kinds(run: MeasuredRun) -> Counter[tuple[str, str | None]]:
    """How many rows there are of a kind and cause."""
    return Counter((row.kind, row.cause) for row in run.rows)


def _given_up(run: MeasuredRun) -> float:
    """Of a range, as many events as were submitted in it; it names at least one."""
    rows = sum(count for (kind, _), count in run.once(kinds).items() if kind == "lose")
    if not rows:
        return 0
    ranges = [row for row in run.rows if row.after is not None and row.kind == "lose"]
    numbers: dict[tuple[str | None, str | None], list[int]] = {}
    for group, origin, number in run.once(submitted_at):
        numbers.setdefault((group, origin), []).append(number or 0)
    submitted = {sender: sorted(several) for sender, several in numbers.items()}
    for row in ranges:
        first, last = lost_numbers(row)
        known = submitted.get((row.group, row.origin), [])
        rows += max(bisect_right(known, last) - bisect_left(known, first), 1) - 1
    return rows


def _duplicates(run: MeasuredRun) -> float:
    found = run.once(deliveries)
    return len(found) - len({(row.process, row.incarnation, event_of(row)) for row in found})


def _throughput(run: MeasuredRun) -> float | None:
    times = run.once(submitted_at).values()
    span = max(times) - min(times) if times else 0
    if span <= 0:
        return None
    found = run.once(deliveries)
    processes = len({row.process for row in found}) or 1
    return len(found) / processes / (span / SECOND)


COUNTS = (
    Metric("submitted", "events", "Events made", lambda run: len(run.once(submitted_at))),
    Metric("delivered", "deliveries", "Deliveries", lambda run: len(run.once(deliveries))),
    Metric("given_up", "events", "Events reported as lost", _given_up),
)
METRICS = (
    *COUNTS,
    Metric(
        "throughput",
        "deliveries/s",
        "Deliveries a second and process that delivers, from the first submission to the last",
        _throughput,
    ),
    Metric(
        "duplicates",
        "deliveries",
        "Deliveries of an event beyond the first in one incarnation",
        _duplicates,
    ),
)

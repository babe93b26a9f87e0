"""All metrics of a run, in the order in which they are shown, and what breaks them down.

A metric more is an entry in the `METRICS` of its subject's file.
"""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.check.metric import Breakdown, MeasuredRun, Metric
from ordercast.check.metrics import (
    blocked,
    events,
    latency,
    load,
    loss,
    network,
    recovery,
    stamps,
    tickets,
    tree,
    views,
)

_SUBJECTS = (events, loss, latency, recovery, blocked, views, stamps, network, load, tickets, tree)

METRICS: tuple[Metric, ...] = tuple(one for subject in _SUBJECTS for one in subject.METRICS)
NAMES = tuple(one.name for one in METRICS)
BREAKDOWNS: tuple[Breakdown, ...] = (
    loss.LOSS,
    recovery.OUTCOMES,
    blocked.BLOCKED,
    views.VIEW_CHANGES,
    load.LOAD,
    load.MESSAGES,
    tickets.GRANTS,
)


def measure(run: MeasuredRun, metrics: Iterable[Metric] = METRICS) -> dict[str, float]:
    """By name. What the run does not have is not there."""
    found = ((metric.name, metric.of(run)) for metric in metrics)
    return {name: value for name, value in found if value is not None}

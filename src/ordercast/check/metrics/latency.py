"""How long events take from their submission to their delivery at another process.

The submitter delivers its own events at once: these do not count.
"""

from __future__ import annotations

from ordercast.check.metric import MeasuredRun, Metric, mean, summary
from ordercast.check.metrics.events import deliveries, event_of, submitted_at


def _waits(run: MeasuredRun) -> list[int]:
    made = run.once(submitted_at)
    return [
        row.at - made[event]
        for row in run.once(deliveries)
        if row.origin != row.process and (event := event_of(row)) in made
    ]


def _hops(run: MeasuredRun) -> float | None:
    hops = [row.hops for row in run.once(deliveries) if row.hops]
    return mean(hops) if hops and run.once(_waits) else None


METRICS = (
    *summary("latency", "s", "From submission to delivery at another process", _waits),
    *summary(
        "rounds",
        "rounds",
        "From submission to delivery at another process, in rounds of the family",
        _waits,
        lambda run: run.times.round,
    ),
    Metric("hops_mean", "hops", "Hops of events that members relay: the mean", _hops),
)

"""Recovery: events that a process asked others for."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from ordercast.check.metric import Breakdown, MeasuredRun, Metric
from ordercast.check.metrics.events import event_of, kinds


class RecoveryOutcome(NamedTuple):
    outcome: str
    events: int
    share: float


def _outcomes(run: MeasuredRun) -> list[RecoveryOutcome]:
    """`answered` in time; `late`: it came, too late for the process that had asked; `given up`:
    reported as lost; `open`: neither by the end."""
    fates: defaultdict[tuple[object, ...], set[str]] = defaultdict(set)
    for row in run.rows:
        if row.kind in ("recover", "lose", "deliver"):
            fate = row.cause or "" if row.kind == "recover" else row.kind
            fates[row.process, row.incarnation, event_of(row)].add(fate)
    counts = Counter(_outcome(fate) for fate in fates.values() if "asked" in fate)
    return [RecoveryOutcome(name, count, count / counts.total()) for name, count in counts.items()]


def _outcome(fate: set[str]) -> str:
    if "lose" in fate:
        return "late" if "answered" in fate else "given up"
    if "answered" in fate:
        return "answered"
    return "late" if "deliver" in fate else "open"


def _success(run: MeasuredRun) -> float | None:
    found = run.once(kinds)
    asked = found["recover", "asked"]
    return min(1.0, found["recover", "answered"] / asked) if asked else None


OUTCOMES = Breakdown(
    "recovery", "What became of the events that processes asked for", RecoveryOutcome, _outcomes
)
METRICS = (
    Metric(
        "recover_asked",
        "events",
        "Events that a process asked others for",
        lambda run: run.once(kinds)["recover", "asked"],
    ),
    Metric(
        "recover_failed",
        "events",
        "Events asked for that did not come in time",
        lambda run: run.once(kinds)["recover", "failed"],
    ),
    Metric("recover_success", "share", "Events asked for that came", _success),
)

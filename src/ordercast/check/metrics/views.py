"""How long a group takes to change its view: from the first sign of it at a process."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.check.metric import Breakdown, MeasuredRun, Metric, mean
from ordercast.units import SECOND

SIGNS = ("suspect", "confirm", "exclude", "join", "leave")
"""The rows with which a change of view begins at a process."""


class ViewChange(NamedTuple):
    group: str | None
    view: int | None
    installed: int  # by how many processes
    changed: int  # by how many of them after a sign
    change_mean: float | None  # seconds from the sign
    change_max: float | None
    spread: float  # seconds between the first and the last installation


class _Installation(NamedTuple):
    group: str | None
    view: int | None
    at: int
    took: int | None  # nanoseconds from the first sign since the view before; None: there was none


def _installations(run: MeasuredRun) -> list[_Installation]:
    found = []
    began: dict[tuple[str, int, str | None], int] = {}
    for row in run.rows:
        if row.kind in SIGNS:
            began.setdefault((row.process, row.incarnation, row.group), row.at)
        elif row.kind == "view":
            since = began.pop((row.process, row.incarnation, row.group), None)
            took = None if since is None else row.at - since
            found.append(_Installation(row.group, row.view, row.at, took))
    return found


def _times(run: MeasuredRun) -> list[float]:
    return [one.took / SECOND for one in run.once(_installations) if one.took is not None]


def _by_view(run: MeasuredRun) -> list[ViewChange]:
    views: dict[tuple[str | None, int | None], list[_Installation]] = {}
    for one in run.once(_installations):
        views.setdefault((one.group, one.view), []).append(one)
    found = []
    for (group, view), several in views.items():
        took = [one.took / SECOND for one in several if one.took is not None]
        at = [one.at for one in several]
        average, longest = (mean(took), max(took)) if took else (None, None)
        spread = (max(at) - min(at)) / SECOND
        found.append(ViewChange(group, view, len(several), len(took), average, longest, spread))
    return found


def _changes(run: MeasuredRun) -> float | None:
    changed = {(one.group, one.view) for one in run.once(_installations) if one.took is not None}
    return len(changed) or None


VIEW_CHANGES = Breakdown("view_changes", "Every view of every group", ViewChange, _by_view)
METRICS = (
    Metric("view_changes", "views", "Views installed after a sign of a change", _changes),
    Metric(
        "view_change_mean",
        "s",
        "From the first sign of a change at a process to its new view: the mean",
        lambda run: mean(run.once(_times)) if run.once(_times) else None,
    ),
    Metric(
        "view_change_max",
        "s",
        "From the first sign of a change at a process to its new view: the longest",
        lambda run: max(run.once(_times), default=None),
    ),
)

"""disjoint-views: when the run is quiet, the last views of a group are equal or disjoint.

At the end of a finished run the last views of a group's live members are equal or have no member in
common; otherwise unknown. Live is the last incarnation of a process that neither crashed nor left
the group after its last view, and did not stop before the group's last view was installed. A member
that came back has no view until it installs one. Unknown, too, where a trace has traffic but no
view at all.

Witness: the two views.
"""

from __future__ import annotations

from collections.abc import Iterator

from ordercast.check.history import History, bare_name
from ordercast.check.law import Law
from ordercast.check.verdict import Verdict, broken, holds, row_writer, unknown
from ordercast.check.views import NO_VIEWS, Content, content, nothing_to_judge
from ordercast.trace.schema import Row

NAME = "disjoint-views"


def judge(history: History) -> Verdict:
    if not history.finished:
        why = f"the run is {history.header.ending}, not finished: views may still have changed"
        return unknown(NAME, why)
    if nothing_to_judge(history):
        return unknown(NAME, NO_VIEWS)
    last_views: dict[str, dict[Content, Row]] = {}
    for row in _last_views(history):
        last_views.setdefault(row.group or "", {}).setdefault(content(row), row)
    for views in last_views.values():
        holder: dict[str, Row] = {}
        for row in views.values():
            for name in dict.fromkeys(map(bare_name, row.members or ())):
                other = holder.setdefault(name, row)
                if other is not row:
                    why = (
                        f"{name} is in view {other.view}, the last of {row_writer(other)}, and "
                        f"in view {row.view}, the last of {row_writer(row)}"
                    )
                    return broken(NAME, (other, row), why)
    return holds(NAME)


def _last_views(history: History) -> Iterator[Row]:
    """The last view of every live member, group by group."""
    installed_at: dict[str | None, int] = {}
    for log in history.logs:
        for _, row in log.views:
            installed_at[row.group] = max(row.at, installed_at.get(row.group, row.at))
    for log in history.last_logs.values():
        if log.crash is None:
            for group, row in {row.group: row for _, row in log.views}.items():
                stopped = log.stop is not None and log.stop.at < installed_at[group]
                if group not in log.gone and not stopped:
                    yield row


LAW = Law(
    name=NAME,
    says="when the run is quiet, the last views of a group are equal or disjoint",
    unknown_when="the run did not finish, or there is traffic but no view row",
    reads=("join", "leave", "view"),
    judge=judge,
    finished_only=True,
    skeleton_only=True,
    place=120,
)

"""rest: when the faults are over and time has passed, a group comes to rest.

The parameters of a run say how long load and faults last (`duration`) and how long the run goes on
quietly after that (`quiet`). Halfway through the quiet phase everybody has noticed what happened:
from then on there is no `suspect`, `view` or `join` row, until the first process stops. So nobody
is suspected, no view changes and no group is formed again. Only a finished run can show it. A run
without any such row is at rest, whatever its header says.

Witness: the first row that should not be there.
"""

from __future__ import annotations

from ordercast.check.history import History
from ordercast.check.law import Law
from ordercast.check.verdict import Verdict, broken, holds, row_writer, unknown
from ordercast.trace.schema import Header
from ordercast.units import Duration

NAME = "rest"
RESTLESS = {
    "suspect": "suspected {0.peer}",
    "view": "installed view {0.view} of {0.group}",
    "join": "joined {0.group}",
}
"""The rows of a group that is not at rest, and what to say of them."""


def judge(history: History) -> Verdict:
    if not history.finished:
        why = f"the run is {history.header.ending}, not finished: it may have come to rest later"
        return unknown(NAME, why)
    if not history.kinds.intersection(RESTLESS):
        return holds(NAME)
    begins = rest_begins(history.header)
    if begins is None:
        return unknown(NAME, "the header does not say when the quiet phase was")
    stops = [log.stop.at for log in history.logs if log.stop is not None]
    ends = min((at for at in stops if at >= begins), default=None)
    late = [
        row
        for log in history.logs
        for row in log.rows
        if row.kind in RESTLESS and row.at >= begins and (ends is None or row.at < ends)
    ]
    if not late:
        return holds(NAME)
    row = min(late, key=lambda one: (one.at, one.process, one.step))
    after = Duration(row.at - begins)
    what = RESTLESS[row.kind].format(row)
    why = f"{row_writer(row)} {what} {after} after the middle of the quiet phase"
    return broken(NAME, (row,), why)


def rest_begins(header: Header) -> int | None:
    """The middle of the quiet phase, on the scale of `at`; None: the header does not say."""
    duration, quiet = (_time(header.parameters.get(name)) for name in ("duration", "quiet"))
    if header.start is None or duration is None or quiet is None:
        return None
    return header.start + duration + quiet // 2


def _time(value: object) -> int | None:
    try:
        return int(Duration.parse(value))
    except (TypeError, ValueError):
        return None


LAW = Law(
    name=NAME,
    says=(
        "from the middle of the quiet phase on, when all faults are over, nobody is suspected, no "
        "view changes and no group is formed"
    ),
    remark="until the first process stops",
    unknown_when="the run did not finish, or its header does not say when it was quiet",
    reads=("join", "suspect", "view"),
    judge=judge,
    finished_only=True,
    skeleton_only=True,
    parameters=("duration", "quiet"),
    place=125,
)

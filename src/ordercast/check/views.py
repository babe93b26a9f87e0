"""What the laws about views share.

They are unknown where a trace has traffic but no view at all: then nobody wrote them down, which is
not the same as all being well. A member may be named by its process or by its incarnation
(`n1#2`); what counts is the process.
"""

from __future__ import annotations

from typing import TypeAlias

from ordercast.check.history import History, bare_name
from ordercast.trace.schema import Row

NO_VIEWS = "events were submitted or delivered, but the trace has no view row"

Content: TypeAlias = tuple[int | None, tuple[str, ...]]


def nothing_to_judge(history: History) -> bool:
    return bool(history.events) and "view" not in history.kinds


def content(row: Row) -> Content:
    """What a view is: its identity and its members, however they are spelled."""
    return row.view, tuple(map(bare_name, row.members or ()))

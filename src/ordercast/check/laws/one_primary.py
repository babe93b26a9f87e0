"""one-primary: the primary views of a group form one chain.

The primary views of a group name, over all its formations, have different numbers. Each has more
than half of the members of the one before it, or half of them and the first by name. Between two of
them a view may be missing in the trace, because those that formed it crashed before they wrote it:
then all its members have written that they attempted it, and it takes its place in the chain.

Witness: the two views.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ordercast.check.history import History, bare_name
from ordercast.check.law import Law
from ordercast.check.verdict import Verdict, broken, holds, row_writer
from ordercast.trace.schema import Row
from ordercast.types import name_of

NAME = "one-primary"

Names = tuple[str, ...]


def judge(history: History) -> Verdict:
    by_group: dict[str, list[Row]] = {}
    for log in history.logs:
        for row in log.rows:
            if row.kind == "primary":
                by_group.setdefault(name_of(row.group or ""), []).append(row)
    for rows in by_group.values():
        formed: dict[int, Row] = {}
        for row in rows:
            if row.cause == "formed":
                other = formed.setdefault(row.order or 0, row)
                if (other.view, _names(other)) != (row.view, _names(row)):
                    return broken(NAME, (other, row), f"{_told(other)}, and {_told(row)}")
        chain = [formed[number] for number in sorted(formed)]
        between = list(_attempted_by_all(rows))
        for earlier, later in itertools.pairwise(chain):
            if not _follows(earlier, later, between):
                before = f"number {earlier.order}, of {_listed(earlier)}"
                why = f"{_told(later)}, without a majority of {before}"
                return broken(NAME, (earlier, later), why)
    return holds(NAME)


def _names(row: Row) -> Names:
    return tuple(sorted(map(bare_name, row.members or ())))


def _attempted_by_all(rows: list[Row]) -> Iterator[tuple[int, Names]]:
    """The views that somebody may have formed, by number."""
    writers: dict[tuple[int, Names], set[str]] = {}
    for row in rows:
        writers.setdefault((row.order or 0, _names(row)), set()).add(row.process)
    for (number, names), wrote in sorted(writers.items()):
        if wrote.issuperset(names):
            yield number, names


def _follows(earlier: Row, later: Row, between: list[tuple[int, Names]]) -> bool:
    """Whether `later` has a majority of `earlier`, or of one that may have come in between."""
    reached = [_names(earlier)]
    for number, names in between:
        is_between = (earlier.order or 0) < number < (later.order or 0)
        if is_between and any(_has_majority(before, names) for before in reached):
            reached.append(names)
    return any(_has_majority(before, _names(later)) for before in reached)


def _has_majority(of: Names, names: Names) -> bool:
    there = sum(name in names for name in of)
    return 2 * there > len(of) or (2 * there == len(of) and of[0] in names)


def _listed(row: Row) -> str:
    return f"{{{' '.join(_names(row))}}}"


def _told(row: Row) -> str:
    return f"{row_writer(row)} formed primary view {row.order} of {_listed(row)}"


LAW = Law(
    name=NAME,
    says=(
        "the primary views of a group form one chain: each has a majority of the one before it, "
        "or half of it with the first by name"
    ),
    reads=("primary",),
    judge=judge,
    skeleton_only=True,
    place=125,
)

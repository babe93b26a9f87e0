"""view-agreement: two processes that stay connected install the same sequence of views.

A view holds its installer. And two processes that stay connected install the same sequence of views
of the group, the same identities with the same members. They are connected as in membership.py,
each is the only incarnation of its process in the run, and neither crashed or left. Where one of
them installed more than the other, that is broken in a finished run, unless the other had stopped
by then; in a run that did not finish it is unknown. Unknown, too, where a trace has traffic but no
view at all.

Witness: the view without its installer, or the first views that differ (if one is absent: the row
that the other lacks).
"""

from __future__ import annotations

from itertools import combinations, zip_longest
from typing import TypeAlias

from ordercast.check.history import History, bare_name
from ordercast.check.law import MEMBERS, Law
from ordercast.check.log import Log
from ordercast.check.membership import GroupMembership
from ordercast.check.verdict import Verdict, broken, holds, row_writer, unknown
from ordercast.check.views import NO_VIEWS, Content, content, nothing_to_judge
from ordercast.trace.schema import Row

NAME = "view-agreement"
_Sequence: TypeAlias = tuple[Content, ...]


def judge(history: History) -> Verdict:
    if nothing_to_judge(history):
        return unknown(NAME, NO_VIEWS)
    for log in history.logs:
        for _, row in log.views:
            if log.process not in map(bare_name, row.members or ()):
                why = f"{row_writer(row)} installed view {row.view}, which does not hold it"
                return broken(NAME, (row,), why)
    open_question: Verdict | None = None
    for group in history.groups:
        found = _different_views(history, GroupMembership(history, group))
        if found is not None and found.witness:
            return found
        open_question = open_question or found
    return open_question or holds(NAME)


def _different_views(history: History, members: GroupMembership) -> Verdict | None:
    # As in agreement.py: whoever has the same sequence needs no comparison.
    by_sequence: dict[_Sequence, list[Log]] = {}
    for log in history.logs:
        if (
            history.is_only_log(log)
            and log.crash is None
            and members.group not in log.left
            and members.group in log.first_view
        ):
            sequence = tuple(map(content, _views(log, members.group)))
            by_sequence.setdefault(sequence, []).append(log)
    open_question: Verdict | None = None
    for ones, others in combinations(by_sequence.values(), 2):
        for one in ones:
            for other in others:
                if members.connected(one, other):
                    found = _first_difference(history, members.group, one, other)
                    if found is not None and found.witness:
                        return found
                    open_question = open_question or found
    return open_question


def _views(log: Log, group: str) -> list[Row]:
    return [row for _, row in log.views if row.group == group]


def _first_difference(history: History, group: str, one: Log, other: Log) -> Verdict | None:
    """Two connected incarnations with different sequences: broken, unknown, or one had stopped."""
    for first, second in zip_longest(_views(one, group), _views(other, group)):
        if first is not None and second is not None:
            if content(first) == content(second):
                continue
            why = (
                f"{one.process} and {other.process} stayed connected, but one installed view "
                f"{first.view} where the other installed view {second.view}"
            )
            return broken(NAME, (first, second), why)
        more, shorter = (first, other) if first is not None else (second, one)
        assert more is not None
        if shorter.stop is not None and shorter.stop.at < more.at:
            return None
        why = f"{shorter.process} stayed connected with {more.process} but never installed view "
        why += str(more.view)
        if history.finished:
            return broken(NAME, (more,), why)
        return unknown(NAME, why + "; the run did not finish, so it may still have")
    return None


LAW = Law(
    name=NAME,
    says=(
        "two processes that stay connected install the same sequence of views; a view holds "
        "its installer"
    ),
    unknown_when=(
        "there is traffic but no view row, or one process has fewer views in a truncated run"
    ),
    reads=MEMBERS,
    judge=judge,
    skeleton_only=True,
    place=110,
)

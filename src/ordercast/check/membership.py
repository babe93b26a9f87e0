"""The members that stayed in a group, and were connected: whom laws about absence may judge.

These laws say that somebody should have delivered something, so they may only look at members
of whom that can be asked without doubt:

  member     an incarnation with a join, view, submit, deliver or lose row in the group
  stayed     it is the only incarnation of its process in the run; it did not crash and did not
             leave; it was given no state when it joined, which may have what it did not deliver;
             it was there from the beginning: it has neither join nor view rows, or the first of
             them is no later than the group's first submission, or its first view is the first view
             of whoever made that submission; and it did not stop before the
             group's last submission, for that would be leaving too. A member that joined before
             the first submission and had no view yet was there only if it is in the first view of
             whoever made it, if that one has views: in an open group it was still joining
  lasted     said of a submitter: it is the last incarnation of its process, it did not crash, and
             it did not stop before the group's last submission
  connected  no suspect row names one of the two at the other, in any group but in other
             formations of this one; and every view that one of them installed in the group holds
             the other, unless the other had stopped by then
  before     said of a member and an origin: the first view of the member is earlier than that of
             the origin; and the member lasted, and did not leave

`at` is compared across processes only here, to tell early from late; a clock that is off makes a
member exempt or not, never two rows of one log change places.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from ordercast.check.history import History, bare_name
from ordercast.check.log import Log
from ordercast.trace.schema import Row
from ordercast.types import name_of


class GroupMembership:
    """The members of one group in one run."""

    def __init__(self, history: History, group: str) -> None:
        self.history = history
        self.group = group
        submits = [history.submits[event] for event in history.submitted_in.get(group, ())]
        self.first_submit = min(submits, key=lambda row: row.at, default=None)
        self.last_submit_at = max((row.at for row in submits), default=None)
        self._agreed: dict[tuple[str, int], frozenset[str] | None] = {}

    @cached_property
    def stayed(self) -> list[Log]:
        return [log for log in self.history.logs if self.is_member(log) and self._stays(log)]

    def lasted(self, log: Log) -> bool:
        return (
            self.history.last_logs[log.process] is log
            and log.crash is None
            and not self._stopped_early(log)
        )

    @cached_property
    def lasting(self) -> list[Log]:
        """The members that had a view, lasted, and did not leave."""
        return [
            log
            for log in self.history.logs
            if self.group in log.first_view and self.lasted(log) and self.group not in log.left
        ]

    def came_after(self, log: Log) -> Iterator[Log]:
        """The incarnations whose first view is later than that of this member."""
        at = log.first_view[self.group].at
        for other in self.history.logs:
            first = self._first_view(other)
            if first is not None and first.at > at and other.process != log.process:
                yield other

    def connected(self, one: Log, other: Log) -> bool:
        return (
            not self._suspects(one, other)
            and not self._suspects(other, one)
            and self._always_sees(one, other)
            and self._always_sees(other, one)
        )

    def _suspects(self, one: Log, other: Log) -> bool:
        name = name_of(self.group)
        return any(
            group is None or group == self.group or name_of(group) != name
            for group in self.history.suspicions.get((one.process, other.process), ())
        )

    def is_member(self, log: Log) -> bool:
        history, group = self.history, self.group
        return (
            group in log.began
            or bool(history.delivered_in(log, group))
            or any(history.group_of[event] == group for _, event in log.submitted)
            or bool(history.lost_in(log, group))
        )

    def _stays(self, log: Log) -> bool:
        return (
            self.history.is_only_log(log)
            and log.crash is None
            and self.group not in log.left
            and self.group not in log.given_state
            and not self._stopped_early(log)
            and self._came_first(log)
        )

    def _stopped_early(self, log: Log) -> bool:
        return (
            log.stop is not None
            and self.last_submit_at is not None
            and log.stop.at < self.last_submit_at
        )

    def _came_first(self, log: Log) -> bool:
        began = log.began.get(self.group)
        first = self.first_submit
        if began is None or first is None:
            return True
        theirs = self._first_view(self.history.submitters[self.history.id_of(first)])
        ours = self._first_view(log)
        if began.at <= first.at:
            if ours is None or theirs is None or ours.at <= first.at:
                return True
            return log.process in map(bare_name, theirs.members or ())
        return ours is not None and theirs is not None and ours.view == theirs.view

    def _first_view(self, log: Log) -> Row | None:
        return log.first_view.get(self.group)

    def _always_sees(self, one: Log, other: Log) -> bool:
        seen = self._in_all_views(one)
        if seen is None or other.process in seen:
            return True
        return other.stop is not None and all(
            row.at > other.stop.at or other.process in map(bare_name, row.members or ())
            for _, row in one.views
            if row.group == self.group
        )

    def _in_all_views(self, log: Log) -> frozenset[str] | None:
        """The members that are in every view of this incarnation; None if it installed none."""
        key = log.process, log.incarnation
        if key not in self._agreed:
            views = [row.members or () for _, row in log.views if row.group == self.group]
            holders = [frozenset(map(bare_name, members)) for members in views]
            self._agreed[key] = frozenset.intersection(*holders) if holders else None
        return self._agreed[key]

"""Whose state goes on when sides merge in a group with a quorum, and who may give up its own.

Rules.
 1. When members are ready for a view, each reports its vote and what its state covers. From the
    reports all who install the view find the same. From then on until the installation no member
    goes on with a vote, so what it has reported stays true.
 2. A state covers what any member with the same deliveries reports that it covers.
 3. The state that counts covers more than others of the last primary view and of the attempts since
    then, whichever side is larger. Among those that cover as much the rule without a quorum holds.
 4. If the view can become the primary one, a member gives up its state for one that covers each of
    these views that its own covers. Otherwise it must cover all that its own does, but for attempts
    that nobody can have formed (`protocol/primary/rules.py`, rule 8). A member for which that does
    not hold goes on with the state that it has, and is not up to date.

What it does not do: decide which view is primary. The vote on a view begins when its members have
their states, and goes by what they cover then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordercast.protocol.primary import rules
from ordercast.protocol.primary.packets import Coverage, VoterReport
from ordercast.types import NodeId, view_identity


class Inheritance:
    """What the members of a view report when they are ready for it."""

    def __init__(self, group: str, reports: Mapping[NodeId, VoterReport]) -> None:
        self.group = group
        self.reports = dict(reports)
        by_name = {node.name: report for node, report in reports.items()}
        found = rules.decide(by_name)
        self.may_be_primary = not found.why
        self._views = (found.last, *found.binding)
        self._standings = {name: report.standing for name, report in by_name.items()}

    def coverage(self, node: NodeId) -> Coverage:
        """Of the state that this member has."""
        branch = self.reports[node].coverage.branch
        coverages = [one.coverage for one in self.reports.values()]
        return rules.joined([one for one in coverages if one.branch == branch], branch)

    def worth(self, node: NodeId) -> int:
        """How many of the views that count its state covers."""
        coverage = self.coverage(node)
        return sum(rules.covers(coverage, view) for view in self._views)

    def may_take(self, node: NodeId, taken: Coverage, now: Coverage | None = None) -> bool:
        """Whether a member may give up its state for one that covers this. `now`: what else its
        state covers by now."""
        own = self.coverage(node)
        if now is not None:
            own = rules.joined((own, now), own.branch)
        if self.may_be_primary:
            wanted = (view for view in self._views if rules.covers(own, view))
            return all(rules.covers(taken, view) for view in wanted)
        return rules.replaces(taken, own, self._standings)

    def merged(self, givers: Sequence[NodeId]) -> Coverage:
        """Of a state that has all that these have."""
        coverages = [self.coverage(giver) for giver in givers]
        if len(coverages) == 1:
            return coverages[0]
        branches = [one.branch for one in coverages]
        return rules.joined(coverages, view_identity(self.group, "merged", *branches))

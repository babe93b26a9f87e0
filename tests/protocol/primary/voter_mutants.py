"""Voters with a planted bug, each of which the search must find."""

from __future__ import annotations

from ordercast.protocol.primary import rules
from ordercast.protocol.primary.packets import (
    Coverage,
    PrimaryView,
    VoterReport,
    VoterStanding,
)
from ordercast.protocol.primary.voter import Voter


class ForgetsAttempts(Voter):
    """Counts the last primary view only: one that others have formed may be missed."""

    def _find(self, reports: dict[str, VoterReport]) -> rules.Eligibility:
        return rules.decide({name: without_attempts(one) for name, one in reports.items()})


def without_attempts(report: VoterReport) -> VoterReport:
    standing = VoterStanding(report.standing.number, report.standing.last)
    return VoterReport(standing, report.coverage)


class ForgetsRestarts(Voter):
    """A restarted process has the vote that it began with."""

    def __init__(self, *given, **more) -> None:
        super().__init__(*given[:3])


class IgnoresStates(Voter):
    """Any majority may go on, whatever its members have."""

    def _find(self, reports: dict[str, VoterReport]) -> rules.Eligibility:
        found = rules.decide(reports)
        return found._replace(why="") if "state" in found.why else found


class TakesAnyState(Voter):
    """Gives up its state for any other one."""

    def may_take(self, giver, theirs) -> bool:
        return True


class CountsThoseWhoReport(Voter):
    """Does not wait for all members of the view."""

    def _decide(self, step, view) -> None:
        known = [name for name, (_, one) in self._reports.items() if one.view == view.id]
        for member in view.members:
            if member.name not in known:
                self._reports[member.name] = member, self._reports[self.me.name][1]
        super()._decide(step, view)


class TakesAnyHalf(Voter):
    """Half of an even number is enough, whichever."""

    def _find(self, reports: dict[str, VoterReport]) -> rules.Eligibility:
        found = rules.decide(reports)
        if found.lacks is not None and 2 * len(found.missing) <= len(found.lacks.members):
            return found._replace(why="", lacks=None)
        return found


class KeepsNoLastView(Voter):
    """Any majority of the members that the group began with may go on."""

    def __init__(self, me, group, first, record=None) -> None:
        super().__init__(me, group, first, record)
        self._first = PrimaryView(0, tuple(sorted(first)))

    def _find(self, reports: dict[str, VoterReport]) -> rules.Eligibility:
        return rules.decide({name: self._without_last(one) for name, one in reports.items()})

    def _without_last(self, report: VoterReport) -> VoterReport:
        standing = VoterStanding(report.standing.number, self._first)
        return VoterReport(standing, Coverage(self._first, branch=report.coverage.branch))


class InheritsAnyHistory(Voter):
    """Members of a primary view count as up to date, whatever they have delivered before."""

    def _find(self, reports: dict[str, VoterReport]) -> rules.Eligibility:
        return rules.decide(reports)._replace(heirs=tuple(sorted(reports)))


MUTANTS = (
    *(ForgetsAttempts, ForgetsRestarts, IgnoresStates, TakesAnyState, CountsThoseWhoReport),
    *(TakesAnyHalf, KeepsNoLastView),
)

"""When a view may become the primary one.

From Yeger Lotem, Keidar, Dolev: Dynamic voting for consistent primary components, 1997 (the basic
protocol). The paper's session is a view with a number here.

Rules.
 1. A view is attempted only with the reports of all its members, by each of them. It is formed by
    a member that has the attempts of all. So where one member formed a view, all its members have
    persisted the attempt.
 2. A view may be attempted if it has a majority of the last primary view that any member reports,
    and of every later attempt that one of them reports. Of an even number, half with the first
    by name is a majority.
 3. An attempt is void if one of its members that reports did not make it, and formed nothing later:
    nobody can have formed it. It is void, too, if all its members report and none formed it.
 4. A member of a primary view that has no record has lost it, and its vote: it counts in later
    views only. That a member lost an attempt nobody can see: folders must not be lost.
 5. An attempt has a number above all that its members have attempted.

These rules make the primary views of a group one chain, in which each has a majority of the one
before it. The others concern what applications have.

 6. Members with one branch share one state, which covers what any of them reports that it covers. A
    view may be attempted if the members of one branch cover each of the views of rule 2, but for
    those all of whose members are there: they have restarted, and the group with them.
 7. These members are the heirs. If several branches could be, it is the one that covers more of
    these views, then the one with more members, then the one with the first by name. The attempt
    adds to what the heirs cover, and to nothing that others do, until they have an heir's state.
 8. A member gives up its state for another one only if that covers what its own does. A state that
    is made of several covers what any of them does.

What it does not do: send, or persist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ordercast.protocol.primary.packets import (
    ATTEMPT_BITS,
    MOST_ATTEMPTS,
    Coverage,
    PrimaryView,
    VoterReport,
    VoterStanding,
)

HIGHEST = (1 << ATTEMPT_BITS) - 1
"""Of numbers of attempts, as packets have them."""


class Eligibility(NamedTuple):
    """Whether a view may be attempted, as all its members find from the same reports."""

    number: int  # that the attempt has
    last: PrimaryView  # the last primary view that one of them knows
    void: frozenset[PrimaryView]  # attempts that nobody can have formed
    binding: tuple[PrimaryView, ...]  # later attempts that somebody may have formed
    heirs: tuple[str, ...] = ()  # members whose state is that of the next primary view
    lacks: PrimaryView | None = None  # of which view there is no majority, or not the state
    missing: tuple[str, ...] = ()  # its members that are not there
    why: str = ""  # "": it may be attempted


def has_majority(of: tuple[str, ...], present: Collection[str]) -> bool:
    """Whether these names are more than half of a sorted list, or half of it with the first."""
    there = sum(name in present for name in of)
    return 2 * there > len(of) or (2 * there == len(of) and bool(of) and of[0] in present)


def decide(reports: Mapping[str, VoterReport]) -> Eligibility:
    """By member of the view, all of them."""
    standings = {name: report.standing for name, report in reports.items()}
    coverages = [report.coverage for report in reports.values()]
    lasts = [one.last for one in standings.values()] + [one.last for one in coverages]
    last = max(lasts, key=_place)
    attempts = dict.fromkeys(view for one in standings.values() for view in one.attempts)
    void = frozenset(view for view in attempts if _is_void(view, standings))
    later = (view for view in attempts if view.number > last.number and view not in void)
    binding = tuple(sorted(later, key=_place))
    number = 1 + max(last.number, *(one.number for one in standings.values()))
    # Of number 0 there may be two, if an open group was founded twice: then no side goes on alone.
    equal = dict.fromkeys(view for view in lasts if view.number == last.number and view.members)
    voting = [name for name, one in standings.items() if one.number or not last.number]
    views = (*(equal or (last,)), *binding)
    heirs = _heirs(reports, views)
    found = Eligibility(number, last, void, binding, heirs)
    for view in views:
        missing = tuple(name for name in view.members if name not in reports)
        if not has_majority(view.members, reports if view in binding else voting):
            why = f"{len(missing)} of {len(view.members)} members are missing"
            if forgot := [one for one in view.members if one in reports and one not in voting]:
                why = f"{why}, and {' '.join(forgot)} lost the record of it"
            return found._replace(lacks=view, missing=missing, why=why)
        if missing and not any(covers(reports[name].coverage, view) for name in heirs):
            why = "nobody here has the state of that view"
            return found._replace(lacks=view, missing=missing, why=why)
    if len(binding) >= MOST_ATTEMPTS or number > HIGHEST:
        missing = tuple(name for name in last.members if name not in reports)
        why = f"{len(binding)} attempts are undecided"
        return found._replace(lacks=last, missing=missing, why=why)
    return found


def covers(coverage: Coverage, view: PrimaryView) -> bool:
    """Whether a state has all that was secured in this view, if anything was.

    Of two views with one number at most one was ever formed.
    """
    return view.number <= coverage.last.number or view in coverage.attempts


def _heirs(reports: Mapping[str, VoterReport], views: tuple[PrimaryView, ...]) -> tuple[str, ...]:
    """Rule 7."""
    branches: dict[int, list[str]] = {}
    for name in sorted(reports):
        branches.setdefault(reports[name].coverage.branch, []).append(name)

    def worth(names: list[str]) -> tuple[bool, int, int]:
        covered = [any(covers(reports[name].coverage, view) for name in names) for view in views]
        is_enough = all(
            there or all(name in reports for name in view.members)
            for view, there in zip(views, covered, strict=True)
        )
        return is_enough, sum(covered), len(names)

    heirs = max(branches.values(), key=worth)
    return tuple(heirs)


def may_replace(giver: str, theirs: VoterReport, ours: Coverage) -> bool:
    """Rule 8, by what the giver reports."""
    return replaces(theirs.coverage, ours, {giver: theirs.standing})


def replaces(theirs: Coverage, ours: Coverage, standings: Mapping[str, VoterStanding]) -> bool:
    """Rule 8. An attempt that one of these should have made, and did not, is void."""
    return covers(theirs, ours.last) and all(
        covers(theirs, view) or _is_void(view, standings) for view in ours.attempts
    )


def joined(coverages: Sequence[Coverage], branch: int) -> Coverage:
    """What a state covers that has all that these have."""
    last = max((one.last for one in coverages), key=_place)
    attempts = dict.fromkeys(view for one in coverages for view in one.attempts)
    later = sorted((view for view in attempts if view.number > last.number), key=_place)
    return Coverage(last, tuple(later[-MOST_ATTEMPTS:]), branch)


def _place(view: PrimaryView) -> tuple[int, tuple[str, ...]]:
    return view.number, view.members


def _is_void(view: PrimaryView, standings: Mapping[str, VoterStanding]) -> bool:
    """Rule 3. A member that knows a later primary view does not say what became of this one."""
    there = [standings[name] for name in view.members if name in standings]
    if any(one.last.number >= view.number for one in there):
        return False
    if any(view not in one.attempts for one in there):
        return True
    return len(there) == len(view.members)


def attempted(
    own: VoterStanding, found: Eligibility, members: tuple[str, ...], branch: int = 0
) -> tuple[VoterStanding, Coverage]:
    """Our standing with the attempt, to be persisted before anybody hears of it, and what the heirs
    cover then."""
    ours = (view for view in own.attempts if view in found.binding)
    attempt = PrimaryView(found.number, members)
    standing = VoterStanding(found.number, found.last, (*ours, attempt))
    return standing, Coverage(found.last, (*found.binding, attempt), branch)


def formed(own: VoterStanding, branch: int = 0) -> tuple[VoterStanding, Coverage]:
    """All members attempted the last of our attempts."""
    view = own.attempts[-1]
    return VoterStanding(own.number, view), Coverage(view, branch=branch)

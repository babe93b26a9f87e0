"""One member's part in the primary component of one group.

| phase     | a view is installed | all have reported        | all have attempted |
|-----------|---------------------|--------------------------|--------------------|
| UNDECIDED | UNDECIDED, reports  | ATTEMPTED, or OUTSIDE    | -                  |
| ATTEMPTED | UNDECIDED, reports  | -                        | PRIMARY            |
| PRIMARY   | UNDECIDED, reports  | -                        | -                  |
| OUTSIDE   | UNDECIDED, reports  | -                        | -                  |

Rules.
 1. Of each member only the newest report and the newest attempt count, and only for the view that
    they name: links keep the order, so an older one is of a view that its sender has left.
 2. An attempt is persisted before it is sent. That a view was formed is persisted before the
    application hears of it.
 3. The coverage says what the state of the application has. It is not persisted: a restarted
    process has no state. A family that moves a member to a view with another state gives it first.
 4. Where members of a view come with different states, those that lack what the heirs have
    (`rules.py`) cover what they did before, until they have caught up.

What it does not do: agree on views, or transfer a state.
"""

from __future__ import annotations

from enum import Enum

from msgspec.structs import replace

from ordercast.errors import PeerError
from ordercast.kernel.step import Step
from ordercast.protocol.primary import rules
from ordercast.protocol.primary.packets import (
    MOST_MEMBERS,
    Coverage,
    PrimaryAttempt,
    PrimaryReport,
    PrimaryView,
    VoterRecord,
    VoterReport,
    VoterStanding,
)
from ordercast.types import NodeId, Primary, View, label_of, view_identity


class VoterPhase(Enum):
    UNDECIDED = "undecided"
    ATTEMPTED = "attempted"
    PRIMARY = "primary"
    OUTSIDE = "outside"


_NOTHING = Coverage(PrimaryView(0, ()))


class Voter:
    def __init__(
        self, me: NodeId, group: str, first: tuple[str, ...], record: VoterRecord | None = None
    ) -> None:
        """`first` are the configured members: of them the first primary view has a majority. Of an
        open group there are none, until it is founded."""
        self.me = me
        self.group = group
        unwritten = VoterStanding(0, PrimaryView(0, tuple(sorted(first))))
        self.standing = unwritten if record is None else record.standing
        self.coverage = _NOTHING  # of our application's state
        self.view: View | None = None  # the one that we are in
        self.phase = VoterPhase.UNDECIDED
        self.heirs: tuple[str, ...] = ()  # of this view, once it is attempted; names
        self._inherited = _NOTHING  # what they cover
        self._reports: dict[str, tuple[NodeId, PrimaryReport]] = {}  # the newest, by name
        self._attempts: dict[str, tuple[NodeId, PrimaryAttempt]] = {}

    def is_primary_in(self, formation: str, members: tuple[NodeId, ...]) -> bool:
        """Whether the view of these is the primary one, as far as we know."""
        if self.phase is not VoterPhase.PRIMARY:
            return False
        view = self.view
        return view is not None and view.formation == formation and view.members == members

    # --- inputs ------------------------------------------------------------------------------

    def found(self, members: tuple[str, ...]) -> None:
        """These found an open group. A member that was in it before knows better."""
        if not self.standing.number and not self.standing.last.members:
            self.standing = VoterStanding(0, PrimaryView(0, tuple(sorted(members))))

    @property
    def report(self) -> VoterReport:
        return VoterReport(self.standing, self.coverage)

    @property
    def rank(self) -> int:
        """The number of the last primary view that our state covers, as far as we know."""
        return max(one.number for one in (self.coverage.last, *self.coverage.attempts))

    def may_take(self, giver: NodeId, theirs: VoterReport | None) -> bool:
        """Whether we may give up our state for that of another member."""
        return theirs is not None and rules.may_replace(giver.name, theirs, self.coverage)

    def take(
        self, theirs: VoterReport | None, founds: bool = False, members: tuple[NodeId, ...] = ()
    ) -> None:
        """We have the state of another member now, or found an open group with these."""
        assert theirs is not None, "`may_take` was asked"
        self.coverage = theirs.coverage
        if founds:
            self.found(tuple(one.name for one in members))

    def add_history(self, *parts: object) -> None:
        """Our application has delivered this, and members with other deliveries have other parts:
        for families whose members come into a view with different states."""
        self.coverage = extended(self.group, self.coverage, *parts)

    def catch_up(self, view: int) -> None:
        """Our application has now what the heirs had when this view began. Later ones may be under
        way: then it does not count."""
        if self.view is None or self.view.id != view:
            return
        if self.phase in (VoterPhase.ATTEMPTED, VoterPhase.PRIMARY):
            self.coverage = self._inherited

    def install(self, step: Step, view: View) -> None:
        """We are in this view from now on."""
        self.view, self.phase = view, VoterPhase.UNDECIDED
        report = PrimaryReport(self.group, view.id, self.report)
        self._reports[self.me.name] = self.me, report
        others = tuple(one for one in view.members if one != self.me)
        if others:
            step.send(others, report)
        self._go_on(step)

    def depart(self, formation: str) -> None:
        """We are not in the views of this formation any more."""
        if self.view is not None and self.view.formation == formation:
            self.view, self.phase = None, VoterPhase.UNDECIDED

    def forget_state(self) -> None:
        """We leave the group: our application has no state of it any more."""
        self.coverage = _NOTHING

    def receive(self, step: Step, sender: NodeId, packet: PrimaryReport | PrimaryAttempt) -> None:
        self.remember(sender, packet)
        self._go_on(step)

    def remember(self, sender: NodeId, packet: PrimaryReport | PrimaryAttempt) -> None:
        """A vote counts when we are in the view that it is for."""
        if isinstance(packet, PrimaryReport):
            refuse_report(sender, packet.report)
            _remember(self._reports, sender, packet)
        else:
            _remember(self._attempts, sender, packet)

    # --- what follows ------------------------------------------------------------------------

    def _go_on(self, step: Step) -> None:
        if self.view is not None and self.phase is VoterPhase.UNDECIDED:
            self._decide(step, self.view)
        if self.view is not None and self.phase is VoterPhase.ATTEMPTED:
            self._form(step, self.view)

    def _decide(self, step: Step, view: View) -> None:
        reports: dict[str, VoterReport] = {}
        for member in view.members:
            sender, report = self._reports.get(member.name, (None, None))
            if report is None or sender != member or report.view != view.id:
                return
            reports[member.name] = report.report
        found = self._find(reports)
        if found.why:
            self.phase = VoterPhase.OUTSIDE
            assert found.lacks is not None
            step.notify(_outside(view, found.lacks, found.missing, found.why))
            return
        members = tuple(sorted(reports))
        self.heirs, branch = found.heirs, reports[found.heirs[0]].coverage.branch
        self.standing, self._inherited = rules.attempted(self.standing, found, members, branch)
        if self.me.name in self.heirs:
            self.coverage = self._inherited
        self.phase = VoterPhase.ATTEMPTED
        step.persist(VoterRecord(self.group, self.standing))
        attempt = PrimaryAttempt(self.group, view.id, found.number)
        self._attempts[self.me.name] = self.me, attempt
        others = tuple(one for one in view.members if one != self.me)
        if others:
            step.send(others, attempt)
        self._note(step, view, "attempted")

    def _find(self, reports: dict[str, VoterReport]) -> rules.Eligibility:
        return rules.decide(reports)

    def _form(self, step: Step, view: View) -> None:
        for member in view.members:
            sender, attempt = self._attempts.get(member.name, (None, None))
            if attempt is None or sender != member:
                return
            if (attempt.view, attempt.number) != (view.id, self.standing.number):
                return
        before = self._inherited
        self.standing, self._inherited = rules.formed(self.standing, before.branch)
        if self.coverage == before:
            self.coverage = self._inherited
        self.phase = VoterPhase.PRIMARY
        step.persist(VoterRecord(self.group, self.standing))
        number = self.standing.number
        step.notify(Primary(self.group, view, True, number, up_to_date=self.heirs))
        self._note(step, view, "formed")

    def _note(self, step: Step, view: View, cause: str) -> None:
        step.note(
            "primary",
            group=label_of(view.group, view.formation),
            view=view.id,
            members=tuple(sorted(member.name for member in view.members)),
            order=self.standing.number,
            cause=cause,
        )


def extended(group: str, coverage: Coverage, *parts: object) -> Coverage:
    """The same with further deliveries."""
    return replace(coverage, branch=view_identity(group, coverage.branch, *parts))


def _outside(view: View, lacks: PrimaryView, missing: tuple[str, ...], why: str) -> Primary:
    return Primary(view.group, view, False, lacks.number, lacks.members, missing, why)


def _remember(
    newest: dict[str, tuple[NodeId, PrimaryReport]] | dict[str, tuple[NodeId, PrimaryAttempt]],
    sender: NodeId,
    packet: PrimaryReport | PrimaryAttempt,
) -> None:
    """Of the newest incarnation of a name. Beyond the limit, the one that was silent longest goes:
    it reports again in the next view."""
    before = newest.pop(sender.name, None)
    if before is not None and before[0].incarnation > sender.incarnation:
        newest[sender.name] = before  # type: ignore[assignment]
        return
    newest[sender.name] = sender, packet  # type: ignore[assignment]
    if len(newest) > 2 * MOST_MEMBERS:
        del newest[next(iter(newest))]


def refuse_report(sender: NodeId, report: VoterReport) -> None:
    """Raises PeerError if no member that follows the rules would report this. Changes nothing."""
    standing, coverage = report.standing, report.coverage
    for last, attempts in ((standing.last, standing.attempts), (coverage.last, coverage.attempts)):
        for one in (last, *attempts):
            if list(one.members) != sorted(set(one.members)):
                raise PeerError(f"{sender} reports a primary view with an invalid list of members")
        if any(one.number <= last.number for one in attempts):
            raise PeerError(f"{sender} reports attempts that an older one has decided")
    numbers = [one.number for one in (standing.last, *standing.attempts)]
    if numbers != sorted(set(numbers)) or (standing.attempts and numbers[-1] > standing.number):
        raise PeerError(f"{sender} reports primary views whose numbers contradict each other")
    if any(sender.name not in one.members for one in standing.attempts):
        raise PeerError(f"{sender} reports an attempt at a view that it is not in")

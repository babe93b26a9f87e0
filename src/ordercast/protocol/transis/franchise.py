"""A member's vote in a group with a quorum, and which of its own events are secured.

The vote itself is that of `protocol/primary`. This file says how it goes with views that split and
merge, and with members that come into a view with different histories.

Rules.
 1. Regular views are voted on, and only they: a transitional one is the end of the one before it.
    A view of several sides is primary when the vote of all its members is over, and not before.
 2. Nothing is accepted but in a primary view that is not being changed. So no event that was
    submitted waits for a view of which nobody knows whether it will be primary.
 3. Members that delivered the same in each view have the same history: the same branch. Of the
    sides that merge, one has the history that goes on: its members are the heirs. Members that
    delivered nothing have no history of their own.
 4. An own event is secured when all members of the primary view that it was cast in have it: each
    of them delivers it before it votes again. Or when we are an heir of a later primary view, which
    we reach without being outside in between: all heirs have delivered what we have. So an event,
    safe or not, that was delivered in a transitional view counts for those who came along, and is
    secured only if their history is the one that goes on.
 5. An event that was not secured when a view is found not to be primary, or to go on with another
    history, is in doubt for ever.

 6. Where states are handed over when sides merge (`states.py`), a view is voted on by a member that
    has its state, and what it covers is what that state covers. A member that has said which state
    it has, because it is ready for a view, goes on with no vote before it is there. What it
    submitted before it took the state of another side is in doubt.

What it does not do: give a state to members that lack the history. `states.py` does, or the
application (`CaughtUp` says that one has it).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ordercast.kernel.clocks import Vector
from ordercast.kernel.family import Plan
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.primary.packets import (
    Coverage,
    PrimaryAttempt,
    PrimaryReport,
    VoterRecord,
    VoterReport,
)
from ordercast.protocol.primary.voter import Voter, VoterPhase, extended
from ordercast.protocol.transis.flow import OwnEvents
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.protocol.transis.packets import ConfigurationId
from ordercast.types import NodeId, Secured, View, event_number


class Franchise:
    voter_type = Voter

    def __init__(
        self, me: NodeId, plan: Plan, own: OwnEvents, records: Sequence[Packet] = ()
    ) -> None:
        """`records`: those of earlier incarnations, the newest last."""
        self.me = me
        self.group = plan.group
        first = plan.members if plan.entry is None else ()
        ours = [one for one in records if isinstance(one, VoterRecord) and one.group == plan.group]
        self.voter = self.voter_type(me, plan.group, first, ours[-1] if ours else None)
        self._own = own
        assert isinstance(plan.options, SynchronyOptions)
        self._hands_over = plan.options.merge != "none"
        self._is_bound = False  # we have said what our state covers
        self._unvoted: View | None = None  # a view whose state we may lack
        self._doubtful = 0  # own events up to here are never secured, unless they are already
        self._secured = 0  # how far the application was notified

    @property
    def is_primary(self) -> bool:
        return self.voter.phase is VoterPhase.PRIMARY

    # --- views -------------------------------------------------------------------------------

    def end(self, cid: ConfigurationId, cut: Vector) -> None:
        """A configuration is over, in which we have delivered this."""
        if any(cut):
            self.voter.add_history(cid, *cut)

    def after(self, ends: Iterable[tuple[ConfigurationId, Vector]]) -> VoterReport:
        """What we report when these configurations are over, too."""
        self._is_bound = True
        coverage = self.voter.coverage
        for cid, cut in ends:
            if any(cut):
                coverage = extended(self.group, coverage, cid, *cut)
        return VoterReport(self.voter.standing, coverage)

    def take(self, coverage: Coverage, is_ours: bool) -> None:
        """Our application has a state that covers this. `is_ours`: it has all that we delivered."""
        self.voter.coverage = coverage
        if not is_ours:
            self._doubtful = self._own.counter

    def install(self, step: Step, view: View) -> None:
        self._is_bound = False
        if self._hands_over:
            self.voter.depart("")
            self._unvoted = view
            return
        self.voter.install(step, view)
        self._settle()

    def catch_up(self, view: int) -> None:
        """The application says that it has the state of those who are up to date."""
        if not self._is_bound:
            self.voter.catch_up(view)

    def leave(self) -> None:
        self._is_bound, self._unvoted = False, None
        self.voter.depart("")
        self.voter.forget_state()
        self._doubtful = self._own.counter

    # --- votes -------------------------------------------------------------------------------

    def receive(self, step: Step, sender: NodeId, packet: PrimaryReport | PrimaryAttempt) -> None:
        if self._is_bound:
            self.voter.remember(sender, packet)
            return
        was_primary = self.is_primary
        self.voter.receive(step, sender, packet)
        if not was_primary:
            self._settle()

    def _settle(self) -> None:
        """What we submitted before this view was decided on is in doubt, unless it goes on."""
        voter = self.voter
        is_outside = voter.phase is VoterPhase.OUTSIDE
        if is_outside or (self.is_primary and self.me.name not in voter.heirs):
            self._doubtful = self._own.counter

    # --- what is secured ---------------------------------------------------------------------

    def follow_up(self, step: Step, is_waiting: bool) -> None:
        """After each input. `is_waiting`: our application lacks the state of its view."""
        if self._unvoted is not None and not is_waiting:
            view, self._unvoted = self._unvoted, None
            self.voter.install(step, view)
            self._settle()
        up_to = self._own.stable_counter
        if self.is_primary and up_to > max(self._secured, self._doubtful):
            self._secured = up_to
            first = event_number(self.me.incarnation, self._doubtful + 1)
            last = event_number(self.me.incarnation, up_to)
            step.notify(Secured(self.group, first, last))

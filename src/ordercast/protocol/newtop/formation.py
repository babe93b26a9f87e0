"""How a group is formed: invitations, votes, and who has to act.

A name such as "orders" stands for a sequence of groups: formations, each with an id that is never
used again. A formation starts with its members, and can only lose some. Members that return, or
sides of a partition that come together, need another formation (Newtop, section 5.3).

Rules.
 1. An initiator invites the incarnations that it knows to be reachable. Each invited member sends
    its vote to all invited members; the initiator votes last. When all have voted yes, and only
    then, each member starts its stream with a `Start`.
 2. Every wait has a limit: the initiator votes no if no vote has come for one suspicion limit, the
    other members withdraw their yes after two. A no ends the formation for members that have not
    started. A member that has started treats it like the failure of a member. The state is
    waited for in `giving.py`.
 3. A member votes on one formation at a time, and rejects other invitations meanwhile. If two
    initiators invite each other, the one with the smaller id prevails.
 4. An open group that nobody is in is founded by a formation of its own kind: each invited member
    votes yes only if its own entry allows it (`entrance.py`), and it begins only if all of them
    have started. So none of them can have a part in two foundings.

What it does not do: decide when a group should be formed (`gathering.py`), order anything, or ask
for the state. `transitions.py` starts the epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from ordercast.errors import PeerError
from ordercast.kernel import inputs
from ordercast.kernel.family import Plan
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.kernel.terms import differences, terms_of
from ordercast.protocol.newtop import giving
from ordercast.protocol.newtop.attempt import (
    Agreed,
    Attempt,
    Entering,
    Idle,
    OtherFormations,
    Voting,
)
from ordercast.protocol.newtop.bond import StartedFounding
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.flow import retained_limit
from ordercast.protocol.newtop.gathering import Gathering
from ordercast.protocol.newtop.options import PERSONAL, NewtopOptions, stretched
from ordercast.protocol.newtop.packets import (
    Copy,
    Here,
    Invite,
    Message,
    Need,
    Numbered,
    OfFormations,
    PartTaken,
    Please,
    StatePart,
    Unable,
    Vote,
)
from ordercast.protocol.newtop.placement import Placement
from ordercast.protocol.newtop.refusals import refuse_invitation
from ordercast.protocol.primary.voter import Voter
from ordercast.types import Invitation, NodeId


class NamedGroup:
    """One group name at one member: the formation that it is in, and the way to the next one."""

    def __init__(
        self,
        me: NodeId,
        plan: Plan,
        placement: type[Placement],
        records: Sequence[Packet] = (),  # of all groups
        voter: Voter | None = None,
    ) -> None:
        assert isinstance(plan.options, NewtopOptions)
        self.me = me
        self.plan = plan
        self.options = plan.options
        self.placement = placement
        self.terms = terms_of(placement.kind, plan, PERSONAL)
        self.current: GroupEpoch | None = None  # None: we are in no formation
        self.attempt: Attempt = Idle()
        last = () if plan.entry is None else plan.entry.last
        self.started = StartedFounding(me.name, plan.group, last, records)
        self.giver = giving.StateGiver(me, plan.group, plan.options.suspicion_limit)
        self.gathering = Gathering(me, plan, self.terms, self.started, self.giver, voter)
        self.voter = voter  # None: every view may submit
        self.secured = 0  # how far the application was notified that our events are secured
        self.counter = 0  # formations that we initiated in this incarnation
        self.events = 0  # events that we submitted in this incarnation
        self._others = OtherFormations()

    @property
    def is_idle(self) -> bool:
        return isinstance(self.attempt, Idle)

    @property
    def entering(self) -> GroupEpoch | None:
        """The epoch that we have started in and that has not begun."""
        return self.attempt.epoch if isinstance(self.attempt, Entering) else None

    @property
    def open_epoch(self) -> GroupEpoch | None:
        """The epoch in which events may be submitted, if its view is the primary one."""
        return None if isinstance(self.attempt, Entering) else self.current

    @property
    def is_primary(self) -> bool:
        """Whether our view may submit. Without a quorum every one may."""
        epoch, voter = self.current, self.voter
        if voter is None or epoch is None:
            return voter is None
        return voter.is_primary_in(epoch.formation, epoch.views.members)

    # --- inputs ------------------------------------------------------------------------------

    def give(self, step: Step, what: Hashable, *arguments: object) -> None:
        """An input, by its class, or a timer, by its name: see `TABLE` at the end."""
        cell = TABLE[type(self.attempt)][what]
        if not isinstance(cell, str):
            cell(self, step, *arguments)

    def start(self, step: Step) -> None:
        """The member has joined, and is perhaps in no formation."""
        self._announce(step)

    def receive(self, step: Step, sender: NodeId, packet: OfFormations) -> None:
        if not self.gathering.may_be_member(sender):
            raise PeerError(f"{sender} is not a member of {self.plan.group}")
        self.give(step, type(packet), sender, packet)

    def leave(self, step: Step) -> None:
        if isinstance(self.attempt, Voting):
            self._vote(step, self.attempt, False, "it left the group")
        self.gathering.stop(step)
        if self.current is not None:
            self.started.is_over(step)
        for what in ("vote", "state", "founded"):
            self.set_timer(step, what, None)

    # --- when to form the group: `gathering.py` ------------------------------------------------

    def _announce(self, step: Step) -> None:
        gathering = self.gathering
        if gathering.announces(self.current):
            self._invite_any(step, gathering.next_round(self.current, self.is_idle))
            gathering.announce(step, self.current, self.is_idle)

    def _hear(self, step: Step, sender: NodeId, here: Here) -> None:
        found = self.gathering.hear(step, sender, here, self.current, self.is_idle)
        self._invite_any(step, found)

    def _note_request(
        self, step: Step, members: tuple[str, ...] | None, from_application: bool
    ) -> None:
        self.gathering.note_request(members, from_application)

    def _try_request(
        self, step: Step, members: tuple[str, ...] | None, from_application: bool
    ) -> None:
        self.gathering.note_request(members, from_application)
        self._probe(step)

    def _receive_please(self, step: Step, sender: NodeId, packet: Please) -> None:
        """A member that is in no formation asks us to re-form the group with it."""
        if self.current is None:
            return
        if self.plan.entry is not None and not packet.yields:
            self.gathering.welcome(step, sender, packet, self.current)
        elif self.gathering.passes_on(step, packet.joiner or sender, packet, self.current):
            pass  # our application gives no state
        elif self.gathering.request is None:
            self.give(step, inputs.Form, None, False)

    def _acquaint(self, step: Step, names: tuple[str, ...]) -> None:
        self.gathering.acquaint(step, names, self.current)

    def _probe(self, step: Step) -> None:
        self._invite_any(step, self.gathering.probe(step, self.current))

    def _invite_any(self, step: Step, members: tuple[NodeId, ...] | None) -> None:
        if members is not None:
            self._invite(step, members)

    # --- invitations and votes ---------------------------------------------------------------

    def _invite(self, step: Step, members: tuple[NodeId, ...]) -> None:
        self.counter += 1
        formation = f"{self.me.name}.{self.me.incarnation}.{self.counter}"
        founds = self.plan.entry is not None and self.current is None
        founding = "" if self.current is None else self.current.founding
        self.attempt = voting = Voting(formation, self.me, members, founds, founding)
        others = self._others_of(members)
        if not others:
            self._agree(step, voting)
            return
        group, invited = self.plan.group, list(members)
        report = None if self.voter is None else self.voter.report
        step.send(others, Invite(group, formation, invited, self.terms, founds, founding, report))
        self._expect_votes(step, voting)

    def _consider(self, step: Step, sender: NodeId, packet: Invite) -> None:
        """An invitation arrived."""
        members, formation = tuple(packet.members), packet.formation
        refuse_invitation(self.plan, self.me, sender, packet)
        if self._others.has_ended(formation) or self._is_known(formation):
            return
        votes = self._others.take_votes(formation)
        objection = self._objection(sender, packet)
        if objection is None and isinstance(self.attempt, Voting):  # of our own
            self._vote(step, self.attempt, False, f"{sender} invites as well")
        if objection is not None or any(not vote.yes for vote in votes.values()):
            self._others.end(formation)
            why = objection or "another member rejected it"
            step.send(self._others_of(members), Vote(self.plan.group, formation, False, why))
            return
        self.attempt = voting = Voting(formation, sender, members, packet.founds, packet.founding)
        voting.yes = {voter: None for voter in votes if voter in members}
        self._expect_votes(step, voting)
        if self.options.invitations == "ask":
            step.notify(Invitation(self.plan.group, formation, sender, members))
        else:
            self._vote(step, voting, True)

    def _objection(self, sender: NodeId, packet: Invite) -> str | None:
        """Why we reject an invitation; None: we do not."""
        if what := differences(self.terms, packet.terms):
            return f"{self.me} has joined with other options: {what}"[:300]
        attempt = self.attempt
        if isinstance(attempt, Entering):
            return f"{self.me} is moving to {attempt.epoch.formation}"
        if isinstance(attempt, Voting) and (attempt.initiator != self.me or self.me < sender):
            return f"{self.me} votes on {attempt.formation}"
        if self.voter is not None and not self.voter.may_take(sender, packet.voter):
            return f"{self.me} has the state of primary view {self.voter.rank}, which it lacks"
        if packet.founds:
            return self.gathering.objection_to_founding(packet.members, self.current)
        return None

    def _others_of(self, members: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        return tuple(one for one in members if one != self.me)

    def _is_known(self, formation: str) -> bool:
        voted = isinstance(self.attempt, Voting) and self.attempt.formation == formation
        return voted or bool(self.epochs_of(formation))

    def _answer(self, step: Step, formation: str, yes: bool, why: str) -> None:
        """The application votes."""
        voting = self.attempt
        assert isinstance(voting, Voting)
        if voting.formation != formation or self.me in (*voting.yes, voting.initiator):
            return  # that vote is over, or we have voted
        self._vote(step, voting, yes, why or "its application voted no")

    def _vote(self, step: Step, voting: Voting, yes: bool, why: str = "") -> None:
        """Sends our vote to all."""
        vote = Vote(self.plan.group, voting.formation, yes, why[:300])
        step.send(self._others_of(voting.members), vote)
        if not yes:
            self._end_vote(step, voting, why)
            return
        voting.yes[self.me] = None
        if not voting.missing:
            self._agree(step, voting)

    def _expect_votes(self, step: Step, voting: Voting) -> None:
        """The next vote is to come in time. In a large group all of them may take longer."""
        limit = stretched(self.options.suspicion_limit, len(voting.members))
        self.set_timer(step, "vote", limit if voting.initiator == self.me else 2 * limit)

    def _withdraw(self, step: Step) -> None:
        voting = self.attempt
        assert isinstance(voting, Voting)
        silent = [one for one in self._others_of(voting.members) if one not in voting.yes]
        self.gathering.declined(tuple(silent))
        self._vote(step, voting, False, "the vote timed out")

    def _count(self, step: Step, sender: NodeId, vote: Vote) -> None:
        voting = self.attempt
        assert isinstance(voting, Voting)
        if voting.formation != vote.formation:
            self._note_vote(step, sender, vote)
            return
        if sender not in voting.members:
            raise PeerError(f"{sender} votes on {vote.formation}, to which it is not invited")
        is_ours = voting.initiator == self.me
        if not vote.yes:
            if is_ours:
                self.gathering.declined((sender,))
                self._vote(step, voting, False, f"{sender}: {vote.why}")
            else:
                self._end_vote(step, voting, vote.why)
            return
        voting.yes[sender] = None
        self._expect_votes(step, voting)
        if is_ours and voting.missing == 1:
            self._vote(step, voting, True)
        elif not voting.missing:
            self._agree(step, voting)

    def _note_vote(self, step: Step, sender: NodeId, vote: Vote) -> None:
        """A vote on a formation that we are in, or that we have not been invited to yet."""
        for epoch in self.epochs_of(vote.formation):
            if not vote.yes:
                epoch.exclude_soon(sender, "refused")
            return
        self._others.add_vote(sender, vote)

    def _note_early(self, step: Step, sender: NodeId, message: Message) -> None:
        """A packet of a formation that we are not in. We may be in it soon."""
        voting = self.attempt
        assert isinstance(voting, Voting)
        if voting.formation != message.formation:
            return
        if sender not in voting.members:
            raise PeerError(f"{sender} is not invited to {message.formation}")
        if not voting.add_early(sender, message, retained_limit(self.options).size):
            self._vote(step, voting, False, f"{sender} sent too many packets before we started")

    def _agree(self, step: Step, voting: Voting) -> None:
        """All have voted yes."""
        self.gathering.has_agreed(step, voting.members)
        if voting.founds:
            self.started.start(step, voting.initiator, voting.members)
        self.set_timer(step, "vote", None)
        ours = voting.initiator == self.me  # then the time begins when our application is asked
        self.set_timer(step, "state", None if ours else self.options.suspicion_limit)
        early = [(sender, one) for sender, sent in voting.early.items() for one in sent]
        who = voting.initiator, voting.members
        self.attempt = Agreed(voting.formation, *who, voting.founds, early, voting.founding)

    def _end_vote(self, step: Step, voting: Voting, why: str) -> None:
        """The formation was rejected."""
        self.attempt = Idle()
        self._others.end(voting.formation)
        self.set_timer(step, "vote", None)
        if voting.initiator == self.me:
            self.gathering.fail_try(step, why)
        else:
            self.gathering.try_soon(step)

    # --- an epoch begins, or fails -----------------------------------------------------------

    def enter(self, step: Step, epoch: GroupEpoch) -> None:
        """We have started in the epoch that was agreed on."""
        assert isinstance(self.attempt, Agreed)
        self.attempt = Entering(epoch, step.now)

    def has_begun(self, step: Step, epoch: GroupEpoch) -> None:
        """The epoch that we were entering is the one that we are in."""
        if self.current is not None:
            self._others.end(self.current.formation)
        self.current, self.attempt = epoch, Idle()
        self.gathering.has_begun(step, epoch)
        if self.started.record is not None:
            options, founds = self.options, epoch.is_founding
            limit = options.suspicion_limit if founds else options.silence_limit
            self.set_timer(step, "founded", limit)
        giving.begun(self, step, epoch)

    def has_failed(self, step: Step, epoch: GroupEpoch) -> None:
        """The initiator of the epoch that we were entering is gone, and its state with it."""
        self._others.end(epoch.formation)
        giving.failed(self, step)
        self.attempt = Idle()
        if self.current is not None:
            self.current.stay(step)
        self.gathering.has_failed(step, epoch)
        self._announce(step)

    def epochs_of(self, formation: str) -> list[GroupEpoch]:
        """The one that we are in or enter, if it is of this formation."""
        epochs = (self.current, self.entering)
        return [one for one in epochs if one is not None and one.formation == formation]

    def _note_founded(self, step: Step) -> None:
        """The epoch in which we are began a while ago: no founding keeps us any more."""
        if self.current is not None:
            self.started.is_over(step)

    def _forget(self, step: Step, name: str) -> None:
        """The operator says that this one is gone for good."""
        self.started.forget(step, name)

    def set_timer(self, step: Step, what: str, after: int | None) -> None:
        step.set_timer((what, self.plan.group), after)


Cell: TypeAlias = Callable[..., None] | str
"""What an input does in a state, or why it is ignored."""

_ALWAYS: dict[Hashable, Cell] = {
    Here: NamedGroup._hear,
    Please: NamedGroup._receive_please,
    Invite: NamedGroup._consider,
    Need: giving.answer_need,
    PartTaken: giving.give_on,
    inputs.Acquainted: NamedGroup._acquaint,
    inputs.Forgotten: NamedGroup._forget,
    "founded": NamedGroup._note_founded,
}
TABLE: dict[type, dict[Hashable, Cell]] = {
    Idle: {
        **_ALWAYS,
        inputs.Form: NamedGroup._try_request,
        inputs.Vote: "that vote is over",
        Vote: NamedGroup._note_vote,
        Unable: giving.hear_unable,
        Copy: "we have begun, or have left that formation",
        StatePart: "we have begun, or have left that formation",
        Numbered: "we have not been invited to that formation",
        "here": NamedGroup._announce,
        "gather": NamedGroup._probe,
        "vote": "that vote is over",
        "state": giving.time_is_over,
    },
    Voting: {
        **_ALWAYS,
        inputs.Form: NamedGroup._note_request,
        inputs.Vote: NamedGroup._answer,
        Vote: NamedGroup._count,
        Unable: "we are on our way to a formation",
        Copy: "we have begun, or have left that formation",
        StatePart: "we have begun, or have left that formation",
        Numbered: NamedGroup._note_early,
        "here": NamedGroup._announce,
        "gather": "a request waits for the outcome of the vote",
        "vote": NamedGroup._withdraw,
        "state": giving.time_is_over,
    },
    Entering: {
        **_ALWAYS,
        inputs.Form: NamedGroup._note_request,
        inputs.Vote: "that vote is over",
        Vote: NamedGroup._note_vote,
        Unable: "we are on our way to a formation",
        Copy: giving.take_state,
        StatePart: giving.take_state,
        Numbered: "we have not been invited to that formation",
        "here": "we announce ourselves again if the epoch fails",
        "gather": "a request waits until the epoch has begun or failed",
        "vote": "that vote is over",
        "state": giving.time_is_over,
    },
}
"""What each input does in each state of an attempt. `Agreed` meets no input."""

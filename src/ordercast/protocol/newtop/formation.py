"""How a group is formed: invitations, votes, and who has to act.

A name such as "orders" stands for a sequence of groups: formations, each with an id that is never
used again. A formation starts with its members, and can only lose some. Members that return, or
sides of a partition that come together, need another formation (Newtop, section 5.3).

Rules.
 1. An initiator invites the incarnations that it knows to be reachable. Each invited member sends
    its vote to all invited members; the initiator votes last. When all have voted yes, and only
    then, each member starts its stream with a `Start`.
 2. Every wait has a limit: the initiator votes no after one suspicion limit, the other members
    withdraw their yes after two. A no ends the formation for members that have not started. A
    member that has started treats it like the failure of a member. An initiator that provides no
    state is excluded in the end.
 3. A member votes on one formation at a time, and rejects other invitations meanwhile. If two
    initiators invite each other, the one with the smaller id prevails.
 4. A request to form is tried a few times, and first asks which members are reachable. A member
    that is in no formation has no state to provide: if others are in one, it asks one of them.
 5. If no member is in a formation yet, the first member of the plan forms the group when all are
    reachable.
 6. With `reform = "auto"` the first member of a view re-forms the group when it hears of members
    that are not in the view, if it hears of no larger view.

What it does not do: order anything, or transfer the state. `member.py` starts the epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from ordercast.errors import PeerError, UsageError
from ordercast.kernel import inputs
from ordercast.kernel.family import Plan
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.protocol.newtop.attempt import (
    Agreed,
    Attempt,
    Entering,
    Idle,
    OtherFormations,
    Voting,
)
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.options import Options
from ordercast.protocol.newtop.packets import (
    Here,
    Invite,
    Message,
    Numbered,
    OfFormations,
    Please,
    Vote,
)
from ordercast.protocol.newtop.placement import Placement
from ordercast.protocol.newtop.presence import Presence, differences, terms_of
from ordercast.protocol.newtop.refusals import refuse_invitation
from ordercast.protocol.newtop.request import MOST_ROUNDS, Probe, Request
from ordercast.types import Invitation, NodeId, Refused

STATE_LIMITS = 30
"""So many suspicion limits an epoch may be without its state, before its initiator is excluded."""
MOST_EARLY = 256
"""Packets of one sender in a formation that we have not started in, before we reject it."""


class NamedGroup:
    """One group name at one member: the formation that it is in, and the way to the next one."""

    def __init__(self, me: NodeId, plan: Plan, placement: type[Placement]) -> None:
        assert isinstance(plan.options, Options)
        self.me = me
        self.plan = plan
        self.options = plan.options
        self.placement = placement
        self.others = tuple(name for name in plan.members if name != me.name)
        self.terms = terms_of(plan, placement)
        self.current: GroupEpoch | None = None  # None: we are in no formation
        self.attempt: Attempt = Idle()
        self.request: Request | None = None  # None: the group need not be re-formed
        self.presence = Presence(self.others)
        self.counter = 0  # formations that we initiated in this incarnation
        self.events = 0  # events that we submitted in this incarnation
        self.failures = 0  # requests of our own that failed in a row
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
        """The epoch in which events may be submitted."""
        return None if isinstance(self.attempt, Entering) else self.current

    # --- inputs ------------------------------------------------------------------------------

    def give(self, step: Step, what: Hashable, *arguments: object) -> None:
        """An input, by its class, or a timer, by its name: see `TABLE` at the end."""
        cell = TABLE[type(self.attempt)][what]
        if not isinstance(cell, str):
            cell(self, step, *arguments)

    def start(self, step: Step) -> None:
        """The member has joined, and is perhaps in no formation."""
        if self._announces():
            self._announce(step)

    def receive(self, step: Step, sender: NodeId, packet: OfFormations) -> None:
        if sender.name not in self.others:
            raise PeerError(f"{sender} is not a member of {self.plan.group}")
        self.give(step, type(packet), sender, packet)

    def leave(self, step: Step) -> None:
        if isinstance(self.attempt, Voting):
            self._vote(step, self.attempt, False, "it left the group")
        for what in ("here", "gather", "vote", "state"):
            self._set_timer(step, what, None)

    # --- who is reachable --------------------------------------------------------------------

    def _announces(self) -> bool:
        """Whether we want to hear of other members whenever they appear."""
        return self.entering is None and (self.current is None or self.options.reform == "auto")

    def _announce(self, step: Step) -> None:
        """A member that waits for others says so, ever more slowly."""
        if not self._announces():
            return
        self.presence.ticks += 1
        to = self.others
        if self.current is not None:
            there = {one.name for one in self.current.views.members}
            to = tuple(name for name in self.others if name not in there)
        else:
            self._form_first(step)
        if to:
            step.send(to, self._here(asks=True), DATAGRAM)
        pause = self.options.silence_limit << min(self.presence.ticks - 1, 10)
        self._set_timer(step, "here", min(pause, self.options.suspicion_limit))

    def _here(self, asks: bool) -> Here:
        view = self.current.views.members if self.current is not None else ()
        formation = self.current.formation if self.current is not None else None
        first = view[0].name if view else ""
        return Here(self.plan.group, formation, len(view), first, self.terms, asks)

    def _hear(self, step: Step, sender: NodeId, here: Here) -> None:
        presence = self.presence
        if presence.is_old(sender):
            return
        if here.asks:
            step.send(sender, self._here(asks=False), DATAGRAM)
        if here.terms != self.terms:
            if self.current is None and presence.is_new_objection(sender):
                what = differences(self.terms, here.terms)
                why = f"{sender} has joined group {self.plan.group!r} with other options: {what}"
                step.notify(Refused(self.plan.group, why))
            return
        presence.note(sender, here)
        request = self.request
        if request is not None and request.probe is not None:
            request.probe.answers[sender.name] = sender, here
            if self.is_idle and not request.probe.silent():
                self._invite_reachable(step, request, request.probe)
        elif self.current is None:
            self._form_first(step)
        else:
            self._form_anew(step, self.current, sender)

    def _form_first(self, step: Step) -> None:
        """At most once a round: the first member invites when all are there and none has formed
        the group."""
        if not self.is_idle or self.request is not None or self.me.name != self.plan.members[0]:
            return
        incarnations = self.presence.all_unformed()
        if incarnations is not None and self.presence.take_turn():
            self._invite(step, tuple(sorted((self.me, *incarnations))))

    def _form_anew(self, step: Step, current: GroupEpoch, sender: NodeId) -> None:
        """We have heard of a member, perhaps of one that is not in our view."""
        if self.options.reform != "auto" or self.request is not None:
            return
        view = current.views.members
        if sender in view or view[0] != self.me or not self.presence.is_largest(view):
            return
        self.request = Request(None, from_application=False)
        pause = self.options.suspicion_limit << min(self.failures, 4)
        self._set_timer(step, "gather", pause)

    # --- requests ----------------------------------------------------------------------------

    def _note_request(
        self, step: Step, members: tuple[str, ...] | None, from_application: bool
    ) -> None:
        for name in members or ():
            if name not in self.plan.members:
                raise UsageError(f"{name!r} is not a member of group {self.plan.group!r}")
        wanted = tuple(dict.fromkeys(name for name in members or () if name != self.me.name))
        self.request = Request(wanted if members else None, from_application)

    def _try_request(
        self, step: Step, members: tuple[str, ...] | None, from_application: bool
    ) -> None:
        self._note_request(step, members, from_application)
        self._probe(step)

    def _receive_please(self, step: Step, sender: NodeId, packet: Please) -> None:
        """A member that is in no formation asks us to re-form the group with it."""
        if self.current is not None and self.request is None:
            self.give(step, inputs.Form, None, False)

    def _probe(self, step: Step) -> None:
        """Asks which members are reachable. After the last round, invites those that answered."""
        request = self.request
        if request is None:
            return
        probe = request.start_probe(self.others)
        silent = probe.silent()
        if probe.rounds == MOST_ROUNDS or not silent:
            self._invite_reachable(step, request, probe)
            return
        probe.rounds += 1
        step.send(silent, self._here(asks=True), DATAGRAM)
        self._set_timer(step, "gather", self.options.silence_limit // 4)

    def _invite_reachable(self, step: Step, request: Request, probe: Probe) -> None:
        request.probe = None
        missing = () if request.members is None else probe.silent()
        formed = probe.largest_view()
        members = tuple(sorted((self.me, *probe.incarnations())))
        if missing:
            self._fail_try(step, f"{missing[0]} does not answer")
        elif self.current is None and formed is not None:
            step.send(formed, Please(self.plan.group))
            self._fail_try(step, f"{formed.name} did not re-form it")
        elif (
            not request.from_application
            and self.current is not None
            and members == self.current.views.members
        ):
            self.request = None  # no reachable member is outside of our view
        else:
            self._invite(step, members)

    def _fail_try(self, step: Step, why: str) -> None:
        """The group was not formed. Tries again later, or gives up."""
        request = self.request
        if request is None:
            return
        if request.fail():
            # Initiators that reject each other's invitations try again at different times.
            place = self.plan.members.index(self.me.name)
            pause = self.options.suspicion_limit * request.tries // 2
            self._set_timer(step, "gather", pause + self.options.silence_limit * place)
            return
        self.request = None
        self.failures += 1
        if request.from_application:
            step.notify(Refused(self.plan.group, f"{self.plan.group!r} was not re-formed: {why}"))

    # --- invitations and votes ---------------------------------------------------------------

    def _invite(self, step: Step, members: tuple[NodeId, ...]) -> None:
        self.counter += 1
        formation = f"{self.me.name}.{self.me.incarnation}.{self.counter}"
        self.attempt = voting = Voting(formation, self.me, members)
        others = self._others_of(members)
        if not others:
            self._agree(step, voting)
            return
        step.send(others, Invite(self.plan.group, formation, list(members), self.terms))
        self._set_timer(step, "vote", self.options.suspicion_limit)

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
        self.attempt = voting = Voting(formation, sender, members)
        voting.yes = {voter: None for voter in votes if voter in members}
        self._set_timer(step, "vote", 2 * self.options.suspicion_limit)
        if self.options.invitations == "ask":
            step.notify(Invitation(self.plan.group, formation, sender, members))
        else:
            self._vote(step, voting, True)

    def _objection(self, sender: NodeId, packet: Invite) -> str | None:
        """Why we reject an invitation; None: we do not."""
        if packet.terms != self.terms:
            what = differences(self.terms, packet.terms)
            return f"{self.me} has joined with other options: {what}"[:300]
        attempt = self.attempt
        if isinstance(attempt, Entering):
            return f"{self.me} is moving to {attempt.epoch.formation}"
        if isinstance(attempt, Voting) and (attempt.initiator != self.me or self.me < sender):
            return f"{self.me} votes on {attempt.formation}"
        return None

    def _others_of(self, members: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        return tuple(one for one in members if one != self.me)

    def _is_known(self, formation: str) -> bool:
        attempt = self.attempt
        return (
            (isinstance(attempt, Voting) and attempt.formation == formation)
            or (self.current is not None and self.current.formation == formation)
            or (isinstance(attempt, Entering) and attempt.epoch.formation == formation)
        )

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

    def _withdraw(self, step: Step) -> None:
        assert isinstance(self.attempt, Voting)
        self._vote(step, self.attempt, False, "the vote timed out")

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
                self._vote(step, voting, False, f"{sender}: {vote.why}")
            else:
                self._end_vote(step, voting, vote.why)
            return
        voting.yes[sender] = None
        if is_ours and voting.missing == 1:
            self._vote(step, voting, True)
        elif not voting.missing:
            self._agree(step, voting)

    def _note_vote(self, step: Step, sender: NodeId, vote: Vote) -> None:
        """A vote on a formation that we are in, or that we have not been invited to yet."""
        for epoch in (self.current, self.entering):
            if epoch is not None and epoch.formation == vote.formation:
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
        early = voting.early.setdefault(sender, [])
        early.append(message)
        if len(early) > MOST_EARLY:
            self._vote(step, voting, False, f"{sender} sent too many packets before we started")

    def _agree(self, step: Step, voting: Voting) -> None:
        """All have voted yes."""
        self._set_timer(step, "vote", None)
        self._set_timer(step, "state", STATE_LIMITS * self.options.suspicion_limit)
        early = [(sender, one) for sender, sent in voting.early.items() for one in sent]
        self.attempt = Agreed(voting.formation, voting.initiator, voting.members, early)

    def _end_vote(self, step: Step, voting: Voting, why: str) -> None:
        """The formation was rejected."""
        self.attempt = Idle()
        self._others.end(voting.formation)
        self._set_timer(step, "vote", None)
        if voting.initiator == self.me:
            self._fail_try(step, why)
        elif self.request is not None:
            self._set_timer(step, "gather", self.options.silence_limit)

    # --- an epoch begins, or fails -----------------------------------------------------------

    def enter(self, epoch: GroupEpoch) -> None:
        """We have started in the epoch that was agreed on."""
        assert isinstance(self.attempt, Agreed)
        self.attempt = Entering(epoch)

    def has_begun(self, step: Step, epoch: GroupEpoch) -> None:
        """The epoch that we were entering is the one that we are in."""
        if self.current is not None:
            self._others.end(self.current.formation)
        self.current, self.attempt = epoch, Idle()
        self.failures = 0
        others = {one.name for one in epoch.views.members if one != self.me}
        if self.request is not None and self.request.is_fulfilled_by(others):
            self.request = None
        pause = None if self.request is None else self.options.silence_limit
        self._set_timer(step, "gather", pause)
        self._set_timer(step, "state", None)
        self._set_timer(step, "here", self.options.suspicion_limit if self._announces() else None)

    def has_failed(self, step: Step, epoch: GroupEpoch) -> None:
        """The initiator of the epoch that we were entering is gone, and its state with it."""
        self._others.end(epoch.formation)
        self.attempt = Idle()
        self._set_timer(step, "state", None)
        if self.request is not None:
            self._set_timer(step, "gather", self.options.silence_limit)
        self._announce(step)

    def _exclude_initiator(self, step: Step) -> None:
        """It has not provided the state."""
        epoch = self.entering
        assert epoch is not None and epoch.initiator is not None
        epoch.exclude_soon(epoch.initiator, "stateless")

    def _set_timer(self, step: Step, what: str, after: int | None) -> None:
        step.set_timer((what, self.plan.group), after)


Cell: TypeAlias = Callable[..., None] | str
"""What an input does in a state, or why it is ignored."""

_ALWAYS: dict[Hashable, Cell] = {
    Here: NamedGroup._hear,
    Please: NamedGroup._receive_please,
    Invite: NamedGroup._consider,
}
TABLE: dict[type, dict[Hashable, Cell]] = {
    Idle: {
        **_ALWAYS,
        inputs.Form: NamedGroup._try_request,
        inputs.Vote: "that vote is over",
        Vote: NamedGroup._note_vote,
        Numbered: "we have not been invited to that formation",
        "here": NamedGroup._announce,
        "gather": NamedGroup._probe,
        "vote": "that vote is over",
        "state": "the state has arrived, or will not",
    },
    Voting: {
        **_ALWAYS,
        inputs.Form: NamedGroup._note_request,
        inputs.Vote: NamedGroup._answer,
        Vote: NamedGroup._count,
        Numbered: NamedGroup._note_early,
        "here": NamedGroup._announce,
        "gather": "a request waits for the outcome of the vote",
        "vote": NamedGroup._withdraw,
        "state": "the state has arrived, or will not",
    },
    Entering: {
        **_ALWAYS,
        inputs.Form: NamedGroup._note_request,
        inputs.Vote: "that vote is over",
        Vote: NamedGroup._note_vote,
        Numbered: "we have not been invited to that formation",
        "here": "we announce ourselves again if the epoch fails",
        "gather": "a request waits until the epoch has begun or failed",
        "vote": "that vote is over",
        "state": NamedGroup._exclude_initiator,
    },
}
"""What each input does in each state of an attempt. `Agreed` meets no input."""

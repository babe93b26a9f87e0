"""When a group should be formed, and of which members: announcements, requests, probes.

Rules.
 1. A member that is in no formation announces itself, ever more slowly, until it is in one. In an
    open group one that knows members which are in it announces itself only to a few of those, and
    to all again in every eighth round: with many that wait all would ask all.
 2. If no member is in a formation yet, the group is founded (`entrance.py`).
 3. A request to form is tried a few times, and first asks which members are reachable. A member
    that is in no formation has no state to provide: if others are in one, it asks one of them.
 4. With `reform = "auto"` the members of a view announce themselves to members outside of it. The
    first member of the view requests to re-form the group when it hears of one, if it hears of no
    larger view, nor of one of the same size that has delivered more.
 5. With a quorum the state counts first: a member yields to one whose state covers a later primary
    view, whichever side is larger.
 6. In an open group a member of no formation asks one that is in the group. That one tells the
    first of its view, which re-forms the group with its view and all that have asked meanwhile,
    whatever `reform` is. If it has no state to give, it passes that on to the next of its view, and
    so does that one. The last does it in any case, unless others have a state that they did not
    give (`giving.py`). It needs no answer of its view: who is not there is about to be excluded.
    The formation fails rather than leave one of its view behind. After a failure it takes in one at
    a time, and one with which that fails waits ever longer: so none keeps the others out. Nor does
    one that restarts again and again (`admissions.py`).

What it does not do: invite. Methods that decide so return the members to invite, or None; the
caller (`formation.py`) knows whether a vote is under way. The current epoch is given to the calls
that need it; None: the member is in no formation.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ordercast.errors import UsageError
from ordercast.kernel.family import Plan
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.kernel.terms import differences
from ordercast.protocol.newtop.admissions import Admissions
from ordercast.protocol.newtop.bond import StartedFounding
from ordercast.protocol.newtop.entrance import Entrance
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.giving import StateGiver
from ordercast.protocol.newtop.options import NewtopOptions
from ordercast.protocol.newtop.packets import LARGEST_GROUP, Here, Please, Unable
from ordercast.protocol.newtop.presence import AnnouncedMembers
from ordercast.protocol.newtop.request import MOST_ROUNDS, Probe, Request
from ordercast.protocol.primary.voter import Voter
from ordercast.types import NodeId, Refused

Members = tuple[NodeId, ...]
ROUNDS_TO_ALL = 8
"""In every so many-th round a member that waits announces itself to all."""


class Gathering:
    def __init__(
        self,
        me: NodeId,
        plan: Plan,
        terms: dict[str, str],
        started: StartedFounding,
        giver: StateGiver,
        voter: Voter | None = None,
    ) -> None:
        assert isinstance(plan.options, NewtopOptions)
        self.me = me
        self.plan = plan
        self.options = plan.options
        self.terms = terms
        self._giver = giver
        self._voter = voter  # None: the largest view re-forms the group, whatever its state
        self.request: Request | None = None  # None: the group need not be re-formed
        self.failures = 0  # requests of our own that failed in a row
        self.joiners: dict[str, NodeId] = {}  # who has asked to be taken in, oldest first
        self._taking_in: Members = ()  # those of them that we have invited
        # By joiner: how often a formation failed with it alone, and until when it has to wait.
        self._setbacks: dict[NodeId, tuple[int, int]] = {}
        self._admissions = Admissions(plan.options.suspicion_limit)
        self._presence = AnnouncedMembers(name for name in plan.members if name != me.name)
        self.started = started
        self._entrance = Entrance(me, plan, self._presence, started)

    @property
    def is_open(self) -> bool:
        return self.plan.entry is not None

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(self._presence.others)

    def may_be_member(self, node: NodeId) -> bool:
        if self.is_open:
            return node.name != self.me.name
        return node.name in self._presence.others

    def acquaint(self, step: Step, names: tuple[str, ...], current: GroupEpoch | None) -> None:
        """These may be in the group, too."""
        if self.is_open:
            new = self._presence.learn(name for name in names if name != self.me.name)
            if new and current is None:
                step.send(new, self._here(current, asks=True), DATAGRAM)

    # --- announcements -----------------------------------------------------------------------

    def announces(self, current: GroupEpoch | None) -> bool:
        """Whether we want to hear of other members whenever they appear."""
        return current is None or self.options.reform == "auto"

    def next_round(self, current: GroupEpoch | None, may_invite: bool) -> Members | None:
        """Another round of announcements begins, which `announce` sends."""
        self._presence.ticks += 1
        return self._founders() if current is None and may_invite else None

    def announce(self, step: Step, current: GroupEpoch | None, may_invite: bool) -> None:
        to, view = self.others, current.views.members if current is not None else ()
        there = dict.fromkeys(one.name for one in view)
        if current is not None:
            to = tuple(name for name in self.others if name not in there)
        elif self.is_open and self._presence.ticks % ROUNDS_TO_ALL:
            to = self._presence.inside() or to
        if self.is_open:
            to = self._presence.due(to, there)
        if to:
            step.send(to, self._here(current, asks=True), DATAGRAM)
        if current is None and may_invite:
            self._entrance.ask(step)
            if self._presence.ticks > 1:  # before that nobody can have answered
                self._entrance.tell(step)
        pause = self.options.silence_limit << min(self._presence.ticks - 1, 10)
        self._announce_after(step, min(pause, self.options.suspicion_limit))

    def _here(self, current: GroupEpoch | None, asks: bool) -> Here:
        if current is None:
            here = Here(self.plan.group, None, 0, "", self.terms, asks)
            return self._entrance.declared(here)
        view = current.views.members
        group, first, rank = self.plan.group, view[0].name, self._rank
        # Only the first of a view tells it, and has told no more than it has: so of two sides at
        # least one takes itself for the one to re-form the group, whatever is delivered meanwhile.
        count = current.delivered.count if view[0] == self.me else 0
        here = Here(group, current.formation, len(view), first, self.terms, asks, rank=rank)
        return replace(here, delivered=count)

    @property
    def _rank(self) -> int:
        return 0 if self._voter is None else self._voter.rank

    def hear(
        self, step: Step, sender: NodeId, here: Here, current: GroupEpoch | None, may_invite: bool
    ) -> Members | None:
        presence = self._presence
        if presence.is_old(sender):
            return None
        if here.asks:
            answer = self._here(current, asks=False)
            if current is not None and not self.may_come(step, sender):
                answer = replace(answer, delays=True)
            step.send(sender, answer, DATAGRAM)
        what = "" if here.terms == self.terms else differences(self.terms, here.terms)
        if what:
            if current is None and presence.is_new_objection(sender):
                why = f"{sender} has joined group {self.plan.group!r} with other options: {what}"
                step.notify(Refused(self.plan.group, why))
            return None
        if self.is_open:
            presence.learn((sender.name,))
        presence.note(sender, here)
        request = self.request
        if request is not None and request.probe is not None:
            request.probe.answers[sender.name] = sender, here
            if may_invite and not request.probe.silent():
                return self._reachable(step, request, request.probe, current)
        elif current is not None:
            self._request_anew(step, current, sender)
        elif may_invite:
            self._entrance.ask(step)
            return self._founders()
        return None

    def _founders(self) -> Members | None:
        return self._entrance.founders() if self.request is None else None

    def objection_to_founding(
        self, members: Sequence[NodeId], current: GroupEpoch | None
    ) -> str | None:
        """Why we do not found the group with these."""
        if current is not None:
            return f"{self.me} is in the group already"
        return self._entrance.objection(members)

    def declined(self, members: Members) -> None:
        """These rejected a founding that we initiated, or did not vote on it."""
        self._entrance.declined(members)

    def _request_anew(self, step: Step, current: GroupEpoch, sender: NodeId) -> None:
        """We have heard of a member, perhaps of one that is not in our view."""
        if self.options.reform != "auto" or self.request is not None:
            return
        view = current.views.members
        if sender in view or view[0] != self.me:
            return
        if not self._presence.is_largest(view, self._here(current, asks=False)):
            return
        if not self.may_come(step, sender):
            return
        if self.passes_on(step, sender, Please(self.plan.group, yields=True), current):
            return
        self.request = Request(None, from_application=False)
        self._try_after(step, self.options.suspicion_limit << min(self.failures, 4))

    # --- requests ----------------------------------------------------------------------------

    def note_request(self, members: tuple[str, ...] | None, from_application: bool) -> None:
        for name in members or ():
            if not self.is_open and name not in self.plan.members:
                raise UsageError(f"{name!r} is not a member of group {self.plan.group!r}")
        wanted = tuple(dict.fromkeys(name for name in members or () if name != self.me.name))
        self.request = Request(wanted if members else None, from_application)

    def probe(self, step: Step, current: GroupEpoch | None) -> Members | None:
        """Asks which members are reachable. After the last round, returns those that answered."""
        request = self.request
        if request is None:
            return None
        probe = request.start_probe(tuple(self.joiners) if request.is_join else self.others)
        silent = probe.silent()
        if probe.rounds == MOST_ROUNDS or not silent:
            return self._reachable(step, request, probe, current)
        probe.rounds += 1
        step.send(silent, self._here(current, asks=True), DATAGRAM)
        self._try_after(step, self.options.silence_limit // 4)
        return None

    def _reachable(
        self, step: Step, request: Request, probe: Probe, current: GroupEpoch | None
    ) -> Members | None:
        """The probe is over: whom to invite, if that makes sense."""
        request.probe = None
        if request.is_join:
            return None if current is None else self._take_in(step, probe, current)
        missing = () if request.members is None else probe.silent()
        formed = probe.largest_view()
        members = tuple(sorted((self.me, *probe.incarnations())))
        if missing:
            self.fail_try(step, f"{missing[0]} does not answer")
        elif current is None and formed is not None:
            step.send(formed, Please(self.plan.group))
            self.fail_try(step, f"{formed.name} did not re-form it")
        elif current is not None and (better := self._yields_to(probe, request.tries)) is not None:
            step.send(better, Please(self.plan.group, yields=True))
            self.fail_try(step, f"{better.name} has a later state, and did not re-form it")
        elif current is None and self.is_open and (why := self._entrance.objection(members)):
            self.fail_try(step, why)
        elif (
            not request.from_application
            and current is not None
            and members == current.views.members
        ):
            self.request = None  # no reachable member is outside of our view
        else:
            return members
        return None

    def _yields_to(self, probe: Probe, tries: int) -> NodeId | None:
        """With a quorum: who should re-form the group instead of us, if anybody.

        A member whose state covers a later primary view. At every second try any other one: states
        may differ so that only a member that knows both can tell which of them is void.
        """
        if self._voter is None or not probe.answers:
            return None
        best = max(probe.answers.values(), key=lambda answer: answer[1].rank)
        if best[1].rank > self._rank:
            return best[0]
        others = sorted(one for one, here in probe.answers.values() if here.size)
        return others[tries // 2 % len(others)] if tries % 2 and others else None

    def fail_try(self, step: Step, why: str) -> None:
        """The group was not formed. Tries again later, or gives up."""
        request = self.request
        if request is None:
            return
        if request.is_join:
            self._note_setback(step)
        if request.fail():
            # Initiators that reject each other's invitations try again at different times.
            place = sum(name < self.me.name for name in self.others)
            pause = self.options.suspicion_limit * request.tries // 2
            self._try_after(step, pause + self.options.silence_limit * place)
            return
        self.request = None
        self.failures += 1
        if request.from_application:
            step.notify(Refused(self.plan.group, f"{self.plan.group!r} was not re-formed: {why}"))

    # --- members that join an open group --------------------------------------------------------

    def welcome(self, step: Step, sender: NodeId, packet: Please, current: GroupEpoch) -> None:
        """A member of no formation wants to be taken in. The first of our view does that, or the
        first that has a state to give."""
        joiner = packet.joiner or sender
        view = current.views.members
        place = view.index(self.me)
        is_passed_on = packet.joiner is not None and place and sender == view[place - 1]
        if any(joiner <= one for one in view if one.name == joiner.name):
            return  # it is in it, or another incarnation of its name
        if place and not is_passed_on:
            if packet.joiner is None:
                step.send(view[0], Please(self.plan.group, joiner))
            return
        if self.passes_on(step, joiner, packet, current):
            return
        if step.now < self._setbacks.get(joiner, (0, 0))[1] or not self.may_come(step, joiner):
            return
        if len(self.joiners) < LARGEST_GROUP:
            self.joiners[joiner.name] = joiner
        if self.request is None:
            self.request = Request(None, from_application=False, is_join=True)
            self._try_after(step, self.options.silence_limit << min(self.failures, 4))

    def passes_on(self, step: Step, joiner: NodeId, packet: Please, current: GroupEpoch) -> bool:
        """Whether we have no state to give to a member that wants to come. The next of our view is
        asked. The last answers, if others have a state and did not give it."""
        lacks_state = self.is_open and not self.options.gives_state
        why = self._giver.unable or packet.why
        if not lacks_state and not self._giver.unable:
            return False
        view = current.views.members
        place = view.index(self.me) + 1
        if place < len(view):
            yields = packet.yields or not self.is_open
            step.send(view[place], Please(self.plan.group, joiner, yields, why))
        elif why:
            step.send(joiner, Unable(self.plan.group, why), DATAGRAM)
        return place < len(view) or bool(why)

    def has_agreed(self, step: Step, members: Members) -> None:
        """All have voted for a formation of these."""
        self._admissions.note(step.now, members)

    def may_come(self, step: Step, node: NodeId) -> bool:
        """Whether to re-form the group for it now: one that restarts in a loop has to wait."""
        return self._admissions.may_come(step.now, node)

    def _note_setback(self, step: Step) -> None:
        """A formation failed. If it was for one joiner alone, that one may be the cause."""
        if len(self._taking_in) == 1:
            joiner = self._taking_in[0]
            count = self._setbacks.pop(joiner, (0, 0))[0] + 1
            pause = self.options.suspicion_limit << min(count, 6)
            self._setbacks[joiner] = count, step.now + pause
            if len(self._setbacks) > LARGEST_GROUP:
                del self._setbacks[next(iter(self._setbacks))]
        self._taking_in = ()

    def _take_in(self, step: Step, probe: Probe, current: GroupEpoch) -> Members | None:
        """Our view, and those of the joiners that have answered: they are there, and wait.

        An earlier incarnation of a joiner is gone, even if that is not agreed on yet.
        """
        assert self.request is not None
        answers = [probe.answers[name] for name in self.joiners if name in probe.answers]
        joiners = [one for one, here in answers if here.formation is None]
        self.joiners = {}  # the others will ask again
        tries = self.failures + self.request.tries
        if joiners and tries:
            joiners = [joiners[tries % len(joiners)]]
        names = {one.name for one in joiners}
        staying = [one for one in (self.me, *current.live) if one.name not in names]
        joiners = joiners[: LARGEST_GROUP - len(staying)]
        if not joiners:
            self.failures, self.request = tries, None
            return None
        self._taking_in = tuple(joiners)
        return tuple(sorted((*staying, *joiners)))

    # --- what becomes of a formation -----------------------------------------------------------

    def has_failed(self, step: Step, epoch: GroupEpoch) -> None:
        """The epoch that we were entering has failed."""
        if epoch.is_founding:
            self.started.has_failed()
        self._entrance.setback = epoch.setback
        if epoch.initiator == self.me:
            self.fail_try(step, "not all could start")
        else:
            self.try_soon(step)

    def try_soon(self, step: Step) -> None:
        """The formation of another member has failed: a request that waited for it is tried."""
        if self.request is not None:
            self._try_after(step, self.options.silence_limit)

    def has_begun(self, step: Step, epoch: GroupEpoch) -> None:
        """We are in a new epoch. A request for other members is tried again."""
        self.failures, self._taking_in = 0, ()
        for one in epoch.views.members:
            self._setbacks.pop(one, None)
        others = dict.fromkeys(one.name for one in epoch.views.members if one != self.me)
        if self.request is not None and self.request.is_fulfilled_by(set(others)):
            self.request = None
        if self.is_open:
            self._presence.learn(others)
            self._keep_joiners(epoch.views.members)
        self._entrance.has_begun()
        self._try_after(step, None if self.request is None else self.options.silence_limit)
        pause = self.options.suspicion_limit if self.announces(epoch) else None
        self._announce_after(step, pause)

    def _keep_joiners(self, view: Members) -> None:
        """Those that have asked meanwhile are next."""
        left = {one.name: one for one in self.joiners.values() if one not in view}
        self.joiners = left if view[0] == self.me else {}
        if self.joiners and self.request is None:
            self.request = Request(None, from_application=False, is_join=True)

    def stop(self, step: Step) -> None:
        """We leave the group."""
        self._announce_after(step, None)
        self._try_after(step, None)

    def _announce_after(self, step: Step, pause: int | None) -> None:
        step.set_timer(("here", self.plan.group), pause)

    def _try_after(self, step: Step, pause: int | None) -> None:
        step.set_timer(("gather", self.plan.group), pause)

"""When a group should be formed, and of which members: announcements, requests, probes.

Rules.
 1. A member that is in no formation announces itself, ever more slowly, until it is in one.
 2. If no member is in a formation yet, the first member of the plan invites all when all are
    reachable.
 3. A request to form is tried a few times, and first asks which members are reachable. A member
    that is in no formation has no state to provide: if others are in one, it asks one of them.
 4. With `reform = "auto"` the members of a view announce themselves to members outside of it. The
    first member of the view requests to re-form the group when it hears of one, if it hears of no
    larger view.

What it does not do: invite. Methods that decide so return the members to invite, or None; the
caller (`formation.py`) knows whether a vote is under way. The current epoch is given to the calls
that need it; None: the member is in no formation.
"""

from __future__ import annotations

from ordercast.errors import UsageError
from ordercast.kernel.family import Plan
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.kernel.terms import differences
from ordercast.protocol.newtop.epoch import GroupEpoch
from ordercast.protocol.newtop.options import NewtopOptions
from ordercast.protocol.newtop.packets import Here, Please
from ordercast.protocol.newtop.presence import Presence
from ordercast.protocol.newtop.request import MOST_ROUNDS, Probe, Request
from ordercast.types import NodeId, Refused

Members = tuple[NodeId, ...]


class Gathering:
    def __init__(self, me: NodeId, plan: Plan, terms: dict[str, str]) -> None:
        assert isinstance(plan.options, NewtopOptions)
        self.me = me
        self.plan = plan
        self.options = plan.options
        self.terms = terms
        self.others = tuple(name for name in plan.members if name != me.name)
        self.request: Request | None = None  # None: the group need not be re-formed
        self.failures = 0  # requests of our own that failed in a row
        self._presence = Presence(self.others)

    # --- announcements -----------------------------------------------------------------------

    def announces(self, current: GroupEpoch | None) -> bool:
        """Whether we want to hear of other members whenever they appear."""
        return current is None or self.options.reform == "auto"

    def next_round(self, current: GroupEpoch | None, may_invite: bool) -> Members | None:
        """Another round of announcements begins, which `announce` sends."""
        self._presence.ticks += 1
        return self._first_members() if current is None and may_invite else None

    def announce(self, step: Step, current: GroupEpoch | None) -> None:
        to = self.others
        if current is not None:
            there = {one.name for one in current.views.members}
            to = tuple(name for name in self.others if name not in there)
        if to:
            step.send(to, self._here(current, asks=True), DATAGRAM)
        pause = self.options.silence_limit << min(self._presence.ticks - 1, 10)
        self._announce_after(step, min(pause, self.options.suspicion_limit))

    def _here(self, current: GroupEpoch | None, asks: bool) -> Here:
        if current is None:
            return Here(self.plan.group, None, 0, "", self.terms, asks)
        view = current.views.members
        return Here(self.plan.group, current.formation, len(view), view[0].name, self.terms, asks)

    def hear(
        self, step: Step, sender: NodeId, here: Here, current: GroupEpoch | None, may_invite: bool
    ) -> Members | None:
        presence = self._presence
        if presence.is_old(sender):
            return None
        if here.asks:
            step.send(sender, self._here(current, asks=False), DATAGRAM)
        if here.terms != self.terms:
            if current is None and presence.is_new_objection(sender):
                what = differences(self.terms, here.terms)
                why = f"{sender} has joined group {self.plan.group!r} with other options: {what}"
                step.notify(Refused(self.plan.group, why))
            return None
        presence.note(sender, here)
        request = self.request
        if request is not None and request.probe is not None:
            request.probe.answers[sender.name] = sender, here
            if may_invite and not request.probe.silent():
                return self._reachable(step, request, request.probe, current)
        elif current is not None:
            self._request_anew(step, current, sender)
        elif may_invite:
            return self._first_members()
        return None

    def _first_members(self) -> Members | None:
        """All members, if we are the first, all are reachable, and none has formed the group.

        At most once a round.
        """
        if self.request is not None or self.me.name != self.plan.members[0]:
            return None
        incarnations = self._presence.all_unformed()
        if incarnations is None or not self._presence.take_turn():
            return None
        return tuple(sorted((self.me, *incarnations)))

    def _request_anew(self, step: Step, current: GroupEpoch, sender: NodeId) -> None:
        """We have heard of a member, perhaps of one that is not in our view."""
        if self.options.reform != "auto" or self.request is not None:
            return
        view = current.views.members
        if sender in view or view[0] != self.me or not self._presence.is_largest(view):
            return
        self.request = Request(None, from_application=False)
        self._try_after(step, self.options.suspicion_limit << min(self.failures, 4))

    # --- requests ----------------------------------------------------------------------------

    def note_request(self, members: tuple[str, ...] | None, from_application: bool) -> None:
        for name in members or ():
            if name not in self.plan.members:
                raise UsageError(f"{name!r} is not a member of group {self.plan.group!r}")
        wanted = tuple(dict.fromkeys(name for name in members or () if name != self.me.name))
        self.request = Request(wanted if members else None, from_application)

    def probe(self, step: Step, current: GroupEpoch | None) -> Members | None:
        """Asks which members are reachable. After the last round, returns those that answered."""
        request = self.request
        if request is None:
            return None
        probe = request.start_probe(self.others)
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
        missing = () if request.members is None else probe.silent()
        formed = probe.largest_view()
        members = tuple(sorted((self.me, *probe.incarnations())))
        if missing:
            self.fail_try(step, f"{missing[0]} does not answer")
        elif current is None and formed is not None:
            step.send(formed, Please(self.plan.group))
            self.fail_try(step, f"{formed.name} did not re-form it")
        elif (
            not request.from_application
            and current is not None
            and members == current.views.members
        ):
            self.request = None  # no reachable member is outside of our view
        else:
            return members
        return None

    def fail_try(self, step: Step, why: str) -> None:
        """The group was not formed. Tries again later, or gives up."""
        request = self.request
        if request is None:
            return
        if request.fail():
            # Initiators that reject each other's invitations try again at different times.
            place = self.plan.members.index(self.me.name)
            pause = self.options.suspicion_limit * request.tries // 2
            self._try_after(step, pause + self.options.silence_limit * place)
            return
        self.request = None
        self.failures += 1
        if request.from_application:
            step.notify(Refused(self.plan.group, f"{self.plan.group!r} was not re-formed: {why}"))

    def try_soon(self, step: Step) -> None:
        """The formation of another member has failed: a request that waited for it is tried."""
        if self.request is not None:
            self._try_after(step, self.options.silence_limit)

    def has_begun(self, step: Step, epoch: GroupEpoch) -> None:
        """We are in a new epoch. A request for other members is tried again."""
        self.failures = 0
        others = {one.name for one in epoch.views.members if one != self.me}
        if self.request is not None and self.request.is_fulfilled_by(others):
            self.request = None
        self._try_after(step, None if self.request is None else self.options.silence_limit)
        pause = self.options.suspicion_limit if self.announces(epoch) else None
        self._announce_after(step, pause)

    def stop(self, step: Step) -> None:
        """We leave the group."""
        self._announce_after(step, None)
        self._try_after(step, None)

    def _announce_after(self, step: Step, pause: int | None) -> None:
        step.set_timer(("here", self.plan.group), pause)

    def _try_after(self, step: Step, pause: int | None) -> None:
        step.set_timer(("gather", self.plan.group), pause)

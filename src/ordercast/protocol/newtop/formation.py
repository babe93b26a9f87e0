"""How a group comes to be: invitations, votes, and who has to begin.

A name such as "orders" stands for many groups, one after the other: formations, each with an id
that is never used again. A formation begins with its members, and only loses some. Whatever comes
together again, or comes anew, is another formation (Newtop, section 5.3).

Rules.
 1. An initiator invites the lives that it knows to be there. Who is invited tells its vote to all
    who are invited; the initiator votes last. When all have said yes, and only then, each begins
    with a `Start` of its own stream.
 2. Nobody waits for ever: the initiator says no after one suspicion limit, others take their yes
    back after two. A no ends the formation for who has not begun. Who has begun treats it like
    any member that is gone. An initiator that lives and gives no state is excluded in the end.
 3. Who is asked for two formations at once says no to the later one. Of two initiators that invite
    each other the smaller one prevails.
 4. A wish to form is tried a few times, first asking who is there. Who is in no formation does not
    form one with those who are, for it has no state to give: it asks one of them.
 5. If nobody has formed the group yet, the smallest member of the plan does so when all are there.
 6. With `reform = "auto"` the first member of a view forms the group anew when it hears of members
    who are not in the view, if no other part that it hears of is larger.

What it does not do: order anything, or move the state. `member.py` carries out what is founded.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.family import Plan
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.protocol.newtop.group import Group
from ordercast.protocol.newtop.options import Options
from ordercast.protocol.newtop.packets import (
    Here,
    Invite,
    Message,
    OfFormations,
    Please,
    Vote,
)
from ordercast.protocol.newtop.presence import Presence, differences, terms_of
from ordercast.types import Invitation, NodeId, Refused

STATE_LIMITS = 30
"""So many suspicion limits a formation may be without its state, before its initiator loses its
place in it."""
MOST_TRIES = 5
"""So often a wish is tried before the application hears that it cannot be."""
MOST_EARLY = 256
"""Packets of one sender in a formation that we have not begun, before we give it up."""
MOST_UNKNOWN = 16
"""Formations whose votes are kept though nobody has invited us yet, and that we remember to be
over."""


Kept = TypeVar("Kept")


def _remember(kept: dict[str, Kept], key: str, value: Kept) -> Kept:
    """Keeps the newest few."""
    found = kept.setdefault(key, value)
    while len(kept) > MOST_UNKNOWN:
        del kept[next(iter(kept))]
    return found


class Founding(NamedTuple):
    """A formation that all have agreed to."""

    formation: str
    initiator: NodeId
    members: tuple[NodeId, ...]
    early: list[tuple[NodeId, Message]]  # what came from those who began before us


class Ballot:
    """A formation that is being voted on."""

    def __init__(self, formation: str, initiator: NodeId, members: tuple[NodeId, ...]) -> None:
        self.formation = formation
        self.initiator = initiator
        self.members = members
        self.yes: dict[NodeId, None] = {}
        self.early: dict[NodeId, list[Message]] = {}


class Wish:
    """That the group be formed anew."""

    def __init__(self, members: tuple[str, ...] | None, told: bool) -> None:
        self.members = members  # None: of whoever is there
        self.told = told  # whether an application waits to hear of it
        self.tries = 0
        self.rounds = 0  # how often we asked who is there in this try
        self.heard: dict[str, Here] = {}  # who answered
        self.lives: dict[str, NodeId] = {}


class Forming:
    """One group name at one member."""

    def __init__(self, me: NodeId, plan: Plan, kind: type[Group]) -> None:
        assert isinstance(plan.options, Options)
        self.me = me
        self.plan = plan
        self.options = plan.options
        self.kind = kind
        self.others = tuple(name for name in plan.members if name != me.name)
        self.terms = terms_of(plan, kind)
        self.current: Group | None = None  # the formation that we are in
        self.next: Group | None = None  # the one that we go over to, until its state is there
        self.ballot: Ballot | None = None
        self.founded: Founding | None = None  # for `member.py` to carry out
        self.wish: Wish | None = None
        self.presence = Presence(self.others)
        self.counter = 0  # formations that we initiated in this life
        self.events = 0  # events that we submitted in this life
        self.setbacks = 0  # how often in a row the group was not formed anew by itself
        self._unasked: dict[str, dict[NodeId, Vote]] = {}  # votes that came before the invitation
        self._over: dict[str, None] = {}  # formations that we said no to, or left

    @property
    def is_busy(self) -> bool:
        return self.ballot is not None or self.next is not None

    # --- doors -------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        """We are here, and perhaps in no formation."""
        if self._is_waiting():
            self._announce(step)

    def form(self, step: Step, members: tuple[str, ...] | None, told: bool) -> None:
        wanted = members and tuple(dict.fromkeys(members))
        for name in wanted or ():
            if name not in self.plan.members:
                raise UsageError(f"{name!r} is not a member of group {self.plan.group!r}")
        if self.wish is not None and self.wish.told and not told:
            return  # the application's own wish comes first
        self.wish = Wish(wanted, told)
        if not self.is_busy:
            self._gather(step)

    def answer(self, step: Step, formation: str, yes: bool, why: str) -> None:
        ballot = self.ballot
        if ballot is None or ballot.formation != formation or self.me in ballot.yes:
            return  # it is over, or answered
        if ballot.initiator != self.me:
            self._vote(step, yes, why or "its application does not want to")

    def receive(self, step: Step, sender: NodeId, packet: OfFormations) -> None:
        if sender.name not in self.others:
            raise PeerError(f"{sender} is not a member of {self.plan.group}")
        if isinstance(packet, Here):
            self._hear(step, sender, packet)
        elif isinstance(packet, Invite):
            self._be_invited(step, sender, packet)
        elif isinstance(packet, Vote):
            self._count(step, sender, packet)
        elif self.current is not None and self.wish is None:
            self.form(step, None, told=False)

    def expire(self, step: Step, what: str) -> None:
        if what == "here":
            self._announce(step)
        elif what == "gather":
            if self.wish is not None and not self.is_busy:
                self._gather(step)
        elif what == "state":
            if self.next is not None and self.next.initiator is not None:
                self.next.exclude_soon(self.next.initiator, "stateless")
        elif self.ballot is not None:
            self._vote(step, False, "it takes too long")

    def leave(self, step: Step) -> None:
        if self.ballot is not None:
            self._vote(step, False, "it has left")
        for what in ("here", "gather", "vote", "state"):
            self._set_timer(step, what, None)

    # --- who is there ------------------------------------------------------------------------

    def _announce(self, step: Step) -> None:
        """Whoever waits for others says so, now and then."""
        if not self._is_waiting():
            return
        self.presence.ticks += 1
        to = self.others
        if self.current is not None:
            there = {one.name for one in self.current.views.members}
            to = tuple(name for name in self.others if name not in there)
        else:
            self._form_at_first(step)
        if to:
            step.send(to, self._here(asks=True), DATAGRAM)
        pause = self.options.silence_limit << min(self.presence.ticks - 1, 10)
        self._set_timer(step, "here", min(pause, self.options.suspicion_limit))

    def _is_waiting(self) -> bool:
        """Whether we want to hear of others whenever they come."""
        return self.next is None and (self.current is None or self.options.reform == "auto")

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
                why = f"{sender} has joined group {self.plan.group!r} otherwise: {what}"
                step.tell(Refused(self.plan.group, why))
            return
        presence.note(sender, here)
        wish = self.wish
        if wish is not None and wish.rounds:
            wish.heard[sender.name], wish.lives[sender.name] = here, sender
            if not self.is_busy and all(name in wish.heard for name in self._wanted(wish)):
                self._invite_who_answered(step, wish)
        elif self.current is None:
            self._form_at_first(step)
        else:
            self._form_anew(step, sender)

    def _form_at_first(self, step: Step) -> None:
        """Once a tick: the first member invites when all are there and none has begun."""
        if self.is_busy or self.wish is not None or self.me.name != self.plan.members[0]:
            return
        lives = self.presence.all_unformed()
        if lives is not None and self.presence.take_turn():
            self._invite(step, tuple(sorted((self.me, *lives))))

    def _form_anew(self, step: Step, sender: NodeId) -> None:
        """Somebody is there who is not with us."""
        current = self.current
        if current is None or self.options.reform != "auto" or self.wish is not None:
            return
        view = current.views.members
        if sender in view or view[0] != self.me or not self.presence.is_largest(current):
            return
        self.wish = Wish(None, told=False)
        pause = self.options.suspicion_limit << min(self.setbacks, 4)
        self._set_timer(step, "gather", pause)

    def _wanted(self, wish: Wish) -> tuple[str, ...]:
        return tuple(name for name in wish.members or self.others if name != self.me.name)

    def _gather(self, step: Step) -> None:
        """Asks who is there, four times; then invites whoever has answered."""
        wish = self.wish
        assert wish is not None
        if not wish.rounds:
            wish.heard, wish.lives = {}, {}
        silent = tuple(name for name in self._wanted(wish) if name not in wish.heard)
        if wish.rounds == 4 or not silent:
            self._invite_who_answered(step, wish)
            return
        wish.rounds += 1
        step.send(silent, self._here(asks=True), DATAGRAM)
        self._set_timer(step, "gather", self.options.silence_limit // 4)

    def _invite_who_answered(self, step: Step, wish: Wish) -> None:
        wish.rounds = 0
        missing = [name for name in wish.members or () if name not in (*wish.heard, self.me.name)]
        parts = [(-here.size, here.first, name) for name, here in wish.heard.items() if here.size]
        lives = tuple(sorted((self.me, *wish.lives.values())))
        if missing:
            self._set_back(step, f"{missing[0]} does not answer")
        elif self.current is None and parts:
            step.send(wish.lives[min(parts)[2]], Please(self.plan.group))
            self._set_back(step, f"{min(parts)[2]} does not form it anew")
        elif not wish.told and self.current is not None and lives == self.current.views.members:
            self.wish = None  # nobody is there who is not with us
        else:
            self._invite(step, lives)

    def _set_back(self, step: Step, why: str) -> None:
        """What we wished did not come about. Tries again, or gives it up."""
        wish = self.wish
        if wish is None:
            return
        wish.rounds = 0
        wish.tries += 1
        if wish.tries < MOST_TRIES:
            # Initiators that are in each other's way come again at times of their own.
            place = self.plan.members.index(self.me.name)
            pause = self.options.suspicion_limit * wish.tries // 2
            self._set_timer(step, "gather", pause + self.options.silence_limit * place)
            return
        self.wish = None
        self.setbacks += 1
        if wish.told:
            step.tell(Refused(self.plan.group, f"{self.plan.group!r} is not formed anew: {why}"))

    # --- invitations and votes ---------------------------------------------------------------

    def _invite(self, step: Step, members: tuple[NodeId, ...]) -> None:
        self.counter += 1
        formation = f"{self.me.name}.{self.me.incarnation}.{self.counter}"
        self.ballot = Ballot(formation, self.me, members)
        others = tuple(one for one in members if one != self.me)
        if not others:
            self._found(step)
            return
        step.send(others, Invite(self.plan.group, formation, list(members), self.terms))
        self._set_timer(step, "vote", self.options.suspicion_limit)

    def _be_invited(self, step: Step, sender: NodeId, packet: Invite) -> None:
        members, formation = tuple(packet.members), packet.formation
        self._refuse_nonsense(sender, packet)
        if self.is_over(formation) or self._is_known(formation):
            return
        early = self._unasked.pop(formation, {})
        objection = self._objection(sender, packet)
        mine = self.ballot
        if objection is None and mine is not None and mine.initiator == self.me:
            self._vote(step, False, f"{sender} invites too")
        if objection is not None or any(not vote.yes for vote in early.values()):
            self._end(formation)
            others = tuple(one for one in members if one != self.me)
            step.send(others, Vote(self.plan.group, formation, False, objection or "it is over"))
            return
        self.ballot = Ballot(formation, sender, members)
        self.ballot.yes = {voter: None for voter in early if voter in members}
        self._set_timer(step, "vote", 2 * self.options.suspicion_limit)
        if self.options.invitations == "ask":
            step.tell(Invitation(self.plan.group, formation, sender, members))
        else:
            self._vote(step, True)

    def _refuse_nonsense(self, sender: NodeId, packet: Invite) -> None:
        members, group = packet.members, self.plan.group
        names = [one.name for one in members]
        if names != sorted(set(names)) or sender not in members or self.me not in members:
            raise PeerError(f"{sender} invites to {group} in a way that makes no sense")
        if any(name not in self.plan.members for name in names):
            raise PeerError(f"{sender} invites strangers to {group}")
        maker, _, number = packet.formation.rpartition(".")
        if maker != f"{sender.name}.{sender.incarnation}" or not number.isdecimal():
            raise PeerError(f"{sender} invites to {group} in another's name")

    def _objection(self, sender: NodeId, packet: Invite) -> str | None:
        if packet.terms != self.terms:
            return f"{self.me} has joined otherwise: {differences(self.terms, packet.terms)}"[:300]
        if self.next is not None:
            return f"{self.me} is going over to {self.next.formation}"
        ballot = self.ballot
        if ballot is not None and (ballot.initiator != self.me or self.me < sender):
            return f"{self.me} votes on {ballot.formation}"
        return None

    def _vote(self, step: Step, yes: bool, why: str = "") -> None:
        """Tells our vote on what is being voted on to all."""
        ballot = self.ballot
        assert ballot is not None
        others = tuple(one for one in ballot.members if one != self.me)
        step.send(others, Vote(self.plan.group, ballot.formation, yes, why[:300]))
        if not yes:
            self._give_up(step, why)
            return
        ballot.yes[self.me] = None
        if len(ballot.yes) == len(ballot.members):
            self._found(step)

    def _count(self, step: Step, sender: NodeId, vote: Vote) -> None:
        ballot, formation = self.ballot, vote.formation
        if ballot is None or ballot.formation != formation:
            self._keep_vote(sender, vote)
            return
        if sender not in ballot.members:
            raise PeerError(f"{sender} votes on {formation}, to which it is not invited")
        if not vote.yes:
            if ballot.initiator == self.me:
                self._vote(step, False, f"{sender}: {vote.why}")
            else:
                self._give_up(step, vote.why)
            return
        ballot.yes[sender] = None
        if len(ballot.yes) == len(ballot.members) - 1 and ballot.initiator == self.me:
            self._vote(step, True)
        elif len(ballot.yes) == len(ballot.members):
            self._found(step)

    def _keep_vote(self, sender: NodeId, vote: Vote) -> None:
        """Of a formation that we know we are or were in, or that nobody has invited us to yet."""
        formation = vote.formation
        for group in (self.current, self.next):
            if group is not None and group.formation == formation:
                if not vote.yes:
                    group.exclude_soon(sender, "refused")
                return
        if not self.is_over(formation):
            _remember(self._unasked, formation, {}).setdefault(sender, vote)
            if not vote.yes:
                self._unasked[formation][sender] = vote

    def keep_early(self, step: Step, sender: NodeId, message: Message) -> None:
        """A packet of a formation that we are not in. What we vote on we may be in soon."""
        ballot = self.ballot
        if ballot is None or ballot.formation != message.formation:
            return
        if sender not in ballot.members:
            raise PeerError(f"{sender} is not invited to {message.formation}")
        early = ballot.early.setdefault(sender, [])
        early.append(message)
        if len(early) > MOST_EARLY:
            self._vote(step, False, f"{sender} sends too much before we have begun")

    def _found(self, step: Step) -> None:
        ballot = self.ballot
        assert ballot is not None
        self._set_timer(step, "vote", None)
        self._set_timer(step, "state", STATE_LIMITS * self.options.suspicion_limit)
        early = [(sender, one) for sender, sent in ballot.early.items() for one in sent]
        self.ballot = None
        self.founded = Founding(ballot.formation, ballot.initiator, ballot.members, early)

    def _give_up(self, step: Step, why: str) -> None:
        """The formation that is voted on comes to nothing."""
        ballot = self.ballot
        assert ballot is not None
        self.ballot = None
        self._end(ballot.formation)
        self._set_timer(step, "vote", None)
        if ballot.initiator == self.me:
            self._set_back(step, why)
        elif self.wish is not None:
            self._set_timer(step, "gather", self.options.silence_limit)

    # --- what becomes of a formation ----------------------------------------------------------

    def has_begun(self, step: Step) -> None:
        """The one that we went over to is the one that we are in."""
        if self.current is not None:
            self._end(self.current.formation)
        self.current, self.next = self.next, None
        self.setbacks = 0
        if self.wish is not None and self._is_fulfilled(self.wish):
            self.wish = None
        pause = None if self.wish is None else self.options.silence_limit
        self._set_timer(step, "gather", pause)
        self._set_timer(step, "state", None)
        self._set_timer(step, "here", self.options.suspicion_limit if self._is_waiting() else None)

    def _is_fulfilled(self, wish: Wish) -> bool:
        """Whether we are in what was wished for, whoever brought it about."""
        assert self.current is not None
        there = {one.name for one in self.current.views.members}
        return wish.members is None or there == {self.me.name, *wish.members}

    def has_failed(self, step: Step) -> None:
        """It came to nothing after it was agreed to: its initiator is gone, and so is the state."""
        assert self.next is not None
        self._end(self.next.formation)
        self.next = None
        self._set_timer(step, "state", None)
        if self.wish is not None:
            self._set_timer(step, "gather", self.options.silence_limit)
        self._announce(step)

    def is_over(self, formation: str) -> bool:
        return formation in self._over

    def _is_known(self, formation: str) -> bool:
        known = (self.ballot, self.current, self.next)
        return any(one is not None and one.formation == formation for one in known)

    def _end(self, formation: str) -> None:
        _remember(self._over, formation, None)
        self._unasked.pop(formation, None)

    def _set_timer(self, step: Step, what: str, after: int | None) -> None:
        step.set_timer((what, self.plan.group), after)

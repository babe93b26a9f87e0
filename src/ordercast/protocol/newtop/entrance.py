"""How a member that is in no formation comes into its group: with whom it founds it, whom it asks,
for whom it waits.

Rules of open groups, whose members are not listed. The entry in the plan says who may found one
(`kernel/founding.py`).
 1. A member that may found the group by itself does so at once. If it was in it before, alone, it
    first asks for a few rounds whether others are in it now.
 2. If nobody reachable is in the group, those found it whose entries allow it with each other: the
    first of them by name invites them. Others of them do so later, one after the other: the first
    may not know of all. Each member announces what its entry demands. A member whose entry demands
    more than those that are there is not invited, and joins afterwards. A member that rejects an
    invitation, or does not answer, is left out of the next try if possible.
 3. An invited member votes yes only if these suffice for its own entry too. One that remembers
    nothing of the group, and only waits for a member, follows those that remember it as one of
    them: it was about to join, and has not begun. Not if it lost its folder: it may have begun.
 4. A founding begins only if all invited members have started in it, so one that has not started is
    free to found the group with others. One that has started, and has not got the state, cannot
    know whether it has begun, and is bound by that, over a restart too (`bond.py`). So is the only
    member of the group, from when it gives its state to others until it is in a view with them.
 5. If somebody is in the group, the member asks it to re-form the group, once a round.

A closed group is founded by all members that the plan lists, invited by the first of them.

What it does not do: decide what others than we demand of a founding: they announce it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ordercast.kernel.family import FoundingRule, Plan
from ordercast.kernel.founding import founders_of, is_short, lacking, suffices
from ordercast.kernel.step import Step
from ordercast.protocol.newtop.bond import Bond, StartedFounding
from ordercast.protocol.newtop.packets import LARGEST_GROUP, Here, Please
from ordercast.protocol.newtop.presence import AnnouncedMembers
from ordercast.types import NodeId, Waiting

Members = tuple[NodeId, ...]
AWAY = "if it is gone for good and in no group, let this node forget it: ordercast forget NAME"
ROUNDS_ASKED = 3
"""Rounds of announcements in which one that was alone in the group asks who is in it now."""


class Demand(NamedTuple):
    """With whom a member would found the group."""

    entry: FoundingRule
    bond: Bond

    @property
    def follows(self) -> bool:
        """Whether it only waits for a member, and was never in the group."""
        entry = self.entry
        is_lost = entry.lost or entry.reborn
        return not (entry.founds or entry.expect or entry.last or is_lost)

    def names(self, name: str) -> bool:
        """Whether this one was the last to be in the group with it, or may have been."""
        return name in self.entry.last or (not self.bond.initiator and name in self.bond.members)


def _demand_of(here: Here) -> Demand:
    rule = FoundingRule(expect=here.expect, last=here.last, of=here.of, lost=here.lost)
    return Demand(rule, Bond(here.bound_to, here.bound_with))


class Entrance:
    def __init__(
        self, me: NodeId, plan: Plan, presence: AnnouncedMembers, started: StartedFounding
    ) -> None:
        self.me = me
        self.plan = plan
        self.presence = presence
        self.started = started
        self.entry = plan.entry
        self._enough_since: int | None = None  # the round since which those that are there suffice
        self._declined: Members = ()  # who did not found the group with us at the last try
        self.setback = ""  # why the formation that we were invited to last began without us
        self._told: tuple[tuple[str, ...], str] | None = None  # for whom we wait, and why

    # --- founding ----------------------------------------------------------------------------

    def founders(self) -> Members | None:
        """Whom to invite, if it is our turn to found the group. At most once a round."""
        entry = self.entry
        if entry is None:
            return self._all_of_plan()
        if entry.founds and not entry.asks:
            return (self.me,)
        if self.presence.largest_view() is not None or self._is_asking:
            return None
        there = self._able(without=self._declined) or self._able()
        if not there:
            self._enough_since = None
            return None
        now = self.presence.ticks
        self._enough_since = now if self._enough_since is None else self._enough_since
        if now - self._enough_since < 2 * there.index(self.me) or not self.presence.take_turn():
            return None
        self._enough_since = now  # after a failure it is the turn of the first again
        self._declined = ()
        return there

    def _able(self, without: Members = ()) -> Members:
        """Those that are there and may found the group with us; none: we may not."""
        others = {one.node: one.here for one in self.presence.unformed()}
        some = sorted(one for one in others if one not in without)[: LARGEST_GROUP - 1]
        demands = {one.name: _demand_of(others[one]) for one in some}
        demands[self.me.name] = self._demand
        names = founders_of(demands, lambda name, present: _allows(demands, name, present))
        if self.me.name not in names:
            return ()
        return tuple(one for one in sorted((self.me, *some)) if one.name in names)

    def declined(self, members: Members) -> None:
        """These did not found the group with us."""
        self._declined = members

    def _all_of_plan(self) -> Members | None:
        """All members, if we are the first, all are reachable, and none has formed the group."""
        if self.me.name != self.plan.members[0]:
            return None
        others = self.presence.all_unformed()
        if others is None or not self.presence.take_turn():
            return None
        return tuple(sorted((self.me, *others)))

    @property
    def _is_asking(self) -> bool:
        """Whether those that may be in the group have not had the time to answer."""
        entry = self.entry
        return entry is not None and entry.asks and self.presence.ticks <= ROUNDS_ASKED

    @property
    def _demand(self) -> Demand:
        assert self.entry is not None
        return Demand(self.entry, self.started.bond)

    def declared(self, here: Here) -> Here:
        """The announcement, with what our entry demands."""
        if self.entry is None:
            return here
        entry, bond = self._demand
        return replace(
            here,
            expect=1 if entry.founds else entry.expect,
            last=entry.last[:LARGEST_GROUP] if len(entry.last) > 1 else (),
            bound_to=bond.initiator,
            bound_with=bond.members,
            of=entry.of,
            lost=entry.lost or entry.reborn,
        )

    def _demands_of(self, members: Sequence[NodeId]) -> dict[str, Demand]:
        """What these announced."""
        known = {one.node: _demand_of(one.here) for one in self.presence.unformed()}
        demands = {one.name: demand for one, demand in known.items() if one in members}
        demands[self.me.name] = self._demand
        return demands

    def _lost_of(self, members: Sequence[NodeId]) -> tuple[str, ...]:
        """Who of these does not know whether it was in the group, as far as they announced it."""
        return _lost(self._demands_of(members), [one.name for one in members])

    def _may_found(self, members: Sequence[NodeId]) -> bool:
        names = tuple(one.name for one in members)
        return _allows(self._demands_of(members), self.me.name, names)

    def objection(self, members: Sequence[NodeId]) -> str | None:
        """Why we do not found the group with these."""
        formed = None if self.entry is None else self.presence.largest_view()
        if self.entry is None:
            return f"{self.me} has joined a closed group"
        if formed is not None:
            return f"{formed.node} is in the group already"
        if self._is_asking:
            return f"{self.me} asks who is in the group"
        if not self._may_found(members):
            return f"{self.me} may not found it with these: {self._lacking(members)}"[:300]
        return None

    # --- asking ------------------------------------------------------------------------------

    def ask(self, step: Step) -> None:
        """Asks a member to take us in, if we know of one. At most once a round."""
        found = self.presence.largest_view()
        if self.entry is None or found is None or found.here.size >= LARGEST_GROUP:
            return
        if self.presence.take_turn():
            step.send(found.node, Please(self.plan.group))

    # --- waiting -----------------------------------------------------------------------------

    def tell(self, step: Step) -> None:
        """Notifies the application of what we wait for, when that changes."""
        on, why = self._wait()
        if (on, why) != self._told:
            self._told = on, why
            step.notify(Waiting(self.plan.group, on, why, step.now))

    def has_begun(self) -> None:
        self._told, self.setback = None, ""
        self.started.has_begun()

    def _wait(self) -> tuple[tuple[str, ...], str]:
        group, presence = self.plan.group, self.presence
        formed = presence.largest_view()
        if formed is not None:
            on = (formed.node.name,)
            if formed.here.size >= LARGEST_GROUP:
                return on, f"{group!r} has {LARGEST_GROUP} members, and can have no more"
            if formed.here.delays:
                why = "takes in a node that restarts again and again only after a pause"
                return on, f"{on[0]} is in {group!r}, and {why}"
            if self.setback:
                return (
                    on,
                    f"{on[0]} is in {group!r}, and is asked for a state again: {self.setback}",
                )
            if self.entry is not None:
                return on, f"{on[0]} is in {group!r}, and was asked to re-form it with us"
            return on, f"{on[0]} is in {group!r}, and re-forms it on request, or by itself"
        silent = presence.silent()
        if self.entry is None:
            if silent:
                return silent, f"{' '.join(silent)} did not answer"
            return tuple(presence.others), f"all members of {group!r} are there, and form it"
        if self._is_asking:
            return silent, f"it was the only member of {group!r}, and asks whether others are in it"
        able = self._able()
        if able:
            return tuple(one.name for one in able if one != self.me), "these found the group"
        there = sorted((self.me, *(one.node for one in presence.unformed())))
        bound_by = self._bound_by(there)
        if bound_by:
            return bound_by, f"nobody is in {group!r} yet: {self._lacking(there)}"
        if not presence.others:
            return (), f"nobody is known who may be in {group!r}"
        others = tuple(name for name in presence.others if name not in silent)
        if not others:
            return silent, f"{' '.join(silent)} did not answer"
        if is_short(self._demand[0], [one.name for one in there]):
            others = ()
        return others, f"nobody is in {group!r} yet: {self._lacking(there)}"

    def _lacking(self, members: Sequence[NodeId]) -> str:
        """Why these may not found the group."""
        entry, bond = self._demand
        names, lost = [one.name for one in members], self._lost_of(members)
        missing = self._bound_by(members)
        if missing == (bond.initiator,):
            return f"{missing[0]} may have founded it; {AWAY}"
        if missing and entry.asks:  # we were the only member
            return f"{' '.join(missing)} may be in it: this node was about to let it in; {AWAY}"
        if missing:
            who = f"{bond.initiator} lost its data folder, and" if bond.initiator else "this node"
            return f"{who} may have founded it with {' '.join(missing)}; {AWAY}"
        if suffices(entry, names, lost):
            return "some of these wait for others that may have it"
        return lacking(entry, names, lost)

    def _bound_by(self, members: Sequence[NodeId]) -> tuple[str, ...]:
        """Who is missing, if a founding that we started in keeps us from another with these."""
        initiator, invited = bond = self.started.bond
        names, lost = [one.name for one in members], self._lost_of(members)
        if bond.allows(names, lost):
            return ()
        if initiator and initiator not in lost:
            return (initiator,)
        return tuple(name for name in invited if name not in names)


def _allows(demands: Mapping[str, Demand], name: str, present: tuple[str, ...]) -> bool:
    """Whether this one may found the group with these."""
    demand, lost = demands[name], _lost(demands, present)
    if not demand.bond.allows(present, lost):
        return False
    if suffices(demand.entry, present, lost):
        return True
    return demand.follows and any(
        demands[other].names(name) for other in present if other != name and other in demands
    )


def _lost(demands: Mapping[str, Demand], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in demands and demands[name].entry.lost)

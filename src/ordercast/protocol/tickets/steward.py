"""Replaces the guard set when it should have other members: any guardian may try.

Rules.
 1. The set should be the first of: its own members that are alive, then other members that are
    alive, in the order of the ring; as many as is odd and at most 2k + 1. Who differs from that
    for long enough begins, who stands further back later, so that few try at once.
 2. First whoever is to become a guardian is asked (`Offer`), so that nobody is chosen who is about
    to go.
 3. Then the old set is sealed by a majority, which tells what it voted for and what it knows. If
    any of it voted, what comes next is decided already: the vote of the highest ballot. Otherwise
    it is the tables merged, for the new set.
 4. A majority of the old set votes for it: now it is decided. It is installed at a majority of the
    new set, and everybody is told.
 5. Whoever is outbid, or gets nowhere, drops it and tries again later with a higher ballot. A
    sealed set is finished by whoever of it can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from ordercast.errors import PeerError
from ordercast.kernel.step import Step
from ordercast.protocol.tickets.guardian import Guardian, refuse_impossible
from ordercast.protocol.tickets.packets import (
    About,
    Ballot,
    Configuration,
    Current,
    Install,
    Installed,
    Next,
    Offer,
    Outbid,
    Post,
    Propose,
    Ready,
    Seal,
    Sealed,
    Voted,
)
from ordercast.protocol.tickets.register import left_out, merge
from ordercast.types import NodeId


def target_of(
    guardians: Iterable[NodeId], alive: Iterable[NodeId], most: int
) -> tuple[NodeId, ...]:
    """Who should guard: those of now that are alive first; an odd number, at most so many."""
    living = set(alive)
    stay = [one for one in guardians if one in living]
    pool = stay + sorted(living.difference(stay), key=lambda one: (one.name, one.incarnation))
    count = min(most, len(pool))
    return tuple(sorted(pool[: count - (count % 2 == 0)])) if count else ()


class Steward:
    def __init__(
        self, me: NodeId, guardian: Guardian, lease: int, most: int, post: Post, chance: Random
    ) -> None:
        self.me = me
        self.guardian = guardian
        self.lease = lease
        self.most = most  # 2k + 1
        self._hold = lease // 2
        self._post = post
        self._chance = chance
        self.stale = 0  # answers to what is not underway any more
        self._highest = 0  # the highest count of a ballot that was seen or used
        self._differs_since: int | None = None
        self._rest_until = 0
        # What is underway.
        self.ballot: Ballot | None = None
        self._guards = Configuration(0, ())  # the set that is to be replaced
        self._since = 0
        self._target: tuple[NodeId, ...] = ()
        self._ready: set[NodeId] = set()
        self._sealed: dict[NodeId, Sealed] = {}
        self._next: Next | None = None
        self._voted: set[NodeId] = set()
        self._decided = False
        self._installed: set[NodeId] = set()

    # --- every tick ----------------------------------------------------------------------------

    def tick(
        self,
        step: Step,
        reached: Mapping[str, NodeId],
        staying: Mapping[str, NodeId],
        everybody: Iterable[str],
    ) -> None:
        """`reached`: who answered lately, by name, with its guardian identity.

        `staying`: those of them that are not leaving. Whoever leaves still has its vote, and may be
        the steward: otherwise nobody could replace a set of which most leave at once.
        """
        configuration = self.guardian.configuration
        if configuration is None:
            return
        if self.ballot is not None and self._guards != configuration and not self._decided:
            self._drop(step)
        if self.ballot is not None:
            if step.now - self._since > 2 * self.lease:
                self._drop(step)
            else:
                self._push(step, everybody)
            return
        if step.now >= self._rest_until:
            self._consider(step, configuration, reached, staying)

    def _consider(
        self,
        step: Step,
        guards: Configuration,
        reached: Mapping[str, NodeId],
        staying: Mapping[str, NodeId],
    ) -> None:
        reachable = [one for one in guards.guardians if reached.get(one.name) == one]
        if self.guardian.identity not in reachable or len(reachable) < guards.majority:
            self._differs_since = None
            return
        rank = reachable.index(self.guardian.identity)
        target = target_of(guards.guardians, staying.values(), self.most)
        now, hold, sealed_at = step.now, self._hold, self.guardian.sealed_at
        if not target or set(target) == set(guards.guardians):
            self._differs_since = None
        elif self._differs_since is None:
            self._differs_since = now
        patience = hold * (2 + rank) // 2 * (4 if len(target) < len(guards.guardians) else 1)
        differs = self._differs_since is not None and now - self._differs_since >= patience
        stuck = sealed_at is not None and now - sealed_at >= hold * (1 + rank)
        if differs or stuck:
            self._begin(step, guards, target or guards.guardians)

    def _begin(self, step: Step, guards: Configuration, target: tuple[NodeId, ...]) -> None:
        self._highest += 1
        self.ballot = Ballot(self._highest, self.me)
        # Our own guardian may go on to another set while this is underway: what counts is the
        # majority of the one that we began with.
        self._guards, self._since, self._target = guards, step.now, target
        self._ready = {one for one in target if one in guards.guardians}
        if self.guardian.vote is not None:
            self._ready = set(target)  # what comes next may be decided already: nobody is asked
        self._sealed, self._next, self._voted = {}, None, set()
        self._decided, self._installed = False, set()
        self._push(step, ())

    def _push(self, step: Step, everybody: Iterable[str]) -> None:
        """Says again what the next answer is awaited for."""
        assert self.ballot is not None
        guards, number = self._guards, self._guards.number
        group, cluster = self.guardian.group, self.guardian.cluster
        if self._decided:
            assert self._next is not None
            new = self._next.configuration
            if len(self._installed) >= new.majority:
                current = Current(group, cluster, new)
                self._post(step, tuple(everybody), current)
                self._finish()
            else:
                self._say(step, new.guardians, Install(group, cluster, self._next))
        elif self._next is not None:
            self._say(
                step, guards.guardians, Propose(group, cluster, number, self.ballot, self._next)
            )
        elif self._ready.issuperset(self._target):
            self._say(step, guards.guardians, Seal(group, cluster, number, self.ballot))
        else:
            missing = [one for one in self._target if one not in self._ready]
            self._say(step, missing, Offer(group, cluster, number, self.ballot))

    # --- answers -------------------------------------------------------------------------------

    def on_ready(self, step: Step, ready: Ready) -> None:
        if not self._is_ours(ready.number, ready.ballot):
            return
        if ready.guardian in self._target:  # or it was chosen in a life that is over
            self._ready.add(ready.guardian)
            if self._next is None and not self._sealed:
                self._push(step, ())

    def on_sealed(self, step: Step, sealed: Sealed) -> None:
        guards = self._guards
        if not self._is_ours(sealed.number, sealed.ballot) or self._next is not None:
            return
        self._refuse_strangers(sealed.guardian)
        self._refuse_nonsense(sealed)
        self._sealed[sealed.guardian] = sealed
        if len(self._sealed) < guards.majority:
            return
        votes = [one.vote for one in self._sealed.values() if one.vote is not None]
        if votes:
            self._next = max(votes, key=lambda vote: vote.ballot).next
        else:
            reports = [(one.table, one.live) for one in self._sealed.values()]
            new = Configuration(guards.number + 1, self._target)
            self._next = Next(new, merge(reports))
            for ticket, owner in left_out(reports, self._next.table):
                step.note("exclude", group=self.guardian.group, index=ticket, peer=owner.name)
        self._push(step, ())

    def on_voted(self, step: Step, voted: Voted) -> None:
        if not self._is_ours(voted.number, voted.ballot) or self._decided:
            return
        self._refuse_strangers(voted.guardian)
        if self._next is None:
            raise PeerError(f"{voted.guardian} votes for what was not proposed")
        self._voted.add(voted.guardian)
        if len(self._voted) >= self._guards.majority:
            self._decided = True
            self._push(step, ())

    def on_installed(self, step: Step, installed: Installed, everybody: Iterable[str]) -> None:
        if not self._decided or self._next is None:
            return
        new = self._next.configuration
        if installed.number >= new.number and installed.guardian in new.guardians:
            self._installed.add(installed.guardian)
            if len(self._installed) >= new.majority:
                self._push(step, everybody)

    def on_outbid(self, step: Step, outbid: Outbid) -> None:
        self._highest = max(self._highest, outbid.ballot.count)
        ours = self.ballot is not None and outbid.number == self._guards.number
        if ours and not self._decided:
            self._drop(step)

    def seen(self, ballot: Ballot) -> None:
        """Somebody else's: ours must be higher to count."""
        self._highest = max(self._highest, ballot.count)

    def _is_ours(self, number: int, ballot: Ballot) -> bool:
        ours = self.ballot is not None and (number, ballot) == (self._guards.number, self.ballot)
        self.stale += not ours
        return ours

    def _refuse_strangers(self, guardian: NodeId) -> None:
        if guardian not in self._guards.guardians:
            raise PeerError(f"{guardian} answers a steward, and is no guardian")

    def _refuse_nonsense(self, sealed: Sealed) -> None:
        tickets = len(sealed.table)
        if any(ticket >= tickets for ticket in sealed.live):
            raise PeerError(f"{sealed.guardian} holds a ticket that does not exist")
        if sealed.vote is not None:
            if sealed.vote.ballot > sealed.ballot:
                raise PeerError(f"{sealed.guardian} has voted after what it promises")
            refuse_impossible(sealed.vote.next, sealed.number, tickets, sealed.guardian)

    def _drop(self, step: Step) -> None:
        self._finish()
        self._rest_until = step.now + self._chance.randrange(1, 2 * self.lease)

    def _finish(self) -> None:
        self.ballot = self._next = self._differs_since = None
        self._decided = False

    def _say(self, step: Step, to: Iterable[NodeId], packet: About) -> None:
        self._post(step, tuple(one.name for one in to), packet)

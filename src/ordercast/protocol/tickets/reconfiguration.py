"""Replaces the replica set when it should have other members: any of its replicas may try.

Rules.
 1. The set should be the first of: its own members that are alive, then other members that are
    alive, in the order of the ring; an odd number of them, at most 2k + 1. A replica that sees
    another set for long enough begins. Replicas further back begin later, so that few try at once.
 2. First the members that are to become replicas are asked (`Offer`), so that no member is chosen
    that is about to leave.
 3. Then a majority seals the old set, and reports what it voted for and its tables. If any replica
    voted, the next set is decided already: the vote of the highest ballot. Otherwise the leader
    proposes the new set with the merged tables.
 4. A majority of the old set votes for the proposal: now it is decided. It is installed at a
    majority of the new set, and all members are notified.
 5. A leader that is outbid, or makes no progress, stops and tries again later with a higher ballot.
    Any replica of a sealed set may complete the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from ordercast.errors import PeerError
from ordercast.kernel.step import Step
from ordercast.protocol.tickets.lease_replica import LeaseReplica, refuse_impossible
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


def target_of(replicas: Iterable[NodeId], alive: Iterable[NodeId], most: int) -> tuple[NodeId, ...]:
    """The replicas that there should be: present ones that are alive first; an odd number."""
    living = set(alive)
    stay = [one for one in replicas if one in living]
    pool = stay + sorted(living.difference(stay), key=lambda one: (one.name, one.incarnation))
    count = min(most, len(pool))
    return tuple(sorted(pool[: count - (count % 2 == 0)])) if count else ()


class ReconfigurationLeader:
    def __init__(
        self, me: NodeId, replica: LeaseReplica, lease: int, most: int, post: Post, chance: Random
    ) -> None:
        self.me = me
        self.replica = replica
        self.lease = lease
        self.most = most  # 2k + 1
        self._hold = lease // 2
        self._post = post
        self._chance = chance
        self.stale = 0  # answers to a change that is not underway any more
        self._highest = 0  # the highest count of a ballot that was seen or used
        self._differs_since: int | None = None
        self._rest_until = 0
        # The change that is underway.
        self.ballot: Ballot | None = None
        self._replica_set = Configuration(0, ())  # the set that is to be replaced
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
        """`reached`: members that answered lately, by name, with their identities as replicas.

        `staying`: those of them that are not leaving. A replica that leaves still has its vote, and
        may be the leader: otherwise a set of which most leave at once could not be replaced.
        """
        configuration = self.replica.configuration
        if configuration is None:
            return
        if self.ballot is not None and self._replica_set != configuration and not self._decided:
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
        replica_set: Configuration,
        reached: Mapping[str, NodeId],
        staying: Mapping[str, NodeId],
    ) -> None:
        reachable = [one for one in replica_set.replicas if reached.get(one.name) == one]
        if self.replica.identity not in reachable or len(reachable) < replica_set.majority:
            self._differs_since = None
            return
        rank = reachable.index(self.replica.identity)
        target = target_of(replica_set.replicas, staying.values(), self.most)
        now, hold, sealed_at = step.now, self._hold, self.replica.sealed_at
        if not target or set(target) == set(replica_set.replicas):
            self._differs_since = None
        elif self._differs_since is None:
            self._differs_since = now
        patience = hold * (2 + rank) // 2 * (4 if len(target) < len(replica_set.replicas) else 1)
        differs = self._differs_since is not None and now - self._differs_since >= patience
        stuck = sealed_at is not None and now - sealed_at >= hold * (1 + rank)
        if differs or stuck:
            self._begin(step, replica_set, target or replica_set.replicas)

    def _begin(self, step: Step, replica_set: Configuration, target: tuple[NodeId, ...]) -> None:
        self._highest += 1
        self.ballot = Ballot(self._highest, self.me)
        # Our own lease replica may go on to another set while this is underway: what counts is the
        # majority of the one that we began with.
        self._replica_set, self._since, self._target = replica_set, step.now, target
        self._ready = {one for one in target if one in replica_set.replicas}
        if self.replica.vote is not None:
            self._ready = set(target)  # the next set may be decided already: no member is asked
        self._sealed, self._next, self._voted = {}, None, set()
        self._decided, self._installed = False, set()
        self._push(step, ())

    def _push(self, step: Step, everybody: Iterable[str]) -> None:
        """Sends again the packet whose answers are awaited."""
        assert self.ballot is not None
        replica_set, number = self._replica_set, self._replica_set.number
        group, cluster = self.replica.group, self.replica.cluster
        if self._decided:
            assert self._next is not None
            new = self._next.configuration
            if len(self._installed) >= new.majority:
                current = Current(group, cluster, new)
                self._post(step, tuple(everybody), current)
                self._finish()
            else:
                self._send(step, new.replicas, Install(group, cluster, self._next))
        elif self._next is not None:
            self._send(
                step, replica_set.replicas, Propose(group, cluster, number, self.ballot, self._next)
            )
        elif self._ready.issuperset(self._target):
            self._send(step, replica_set.replicas, Seal(group, cluster, number, self.ballot))
        else:
            missing = [one for one in self._target if one not in self._ready]
            self._send(step, missing, Offer(group, cluster, number, self.ballot))

    # --- answers -------------------------------------------------------------------------------

    def on_ready(self, step: Step, ready: Ready) -> None:
        if not self._is_ours(ready.number, ready.ballot):
            return
        if ready.replica in self._target:  # or an earlier incarnation of it was chosen
            self._ready.add(ready.replica)
            if self._next is None and not self._sealed:
                self._push(step, ())

    def on_sealed(self, step: Step, sealed: Sealed) -> None:
        replica_set = self._replica_set
        if not self._is_ours(sealed.number, sealed.ballot) or self._next is not None:
            return
        self._refuse_outsiders(sealed.replica)
        self._refuse_nonsense(sealed)
        self._sealed[sealed.replica] = sealed
        if len(self._sealed) < replica_set.majority:
            return
        votes = [one.vote for one in self._sealed.values() if one.vote is not None]
        if votes:
            self._next = max(votes, key=lambda vote: vote.ballot).next
        else:
            reports = [(one.table, one.live) for one in self._sealed.values()]
            new = Configuration(replica_set.number + 1, self._target)
            self._next = Next(new, merge(reports))
            for ticket, owner in left_out(reports, self._next.table):
                step.note("exclude", group=self.replica.group, index=ticket, peer=owner.name)
        self._push(step, ())

    def on_voted(self, step: Step, voted: Voted) -> None:
        if not self._is_ours(voted.number, voted.ballot) or self._decided:
            return
        self._refuse_outsiders(voted.replica)
        if self._next is None:
            raise PeerError(f"{voted.replica} votes for what was not proposed")
        self._voted.add(voted.replica)
        if len(self._voted) >= self._replica_set.majority:
            self._decided = True
            self._push(step, ())

    def on_installed(self, step: Step, installed: Installed, everybody: Iterable[str]) -> None:
        if not self._decided or self._next is None:
            return
        new = self._next.configuration
        if installed.number >= new.number and installed.replica in new.replicas:
            self._installed.add(installed.replica)
            if len(self._installed) >= new.majority:
                self._push(step, everybody)

    def on_outbid(self, step: Step, outbid: Outbid) -> None:
        self._highest = max(self._highest, outbid.ballot.count)
        ours = self.ballot is not None and outbid.number == self._replica_set.number
        if ours and not self._decided:
            self._drop(step)

    def seen(self, ballot: Ballot) -> None:
        """Another leader uses this ballot: ours must be higher to count."""
        self._highest = max(self._highest, ballot.count)

    def _is_ours(self, number: int, ballot: Ballot) -> bool:
        ours = self.ballot is not None and (number, ballot) == (
            self._replica_set.number,
            self.ballot,
        )
        self.stale += not ours
        return ours

    def _refuse_outsiders(self, replica: NodeId) -> None:
        if replica not in self._replica_set.replicas:
            raise PeerError(f"{replica} answers a reconfiguration leader, but is no lease replica")

    def _refuse_nonsense(self, sealed: Sealed) -> None:
        tickets = len(sealed.table)
        if any(ticket >= tickets for ticket in sealed.live):
            raise PeerError(f"{sealed.replica} holds a ticket that does not exist")
        if sealed.vote is not None:
            if sealed.vote.ballot > sealed.ballot:
                raise PeerError(f"{sealed.replica} has voted after what it promises")
            refuse_impossible(sealed.vote.next, sealed.number, tickets, sealed.replica)

    def _drop(self, step: Step) -> None:
        self._finish()
        self._rest_until = step.now + self._chance.randrange(1, 2 * self.lease)

    def _finish(self) -> None:
        self.ballot = self._next = self._differs_since = None
        self._decided = False

    def _send(self, step: Step, to: Iterable[NodeId], packet: About) -> None:
        self._post(step, tuple(one.name for one in to), packet)

"""Replaces the replica set when it should have other members: any of its replicas may try.

Rules.
 1. The set should be the first of: its own members that are alive, then other members that are
    alive, in the order of the ring; an odd number of them, at most 2k + 1. A replica that sees
    another set for long enough begins. Replicas further back begin later, so that few try at once.
    The first one of a set that only lacks members, or of which a member lost its data folder, waits
    for nothing: until the set has changed, the loss of one more folder may end the cluster. A set
    becomes smaller late where a replica does not answer: that one may be back soon.
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
from typing import Literal, TypeAlias

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


Stage: TypeAlias = Literal["offering", "sealing", "proposing", "installing"]


class Change:
    """A replacement of the set that is underway. Each stage sends a packet until it is answered.

    stage       packet   to                      ends when
    offering    Offer    the members to come     all of them are ready
    sealing     Seal     the set to be replaced  a majority has sealed it
    proposing   Propose  the set to be replaced  a majority has voted: the next set is decided
    installing  Install  the next set            a majority of it has installed it
    """

    def __init__(
        self, ballot: Ballot, replaced: Configuration, target: tuple[NodeId, ...], since: int
    ) -> None:
        self.ballot = ballot
        # Our own lease replica may go on to another set while this is underway: what counts is the
        # majority of the one that we began with.
        self.replaced = replaced
        self.target = target
        self.since = since
        self.stage: Stage = "offering"
        self.answered: set[NodeId] = set()  # in this stage
        self.reports: dict[NodeId, Sealed] = {}  # from `sealing`
        self.next: Next | None = None  # from `proposing` on

    def enter(self, stage: Stage) -> None:
        self.stage, self.answered = stage, set()


class ReconfigurationLeader:
    def __init__(
        self, me: NodeId, replica: LeaseReplica, lease: int, most: int, post: Post, chance: Random
    ) -> None:
        self.me = me
        self.replica = replica
        self.lease = lease
        self.most = most  # 2k + 1
        self.change: Change | None = None
        self.stale = 0  # answers to a change that is not underway any more
        self._hold = lease // 2
        self._post = post
        self._chance = chance
        self._highest = 0  # the highest count of a ballot that was seen or used
        self._differs_since: int | None = None
        self._rest_until = 0

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
        configuration, change = self.replica.configuration, self.change
        if configuration is None:
            return
        if change is not None:
            superseded = change.replaced != configuration and change.stage != "installing"
            if superseded or step.now - change.since > 2 * self.lease:
                self._drop(step)
            else:
                self._push(step, change, everybody)
        elif step.now >= self._rest_until:
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
        patience = hold * (2 + rank) // 2
        if any(one.name not in reached for one in replica_set.replicas):
            patience *= 4 if len(target) < len(replica_set.replicas) else 1
        missing = [one for one in replica_set.replicas if one not in target]
        # A process that answers as another replica than the one in the set has lost its folder: the
        # one in the set never answers again, so there is nothing to wait for.
        if not rank and all(reached.get(one.name, one) != one for one in missing):
            patience = 0
        differs = self._differs_since is not None and now - self._differs_since >= patience
        stuck = sealed_at is not None and now - sealed_at >= hold * (1 + rank)
        if differs or stuck:
            self._begin(step, replica_set, target or replica_set.replicas)

    def _begin(self, step: Step, replica_set: Configuration, target: tuple[NodeId, ...]) -> None:
        self._highest += 1
        change = Change(Ballot(self._highest, self.me), replica_set, target, step.now)
        # Where we have voted, the next set may be decided already: then no member is asked.
        known = target if self.replica.vote is not None else replica_set.replicas
        change.answered = {one for one in target if one in known}
        self.change = change
        self._push(step, change, ())

    def _push(self, step: Step, change: Change, everybody: Iterable[str]) -> None:
        """Sends again the packet whose answers are awaited."""
        if change.stage == "offering" and change.answered.issuperset(change.target):
            change.enter("sealing")
        old, number, ballot = change.replaced.replicas, change.replaced.number, change.ballot
        group, cluster = self.replica.group, self.replica.cluster
        if change.stage == "offering":
            missing = [one for one in change.target if one not in change.answered]
            self._send(step, missing, Offer(group, cluster, number, ballot))
        elif change.stage == "sealing":
            self._send(step, old, Seal(group, cluster, number, ballot))
        elif change.stage == "proposing":
            assert change.next is not None
            self._send(step, old, Propose(group, cluster, number, ballot, change.next))
        else:
            assert change.next is not None
            new = change.next.configuration
            if len(change.answered) < new.majority:
                self._send(step, new.replicas, Install(group, cluster, change.next))
            else:
                self._post(step, tuple(everybody), Current(group, cluster, new))
                self._finish()

    # --- answers -------------------------------------------------------------------------------

    def on_ready(self, step: Step, ready: Ready) -> None:
        change = self._answered(ready.number, ready.ballot)
        if change is None or ready.replica not in change.target:  # of another incarnation
            return
        if change.stage == "offering":
            change.answered.add(ready.replica)
            self._push(step, change, ())
        elif change.stage == "sealing" and not change.reports:
            self._push(step, change, ())  # it answers again, so our first Seal may be lost

    def on_sealed(self, step: Step, sealed: Sealed) -> None:
        change = self._answered(sealed.number, sealed.ballot)
        if change is None or change.stage != "sealing":
            return
        _refuse_outsiders(change, sealed.replica)
        self._refuse_nonsense(sealed)
        change.reports[sealed.replica] = sealed
        if len(change.reports) < change.replaced.majority:
            return
        votes = [one.vote for one in change.reports.values() if one.vote is not None]
        if votes:
            change.next = max(votes, key=lambda vote: vote.ballot).next
        else:
            reports = [(one.table, one.live) for one in change.reports.values()]
            new = Configuration(change.replaced.number + 1, change.target)
            change.next = Next(new, merge(reports))
            for ticket, owner in left_out(reports, change.next.table):
                step.note("exclude", group=self.replica.group, index=ticket, peer=owner.name)
        change.enter("proposing")
        self._push(step, change, ())

    def on_voted(self, step: Step, voted: Voted) -> None:
        change = self._answered(voted.number, voted.ballot)
        if change is None or change.stage == "installing":
            return
        _refuse_outsiders(change, voted.replica)
        if change.stage != "proposing":
            raise PeerError(f"{voted.replica} votes for what was not proposed")
        change.answered.add(voted.replica)
        if len(change.answered) >= change.replaced.majority:
            change.enter("installing")
            self._push(step, change, ())

    def on_installed(self, step: Step, installed: Installed, everybody: Iterable[str]) -> None:
        change = self.change
        if change is None or change.stage != "installing":
            return
        assert change.next is not None
        new = change.next.configuration
        if installed.number >= new.number and installed.replica in new.replicas:
            change.answered.add(installed.replica)
            if len(change.answered) >= new.majority:
                self._push(step, change, everybody)

    def on_outbid(self, step: Step, outbid: Outbid) -> None:
        self.seen(outbid.ballot)
        change = self.change
        if change is None or outbid.number != change.replaced.number:
            return
        if change.stage != "installing":
            self._drop(step)

    def seen(self, ballot: Ballot) -> None:
        """Another leader uses this ballot: ours must be higher to count."""
        self._highest = max(self._highest, ballot.count)

    def _answered(self, number: int, ballot: Ballot) -> Change | None:
        """The change that is underway, if this is an answer to it."""
        change = self.change
        if change is None or (number, ballot) != (change.replaced.number, change.ballot):
            self.stale += 1
            return None
        return change

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
        self.change = self._differs_since = None

    def _send(self, step: Step, to: Iterable[NodeId], packet: About) -> None:
        self._post(step, tuple(one.name for one in to), packet)


def _refuse_outsiders(change: Change, replica: NodeId) -> None:
    if replica not in change.replaced.replicas:
        raise PeerError(f"{replica} answers a reconfiguration leader, but is no lease replica")

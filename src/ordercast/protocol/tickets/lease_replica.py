"""A lease replica: a member of the replica set. It grants claims, and helps to replace the set.

Rules.
 1. It serves one configuration at a time, and answers for no other.
 2. Once it is sealed it never grants again: a reconfiguration leader has begun to replace the set.
 3. Sealing and proposing are single-decree Paxos about the next set, its table included: a replica
    promises the highest ballot, and reports what it has voted for. So there is one successor.
 4. Installing a newer configuration ends the old one here. Every entry then counts as touched now.
 5. What it promises, votes and grants is persisted before it is sent.
 6. Only members of a set replace it, each set has one successor, and a ballot is for one proposal.
    A packet that says otherwise is refused.

A replica that restarts with its disk is the same replica. Without its disk it has forgotten what it
promised, so it must not answer: it counts as another replica, which is in no set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.tickets.entries import entry_of
from ordercast.protocol.tickets.packets import (
    About,
    Ballot,
    BallotVote,
    Claim,
    Configuration,
    Current,
    EntryRecord,
    Grant,
    Install,
    Installed,
    Listed,
    Next,
    Outbid,
    Post,
    Propose,
    Refusal,
    Release,
    Released,
    ReplicaRecord,
    Seal,
    Sealed,
    TicketState,
    Voted,
)
from ordercast.protocol.tickets.register import Register
from ordercast.types import NodeId


class LeaseReplica:
    def __init__(
        self,
        group: str,
        identity: NodeId,
        wait: int,
        post: Post,
        clock: Callable[[], tuple[int, ...]] = tuple,
    ) -> None:
        self.group = group
        self.cluster = 0
        self.identity = identity  # the process, and the incarnation in which its disk began
        self.wait = wait
        self._post = post
        self._clock = clock  # our clock in causal order: a new owner must be as far
        self.configuration: Configuration | None = None
        self.initial: tuple[TicketState, ...] = ()
        self.ballot: Ballot | None = None  # the highest ballot that was seen
        self.vote: BallotVote | None = None
        self.sealed_at: int | None = None
        self.register = Register((), wait, 0)
        self.stale = 0  # packets about a replica set that we do not serve

    @property
    def serves(self) -> int:
        return 0 if self.configuration is None else self.configuration.number

    @property
    def sealed(self) -> bool:
        return self.sealed_at is not None

    # --- beginnings --------------------------------------------------------------------------

    def bootstrap(self, step: Step, tickets: int) -> None:
        """The first replica set of a cluster: its bootstrap node alone, with every ticket free."""
        first = Configuration(1, (self.identity,))
        self._begin(step, Next(first, (TicketState(),) * tickets))

    def _begin(self, step: Step, next_: Next) -> None:
        self.configuration, self.initial = next_.configuration, next_.table
        self.ballot = self.vote = self.sealed_at = None
        self.register = Register(next_.table, self.wait, step.now)
        self._persist(step)

    def restore(self, persisted: Sequence[Packet], now: int) -> None:
        """What an earlier incarnation persisted. It may have granted leases until its end."""
        ours = [one for one in persisted if isinstance(one, (ReplicaRecord, EntryRecord))]
        ours = [one for one in ours if one.group == self.group]
        for newest in [one for one in ours if isinstance(one, ReplicaRecord)][-1:]:
            self.cluster, self.identity = newest.cluster, newest.replica
            self.configuration, self.initial = newest.configuration, newest.initial
            self.ballot, self.vote = newest.ballot, newest.vote
            self.sealed_at = now if newest.sealed else None
            self.register = Register(newest.initial, self.wait, now)
        for record in ours:
            if isinstance(record, EntryRecord) and record.number == self.serves:
                entry = self.register.entries[record.ticket]
                entry.epoch, entry.owner, entry.mode = record.epoch, record.owner, record.mode

    def _persist(self, step: Step) -> None:
        assert self.configuration is not None
        step.persist(
            ReplicaRecord(
                self.group,
                self.cluster,
                self.identity,
                self.configuration,
                self.initial,
                self.ballot,
                self.vote,
                self.sealed,
            )
        )

    # --- tickets -----------------------------------------------------------------------------

    def on_list(self, step: Step, sender: NodeId) -> None:
        if self.configuration is not None and not self.sealed:
            found = self.register.claimable(step.now)
            self._send(step, sender, Listed(self.group, self.cluster, self.serves, found))

    def on_claim(self, step: Step, sender: NodeId, claim: Claim) -> None:
        if self._is_elsewhere(step, sender, claim.number):
            return
        if self.sealed:
            refusal = Refusal(self.group, self.cluster, claim.nonce, True)
            self._send(step, sender, refusal)
            return
        ticket, epoch, owner, now = claim.ticket, claim.epoch, claim.owner, step.now
        if not self.register.may_have(ticket, epoch, owner, now):
            entry = self.register.entries[ticket]
            live = self.register.is_live(ticket, now)
            refusal = Refusal(
                self.group, self.cluster, claim.nonce, False, entry.epoch, entry.owner, live
            )
            self._send(step, sender, refusal)
            return
        former = self.register.lapsed(ticket, owner)
        if former is not None:
            step.note("exclude", group=self.group, index=ticket, peer=former.name)
        last = entry_of(epoch, claim.sequence) if claim.sequence else 0
        base, changed = self.register.grant(ticket, epoch, owner, last, now)
        if changed:
            self._persist_entry(step, ticket)
        clock = self._clock() if changed else ()
        self._send(step, sender, Grant(self.group, self.cluster, claim.nonce, base, clock))

    def on_release(self, step: Step, sender: NodeId, release: Release) -> None:
        if self.sealed or self._is_elsewhere(step, sender, release.number):
            return
        over, changed = self.register.release(
            release.ticket, release.epoch, release.owner, release.last
        )
        if changed:
            self._persist_entry(step, release.ticket)
        if over:
            answer = Released(self.group, self.cluster, release.ticket, release.epoch)
            self._send(step, sender, answer)

    def _persist_entry(self, step: Step, ticket: int) -> None:
        entry = self.register.entries[ticket]
        step.persist(
            EntryRecord(self.group, self.serves, ticket, entry.epoch, entry.owner, entry.mode)
        )

    # --- replacing the set -------------------------------------------------------------------

    def on_seal(self, step: Step, sender: NodeId, seal: Seal) -> None:
        if self._is_elsewhere(step, sender, seal.number):
            return
        self._refuse_outsiders(sender)
        if not self._promise(step, sender, seal.number, seal.ballot):
            return
        self._persist(step)
        table, live = self.register.table(), self.register.live(step.now)
        self._send(
            step,
            sender,
            Sealed(
                self.group,
                self.cluster,
                seal.number,
                seal.ballot,
                self.identity,
                self.vote,
                table,
                live,
            ),
        )

    def on_propose(self, step: Step, sender: NodeId, propose: Propose) -> None:
        if self._is_elsewhere(step, sender, propose.number):
            return
        self._refuse_outsiders(sender)
        vote, tickets = BallotVote(propose.ballot, propose.next), len(self.register.entries)
        refuse_impossible(vote.next, self.serves, tickets, sender)
        if self.vote is not None and self.vote.ballot == vote.ballot and self.vote != vote:
            raise PeerError(f"{sender} proposes two replica sets in one ballot")
        if self._promise(step, sender, propose.number, propose.ballot):
            self.vote = vote
            self._persist(step)
            voted = Voted(self.group, self.cluster, propose.number, propose.ballot, self.identity)
            self._send(step, sender, voted)

    def on_install(self, step: Step, sender: NodeId, install: Install) -> None:
        new = install.next.configuration
        if self.identity not in new.replicas:
            self.stale += 1  # meant for an earlier disk of ours
            return
        if new.number == self.serves and (new, install.next.table) != (
            self.configuration,
            self.initial,
        ):
            raise PeerError(f"{sender} installs another replica set {new.number} than there is")
        if new.number > self.serves:
            self._begin(step, install.next)
        self._send(step, sender, Installed(self.group, self.cluster, self.serves, self.identity))

    def _promise(self, step: Step, sender: NodeId, number: int, ballot: Ballot) -> bool:
        """Promises to follow this ballot, unless a higher one was seen."""
        if self.ballot is not None and ballot < self.ballot:
            self._send(step, sender, Outbid(self.group, self.cluster, number, self.ballot))
            return False
        self.ballot = ballot
        if self.sealed_at is None:
            self.sealed_at = step.now
        return True

    def _is_elsewhere(self, step: Step, sender: NodeId, number: int) -> bool:
        """Whether a packet is about a configuration that we do not serve: it gets no answer."""
        configuration = self.configuration
        if configuration is not None and number == configuration.number:
            return False
        self.stale += 1
        if configuration is not None and number < configuration.number:
            self._send(step, sender, Current(self.group, self.cluster, configuration))
        return True

    def _refuse_outsiders(self, sender: NodeId) -> None:
        assert self.configuration is not None
        if all(one.name != sender.name for one in self.configuration.replicas):
            raise PeerError(f"{sender} would replace the replica set, but is not in it")

    def _send(self, step: Step, to: NodeId, packet: About) -> None:
        self._post(step, (to.name,), packet)


def refuse_impossible(next_: Next, number: int, tickets: int, sender: NodeId) -> None:
    """What can follow a replica set: the next number, an odd number of processes, every ticket."""
    new = next_.configuration
    if new.number != number + 1 or len(next_.table) != tickets:
        raise PeerError(f"{sender} names a replica set {new.number} of {len(next_.table)} tickets")
    if not len(new.replicas) % 2 or len({one.name for one in new.replicas}) < len(new.replicas):
        raise PeerError(f"{sender} names a replica set that cannot be")

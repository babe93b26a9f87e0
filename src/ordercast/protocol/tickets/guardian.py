"""A member of the guard set: answers claims, and takes part in replacing the set.

Rules.
 1. It serves one configuration at a time, and answers for no other.
 2. Once sealed it grants nothing any more, for ever: a steward has begun to replace the set.
 3. Sealing and proposing are single-decree Paxos about what comes next, table included: a
    guardian promises the highest ballot, and reports what it has voted for. So there is one
    successor.
 4. Installing a newer configuration ends the old one here. Every entry then counts as touched now.
 5. What it promises, votes and grants is on disk before it is told.
 6. Only members of a set replace it, each set has one successor, and a ballot is for one proposal:
    whoever says otherwise is refused.

A guardian that restarts with its disk is the same guardian; without it, it is nobody: what it
promised is forgotten, so it must not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import Step
from ordercast.protocol.tickets.packets import (
    About,
    Ballot,
    Claim,
    Configuration,
    Current,
    EntryRecord,
    Grant,
    GuardianRecord,
    Held,
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
    Seal,
    Sealed,
    Vote,
    Voted,
)
from ordercast.protocol.tickets.register import Register
from ordercast.types import NodeId

SEQUENCE_BITS = 32


class Guardian:
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
        self.identity = identity  # the process, and the life in which its disk began
        self.wait = wait
        self._post = post
        self._clock = clock  # how far we are in causal order: a new owner must be as far
        self.configuration: Configuration | None = None
        self.initial: tuple[Held, ...] = ()
        self.ballot: Ballot | None = None  # the highest that was seen
        self.vote: Vote | None = None
        self.sealed_at: int | None = None
        self.register = Register((), wait, 0)
        self.stale = 0  # what was about a guard set that we do not serve

    @property
    def serves(self) -> int:
        return 0 if self.configuration is None else self.configuration.number

    @property
    def sealed(self) -> bool:
        return self.sealed_at is not None

    # --- beginnings --------------------------------------------------------------------------

    def found(self, step: Step, tickets: int) -> None:
        """The first guard set of a cluster: its founder alone, with every ticket free."""
        first = Configuration(1, (self.identity,))
        self._begin(step, Next(first, (Held(),) * tickets))

    def _begin(self, step: Step, next_: Next) -> None:
        self.configuration, self.initial = next_.configuration, next_.table
        self.ballot = self.vote = self.sealed_at = None
        self.register = Register(next_.table, self.wait, step.now)
        self._keep(step)

    def restore(self, kept: Sequence[Packet], now: int) -> None:
        """What an earlier life kept. Leases may have been given until the last moment."""
        ours = [one for one in kept if isinstance(one, (GuardianRecord, EntryRecord))]
        ours = [one for one in ours if one.group == self.group]
        for newest in [one for one in ours if isinstance(one, GuardianRecord)][-1:]:
            self.cluster, self.identity = newest.cluster, newest.guardian
            self.configuration, self.initial = newest.configuration, newest.initial
            self.ballot, self.vote = newest.ballot, newest.vote
            self.sealed_at = now if newest.sealed else None
            self.register = Register(newest.initial, self.wait, now)
        for record in ours:
            if isinstance(record, EntryRecord) and record.number == self.serves:
                entry = self.register.entries[record.ticket]
                entry.epoch, entry.owner, entry.mode = record.epoch, record.owner, record.mode

    def _keep(self, step: Step) -> None:
        assert self.configuration is not None
        step.keep(
            GuardianRecord(
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
            self._say(step, sender, Listed(self.group, self.cluster, self.serves, found))

    def on_claim(self, step: Step, sender: NodeId, claim: Claim) -> None:
        if self._is_elsewhere(step, sender, claim.number):
            return
        if self.sealed:
            refusal = Refusal(self.group, self.cluster, claim.nonce, True)
            self._say(step, sender, refusal)
            return
        ticket, epoch, owner, now = claim.ticket, claim.epoch, claim.owner, step.now
        if not self.register.may_have(ticket, epoch, owner, now):
            entry = self.register.entries[ticket]
            live = self.register.is_live(ticket, now)
            refusal = Refusal(
                self.group, self.cluster, claim.nonce, False, entry.epoch, entry.owner, live
            )
            self._say(step, sender, refusal)
            return
        former = self.register.lapsed(ticket, owner)
        if former is not None:
            step.note("exclude", group=self.group, index=ticket, peer=former.name)
        last = epoch << SEQUENCE_BITS | claim.sequence if claim.sequence else 0
        base, changed = self.register.grant(ticket, epoch, owner, last, now)
        if changed:
            self._keep_entry(step, ticket)
        clock = self._clock() if changed else ()
        self._say(step, sender, Grant(self.group, self.cluster, claim.nonce, base, clock))

    def on_release(self, step: Step, sender: NodeId, release: Release) -> None:
        if self.sealed or self._is_elsewhere(step, sender, release.number):
            return
        over, changed = self.register.release(
            release.ticket, release.epoch, release.owner, release.last
        )
        if changed:
            self._keep_entry(step, release.ticket)
        if over:
            answer = Released(self.group, self.cluster, release.ticket, release.epoch)
            self._say(step, sender, answer)

    def _keep_entry(self, step: Step, ticket: int) -> None:
        entry = self.register.entries[ticket]
        step.keep(
            EntryRecord(self.group, self.serves, ticket, entry.epoch, entry.owner, entry.mode)
        )

    # --- replacing the set -------------------------------------------------------------------

    def on_seal(self, step: Step, sender: NodeId, seal: Seal) -> None:
        if self._is_elsewhere(step, sender, seal.number):
            return
        self._refuse_strangers(sender)
        if not self._promise(step, sender, seal.number, seal.ballot):
            return
        self._keep(step)
        table, live = self.register.table(), self.register.live(step.now)
        self._say(
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
        self._refuse_strangers(sender)
        vote, tickets = Vote(propose.ballot, propose.next), len(self.register.entries)
        refuse_impossible(vote.next, self.serves, tickets, sender)
        if self.vote is not None and self.vote.ballot == vote.ballot and self.vote != vote:
            raise PeerError(f"{sender} proposes two guard sets in one ballot")
        if self._promise(step, sender, propose.number, propose.ballot):
            self.vote = vote
            self._keep(step)
            voted = Voted(self.group, self.cluster, propose.number, propose.ballot, self.identity)
            self._say(step, sender, voted)

    def on_install(self, step: Step, sender: NodeId, install: Install) -> None:
        new = install.next.configuration
        if self.identity not in new.guardians:
            self.stale += 1  # for an earlier disk of ours
            return
        if new.number == self.serves and (new, install.next.table) != (
            self.configuration,
            self.initial,
        ):
            raise PeerError(f"{sender} installs another guard set {new.number} than there is")
        if new.number > self.serves:
            self._begin(step, install.next)
        self._say(step, sender, Installed(self.group, self.cluster, self.serves, self.identity))

    def _promise(self, step: Step, sender: NodeId, number: int, ballot: Ballot) -> bool:
        """Follows this ballot from now on, unless a higher one was seen."""
        if self.ballot is not None and ballot < self.ballot:
            self._say(step, sender, Outbid(self.group, self.cluster, number, self.ballot))
            return False
        self.ballot = ballot
        if self.sealed_at is None:
            self.sealed_at = step.now
        return True

    def _is_elsewhere(self, step: Step, sender: NodeId, number: int) -> bool:
        """Whether this is about a configuration that we do not serve: then we answer for none."""
        configuration = self.configuration
        if configuration is not None and number == configuration.number:
            return False
        self.stale += 1
        if configuration is not None and number < configuration.number:
            self._say(step, sender, Current(self.group, self.cluster, configuration))
        return True

    def _refuse_strangers(self, sender: NodeId) -> None:
        assert self.configuration is not None
        if all(one.name != sender.name for one in self.configuration.guardians):
            raise PeerError(f"{sender} would replace the guard set, and is no guardian")

    def _say(self, step: Step, to: NodeId, packet: About) -> None:
        self._post(step, (to.name,), packet)


def refuse_impossible(next_: Next, number: int, tickets: int, sender: NodeId) -> None:
    """What can follow a guard set: the next number, an odd number of processes, every ticket."""
    new = next_.configuration
    if new.number != number + 1 or len(next_.table) != tickets:
        raise PeerError(f"{sender} names a guard set {new.number} of {len(next_.table)} tickets")
    if not len(new.guardians) % 2 or len({one.name for one in new.guardians}) < len(new.guardians):
        raise PeerError(f"{sender} names a guard set that cannot be")

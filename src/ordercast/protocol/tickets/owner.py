"""Claims a ticket, holds it by leases, and releases it.

Rules.
 1. A claim goes to all lease replicas, again every tick. A grant is a lease that began when its
    claim was sent: it lasts D from then on, on our own clock.
 2. We own the ticket in an epoch when a majority of one replica set has granted that epoch. We may
    create events while such a majority of leases lasts: checked at every event (`is_valid`).
 3. An owner whose leases have run out is suspended: it creates nothing and goes on claiming. It
    loses the ticket only when a majority says in one tick that another member holds it.
 4. Where an epoch cannot be renewed, because the replica set changed, a higher one is claimed; the
    old leases count until they end.
 5. An owner that gives up sends `Release` until a majority has answered, or until no lease can be
    left. So does a claimant that can no longer get a majority, or the grants that it has would
    block other members.
 6. An answer counts if it is to a claim of this incarnation, from a replica that was asked.

An owner is one incarnation: after a restart no member goes on with an old epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from ordercast.errors import PeerError
from ordercast.kernel.step import Step
from ordercast.protocol.tickets.entries import EPOCH_BITS
from ordercast.protocol.tickets.packets import (
    CLAIM_BITS,
    Claim,
    Configuration,
    Grant,
    List,
    Listed,
    Post,
    Refusal,
    Release,
    Released,
)
from ordercast.types import NodeId

MOST_SENT = 64
"""Claims whose answers still count."""
MOST_LEASES = 4
"""Pairs of a replica set and an epoch whose leases are remembered."""
LAST_EPOCH = (1 << EPOCH_BITS) - 1
"""A ticket that has come so far cannot be had any more."""


class Claimed(NamedTuple):
    """A claim that is underway."""

    at: int
    replica_set: Configuration  # the replicas that were asked
    ticket: int
    epoch: int


class Leaving(NamedTuple):
    """A ticket that is being released."""

    ticket: int
    epoch: int
    last: int
    until: int  # when no lease can be left
    clock: tuple[int, ...]


class Owner:
    def __init__(
        self, me: NodeId, group: str, lease: int, wait: int, post: Post, chance: Random
    ) -> None:
        self.me = me
        self.group = group
        self.cluster = 0
        self.lease = lease  # D
        self.wait = wait  # W
        self.wanting = False
        self.ticket: int | None = None
        self.epoch = 0  # established: ours, since a majority granted it; 0: none yet
        self.trying = 0  # the epoch that is being claimed
        self.base = 0  # the newest event of the ticket before this epoch
        self.leaving: Leaving | None = None
        self.stale = 0  # answers that came too late to count
        self._post = post
        self._chance = chance
        self._leases: dict[tuple[int, int], dict[NodeId, int]] = {}
        self._sent: dict[int, Claimed] = {}
        self._claims = 0
        self._since = 0  # when the claim for an unestablished epoch began
        self._rest = 0  # ticks to wait before trying again
        self._highest: dict[int, int] = {}  # by ticket: the highest epoch that we ever tried
        self._taken: set[str] = set()  # replicas that said in this tick that another member has it
        self._against: set[str] = set()  # lease replicas that refused what is not established yet
        self._known: set[str] = set()  # replicas that know of the release

    # --- checked at every event-----------------------------------------------------------------

    def is_valid(self, now: int, sets: Mapping[int, Configuration]) -> bool:
        """Whether events may be created right now."""
        return self.valid_until(sets) > now

    def valid_until(self, sets: Mapping[int, Configuration]) -> int:
        """When the last majority of leases in our epoch ends, if nothing is renewed."""
        if self.ticket is None or not self.epoch:
            return 0
        best = 0
        for (number, epoch), leases in self._leases.items():
            if epoch == self.epoch and number in sets:
                majority = sets[number].majority
                ends = sorted((leases.get(one, 0) for one in sets[number].replicas), reverse=True)
                best = max(best, ends[majority - 1])
        return best

    # --- every tick ----------------------------------------------------------------------------

    def tick(self, step: Step, hint: Configuration | None, sequence: int) -> bool:
        """Claims, renews or releases. True: the ticket has just been lost."""
        lost = hint is not None and self._is_lost(hint)
        if lost:
            self._forget()
        if hint is None:
            return lost
        if self.leaving is not None:
            self._send_release(step, hint)
        elif self.ticket is not None:
            if not self.epoch and step.now - self._since > self.lease:
                self.give_up(step, hint)
            else:
                self._claim(step, hint, sequence)
        else:
            self._rest = max(0, self._rest - 1)
            self.ask(step, hint)
        return lost

    def ask(self, step: Step, hint: Configuration | None) -> None:
        """Asks which tickets are available, if we want one and wait for nothing else."""
        idle = self.ticket is None and self.leaving is None and not self._rest
        if self.wanting and idle and hint is not None:
            to = self._chance.choice(hint.replicas).name
            self._post(step, (to,), List(self.group, self.cluster))

    def _is_lost(self, hint: Configuration) -> bool:
        taken, self._taken = self._taken, set()
        return self.epoch > 0 and len(taken) >= hint.majority

    def _claim(self, step: Step, hint: Configuration, sequence: int) -> None:
        assert self.ticket is not None
        nonce = self._next_nonce()
        self._sent[nonce] = Claimed(step.now, hint, self.ticket, self.trying)
        while len(self._sent) > MOST_SENT:
            del self._sent[next(iter(self._sent))]
        claim = Claim(
            self.group,
            self.cluster,
            hint.number,
            self.ticket,
            self.trying,
            self.me,
            sequence if self.trying == self.epoch else 0,
            nonce,
        )
        self._post(step, tuple(one.name for one in hint.replicas), claim)

    def _next_nonce(self) -> int:
        """Not the nonce of any answer to an earlier incarnation that may still be underway."""
        self._claims = (self._claims + 1) % (1 << CLAIM_BITS)
        return self.me.incarnation << CLAIM_BITS | self._claims

    def _claimed(self, sender: NodeId, nonce: int) -> Claimed | None:
        """The claim that this is an answer to, if it still counts."""
        claimed = self._sent.get(nonce)
        if claimed is None or claimed.ticket != self.ticket:
            self.stale += 1
            return None
        if _named(claimed.replica_set, sender.name) is None:
            raise PeerError(f"{sender} answers a claim, but is no lease replica")
        return claimed

    # --- answers -------------------------------------------------------------------------------

    def on_listed(self, step: Step, listed: Listed, hint: Configuration | None) -> None:
        if not self.wanting or self.ticket is not None or self.leaving is not None:
            return
        if hint is None or listed.number != hint.number or not listed.tickets:
            return
        ticket, epoch = self._chance.choice(listed.tickets)
        if max(epoch, self._highest.get(ticket, 0)) >= LAST_EPOCH:
            return
        self.ticket, self._since, self._against = ticket, step.now, set()
        self._try(max(epoch, self._highest.get(ticket, 0)) + 1)
        self._claim(step, hint, 0)

    def _try(self, epoch: int) -> None:
        assert self.ticket is not None
        self.trying = self._highest[self.ticket] = epoch

    def on_grant(
        self, step: Step, sender: NodeId, grant: Grant, sets: Mapping[int, Configuration]
    ) -> bool:
        """True: with this a majority has granted the epoch, and the ticket is ours in it."""
        claimed = self._claimed(sender, grant.nonce)
        if claimed is None:
            return False
        replica_set = claimed.replica_set
        replica = _named(replica_set, sender.name)
        if replica is None or replica_set.number not in sets:
            return False
        key = (replica_set.number, claimed.epoch)
        leases = self._leases.setdefault(key, {})
        leases[replica] = max(leases.get(replica, 0), claimed.at + self.lease)
        while len(self._leases) > MOST_LEASES:
            del self._leases[min(self._leases)]
        if claimed.epoch != self.trying:
            return False
        self.base = max(self.base, grant.base)
        if self.trying == self.epoch:
            return False
        running = sum(until > step.now for until in leases.values())
        if running < replica_set.majority:
            return False
        self.epoch = self.trying
        return True

    def on_refusal(self, step: Step, sender: NodeId, refusal: Refusal) -> bool:
        """True: what we claimed is another's, and is given up."""
        claimed = self._claimed(sender, refusal.nonce)
        if claimed is None or refusal.sealed or refusal.epoch >= LAST_EPOCH:
            return False
        if refusal.live and refusal.owner != self.me:
            self._taken.add(sender.name)
        if refusal.epoch < self.trying:
            return False
        if self.epoch or not refusal.live:
            self._try(refusal.epoch + 1)  # from the next tick on; old leases still count
            return False
        replica_set = claimed.replica_set
        self._against.add(sender.name)
        if len(replica_set.replicas) - len(self._against) >= replica_set.majority:
            return False
        # Where all refused, another member was quicker. Where some had granted it, claimants
        # blocked each other, and should not try again at the same time.
        split = len(self._against) < len(replica_set.replicas)
        self.give_up(step, replica_set)
        self._rest = self._chance.randrange(0, 3) if split else 0
        return True

    def on_released(self, sender: NodeId, released: Released, hint: Configuration | None) -> bool:
        """True: a majority knows that it is released."""
        leaving = self.leaving
        if leaving is None or (released.ticket, released.epoch) != (leaving.ticket, leaving.epoch):
            self.stale += 1
            return False
        if hint is None or _named(hint, sender.name) is None:
            self.stale += 1  # its sender is not in the newest replica set that we know
            return False
        self._known.add(sender.name)
        if len(self._known) < hint.majority:
            return False
        self.leaving = None
        return True

    # --- releasing -----------------------------------------------------------------------------

    def give_up(
        self,
        step: Step,
        hint: Configuration | None,
        last: int = 0,
        clock: tuple[int, ...] = (),
    ) -> None:
        """Stops at once, and releases the ticket. No event is created any more."""
        if self.ticket is None:
            return
        self.leaving = Leaving(self.ticket, self.trying, last, step.now + self.wait, clock)
        self._known = set()
        self._forget()
        self._rest = self._chance.randrange(1, 5)
        if hint is not None:
            self._send_release(step, hint)

    def _send_release(self, step: Step, hint: Configuration) -> None:
        leaving = self.leaving
        assert leaving is not None
        if step.now >= leaving.until:
            self.leaving = None  # no lease can be left, so no replica needs to know
            return
        release = Release(
            self.group,
            self.cluster,
            hint.number,
            leaving.ticket,
            leaving.epoch,
            self.me,
            leaving.last,
            leaving.clock,
        )
        self._post(step, tuple(one.name for one in hint.replicas), release)

    def _forget(self) -> None:
        self.ticket = None
        self.epoch = self.trying = self.base = 0
        self._leases = {}
        self._sent = {}
        self._taken, self._against = set(), set()


def _named(replica_set: Configuration, name: str) -> NodeId | None:
    return next((one for one in replica_set.replicas if one.name == name), None)

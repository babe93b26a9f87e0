"""Tickets by leases: the parts of one member, and what is said to whom.

A register with a lease for every ticket lives on a small guard set, which replaces itself. Owners
renew there, and ask at every create whether their leases last. Exclusion means that a lease has run
out and a higher epoch was granted; the ring of the paper only orders who may become a guardian.
docs/tickets.md has the assumptions, and what holds under each.

Everybody pings the guard set that it knows of, and somebody by chance; guardians ping all they
know. Pongs bring newer guard sets, and tell who is alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.protocol.tickets.guardian import Guardian
from ordercast.protocol.tickets.owner import SEQUENCE_BITS, Owner
from ordercast.protocol.tickets.packets import (
    About,
    Claim,
    Configuration,
    Current,
    Grant,
    GuardianRecord,
    Install,
    Installed,
    List,
    Listed,
    Next,
    Offer,
    Outbid,
    Ping,
    Pong,
    Propose,
    Ready,
    Refusal,
    Release,
    Released,
    Seal,
    Sealed,
    Voted,
)
from ordercast.protocol.tickets.steward import Steward
from ordercast.types import NodeId

Answers = Ready | Sealed | Voted | Installed
TICKS_A_LEASE = 4
MOST_SETS = 8
"""Guard sets that are remembered: leases of older ones have long run out."""


class Rules(NamedTuple):
    """What all members of a cluster must have alike."""

    tickets: int
    lease: int  # D, nanoseconds
    drift: float  # how far the rate of a clock may be from true
    guards: int  # 2k + 1 at the most

    @property
    def wait(self) -> int:
        """W: a lease of D on one clock is over on any other, if both are within the bound."""
        return int(self.lease * (1 + self.drift) / (1 - self.drift)) + 1

    @property
    def tick(self) -> int:
        return self.lease // TICKS_A_LEASE


class News(NamedTuple):
    """What has become of our ticket in one call."""

    acquired: bool  # ours, in a new epoch
    lost: bool


class Leased:
    def __init__(
        self,
        me: NodeId,
        group: str,
        rules: Rules,
        known: Callable[[], Sequence[str]],
        chance: Random,
    ) -> None:
        self.me = me
        self.group = group
        self.rules = rules
        self.cluster = 0  # 0: we have not heard of one
        self.sets: dict[int, Configuration] = {}  # by number, the newest last
        self.hint: Configuration | None = None
        self.guardian = Guardian(group, me, rules.wait, self._post)
        self.owner = Owner(me, group, rules.lease, rules.wait, self._post, chance)
        self.steward = Steward(me, self.guardian, rules.lease, rules.guards, self._post, chance)
        self.going = False  # we leave the cluster
        self.acquired = self.lost = 0
        self._known = known
        self._chance = chance
        self._alive: dict[str, tuple[int, Pong]] = {}  # by name: our time of the ping, its answer
        self._to_ourselves: deque[About] = deque()
        self._bound_until = 0  # who said that it would become a guardian stays so long

    # --- beginnings ----------------------------------------------------------------------------

    def found(self, step: Step, cluster: int) -> None:
        """Begins a cluster. Two that were begun never become one."""
        assert cluster > 0 and self.cluster == 0
        self._belong(cluster)
        self.guardian.found(step, self.rules.tickets)
        self._learn(self.guardian.configuration)

    def restore(self, kept: Sequence[Packet], now: int) -> None:
        """What an earlier life of this member kept as a guardian."""
        self.guardian.restore(kept, now)
        if any(isinstance(one, GuardianRecord) and one.group == self.group for one in kept):
            self._belong(self.guardian.cluster)
            self._learn(self.guardian.configuration)

    def _belong(self, cluster: int) -> None:
        self.cluster = self.guardian.cluster = self.owner.cluster = cluster

    def _learn(self, configuration: Configuration | None) -> None:
        if configuration is None or configuration.number in self.sets:
            return
        self.sets[configuration.number] = configuration
        if self.hint is None or configuration.number > self.hint.number:
            self.hint = configuration
        while len(self.sets) > MOST_SETS:
            del self.sets[min(self.sets)]

    # --- what others ask -----------------------------------------------------------------------

    def is_valid(self, now: int) -> bool:
        """Whether this member may create events right now. Asked at every create."""
        return self.owner.leaving is None and self.owner.is_valid(now, self.sets)

    def valid_until(self) -> int:
        return self.owner.valid_until(self.sets)

    def may_go(self) -> bool:
        """Whether a member that leaves is no longer needed."""
        if self.owner.leaving is not None:
            return False
        hint, guardian = self.hint, self.guardian
        if hint is None or not guardian.serves:
            return True
        if guardian.identity in hint.guardians:
            return False
        serving = [
            one
            for one in hint.guardians
            if one.name in self._alive and self._alive[one.name][1].serves >= hint.number
        ]
        return len(serving) >= hint.majority

    # --- every tick ----------------------------------------------------------------------------

    def tick(self, step: Step, sequence: int) -> News:
        """`sequence`: of our newest event in our epoch."""
        self._ping(step)
        lost = self.owner.tick(step, self.hint, sequence)
        self.lost += lost
        self.steward.tick(step, self._living(step.now), self._everybody())
        return News(self._hear_ourselves(step), lost)

    def _post(self, step: Step, names: tuple[str, ...], packet: About) -> None:
        """Sends to others, and puts aside what we say to ourselves."""
        if self.me.name in names:
            self._to_ourselves.append(packet)
            names = tuple(name for name in names if name != self.me.name)
        if names:
            step.send(names, packet, DATAGRAM)

    def _hear_ourselves(self, step: Step) -> bool:
        acquired = False
        while self._to_ourselves:
            acquired |= self._receive(step, self.me, self._to_ourselves.popleft())
        return acquired

    def _ping(self, step: Step) -> None:
        names = dict.fromkeys(one.name for one in self.hint.guardians) if self.hint else {}
        if self.guardian.serves:
            names |= dict.fromkeys(self._everybody())
        elif others := self._everybody():
            names[self._chance.choice(others)] = None
        names.pop(self.me.name, None)
        if names:
            self._post(step, tuple(names), Ping(self.group, self.cluster, step.now))

    def _everybody(self) -> tuple[str, ...]:
        return tuple(name for name in self._known() if name != self.me.name)

    def _living(self, now: int) -> dict[str, NodeId]:
        """Who answered a ping of the last lease, and does not leave; ourselves too."""
        found = {
            name: pong.guardian
            for name, (sent, pong) in self._alive.items()
            if now - sent <= self.rules.lease and not pong.leaving
        }
        if not self.going:
            found[self.me.name] = self.guardian.identity
        return found

    # --- packets -------------------------------------------------------------------------------

    def receive(self, step: Step, sender: NodeId, packet: About) -> News:
        acquired = self._receive(step, sender, packet)
        return News(self._hear_ourselves(step) or acquired, False)

    def _receive(self, step: Step, sender: NodeId, packet: About) -> bool:
        """True: with this the ticket is ours, in a new epoch."""
        if isinstance(packet, Ping):
            self._on_ping(step, sender, packet)
            return False
        if isinstance(packet, Pong) and self.cluster == 0 and packet.cluster:
            self._belong(packet.cluster)
        if packet.cluster != self.cluster or not self.cluster:
            return False
        self._refuse_nonsense(sender, packet)
        if isinstance(packet, Grant):
            if self.owner.on_grant(step, sender, packet, self.sets):
                self.acquired += 1
                return True
        elif isinstance(packet, Pong):
            self._on_pong(step, sender, packet)
        elif isinstance(packet, Refusal):
            self.owner.on_refusal(step, sender, packet)
        elif isinstance(packet, Listed):
            self.owner.on_listed(step, packet, self.hint)
        elif isinstance(packet, Released):
            self.owner.on_released(sender, packet, self.hint)
        elif isinstance(packet, Current):
            self._learn(packet.configuration)
        else:
            self._guard(step, sender, packet)
        return False

    def _guard(self, step: Step, sender: NodeId, packet: About) -> None:
        """What concerns guardians and stewards."""
        guardian, steward = self.guardian, self.steward
        if isinstance(packet, Claim):
            guardian.on_claim(step, sender, packet)
        elif isinstance(packet, List):
            guardian.on_list(step, sender)
        elif isinstance(packet, Release):
            guardian.on_release(step, sender, packet)
        elif isinstance(packet, Offer):
            self._on_offer(step, sender, packet)
        elif isinstance(packet, Seal):
            steward.seen(packet.ballot)
            guardian.on_seal(step, sender, packet)
        elif isinstance(packet, Propose):
            steward.seen(packet.ballot)
            guardian.on_propose(step, sender, packet)
        elif isinstance(packet, Install):
            guardian.on_install(step, sender, packet)
            self._learn(guardian.configuration)
        elif isinstance(packet, Ready):
            steward.on_ready(step, packet)
        elif isinstance(packet, Sealed):
            steward.on_sealed(step, packet)
        elif isinstance(packet, Voted):
            steward.on_voted(step, packet)
        elif isinstance(packet, Installed):
            steward.on_installed(step, packet, self._everybody())
        elif isinstance(packet, Outbid):
            steward.on_outbid(step, packet)
        else:
            raise PeerError(f"{sender} sent {type(packet).__name__}, which tickets do not know")

    def _on_ping(self, step: Step, sender: NodeId, ping: Ping) -> None:
        if ping.cluster not in (0, self.cluster):
            return
        guardian = self.guardian
        pong = Pong(
            self.group,
            self.cluster,
            ping.sent,
            self.hint,
            guardian.identity,
            guardian.serves,
            guardian.sealed,
            self.going,
        )
        self._post(step, (sender.name,), pong)

    def _on_pong(self, step: Step, sender: NodeId, pong: Pong) -> None:
        if pong.sent > step.now:
            raise PeerError(f"{sender} answers a ping from the future")
        self._learn(pong.hint)
        known = self._alive.get(sender.name)
        if known is None or known[0] <= pong.sent:
            self._alive[sender.name] = (pong.sent, pong)
        guardian = self.guardian
        configuration = guardian.configuration
        if (
            configuration is not None
            and pong.guardian in configuration.guardians
            and pong.serves < configuration.number
        ):
            first = Next(configuration, guardian.initial)
            self._post(step, (sender.name,), Install(self.group, self.cluster, first))

    def _on_offer(self, step: Step, sender: NodeId, offer: Offer) -> None:
        if self.going:
            return
        self._bound_until = step.now + 6 * self.rules.lease
        ready = Ready(self.group, self.cluster, offer.number, offer.ballot, self.guardian.identity)
        self._post(step, (sender.name,), ready)

    # --- what no member that follows the rules would send ----------------------------------------

    def _refuse_nonsense(self, sender: NodeId, packet: About) -> None:
        tickets = self.rules.tickets
        if isinstance(packet, (Claim, Release)):
            if packet.owner != sender:
                raise PeerError(f"{sender} claims a ticket for {packet.owner}")
            if packet.ticket >= tickets or not packet.epoch:
                raise PeerError(f"{sender} claims ticket {packet.ticket}, epoch {packet.epoch}")
        elif isinstance(packet, (Offer, Seal, Propose)):
            if packet.ballot.by != sender:
                raise PeerError(f"{sender} uses a ballot of {packet.ballot.by}")
        elif isinstance(packet, Listed):
            if any(ticket >= tickets for ticket, _ in packet.tickets):
                raise PeerError(f"{sender} lists a ticket that does not exist")
        elif isinstance(packet, Answers) and packet.guardian.name != sender.name:
            raise PeerError(f"{sender} answers for {packet.guardian}")
        if isinstance(packet, Sealed) and len(packet.table) != tickets:
            raise PeerError(f"{sender} has a table of {len(packet.table)} tickets, not {tickets}")
        if isinstance(packet, (Propose, Install)):
            new = packet.next
            if len(new.table) != tickets or not len(new.configuration.guardians) % 2:
                raise PeerError(f"{sender} names a guard set that cannot be")

    # --- giving back -----------------------------------------------------------------------------

    def release(self, step: Step, sequence: int) -> None:
        """Gives the ticket back, after so many events in its epoch."""
        owner = self.owner
        owner.wanting = False
        last = owner.epoch << SEQUENCE_BITS | sequence if owner.epoch and sequence else 0
        owner.give_up(step, self.hint, last)
        self._hear_ourselves(step)

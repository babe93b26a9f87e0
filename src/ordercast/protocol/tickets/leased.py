"""Tickets by leases: the parts of one member, and what is said to whom.

A register with a lease for every ticket lives on a small guard set, which replaces itself. Owners
renew there, and ask at every create whether their leases last. Exclusion means that a lease has run
out and a higher epoch was granted; the ring of the paper only orders who may become a guardian.
docs/tickets.md has the assumptions, and what holds under each.

Whoever has or wants a ticket pings the guard set that it knows of; everybody pings somebody by
chance. Pongs bring newer guard sets, and tell who is alive. Guardians ping each other, those that
they know to be alive, and others in turn around the ring, so that there is always somebody to take
a dead one's place, however large the cluster is.

A cluster is founded once, by the member that is named for it. It asks all members first, and needs
a majority of them that know of no cluster: a founder that has lost its disk does not found another
while most of the cluster can be reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import NamedTuple

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.protocol.tickets.guardian import Guardian
from ordercast.protocol.tickets.interface import NOTHING, News, TicketPacket
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
from ordercast.protocol.tickets.refusals import refuse_nonsense
from ordercast.protocol.tickets.steward import Steward
from ordercast.types import NodeId

Answers = Pong | Ready | Sealed | Voted | Installed
TICKS_A_LEASE = 4
CANDIDATES = 16
"""Members that are alive whom a guardian pings, beside the guard set."""
TRIED = 4
"""And others, in turn around the ring; whoever knows of no cluster asks as many by chance."""
READY_TICKS = 6 * TICKS_A_LEASE
"""How long a set that asked somebody to become a guardian may take over it."""
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


class Leased:
    keeps_entries = True

    def __init__(
        self,
        me: NodeId,
        group: str,
        rules: Rules,
        known: Callable[[], Sequence[str]],
        chance: Random,
        *,
        clock: Callable[[], tuple[int, ...]] = tuple,
        persisted: Sequence[Packet] = (),
        members: Sequence[str] = (),
    ) -> None:
        """`known`: whom we can reach. `clock`: how far we are. `members`: of all, if we found."""
        self.me = me
        self.group = group
        self.rules = rules
        self.period = rules.tick
        self.cluster = 0  # 0: we have not heard of one
        self.sets: dict[int, Configuration] = {}  # by number, the newest last
        self.hint: Configuration | None = None
        self.guardian = Guardian(group, me, rules.wait, self._post, clock)
        self.owner = Owner(me, group, rules.lease, rules.wait, self._post, chance)
        self.steward = Steward(me, self.guardian, rules.lease, rules.guards, self._post, chance)
        self.going = False  # we leave the cluster
        self.acquired = self.lost = self.refusals = self.strange = 0
        self._known = known
        self._chance = chance
        self._persisted = persisted
        self._founds = tuple(members)
        self._strangers: set[str] = set()  # members that know of no cluster
        self._alive: dict[str, tuple[int, Pong]] = {}  # by name: our time of the ping, its answer
        self._turn = 0  # how far we have pinged around the ring
        self._to_ourselves: deque[About] = deque()
        # Who said that it would become a guardian stays for so many ticks, unless a set newer than
        # the one that asked shows that somebody else was taken.
        self._bound = self._asked_by = 0

    @property
    def ticket(self) -> int | None:
        return self.owner.ticket if self.owner.epoch else None

    @property
    def epoch(self) -> int:
        return self.owner.epoch

    @property
    def base(self) -> int:
        return self.owner.base

    # --- beginnings ----------------------------------------------------------------------------

    def found(self, step: Step, cluster: int) -> None:
        """Begins a cluster. Two that were begun never become one."""
        assert cluster > 0 and self.cluster == 0
        self._belong(cluster)
        self.guardian.found(step, self.rules.tickets)
        self._learn(self.guardian.configuration)
        assert self.hint is not None
        self._post(step, self._everybody(), Current(self.group, cluster, self.hint))
        self.owner.ask(step, self.hint)

    def start(self, step: Step) -> News:
        """At first, or again, after we had left."""
        self.going = False
        if self._persisted:
            persisted, self._persisted = self._persisted, ()
            self.restore(persisted, step.now)
        self._ping(step)
        return NOTHING

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

    def _learn_and_ask(self, step: Step, configuration: Configuration | None) -> None:
        """Whoever wants a ticket asks the first guard set that it hears of at once."""
        knew_of_none = self.hint is None
        self._learn(configuration)
        if knew_of_none:
            self.owner.ask(step, self.hint)

    def _consider_founding(self, step: Step) -> None:
        """Once most members, with us, have said that they know of no cluster."""
        if not self.cluster and 2 * (len(self._strangers) + 1) > len(self._founds) > 0:
            self.found(step, self._chance.randrange(1, 1 << 40))

    # --- what others ask -----------------------------------------------------------------------

    def may_create(self, now: int) -> bool:
        """Asked at every create."""
        return self.owner.leaving is None and self.owner.is_valid(now, self.sets)

    def valid_until(self) -> int:
        return self.owner.valid_until(self.sets)

    def may_go(self) -> bool:
        """Whether a member that leaves is no longer needed."""
        hint, guardian = self.hint, self.guardian
        if self.owner.leaving is not None or self._is_bound():
            return False
        if hint is not None and guardian.identity in hint.guardians:
            return False
        if hint is None or not guardian.serves:
            return True
        serving = [
            one
            for one in hint.guardians
            if one.name in self._alive and self._alive[one.name][1].serves >= hint.number
        ]
        return len(serving) >= hint.majority

    def _is_bound(self) -> bool:
        """Whether we said that we would become a guardian, and that may still come to pass."""
        hint = self.hint
        if hint is None or hint.number > self._asked_by:
            return False
        answers = [self._alive[one.name][1] for one in hint.guardians if one.name in self._alive]
        return self._bound > 0 or any(pong.sealed for pong in answers)

    def has_heirs(self, now: int) -> bool:
        """Whether another member is there that stays."""
        others = [name for name in self._reached(now) if name != self.me.name]
        return not all(map(self._is_leaving, others))

    # --- every tick ----------------------------------------------------------------------------

    def tick(self, step: Step, sequence: int) -> News:
        self._bound -= self._bound > 0
        self._consider_founding(step)
        self._ping(step)
        ticket = self.ticket
        lost = self.owner.tick(step, self.hint, sequence)
        self.lost += lost
        self._forget_the_dead(step.now)
        reached = self._reached(step.now)
        staying = {name: one for name, one in reached.items() if not self._is_leaving(name)}
        self.steward.tick(step, reached, staying, self._everybody())
        return self._heard_ourselves(step, NOTHING._replace(lost=ticket if lost else None))

    def heard(self, step: Step, ticket: int, epoch: int, owner: NodeId | None) -> News:
        """Somebody uses a ticket in an epoch. If it is ours, in a higher one, it was granted."""
        if owner == self.me or ticket != self.ticket or epoch <= self.epoch:
            return NOTHING
        self.lost += 1
        self.owner.give_up(step, self.hint)
        return self._heard_ourselves(step, News(lost=ticket))

    def acknowledged(self, step: Step, token: Hashable, arrived: bool) -> News:
        raise AssertionError("leases are asked for by datagram")

    def _post(self, step: Step, names: tuple[str, ...], packet: About) -> None:
        """Sends to others, and puts aside what we say to ourselves."""
        if self.me.name in names:
            self._to_ourselves.append(packet)
            names = tuple(name for name in names if name != self.me.name)
        if names:
            step.send(names, packet, DATAGRAM)

    def _heard_ourselves(self, step: Step, news: News) -> News:
        """With what we have said to ourselves meanwhile."""
        while self._to_ourselves:
            more = self._receive(step, self.me, self._to_ourselves.popleft())
            news = News(
                news.acquired or more.acquired,
                more.lost if news.lost is None else news.lost,
                more.clock or news.clock,
            )
        return news

    def _ping(self, step: Step) -> None:
        everybody = self._everybody()
        names: dict[str, None] = {}
        if self._founds and not self.cluster:
            names = dict.fromkeys(self._founds)
        if self.hint is not None and (self.owner.wanting or self.guardian.serves or self.going):
            names |= dict.fromkeys(one.name for one in self.hint.guardians)
        if self.guardian.serves:
            names |= dict.fromkeys(list(self._alive)[:CANDIDATES])
            for _ in range(min(TRIED, len(everybody))):
                self._turn = (self._turn + 1) % len(everybody)
                names[everybody[self._turn]] = None
        elif everybody:
            for _ in range(1 if self.cluster else TRIED):
                names[self._chance.choice(everybody)] = None
        names.pop(self.me.name, None)
        if names:
            self._post(step, tuple(names), Ping(self.group, self.cluster, step.now))

    def _everybody(self) -> tuple[str, ...]:
        return tuple(name for name in self._known() if name != self.me.name)

    def _forget_the_dead(self, now: int) -> None:
        patience = 8 * self.rules.lease
        gone = [name for name, (sent, _) in self._alive.items() if now - sent > patience]
        for name in gone:
            del self._alive[name]

    def _reached(self, now: int) -> dict[str, NodeId]:
        """Who answered a ping of the last lease; ourselves too."""
        found = {
            name: pong.guardian
            for name, (sent, pong) in self._alive.items()
            if now - sent <= self.rules.lease
        }
        found[self.me.name] = self.guardian.identity
        return found

    def _is_leaving(self, name: str) -> bool:
        if name == self.me.name:
            return self.going
        return name in self._alive and self._alive[name][1].leaving

    # --- packets -------------------------------------------------------------------------------

    def receive(self, step: Step, sender: NodeId, packet: TicketPacket) -> News:
        if not isinstance(packet, About):
            raise PeerError(f"{sender} sent {type(packet).__name__}: tickets are leased here")
        return self._heard_ourselves(step, self._receive(step, sender, packet))

    def _receive(self, step: Step, sender: NodeId, packet: About) -> News:
        if isinstance(packet, Ping):
            self._on_ping(step, sender, packet)
            return NOTHING
        if not self.cluster and isinstance(packet, (Pong, Current)):
            if packet.cluster:
                refuse_nonsense(step.now, sender, packet, self.rules.tickets, self.sets)
                self._belong(packet.cluster)
            elif sender.name in self._founds:
                self._strangers.add(sender.name)
                self._consider_founding(step)
        if packet.cluster != self.cluster or not self.cluster:
            self.strange += packet.cluster != 0  # of a cluster that was founded apart
            return NOTHING
        refuse_nonsense(step.now, sender, packet, self.rules.tickets, self.sets)
        if isinstance(packet, Grant):
            acquired = self.owner.on_grant(step, sender, packet, self.sets)
            self.acquired += acquired
            return News(acquired, clock=packet.clock)
        if isinstance(packet, Release):
            self._guard(step, sender, packet)
            return News(clock=packet.clock)
        if isinstance(packet, Pong):
            self._on_pong(step, sender, packet)
        elif isinstance(packet, Refusal):
            ticket = self.owner.ticket
            if self.owner.on_refusal(step, sender, packet):
                self.refusals += 1
                step.note("ticket", group=self.group, index=ticket, cause="refused")
        elif isinstance(packet, Listed):
            self.owner.on_listed(step, packet, self.hint)
        elif isinstance(packet, Released):
            if self.owner.on_released(sender, packet, self.hint):
                self.owner.ask(step, self.hint)
        elif isinstance(packet, Current):
            self._learn_and_ask(step, packet.configuration)
        else:
            self._guard(step, sender, packet)
        return NOTHING

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
            guardian.on_seal(step, sender, packet)
            steward.seen(packet.ballot)
        elif isinstance(packet, Propose):
            guardian.on_propose(step, sender, packet)
            steward.seen(packet.ballot)
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
        self._learn_and_ask(step, pong.hint)
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
        self._bound, self._asked_by = READY_TICKS, offer.number
        ready = Ready(self.group, self.cluster, offer.number, offer.ballot, self.guardian.identity)
        self._post(step, (sender.name,), ready)

    # --- giving back -----------------------------------------------------------------------------

    def seek(self, step: Step, wanted: bool, sequence: int, clock: tuple[int, ...]) -> News:
        owner = self.owner
        owner.wanting = wanted
        if not wanted:
            last = owner.epoch << SEQUENCE_BITS | sequence if owner.epoch and sequence else 0
            owner.give_up(step, self.hint, last, clock)
        owner.ask(step, self.hint)
        return self._heard_ourselves(step, NOTHING)

    def retire(self, step: Step) -> None:
        """Others stop counting on us: stewards put somebody in our place."""
        self.going = True
        self._ping(step)

    def counters(self) -> dict[str, int]:
        return {
            "tickets_acquired": self.acquired,
            "tickets_lost": self.lost,
            "claims_refused": self.refusals,
            "guards_set": self.guardian.serves,
            "of_other_clusters": self.strange,
        }

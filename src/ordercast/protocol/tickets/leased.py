"""Tickets by leases: the parts of one member, and which packets they send to whom.

A register with a lease for every ticket lives on a small replica set, which replaces itself. Owners
renew their leases there, and check at every event whether they last. An owner is excluded when its
lease has run out and a higher epoch was granted; the ring of the paper only orders the members that
may become replicas. docs/tickets.md has the assumptions, and what holds under each.

Members ping each other (liveness.py). Pongs bring newer replica sets, and show which members are
alive.

A cluster is begun once, by its bootstrap node (the option `founder`). That node asks all members
first, and needs a majority that knows of no cluster: a bootstrap node that has lost its disk does
not begin a second cluster while most of the first can be reached.

Where nobody lists the members, the causal member says when to begin (`found`): never if it was in
the cluster before, for then the tickets exist. Two clusters may still be begun under one name, by
nodes that knew nothing of each other. They never become one: when they meet, the members of the
smaller one notify their applications, each once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from random import Random

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step
from ordercast.protocol.tickets import packets
from ordercast.protocol.tickets.encounters import Encounters
from ordercast.protocol.tickets.entries import entry_of
from ordercast.protocol.tickets.interface import NOTHING, TicketNews, TicketPacket
from ordercast.protocol.tickets.lease_replica import LeaseReplica
from ordercast.protocol.tickets.liveness import Liveness
from ordercast.protocol.tickets.owner import Owner
from ordercast.protocol.tickets.reconfiguration import ReconfigurationLeader
from ordercast.protocol.tickets.refusals import refuse_nonsense, refuse_other_tickets
from ordercast.protocol.tickets.rules import TICKS_A_LEASE, Rules
from ordercast.protocol.tickets.shortage import Shortage
from ordercast.types import COUNTER_BITS, NodeId

READY_TICKS = 6 * TICKS_A_LEASE
"""How long a set that asked a member to become a lease replica may take for it."""
MOST_SETS = 8
"""Replica sets that are remembered: leases of older ones have long run out."""


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
        opens: bool = False,
    ) -> None:
        """`known`: members that we can reach. `members`: all of them, at the bootstrap node.

        `opens`: nobody lists them.
        """
        refuse_other_tickets(group, rules.tickets, persisted)
        self.me = me
        self.group = group
        self.rules = rules
        self.period = rules.tick
        self.cluster = 0  # 0: we know of none
        self.sets: dict[int, packets.Configuration] = {}  # by number, the newest last
        self.hint: packets.Configuration | None = None
        self.replica = LeaseReplica(group, me, rules.wait, self._post, clock)
        self.owner = Owner(me, group, rules.lease, rules.wait, self._post, chance)
        self.leader = ReconfigurationLeader(
            me, self.replica, rules.lease, rules.guards, self._post, chance
        )
        self.going = False  # we leave the cluster
        self.acquired = self.lost = self.refusals = self.strange = 0
        self.liveness = Liveness(me, rules.lease, known, chance)
        self._shortage = Shortage(group, rules.lease)
        self._chance = chance
        self._persisted = persisted
        self._to_bootstrap = tuple(members)
        self._opens = opens
        # How many others are in our cluster, where nobody lists them.
        self.others: Callable[[], int] = self._reachable
        self._encounters = Encounters(group)
        self._know_none: set[str] = set()  # members that know of no cluster
        self._queue: deque[packets.About] = deque()
        # A member that agreed to become a lease replica stays for so many ticks, unless a set newer
        # than the one that asked shows that another member was taken.
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

    def bootstrap(self, step: Step, cluster: int) -> None:
        """Begins a cluster. Two clusters never become one."""
        assert cluster > 0 and self.cluster == 0
        self.join_cluster(cluster)
        self.replica.bootstrap(step, self.rules.tickets)
        self._learn(self.replica.configuration)
        assert self.hint is not None
        self._post(step, self.liveness.everybody(), packets.Current(self.group, cluster, self.hint))
        self.owner.ask(step, self.hint)

    def start(self, step: Step) -> TicketNews:
        """At first, or again, after we had left."""
        self.going = False
        if self._persisted:
            persisted, self._persisted = self._persisted, ()
            self.restore(persisted, step.now)
        self._ping(step)
        return NOTHING

    def found(self, step: Step) -> TicketNews:
        if not self.cluster:  # or our records have shown which one we are in
            self.bootstrap(step, self._chance.randrange(1, 1 << COUNTER_BITS))
        return self._drain(step, NOTHING)

    def restore(self, persisted: Sequence[Packet], now: int) -> None:
        """What an earlier incarnation of this member persisted as a lease replica."""
        self.replica.restore(persisted, now)
        if any(
            isinstance(one, packets.ReplicaRecord) and one.group == self.group for one in persisted
        ):
            self.join_cluster(self.replica.cluster)
            self._learn(self.replica.configuration)

    def learn_cluster(self, step: Step, cluster: int) -> None:
        """A member of this cluster answers us. Where we knew of none, it is ours."""
        if cluster and not self.cluster:
            self.join_cluster(cluster)
            self._ping(step)

    def join_cluster(self, cluster: int) -> None:
        self.cluster = self.replica.cluster = self.owner.cluster = cluster

    def _reachable(self) -> int:
        return len(self.liveness.everybody())

    def is_strange(self, step: Step, sender: NodeId, cluster: int) -> bool:
        """Whether a packet is of another cluster than ours, both being known.

        It is counted, and one in a tick is answered: a ping shows which cluster is smaller.
        """
        if cluster == self.cluster or not cluster or not self.cluster:
            return False
        self.strange += 1
        if self._opens and self._encounters.is_first():
            self._post(step, (sender.name,), self._our_ping(step.now))
        return True

    def _learn(self, configuration: packets.Configuration | None) -> None:
        if configuration is None or configuration.number in self.sets:
            return
        self.sets[configuration.number] = configuration
        if self.hint is None or configuration.number > self.hint.number:
            self.hint = configuration
        while len(self.sets) > MOST_SETS:
            del self.sets[min(self.sets)]

    def _learn_and_ask(self, step: Step, configuration: packets.Configuration | None) -> None:
        """A member that wants a ticket asks the first replica set that it hears of at once."""
        knew_of_none = self.hint is None
        self._learn(configuration)
        if knew_of_none:
            self.owner.ask(step, self.hint)
            if self._was_replica():
                self._ping(step)

    def _was_replica(self) -> bool:
        """Whether our data folder was lost, and a lease replica of this set with it."""
        replicas = () if self.hint is None else self.hint.replicas
        ours = self.replica.identity
        return any(one.name == ours.name and one != ours for one in replicas)

    def _consider_bootstrap(self, step: Step) -> None:
        """Begins a cluster once most members, with us, have said that they know of none."""
        if not self.cluster and 2 * (len(self._know_none) + 1) > len(self._to_bootstrap) > 0:
            self.bootstrap(step, self._chance.randrange(1, 1 << COUNTER_BITS))

    # --- questions -----------------------------------------------------------------------------

    def may_create(self, now: int) -> bool:
        """Checked at every event."""
        return self.owner.leaving is None and self.owner.is_valid(now, self.sets)

    def valid_until(self) -> int:
        return self.owner.valid_until(self.sets)

    def may_go(self) -> bool:
        """Whether a member that leaves is no longer needed."""
        hint, replica = self.hint, self.replica
        if self.owner.leaving is not None or self._is_bound():
            return False
        if hint is not None and replica.identity in hint.replicas:
            return False
        if hint is None or not replica.serves:
            return True
        serving = sum(pong.serves >= hint.number for pong in self._answers_of(hint))
        return serving >= hint.majority

    def _is_bound(self) -> bool:
        """Whether we agreed to become a lease replica, and may still become one."""
        hint = self.hint
        if hint is None or hint.number > self._asked_by:
            return False
        return self._bound > 0 or any(pong.sealed for pong in self._answers_of(hint))

    def _answers_of(self, replica_set: packets.Configuration) -> list[packets.Pong]:
        return self.liveness.answers_of(one.name for one in replica_set.replicas)

    def has_heirs(self, now: int) -> bool:
        """Whether another live member stays."""
        return not all(pong.leaving for pong in self.liveness.reached(now).values())

    # --- every tick ----------------------------------------------------------------------------

    def tick(self, step: Step, sequence: int) -> TicketNews:
        self._bound -= self._bound > 0
        self._encounters.tick()
        self._consider_bootstrap(step)
        self._ping(step)
        ticket = self.ticket
        lost = self.owner.tick(step, self.hint, sequence)
        self.lost += lost
        self.liveness.forget_the_dead(step.now)
        self._lead(step)
        return self._drain(step, NOTHING._replace(lost=ticket if lost else None))

    def tell_shortage(self, step: Step, absent: Sequence[str]) -> None:
        """After a tick of a member that is in the cluster: whether its application waits in vain.

        `absent`: members that were in the cluster, and are not there.
        """
        if not self.owner.wanting or self.may_create(step.now):
            self._shortage.over()
            return
        answers, waits_for, vote = self.liveness.reached(step.now), self.hint, self.replica.vote
        sealed = {name for name, pong in answers.items() if pong.sealed}
        if self.replica.sealed and vote is not None:
            waits_for, sealed = vote.next.configuration, set()  # it may be decided already
        reached = self._reached(answers)
        news = self._shortage.look(step.now, waits_for, reached, sealed, absent)
        if news is not None:
            step.notify(news)

    def _reached(self, answers: Mapping[str, packets.Pong]) -> dict[str, NodeId]:
        """Who is there as a lease replica, or could become one: by name, ourselves too."""
        reached = {name: pong.replica for name, pong in answers.items()}
        reached[self.me.name] = self.replica.identity
        return reached

    def _lead(self, step: Step) -> None:
        """Lets the reconfiguration leader see who is there."""
        answers = self.liveness.reached(step.now)
        reached = self._reached(answers)
        staying = {name: pong.replica for name, pong in answers.items() if not pong.leaving}
        if not self.going:
            staying[self.me.name] = self.replica.identity
        self.leader.tick(step, reached, staying, self.liveness.everybody())

    def heard(self, step: Step, ticket: int, epoch: int, owner: NodeId | None) -> TicketNews:
        """A member uses a ticket in an epoch. If it is ours in a higher epoch, we have lost it."""
        if owner == self.me or ticket != self.ticket or epoch <= self.epoch:
            return NOTHING
        self.lost += 1
        self.owner.give_up(step, self.hint)
        return self._drain(step, TicketNews(lost=ticket))

    def acknowledged(self, step: Step, token: Hashable, arrived: bool) -> TicketNews:
        raise AssertionError("leases are asked for by datagram")

    def _post(self, step: Step, names: tuple[str, ...], packet: packets.About) -> None:
        """Sends to others, and queues what we send to ourselves."""
        if self.me.name in names:
            self._queue.append(packet)
            names = tuple(name for name in names if name != self.me.name)
        if names:
            step.send(names, packet, DATAGRAM)

    def _drain(self, step: Step, news: TicketNews) -> TicketNews:
        """Drains what we have sent to ourselves meanwhile."""
        while self._queue:
            more = self._receive(step, self.me, self._queue.popleft())
            news = TicketNews(
                news.acquired or more.acquired,
                more.lost if news.lost is None else news.lost,
                more.clock or news.clock,
            )
        return news

    def _ping(self, step: Step) -> None:
        first: list[str] = []
        if self._to_bootstrap and not self.cluster:
            first += self._to_bootstrap
        needs_set = self.owner.wanting or self.replica.serves or self.going
        if self.hint is not None and (needs_set or self._was_replica()):
            first += [one.name for one in self.hint.replicas]
        names = self.liveness.choose(
            first, serves=self.replica.serves > 0, in_cluster=self.hint is not None
        )
        if names:
            self._post(step, names, self._our_ping(step.now))

    def _our_ping(self, now: int) -> packets.Ping:
        return packets.Ping(self.group, self.cluster, now, self.others() if self._opens else 0)

    # --- packets -------------------------------------------------------------------------------

    def receive(self, step: Step, sender: NodeId, packet: TicketPacket) -> TicketNews:
        if not isinstance(packet, packets.About):
            raise PeerError(f"{sender} sent {type(packet).__name__}: tickets are leased here")
        news = self._receive(step, sender, packet)
        if packet.cluster == self.cluster:
            self._look_at(step, sender)
        return self._drain(step, news)

    def _look_at(self, step: Step, sender: NodeId) -> None:
        """A replica set should change as soon as it is known what it lacks, not at a tick.

        It lacks a member that comes. It lacks a replica that comes back without its data folder.
        """
        ours = self.replica.configuration
        if ours is None or self.liveness.knows(sender):
            return
        is_full = len(ours.replicas) >= self.rules.guards
        if not is_full or any(one.name == sender.name for one in ours.replicas):
            self._post(step, (sender.name,), self._our_ping(step.now))

    def _receive(self, step: Step, sender: NodeId, packet: packets.About) -> TicketNews:
        if isinstance(packet, packets.Ping):
            self._on_ping(step, sender, packet)
            return NOTHING
        if not self.cluster and isinstance(packet, (packets.Pong, packets.Current)):
            if packet.cluster:
                refuse_nonsense(step.now, sender, packet, self.rules.tickets, self.sets)
                self.join_cluster(packet.cluster)
            elif sender.name in self._to_bootstrap:
                self._know_none.add(sender.name)
                self._consider_bootstrap(step)
        if packet.cluster != self.cluster or not self.cluster:
            self.strange += packet.cluster != 0  # of another cluster
            return NOTHING
        refuse_nonsense(step.now, sender, packet, self.rules.tickets, self.sets)
        if isinstance(packet, packets.Grant):
            acquired = self.owner.on_grant(step, sender, packet, self.sets)
            self.acquired += acquired
            return TicketNews(acquired, clock=packet.clock)
        if isinstance(packet, packets.Release):
            self._for_the_set(step, sender, packet)
            return TicketNews(clock=packet.clock)
        if isinstance(packet, packets.Pong):
            self._on_pong(step, sender, packet)
        elif isinstance(packet, packets.Refusal):
            ticket = self.owner.ticket
            if self.owner.on_refusal(step, sender, packet):
                self.refusals += 1
                step.note("ticket", group=self.group, index=ticket, cause="refused")
        elif isinstance(packet, packets.Listed):
            self.owner.on_listed(step, packet, self.hint)
        elif isinstance(packet, packets.Released):
            if self.owner.on_released(sender, packet, self.hint):
                self.owner.ask(step, self.hint)
        elif isinstance(packet, packets.Current):
            self._learn_and_ask(step, packet.configuration)
        else:
            self._for_the_set(step, sender, packet)
        return NOTHING

    def _for_the_set(self, step: Step, sender: NodeId, packet: packets.About) -> None:
        """Packets for the lease replica and the reconfiguration leader."""
        replica, leader = self.replica, self.leader
        if isinstance(packet, packets.Claim):
            replica.on_claim(step, sender, packet)
        elif isinstance(packet, packets.List):
            replica.on_list(step, sender)
        elif isinstance(packet, packets.Release):
            replica.on_release(step, sender, packet)
        elif isinstance(packet, packets.Offer):
            self._on_offer(step, sender, packet)
        elif isinstance(packet, packets.Seal):
            replica.on_seal(step, sender, packet)
            leader.seen(packet.ballot)
        elif isinstance(packet, packets.Propose):
            replica.on_propose(step, sender, packet)
            leader.seen(packet.ballot)
        elif isinstance(packet, packets.Install):
            replica.on_install(step, sender, packet)
            self._learn(replica.configuration)
        elif isinstance(packet, packets.Ready):
            leader.on_ready(step, packet)
        elif isinstance(packet, packets.Sealed):
            leader.on_sealed(step, packet)
        elif isinstance(packet, packets.Voted):
            leader.on_voted(step, packet)
        elif isinstance(packet, packets.Installed):
            leader.on_installed(step, packet, self.liveness.everybody())
        elif isinstance(packet, packets.Outbid):
            leader.on_outbid(step, packet)
        else:
            raise PeerError(f"{sender} sent {type(packet).__name__}, which tickets do not know")

    def _on_ping(self, step: Step, sender: NodeId, ping: packets.Ping) -> None:
        if ping.cluster not in (0, self.cluster):
            self._meet_other_cluster(step, sender, ping)
            return
        replica = self.replica
        pong = packets.Pong(
            self.group,
            self.cluster,
            ping.sent,
            self.hint,
            replica.identity,
            replica.serves,
            replica.sealed,
            self.going,
        )
        self._post(step, (sender.name,), pong)

    def _meet_other_cluster(self, step: Step, sender: NodeId, ping: packets.Ping) -> None:
        """Notifies the members of the smaller cluster; of two of one size, of that with the greater
        id."""
        if not self._opens or not self.cluster:
            return
        self.strange += 1
        ours = self._our_ping(step.now)
        if (ping.known, -ping.cluster) < (ours.known, -ours.cluster):
            self._post(step, (sender.name,), ours)
        else:
            self._encounters.notify(step, sender, ping.cluster, self.cluster)

    def _on_pong(self, step: Step, sender: NodeId, pong: packets.Pong) -> None:
        self._learn_and_ask(step, pong.hint)
        is_new = self.liveness.answered(sender, pong)
        replica = self.replica
        configuration = replica.configuration
        if configuration is not None and is_new and self.leader.change is None:
            self._lead(step)
        if (
            configuration is not None
            and pong.replica in configuration.replicas
            and pong.serves < configuration.number
        ):
            first = packets.Next(configuration, replica.initial)
            self._post(step, (sender.name,), packets.Install(self.group, self.cluster, first))

    def _on_offer(self, step: Step, sender: NodeId, offer: packets.Offer) -> None:
        if self.going:
            return
        self._bound, self._asked_by = READY_TICKS, offer.number
        ready = packets.Ready(
            self.group, self.cluster, offer.number, offer.ballot, self.replica.identity
        )
        self._post(step, (sender.name,), ready)

    # --- releasing -------------------------------------------------------------------------------

    def seek(self, step: Step, wanted: bool, sequence: int, clock: tuple[int, ...]) -> TicketNews:
        owner = self.owner
        owner.wanting = wanted
        if not wanted:
            last = entry_of(owner.epoch, sequence) if owner.epoch and sequence else 0
            owner.give_up(step, self.hint, last, clock)
        owner.ask(step, self.hint)
        return self._drain(step, NOTHING)

    def retire(self, step: Step) -> None:
        """Others stop counting on us: a reconfiguration leader replaces us."""
        self.going = True
        self._ping(step)

    def counters(self) -> dict[str, int]:
        return {
            "tickets_acquired": self.acquired,
            "tickets_lost": self.lost,
            "claims_refused": self.refusals,
            "guards_set": self.replica.serves,
            "of_other_clusters": self.strange,
            "stale": self.owner.stale + self.replica.stale + self.leader.stale,
        }

"""The simulated network: four channels, delays, loss, cuts, bandwidth.

datagram  each copy on its own: delayed, lost, doubled, reordered
multicast the same for each receiver, but it leaves its sender once
link      FIFO between two incarnations; loss shows as retransmission time; a cut holds what is
          underway and it goes on after the cut; when the sender dies, a part of what is underway
          that ends at a random point still arrives, as it does when a machine loses power
status    one copy, and an answer within the bound: OK, or nobody knows

Nothing here knows a protocol. All chance comes from the stream of delays, drawn in the order in
which packets are posted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

from ordercast.kernel.host import Host
from ordercast.kernel.packet import Packet
from ordercast.kernel.seat import Seat
from ordercast.kernel.step import LARGEST_DATAGRAM, Address, Channel, Sent, Step
from ordercast.scenario import chance
from ordercast.scenario.schema import NetworkSettings
from ordercast.sim.event_queue import SLOT_BITS, EventQueue
from ordercast.types import NodeId
from ordercast.units import MILLISECOND, SECOND
from ordercast.wire.codec import Codec

if TYPE_CHECKING:
    from ordercast.sim.process import Process

HELD_LIMIT = 4_000_000
"""Packets that one link may hold during a cut: more than any window allows. A protocol that
queues more for a member that is away has a bug, and the run says so."""
RETRANSMIT = 200 * MILLISECOND
"""What one lost segment costs a link, as with TCP's usual minimum."""
QUANTILE_BITS = 10

InFlight: TypeAlias = tuple[NodeId, NodeId | None, Packet, int]
"""A message in flight: the sender's incarnation, the receiver's (None: who bears the name), the
packet, and its size if it was weighed."""


class SimulatedLink:
    """What is underway from one incarnation to another."""

    __slots__ = ("held", "last_arrival", "lost_after", "sender", "target", "to")

    def __init__(self, sender: NodeId, to: NodeId, target: Process) -> None:
        self.sender = sender
        self.to = to
        self.target = target
        self.last_arrival = 0  # FIFO: nothing may arrive before what was sent earlier
        self.held: list[InFlight] = []  # stopped by a cut, in order
        self.lost_after: int | None = None  # the sender died: what would arrive later never does


class Network:
    def __init__(
        self,
        queue: EventQueue,
        settings: NetworkSettings,
        seed: int,
        codec: Codec,
        weigh: bool,
        round_trip: bool,
    ) -> None:
        self.settings = settings
        self.processes: dict[str, Process] = {}
        # Bound once, for millions of packets, and found without touching the process.
        self._receivers: dict[str, Callable[[InFlight], None]] = {}
        self.cuts: dict[tuple[str, str], int] = {}  # how many cuts lie on each one-way path
        self.loss_at: dict[str, float] = {}  # by process, while faults make it lossy
        self.slow_at: dict[str, float] = {}  # by process: delays are so many times longer
        self.posted = 0  # packets, a receiver each; those by multicast count once
        self.bytes = 0  # of them, where they are weighed
        self._queue = queue
        self._seed = seed
        self._chance: Random = chance.stream(seed, "delays")
        self._bits = self._chance.getrandbits
        self._codec = codec
        self._weigh = weigh or round_trip or settings.bandwidth is not None
        self._round_trip = round_trip
        self._quantiles = _quantiles(settings)
        # Without faults, all that happens to a datagram is its delay, or that it is lost.
        self._plain = not (
            settings.duplicate or settings.reorder or settings.spread or settings.bandwidth
        )
        self._distances: dict[tuple[str, str], float] = {}
        self._stopped: dict[SimulatedLink, None] = {}  # links that hold something
        self._unanswered: dict[int, tuple[Process, Host, Seat, Hashable]] = {}
        self._statuses = 0
        self.spare = [Step(0)]  # of the hosts of all processes

    def connect(self, processes: dict[str, Process]) -> None:
        self.processes = processes
        self._receivers = {name: process.arrive for name, process in processes.items()}

    # --- posting -----------------------------------------------------------------------------

    def post(self, source: Process, seat: Seat, sent: Sent) -> None:
        """Sends one packet to each address. It is encoded once, if its bytes matter at all."""
        to, packet, channel, tokens = sent
        size = 0
        if self._weigh:
            data = self._codec.encode(packet)
            size = len(data)
            if self._round_trip:
                packet = self._codec.decode(data)
        copies = 1 if channel.shared else len(to)
        self.posted += copies
        self.bytes += size * copies
        if channel.fleeting:
            assert size <= LARGEST_DATAGRAM, f"a datagram of {size} bytes; {LARGEST_DATAGRAM} fit"
            calm = not (self.cuts or self.loss_at or self.slow_at)
            if self._plain and calm and not source.wire_rows:
                self._scatter(source.node, to, packet, size)
                return
        node, now = source.node, self._queue.now
        narrow = self.settings.bandwidth is not None
        once = self._leaves(source, size) if narrow and channel.shared else now
        for address, token in zip(to, tokens, strict=True):
            name, wanted = (address, None) if isinstance(address, str) else (address.name, address)
            target = self.processes[name]
            if source.wire_rows:
                source.note_sent(name, packet, size)
            leaves = once if channel.shared or not narrow else self._leaves(source, size)
            message = (node, wanted, packet, size)
            if channel.answered:
                self._ask(source, target, message, leaves, seat, token)
            elif leaves > now:
                self._queue.add(leaves, self._depart, (source, target, message, channel))
            elif channel.fleeting:
                self._datagram(source, target, message)
            else:
                self._link(source, target, message)

    def _depart(self, departure: tuple[Process, Process, InFlight, Channel]) -> None:
        """The last byte is on the line, unless the sender died with it in its buffers."""
        source, target, message, channel = departure
        if not source.alive or source.node != message[0]:
            return
        if channel.fleeting:
            self._datagram(source, target, message)
        else:
            self._link(source, target, message)

    def _scatter(self, node: NodeId, to: tuple[Address, ...], packet: Packet, size: int) -> None:
        """What `_datagram` does where it has little to ask: the busiest path of a run."""
        queue, receivers, loss, random = (
            self._queue,
            self._receivers,
            self.settings.loss,
            self._chance.random,
        )
        now, slots, quantiles, bits = queue.now, queue.slots, self._quantiles, self._bits
        ticket = queue.tickets(len(to))
        to_a_name = (node, None, packet, size)
        for address in to:
            if loss and random() < loss:
                continue
            at = now + quantiles[bits(QUANTILE_BITS)]
            slot = slots.get(at >> SLOT_BITS)  # as `EventQueue.add` does it
            if slot is None:
                slot = queue.new_slot(at >> SLOT_BITS)
            ticket += 1
            if isinstance(address, str):
                slot.append((at, ticket, receivers[address], to_a_name))
            else:
                one = (node, address, packet, size)
                slot.append((at, ticket, receivers[address.name], one))

    def _leaves(self, source: Process, size: int) -> int:
        """When the last byte is on the line: bytes cost time where bandwidth is limited."""
        bandwidth = self.settings.bandwidth
        assert bandwidth is not None
        source.busy_until = max(self._queue.now, source.busy_until) + size * SECOND // bandwidth
        return source.busy_until

    def _datagram(self, source: Process, target: Process, message: InFlight) -> None:
        if self.cuts and (source.name, target.name) in self.cuts:
            return
        if self._is_lost(source, target):
            return
        settings, queue, random = self.settings, self._queue, self._chance.random
        receiver = self._receivers[target.name]
        at = queue.now + self._delay(source, target)
        if settings.reorder and random() < settings.reorder:
            at += 4 * self._delay(source, target)
        queue.add(at, receiver, message)
        if settings.duplicate and random() < settings.duplicate:
            queue.add(queue.now + 2 * self._delay(source, target), receiver, message)

    def _link(self, source: Process, target: Process, message: InFlight) -> None:
        to = message[1]
        assert to is not None, "a link joins two incarnations, not two names"
        link = source.links.get(to)
        if link is None:
            link = source.links[to] = SimulatedLink(source.node, to, target)
        at = self._queue.now + self._delay(source, target)
        tries = 0
        while tries < 8 and self._is_lost(source, target):
            tries += 1
            at += RETRANSMIT
        link.last_arrival = at = max(at, link.last_arrival + 1)
        self._queue.add(at, self._arrive_by_link, (link, message))

    def _arrive_by_link(self, arrival: tuple[SimulatedLink, InFlight]) -> None:
        link, message = arrival
        if link.lost_after is not None and self._queue.now > link.lost_after:
            return
        if not link.held and (link.sender.name, link.to.name) not in self.cuts:
            link.target.arrive(message)
        elif link.lost_after is not None:
            link.lost_after = 0  # nobody is left who would go on after the cut
        else:
            assert len(link.held) < HELD_LIMIT, f"{link.sender} queues without end for {link.to}"
            link.held.append(message)
            self._stopped[link] = None

    def _ask(
        self,
        source: Process,
        target: Process,
        message: InFlight,
        leaves: int,
        seat: Seat,
        token: Hashable,
    ) -> None:
        self._statuses = key = self._statuses + 1
        self._unanswered[key] = (source, source.host, seat, token)
        deadline = self._queue.now + self.settings.answer_within
        self._queue.add(deadline, self._answer, (key, False))
        if leaves > self._queue.now:
            self._queue.add(leaves, self._status, (source, target, message, key))
        else:
            self._status((source, target, message, key))

    def _status(self, departure: tuple[Process, Process, InFlight, int]) -> None:
        """The last byte is on the line, unless the sender died with it in its buffers."""
        source, target, message, _ = departure
        alive = source.alive and source.node == message[0]
        cut = (source.name, target.name) in self.cuts
        if alive and not cut and not self._is_lost(source, target):
            at = self._queue.now + self._delay(source, target)
            self._queue.add(at, self._arrive_by_status, departure)

    def _arrive_by_status(self, arrival: tuple[Process, Process, InFlight, int]) -> None:
        source, target, message, key = arrival
        awake = target.alive and not target.is_paused
        seat = target.host.seats.get(message[2].group) if awake else None
        target.arrive(message)
        if seat is None or message[1] not in (target.node, None):
            return

        def answer() -> None:
            cut = (target.name, source.name) in self.cuts
            if not cut and not self._is_lost(target, source):
                at = self._queue.now + self._delay(target, source)
                self._queue.add(at, self._answer, (key, True))

        # It has arrived when whatever the receiver must keep of it is durable.
        target.host.after(seat, answer)

    def _answer(self, answer: tuple[int, bool]) -> None:
        key, arrived = answer
        waiting = self._unanswered.pop(key, None)
        if waiting is not None:
            source, host, seat, token = waiting
            source.status((host, seat, token, arrived))

    # --- chance ------------------------------------------------------------------------------

    def _is_lost(self, source: Process, target: Process) -> bool:
        loss = self.settings.loss
        if self.loss_at:
            at = self.loss_at
            loss = max(loss, at.get(source.name, 0.0), at.get(target.name, 0.0))
        return loss > 0 and self._chance.random() < loss

    def _delay(self, source: Process, target: Process) -> int:
        delay = self._quantiles[self._bits(QUANTILE_BITS)]
        if self.slow_at:
            at = self.slow_at
            delay = round(delay * max(at.get(source.name, 1.0), at.get(target.name, 1.0)))
        if self.settings.spread:
            # As far as it was found when it was first asked for, this way or the other.
            distance = self._distances.get((source.name, target.name))
            if distance is None:
                distance = self._distance(source.name, target.name)
            delay = round(delay * distance)
        return delay

    def _distance(self, source: str, target: str) -> float:
        """How far apart two processes lie, the same both ways and whenever it is asked."""
        pair = (min(source, target), max(source, target))
        distance = self._distances.get(pair)
        if distance is None:
            draw = chance.stream(self._seed, "topology", *pair)
            distance = self._distances[pair] = draw.lognormvariate(0, self.settings.spread)
        self._distances[source, target] = distance
        return distance

    # --- faults ------------------------------------------------------------------------------

    def cut(self, paths: Sequence[tuple[str, str]]) -> None:
        for path in paths:
            self.cuts[path] = self.cuts.get(path, 0) + 1

    def mend(self, paths: Sequence[tuple[str, str]]) -> None:
        for path in paths:
            self.cuts[path] -= 1
            if not self.cuts[path]:
                del self.cuts[path]
        for link in list(self._stopped):
            source = self.processes[link.sender.name]
            self._queue.add(self._queue.now + self._delay(source, link.target), self._resume, link)

    def _resume(self, link: SimulatedLink) -> None:
        """The connection is made again: what was held arrives together, in order."""
        if link not in self._stopped or (link.sender.name, link.to.name) in self.cuts:
            return
        del self._stopped[link]
        held, link.held = link.held, []
        link.target.arrive_together(held)

    def forget(self, process: Process) -> None:
        """The process died: its queues are gone, and so is a random end of what is underway."""
        for link in process.links.values():
            left = max(0, link.last_arrival - self._queue.now)
            link.lost_after = self._queue.now + round(self._chance.random() * left)
            if link.held:
                link.lost_after = 0  # what comes later must not arrive where this did not
                link.held = []
                del self._stopped[link]


def _quantiles(settings: NetworkSettings) -> list[int]:
    """The delays as a table to draw from: one random index costs far less than a distribution."""
    count = 1 << QUANTILE_BITS
    middles = [(index + 0.5) / count for index in range(count)]
    median, jitter = settings.delay, settings.jitter
    if settings.shape == "uniform":
        factors = [1 + jitter * (2 * middle - 1) for middle in middles]
    elif settings.shape == "exponential":  # a floor of (1 - jitter), the rest memoryless
        factors = [1 - jitter + jitter * -math.log(1 - middle) / math.log(2) for middle in middles]
    else:
        normal = NormalDist()
        factors = [math.exp(jitter * normal.inv_cdf(middle)) for middle in middles]
    return [max(1, round(median * factor)) for factor in factors]

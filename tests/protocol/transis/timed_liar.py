"""A liar among members whose packets take their time.

On the stage of `test_refusals.py` every packet arrives before the next lie is told. Here lies are
on their way while honest members change their views, each by its own link or datagram, and the
liar is a member that also does what members do. One seed is one run.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from typing import Any

from tests.protocol.transis.liar import RandomPackets

from ordercast.errors import PeerError
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, LINK, Address, Channel
from ordercast.protocol.transis.packets import Hello, Probe
from ordercast.testing.stage import InFlight, Stage
from ordercast.types import NodeId
from ordercast.units import MILLISECOND, SECOND

NAMES = ("n1", "n2", "n3")
LIAR = NodeId("n3")
QUICK = {
    "silence_limit": "50ms",
    "suspicion_limit": "400ms",
    "stage_limit": "200ms",
    "rest": "50ms",
    "hello": "20ms",
}
LIES = 60
LONGEST = 30 * SECOND  # for what should take less than one


class TimedStage(Stage):
    """Packets arrive after random times; on a link in order."""

    draw: Random
    trip = MILLISECOND  # on average
    pause = 0  # at most, before a link goes on that brought a lie

    def begin(self, draw: Random) -> None:
        self.draw = draw
        self.trip = draw.choice([100_000, 500_000, 2 * MILLISECOND, 10 * MILLISECOND])
        self.pause = draw.choice([0, 0, 20, 100]) * MILLISECOND
        self.refused: list[tuple[InFlight, PeerError]] = []
        self._arrivals: list[tuple[int, int]] = []
        self._due: dict[int, int] = {}  # by number
        self._busy: dict[tuple[NodeId, Address], int] = {}  # when the last of a link arrives
        for message in self.underway():
            self._plan(message)

    def post(
        self, sender: NodeId, to: Address, packet: Packet, channel: Channel, token: Any = None
    ) -> None:
        super().post(sender, to, packet, channel, token)
        if hasattr(self, "refused") and self._posted in self._underway:
            self._plan(self._underway[self._posted])

    def _plan(self, message: InFlight) -> None:
        at, link = self.now + int(self.draw.expovariate(1 / self.trip)), _link_of(message)
        if message.channel.in_order:
            at = self._busy[link] = max(at, self._busy.get(link, 0))
        self._put(message, at)

    def _put(self, message: InFlight, at: int) -> None:
        self._due[message.number] = at
        heappush(self._arrivals, (at, message.number))

    def _next_arrival(self) -> tuple[int, int] | None:
        """When the next packet arrives, and which."""
        while self._arrivals:
            at, number = self._arrivals[0]
            if number in self._underway and self._due[number] == at:
                return at, number
            heappop(self._arrivals)
        return None

    def advance(self, until: int) -> bool:
        """The next thing that happens, if it does before that time."""
        actors = [actor for actor in self.actors.values() if actor.alive and actor.timers()]
        at, name = min((actor.timers()[0][0], actor.node.name) for actor in actors)
        arrival = self._next_arrival()
        if min(at, *arrival[:1] if arrival else (at,)) > until:
            self.now = max(self.now, until)
            return False
        if arrival is None or arrival[0] > at:
            self.fire(name)
            return True
        heappop(self._arrivals)
        self.now = max(self.now, arrival[0])
        message = self._underway[arrival[1]]
        try:
            self.deliver(message)
        except PeerError as error:
            self.refused.append((message, error))
            if message.channel.in_order and self.pause:
                self._interrupt(message)
        return True

    def _interrupt(self, refused: InFlight) -> None:
        """The connection is gone, and another one is made a little later."""
        at = self.now + self.draw.randrange(self.pause)
        self._busy[_link_of(refused)] = at
        for message in self.underway(refused.sender.name, refused.target):
            if message.channel.in_order and message.to == refused.to:
                self._put(message, at)

    def run_for(self, duration: int) -> None:
        until = self.now + duration
        while self.advance(until):
            pass


def _link_of(message: InFlight) -> tuple[NodeId, Address]:
    return message.sender, message.to


class LyingRun:
    """Three members, of whom n3 lies and then is gone."""

    def __init__(self, seed: int, **options: str) -> None:
        draw = Random(seed)
        stage = TimedStage.of("synchrony", " ".join(NAMES), formed=seed % 4 < 2, **QUICK, **options)
        self.stage = stage
        stage.begin(draw)
        stage.run_for(400 * MILLISECOND)
        is_member_too = seed % 2 == 0
        if not is_member_too:
            stage.crash("n3")
        self._lie(draw, draw.choice([0, 1, 5, 20]) * MILLISECOND)
        stage.run_for(draw.choice([0, 5, 300]) * MILLISECOND)
        if is_member_too:
            stage.crash("n3")
        began = stage.now
        while not self.are_together and stage.now < began + LONGEST:
            stage.advance(began + LONGEST)
        self.took = stage.now - began

    def _lie(self, draw: Random, pause: int) -> None:
        stage, liar = self.stage, RandomPackets(draw, LIAR, NAMES)
        for number in range(LIES):
            for name in ("n1", "n2"):
                machine: Any = stage.machine(name)
                packet = liar.packet(machine)
                channel = DATAGRAM if isinstance(packet, Hello | Probe) else LINK
                stage.post(LIAR, stage.node(name), packet, channel)
                if number % 5 == 0:
                    stage.submit(name, [b"x"], service=draw.choice(["agreed", "safe"]))
            stage.run_for(int(2 * pause * draw.random()))

    @property
    def are_together(self) -> bool:
        first: Any = self.stage.machine("n1")
        second: Any = self.stage.machine("n2")
        return first.current.cid == second.current.cid and len(first.current.members) == 2

    @property
    def refused_by_honest(self) -> list[str]:
        """What n1 and n2 refused of each other."""
        return [
            str(error)
            for message, error in self.stage.refused
            if "n3" not in (message.sender.name, message.target)
        ]

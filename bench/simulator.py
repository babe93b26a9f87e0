"""How fast the simulator is: a rumour that every member passes on, at 100 and at 1,000 members.

The machine does next to nothing, so what is measured is the world around it: the agenda, the
network, the process and the step. Times are of this machine and of one core.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random
from time import perf_counter
from typing import NamedTuple

import msgspec

from ordercast.kernel.machine import Family, Machine, Plan
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step, Timer
from ordercast.sim.scenario import NetworkSettings, Scenario, WorkloadSettings
from ordercast.sim.world import World
from ordercast.types import Event, NodeId, Payloads
from ordercast.units import SECOND, Duration

FAN_OUT = 4
HOPS = 5
SIZES = (100, 1000)
MESSAGES = 1_000_000
"""About so many packets make a measurement of a second or two."""


class Rumour(Packet, tag="bench.rumour"):
    hops: int  # how many more times it is passed on


class Options(msgspec.Struct, frozen=True):
    pass


class Gossip:
    """Passes every rumour on to a few others, until it has made its hops."""

    def __init__(self, plan: Plan, draw: Random) -> None:
        self.groups = (plan.group,)
        self.count = 0
        # Drawn beforehand: the cost of choosing is the protocol's, not the simulator's.
        self.targets = [tuple(draw.choices(plan.members, k=FAN_OUT)) for _ in range(8)]

    def start(self, step: Step) -> None:
        pass

    def accepts(self, group: str) -> bool:
        return True

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        self.count += 1
        step.send(self._next(), Rumour(group, HOPS), DATAGRAM)
        return Event(group, NodeId(""), self.count, payloads)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        assert isinstance(packet, Rumour)
        if packet.hops:
            step.send(self._next(), Rumour(packet.group, packet.hops - 1), DATAGRAM)

    def expire(self, step: Step, timer: Timer) -> None:
        pass

    def told(self, step: Step, token: Hashable, arrived: bool) -> None:
        pass

    def _next(self) -> tuple[str, ...]:
        self.count = count = self.count + 1
        return self.targets[count & 7]


def build(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, kept: Sequence[Packet]
) -> list[Machine]:
    return [Gossip(plan, chance) for plan in plans]


FAMILY = Family("gossip", Options, (Rumour,), build, largest_group=100_000)


class Figure(NamedTuple):
    """One row of the table."""

    what: str
    value: str


def world(processes: int, loss: float = 0.0, jitter: float = 0.3) -> World:
    """A run of about `MESSAGES` packets, all of them in one second of virtual time."""
    a_rumour = sum(FAN_OUT**hop for hop in range(1, HOPS + 2))
    rumours = MESSAGES // a_rumour
    scenario = Scenario(
        name="rumours",
        family="gossip",
        processes=processes,
        duration=Duration(SECOND),
        quiet=Duration(SECOND),
        workload=WorkloadSettings(senders=min(processes, 100), rate=rumours / 100),
        network=NetworkSettings(loss=loss, jitter=jitter),
    )
    return World(scenario, seed=1, families={FAMILY.name: FAMILY})


def measure() -> list[Figure]:
    """Packets a second of real time, from post to receive."""
    figures = []
    for loss in (0.0, 0.01):
        for processes in SIZES:
            run = world(processes, loss)
            begun = perf_counter()
            outcome = run.run()
            spent = perf_counter() - begun
            assert outcome.error is None, outcome.error
            what = f"{processes} processes, {loss:.0%} loss"
            figures.append(Figure(what, f"{outcome.packets / spent:,.0f} packets/s"))
    return figures


if __name__ == "__main__":
    for figure in measure():
        print(f"{figure.what:30} {figure.value:>20}")

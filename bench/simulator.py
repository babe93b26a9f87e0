"""How fast the simulator is: rumours that every member passes on, at 100 and at 1,000 members.

The machine does next to nothing, so what is measured is the world around it: the event queue, the
network, the process and the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from bench.table import Table, timed
from ordercast.kernel.family import Family, Plan
from ordercast.kernel.inputs import Input
from ordercast.kernel.machine import Machine
from ordercast.kernel.packet import Packet
from ordercast.kernel.step import DATAGRAM, Step, Timer
from ordercast.scenario.schema import NetworkSettings, Scenario, WorkloadSettings
from ordercast.sim.world import Outcome, Simulation
from ordercast.types import Event, NodeId, Payloads
from ordercast.units import SECOND, Duration

FAN_OUT = 4
HOPS = 5
SIZES = (100, 1000)
MESSAGES = 500_000
"""About so many packets a run, so that starting a thousand members does not count for much."""

NETWORKS = {
    "delays": NetworkSettings(),
    "delays and loss": NetworkSettings(loss=0.01),
    "all that can happen": NetworkSettings(loss=0.01, duplicate=0.01, reorder=0.01, spread=0.3),
}


class Rumour(Packet, tag="bench.rumour"):
    hops: int  # how many more times it is passed on


class Options(msgspec.Struct, frozen=True):
    pass


class Gossip:
    """Passes every rumour on to a few others, until it has made its hops."""

    takes = ()

    def __init__(self, plan: Plan, draw: Random) -> None:
        self.groups = (plan.group,)
        self.count = 0
        # Drawn beforehand: the cost of choosing is the protocol's, not the simulator's.
        self.targets = [tuple(draw.choices(plan.members, k=FAN_OUT)) for _ in range(8)]

    def start(self, step: Step) -> None:
        pass

    def accepts(self, group: str, now: int) -> bool:
        return True

    def submit(self, step: Step, group: str, payloads: Payloads, size: int) -> Event:
        step.send(self._next(), Rumour(group, HOPS), DATAGRAM)
        return Event(group, NodeId(""), self.count, payloads)

    def receive(self, step: Step, sender: NodeId, packet: Packet) -> None:
        assert isinstance(packet, Rumour)
        if packet.hops:
            step.send(self._next(), Rumour(packet.group, packet.hops - 1), DATAGRAM)

    def expire(self, step: Step, timer: Timer) -> None:
        pass

    def on(self, step: Step, given: Input) -> None:
        pass

    def _next(self) -> tuple[str, ...]:
        self.count = count = self.count + 1
        return self.targets[count & 7]


def build(
    me: NodeId, plans: tuple[Plan, ...], chance: Random, records: Sequence[Packet]
) -> list[Machine]:
    return [Gossip(plan, chance) for plan in plans]


FAMILY = Family("gossip", Options, (Rumour,), build, largest_group=100_000)


def spread_rumours(processes: int, network: NetworkSettings) -> Outcome:
    """One run of about `MESSAGES` packets in a second of virtual time."""
    rumours = MESSAGES / sum(FAN_OUT**hop for hop in range(1, HOPS + 2))
    senders = min(processes, 100)
    scenario = Scenario(
        name="rumours",
        family=FAMILY.name,
        processes=processes,
        duration=Duration(SECOND),
        quiet=Duration(SECOND),
        workload=WorkloadSettings(senders=senders, rate=rumours / senders),
        network=network,
    )
    outcome = Simulation(scenario, seed=1, families={FAMILY.name: FAMILY}).run()
    assert outcome.error is None, outcome.error
    return outcome


def measure() -> list[Table]:
    rows = []
    for name, network in NETWORKS.items():
        for processes in SIZES:
            outcomes: list[Outcome] = []

            def work(
                outcomes: list[Outcome] = outcomes,
                processes: int = processes,
                network: NetworkSettings = network,
            ) -> None:
                outcomes.append(spread_rumours(processes, network))

            timing = timed(work)
            count = outcomes[0].packets
            shown = (timing.each(count), timing.rate(count), timing.shown_spread)
            rows.append((name, f"{processes:,}", f"{count:,}", *shown))
    columns = ("network", "processes", "packets", "µs a packet", "packets/s", "spread")
    note = (
        f"Datagrams from post to receive; fan-out {FAN_OUT}, {HOPS} hops; no trace. Starting the "
        "processes is included."
    )
    return [Table("Simulator", columns, rows, note)]

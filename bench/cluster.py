"""Causal clusters: what an event costs, how long a stamp is, how fast rounds are simulated.

One process: an updater's events reach one member, in order or shuffled within a message, with
stamps of 25 and 125 entries. Simulated: 25 updaters make six events a round. Live: eight processes,
of which two update, over TCP. `python -m bench cluster` takes a minute or two.
"""

from __future__ import annotations

from random import Random

from bench.live import Members, measure_group
from bench.table import Table, timed
from ordercast.kernel.family import Plan
from ordercast.kernel.step import Step
from ordercast.protocol.cluster import CAUSAL
from ordercast.protocol.cluster.causal_member import CausalMember
from ordercast.protocol.cluster.options import CausalOptions
from ordercast.protocol.cluster.packets import Update, Updates
from ordercast.scenario.schema import Scenario, WorkloadSettings
from ordercast.sim.world import Simulation
from ordercast.types import NodeId
from ordercast.units import MILLISECOND, Duration
from ordercast.wire.codec import Codec

ENTRIES = (25, 125)
EVENTS = 4000
IN_A_MESSAGE = 20
ROUND = Duration(100 * MILLISECOND)
SIMULATED = ((125, 50), (1000, 20), (10_000, 6))  # processes, and rounds of load


def plan_of(entries: int) -> Plan:
    names = tuple(f"n{number}" for number in range(1, entries + 2))
    options = CausalOptions(tickets=entries, updaters=list(names[:entries]), history=100_000)
    return Plan("g", names, options)


def member(plan: Plan, name: str) -> CausalMember:
    machine = CausalMember(NodeId(name), plan, Random(1))
    machine.begin(Step(0), [0] * plan.options.tickets)
    return machine


def made(plan: Plan) -> list[Update]:
    """A conversation: each updater has heard everything that was said before it speaks."""
    clock = [0] * plan.options.tickets
    updates = []
    for number in range(EVENTS):
        index = number % len(clock)
        clock[index] += 1
        origin = NodeId(plan.options.updaters[index])
        updates.append(Update(index, tuple(clock), origin, clock[index], [b"x" * 100], 100))
    return updates


def messages(plan: Plan, updates: list[Update], shuffled: bool) -> list[Updates]:
    chance = Random(2)
    found = []
    for start in range(0, len(updates), IN_A_MESSAGE):
        part = [(update, 1) for update in updates[start : start + IN_A_MESSAGE]]
        if shuffled:
            chance.shuffle(part)
        found.append(Updates(plan.group, part))
    return found


def in_one_process() -> Table:
    rows = []
    codec = Codec([CAUSAL])
    for entries in ENTRIES:
        plan = plan_of(entries)
        updates = made(plan)
        for name, shuffled, coded in (
            ("in order", False, False),
            ("shuffled", True, False),
            ("in order, with the codec", False, True),
        ):
            packets = messages(plan, updates, shuffled)

            def work(
                packets: list[Updates] = packets, coded: bool = coded, plan: Plan = plan
            ) -> None:
                machine = member(plan, plan.members[-1])
                delivered = 0
                for packet in packets:
                    if coded:
                        packet = codec.decode(codec.encode(packet))
                    step = Step(0)
                    machine.receive(step, NodeId("n1"), packet)
                    delivered += len(step.outputs)
                assert delivered == EVENTS

            timing = timed(work)
            shown = (timing.each(EVENTS), timing.rate(EVENTS), timing.shown_spread)
            rows.append((f"{entries}", name, *shown))
    columns = ("entries", "", "µs an event", "events/s", "spread")
    note = f"{IN_A_MESSAGE} events a message; an event is a batch, here of one message."
    return Table("Causal order in one process", columns, rows, note)


def stamps() -> Table:
    rows = []
    codec = Codec([CAUSAL])
    for entries in ENTRIES:
        plan = plan_of(entries)
        packets = messages(plan, made(plan), shuffled=False)[-50:]
        size = sum(len(codec.encode(packet)) for packet in packets)
        bare = [
            Updates("g", [(Update(0, (1,), u.origin, u.number, u.payloads, u.size), age)])
            for packet in packets
            for u, age in packet.updates
        ]
        events = sum(len(packet.updates) for packet in packets)
        without = sum(len(codec.encode(packet)) for packet in bare)
        alone = [Updates("g", [entry]) for packet in packets for entry in packet.updates]
        single = sum(len(codec.encode(packet)) for packet in alone)
        told = [f"{size / events:.0f}", f"{single / events:.0f}", f"{without / events:.0f}"]
        stamp = (size - without) / events + _head(codec)
        rows.append((f"{entries}", *told, f"{stamp:.0f}"))
    columns = ("entries", "bytes an event", "alone", "without stamp, alone", "of that the stamp")
    note = f"Events of 100 bytes, {IN_A_MESSAGE} a message or alone, after {EVENTS} events."
    return Table("Stamps on the wire", columns, rows, note)


def _head(codec: Codec) -> float:
    """What a message costs before its events, which those that travel together pay once."""
    return len(codec.encode(Updates("g", []))) * (1 - 1 / IN_A_MESSAGE)


def simulated() -> Table:
    rows = []
    for processes, rounds in SIMULATED:
        scenario = Scenario(
            name="rounds",
            family="causal",
            processes=processes,
            duration=Duration(ROUND * rounds),
            quiet=Duration(ROUND * 10),
            options={
                "round": str(ROUND),
                "tickets": 25,
                "ownership": "fixed",
                "hops": 5 if processes < 1000 else 7,
                "join_wait": str(ROUND),
            },
            workload=WorkloadSettings(per_round=6 / 25),
        )
        packets = []

        def work(scenario: Scenario = scenario, packets: list[int] = packets) -> None:
            outcome = Simulation(scenario, seed=1).run()
            assert outcome.error is None, outcome.error
            packets.append(outcome.packets)

        timing = timed(work, 3 if processes < 5000 else 1)
        rate = (rounds + 10) / timing.seconds
        per_second = timing.rate(packets[0])
        rows.append((f"{processes:,}", f"{rate:.1f}", per_second, timing.shown_spread))
    columns = ("processes", "rounds/s", "packets/s", "spread")
    note = "25 updaters, six events a round in all, fan-out 4; no trace. CPU time."
    return Table("Simulated rounds", columns, rows, note)


def live() -> Table:
    rows = []
    for place, size in enumerate((100, 1000)):
        members = Members("bench.member", "causal2-batch", 8, 23_000 + 20 * place)
        members.senders = 2
        rate, cpu, _, _, p50, p99 = measure_group(members, size)
        shown = (f"{rate / 1e3:.0f}", f"{rate * size / 1e6:.0f}", f"{cpu:.2f}")
        rows.append((f"{size}", *shown, f"{p50 / 1e3:.2f}", f"{p99 / 1e3:.2f}"))
    columns = ("bytes", "k msg/s", "MB/s", "CPU µs", "p50 ms", "p99 ms")
    note = "Delivered a second and member; CPU of all processes a delivery; latency at half load."
    return Table("Live: eight processes, two updaters", columns, rows, note)


def measure() -> list[Table]:
    return [in_one_process(), stamps(), simulated(), live()]

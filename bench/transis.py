"""Groups with virtual synchrony: throughput, latency, view changes, and packets.

Four live members over loopback, all send, all deliver everything, beside a raw mesh that orders
nothing, fifo and total. All groups are there from the beginning and take turns, so that results are
ratios of one run. View changes are measured with all nodes in one process (`view_changes.py`), and
packets in the simulator. The peers' figures are no part of the run: they were measured once, with
the same load, on a quiet machine with two cores.

    python -m bench transis                      all parts: five minutes
    python -m bench.transis latency packets      some parts
    python -m bench.transis --quick              all parts, too short to be quoted

The parts: throughput, latency, crash, merge, flow, packets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

from bench.live import Members
from bench.table import Table, show
from bench.view_changes import Flow, Happens, ViewChanges, seconds_of
from ordercast import Synchrony
from ordercast.scenario.schema import NetworkSettings, Scenario, WorkloadSettings
from ordercast.sim.world import Outcome, Simulation
from ordercast.units import MILLISECOND, SECOND, Duration

SIZE = 100
FIRST_PORT = 28_000
KINDS = {
    "raw mesh": ("bench.raw_member", "batch"),
    "fifo": ("bench.member", "batch"),
    "total": ("bench.member", "total-batch"),
    "causal": ("bench.member", "synchrony.causal-batch"),
    "agreed": ("bench.member", "synchrony.agreed-batch"),
    "safe": ("bench.member", "synchrony.safe-batch"),
    "causal, multicast": ("bench.member", "multicast.causal-batch"),
    "agreed, multicast": ("bench.member", "multicast.agreed-batch"),
    "safe, multicast": ("bench.member", "multicast.safe-batch"),
}
OF_TOTAL = {"causal": "90%", "agreed": "90%", "safe": "65%"}  # wanted
PEER_RATES = (  # k msg/s a member at 100 B, CPU µs a delivery
    ("JGroups 5.6, SEQUENCER *", "118-145", "2.9-4.3"),
    ("JGroups 5.6, FIFO *", "272", "1.4-1.9"),
    ("Corosync 3.1.7, agreed *", "123", "4.0"),
    ("Spread 4.4.0, causal *", "46", "10-11"),
    ("Spread 4.4.0, agreed *", "43", "10-11"),
    ("Spread 4.4.0, safe *", "32", "10-11"),
)
PEER_LATENCIES = {  # p50 and p99 in ms at these rates
    "JGroups 5.6, FIFO *": {20: (1.3, 5.7), 200: (0.56, 3.5), 1000: (0.6, 8.2), 5000: (0.84, 14)},
    "JGroups 5.6, SEQUENCER *": {
        20: (21, 47),
        200: (3.0, 9.8),
        1000: (0.86, 6.7),
        5000: (1.1, 16),
    },
}
EARLIER = "* Not of this run: measured once, same load, on a quiet machine with two cores."
LIMIT = Synchrony().suspicion_limit


class Effort(NamedTuple):
    """How much is measured."""

    members: int = 4
    turns: int = 5  # of each group
    seconds: float = 1.0  # of a turn
    rates: tuple[int, ...] = (20, 200, 1000, 5000)  # messages a second and member
    latency_turns: int = 3
    latency_seconds: float = 1.8
    changes: int = 3  # of each kind
    sizes: tuple[int, ...] = (4, 8, 16, 32)  # of simulated groups
    idle: int = 16


FULL = Effort()
QUICK = Effort(2, 1, 0.1, (200,), 1, 0.2, 1, (4, 12), 4)


# --- live: throughput and latency ----------------------------------------------------------------


@contextmanager
def started(kinds: tuple[str, ...], effort: Effort, port: int) -> Iterator[dict[str, Members]]:
    """A group of each kind, all of them there and idle."""
    groups: dict[str, Members] = {}
    try:
        for kind in kinds:
            module, how = KINDS[kind]
            groups[kind] = Members(module, how, effort.members, port)
            port += 20
            groups[kind].phase(2000, SIZE)
        yield groups
    finally:
        for members in groups.values():
            members.close()


def throughput(effort: Effort) -> list[Table]:
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    costs: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with started(tuple(KINDS), effort, FIRST_PORT) as groups:
        counts = {}
        for kind, members in groups.items():
            rate, *_ = members.phase(20_000, SIZE)
            counts[kind] = max(1000, int(rate * effort.seconds / members.n))
        for _ in range(effort.turns):
            for kind, members in groups.items():
                rate, cpu, *_ = members.phase(counts[kind], SIZE)
                rates[kind].append(rate)
                costs[kind].append(cpu)
    rows = []
    for kind, found in rates.items():
        shares = [_shares(found, rates[other]) for other in ("raw mesh", "total")]
        cost = f"{median(costs[kind]):.3f}"
        of_total = f"{median(costs[kind]) / median(costs['total']):.2f}"
        row = (f"{median(found) / 1e3:.0f}", *shares, OF_TOTAL.get(kind, ""), cost, of_total)
        rows.append((kind, *row))
    rows += [(name, rate, "", "", "", cpu, "") for name, rate, cpu in PEER_RATES]
    columns = ("", "k msg/s", "of raw", "of total", "wanted", "CPU µs", "of total's")
    note = (
        f"{effort.members} members, {SIZE} bytes, a batch a call. Delivered a second and member; "
        f"CPU of all processes a delivery. Medians of {effort.turns} turns, in which all of them "
        f"ran one after the other; shares are by turn, with the least and the greatest. {EARLIER}"
    )
    return [Table("Virtual synchrony: throughput", columns, rows, note)]


def _shares(found: list[float], other: list[float]) -> str:
    shares = [one / two for one, two in zip(found, other, strict=True)]
    return f"{median(shares):.0%} ({100 * min(shares):.0f}-{100 * max(shares):.0f})"


def latency(effort: Effort) -> list[Table]:
    kinds = tuple(kind for kind in KINDS if kind != "raw mesh")
    found: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    with started(kinds, effort, FIRST_PORT + 200) as groups:
        for _ in range(effort.latency_turns):
            for rate in effort.rates:
                count = max(20, int(rate * effort.latency_seconds))
                for kind, members in groups.items():
                    found.setdefault((kind, rate), []).append(members.phase(count, SIZE, rate, 1))
    rows = []
    for kind in kinds:
        shown, costs = [], []
        for rate in effort.rates:
            turns = found[kind, rate]
            p50, p99 = (sorted(turn[place] / 1e3 for turn in turns) for place in (2, 3))
            spread = f"{p50[0]:.2f}-{p50[-1]:.2f}"
            shown.append(f"{median(p50):.2f} / {median(p99):.1f} ({spread})")
            costs.append(f"{median(turn[1] for turn in turns):.0f}")
        rows.append((kind, *shown, " ".join(costs)))
    for name, peer in PEER_LATENCIES.items():
        shown = ["{} / {}".format(*peer[rate]) if rate in peer else "" for rate in effort.rates]
        rows.append((name, *shown, ""))
    columns = ("p50 / p99 ms", *(f"{rate}/s" for rate in effort.rates), "CPU µs a delivery")
    note = (
        "Of messages sent one by one at so many a second by each member, in parentheses the p50 of "
        f"the turns; medians of members and of {effort.latency_turns} turns. "
        f"Wanted: agreed 0.6, safe 1, p99 3 at all rates. {EARLIER}"
    )
    return [Table("Virtual synchrony: latency", columns, rows, note)]


# --- live: view changes --------------------------------------------------------------------------


def crash(effort: Effort) -> list[Table]:
    rows = []
    last = effort.members - 1
    for title, victim in (("the first", 0), ("the second", 1), ("the last", last)):
        for load, is_loaded in (("idle", False), ("full load", True)):

            async def happens(group: ViewChanges, victim: int = victim) -> tuple[float, float]:
                return await group.crash(f"n{victim:02}")

            flows = _repeated(happens, effort, is_loaded)
            rows.append((f"{title} by name", load, *_seconds(flows)))
    columns = ("who crashes", "", "median ms", "least", "most", "wanted")
    wanted = f"{LIMIT / MILLISECOND + 100:.0f}"
    rows = [(*row, wanted) for row in rows]
    note = (
        "From the crash until all others have read the view without it, default options: the "
        f"suspicion limit is {LIMIT / MILLISECOND:.0f} ms, wanted is 100 ms more. "
        f"{effort.members} members in one process."
    )
    return [Table("Virtual synchrony: view after a crash", columns, rows, note)]


def merge(effort: Effort) -> list[Table]:
    rows = []
    for members in (effort.members, 2 * effort.members):
        of = effort._replace(members=members)
        flows = _repeated(ViewChanges.split_and_merge, of, is_loaded=False)
        rows.append((f"{members}", *_seconds(flows), "500"))
    columns = ("members", "median ms", "least", "most", "wanted")
    note = "Two idle halves: from the heal until all have read the view of all. One process."
    return [Table("Virtual synchrony: merge of two halves", columns, rows, note)]


def flow(effort: Effort) -> list[Table]:
    async def crash_of_last(group: ViewChanges) -> tuple[float, float]:
        return await group.crash(max(group.readers))

    async def leave_of_last(group: ViewChanges) -> tuple[float, float]:
        return await group.leave(max(group.readers))

    rows = []
    for title, happens in (
        ("the last member crashes", crash_of_last),
        ("the last member leaves", leave_of_last),
        ("two halves merge", ViewChanges.split_and_merge),
    ):
        flows = _repeated(happens, effort, is_loaded=True)
        middle = [median(each) for each in zip(*flows, strict=True)]
        seconds, share, pause, wait = middle
        shown = (f"{seconds * 1e3:.0f}", f"{share:.0%}", f"{pause * 1e3:.0f}", f"{wait * 1e3:.0f}")
        rows.append((title, *shown, f"{max(one.wait for one in flows) * 1e3:.0f}"))
    columns = ("", "ms", "of full throughput", "longest pause", "longest wait", "most")
    note = (
        "All members send as fast as they may, agreed. From the crash, the leave or the heal until "
        "the view: how long, what was delivered meanwhile as a share of the second before, the "
        "longest time without a delivery and the longest time that a submission waited for room, "
        f"in ms; medians of {effort.changes}, and the longest wait of all."
    )
    return [Table("Virtual synchrony: what flows during a change", columns, rows, note)]


def _repeated(happens: Happens, effort: Effort, is_loaded: bool) -> list[Flow]:
    return [
        seconds_of(happens, effort.members, FIRST_PORT + 400 + 20 * turn, Synchrony(), is_loaded)
        for turn in range(effort.changes)
    ]


def _seconds(flows: list[Flow]) -> tuple[str, str, str]:
    found = sorted(one.seconds * 1e3 for one in flows)
    return f"{median(found):.0f}", f"{found[0]:.0f}", f"{found[-1]:.0f}"


# --- simulated: packets --------------------------------------------------------------------------


def packets(effort: Effort) -> list[Table]:
    rows = []
    for members in effort.sizes:
        row = [f"{members}"]
        for service in ("causal", "agreed", "safe"):
            row.append(f"{packets_an_event(members, service, senders=1) / members:.2f} n")
        row.append(f"{packets_an_event(members, 'agreed', senders=members) / members:.2f} n")
        rows.append(tuple(row))
    columns = ("members", "lone causal", "lone agreed", "lone safe", "agreed, all send")
    note = (
        "Packets a message, as multiples of the members n: linear if they do not grow. One member "
        "sends 20 messages a second, or all of them do; without what an idle group sends. "
        "Simulated."
    )
    quiet = _simulated(effort.idle, "agreed", 0).packets
    rate = (_simulated(effort.idle, "agreed", 0, seconds=11).packets - quiet) / 10
    idle = Table(
        "Virtual synchrony: an idle group",
        ("members", "packets/s", "wanted"),
        [(f"{effort.idle}", f"{rate:.0f}", "below 100")],
        "Simulated, default options.",
    )
    return [Table("Virtual synchrony: packets", columns, rows, note), idle]


def packets_an_event(members: int, service: str, senders: int) -> float:
    busy = _simulated(members, service, senders)
    return (busy.packets - _simulated(members, service, 0).packets) / busy.submitted


def _simulated(members: int, service: str, senders: int, seconds: int = 1) -> Outcome:
    scenario = Scenario(
        name="packets",
        family="synchrony",
        processes=members,
        duration=Duration(seconds * SECOND),
        quiet=Duration(SECOND),
        options={"service": service},
        workload=WorkloadSettings(senders=senders, rate=20),
        network=NetworkSettings(delay=Duration(MILLISECOND // 5)),
    )
    outcome = Simulation(scenario, seed=1).run()
    assert outcome.error is None, outcome.error
    return outcome


PARTS = {
    "throughput": throughput,
    "latency": latency,
    "crash": crash,
    "merge": merge,
    "flow": flow,
    "packets": packets,
}


def measure(parts: tuple[str, ...] = tuple(PARTS), effort: Effort = FULL) -> Iterator[Table]:
    for part in parts:
        yield from PARTS[part](effort)


def main(words: list[str]) -> int:
    wanted = tuple(word for word in words if word != "--quick")
    unknown = [word for word in wanted if word not in PARTS]
    if unknown:
        print(f"no part {unknown[0]!r}: there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    for table in measure(wanted or tuple(PARTS), QUICK if "--quick" in words else FULL):
        show(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

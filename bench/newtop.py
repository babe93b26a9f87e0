"""Totally ordered groups on loopback: four members, all send, all deliver everything.

Beside them in the same run: a raw mesh that orders nothing, and fifo, so that results are ratios.
Then what a second group costs that all members share, idle or with half of the load. The peers'
figures are no part of the run: they were measured once, on a machine like the one that we use.
`python -m bench newtop` takes some minutes.
"""

from __future__ import annotations

from statistics import median

from bench.live import LOADS, REPEATS, SECONDS, Members
from bench.table import Table

MEMBERS = 4
SIZES = (100, 1000)
CALM = 20.0  # messages a second and member: each waits for answers, and none for another
KINDS = (
    ("raw mesh", "bench.raw_member", "batch"),
    ("fifo", "bench.member", "batch"),
    ("by everyone", "bench.member", "total-batch"),
    ("prompt_after 2ms", "bench.member", "prompt-batch"),
    ("by a sequencer", "bench.member", "sequenced-batch"),
)
SHARED = (
    ("one group", "total-batch"),
    ("a second, idle", "idle-batch"),
    ("half of the load each", "halves-batch"),
)
PEERS = (
    ("JGroups 5.5.6, TCP, sequencer", "145", "2.19", "149", "2.0"),
    ("Corosync 3.1.7, agreed", "123", "4.0", "55", "0.52"),
    ("Spread 4.4.0, agreed", "43", "10.3", "15", "0.31"),
    ("JGroups 5.5.6, TCP, FIFO only", "320", "1.56", "200", "1.3"),
)
COLUMNS = ("k msg/s", "CPU µs", "MB/s", "bytes", "p50", "p99", "p50 half", "p50 calm")


def measure() -> list[Table]:
    port = 26_000
    tables = []
    rows = []
    for size in SIZES:
        for name, module, how in KINDS:
            port += 20
            rows.append((f"{size}", name, *measured(Members(module, how, MEMBERS, port), size)))
    note = (
        "Delivered a second and member; CPU of all processes a delivery; what travels beside the "
        "messages, in bytes a message and receiver; latencies in ms at a tenth of what was "
        f"reached, at half of it, and at {CALM:.0f} messages a second and member. The raw mesh "
        "orders nothing."
    )
    tables.append(
        Table("Total order, 4 members, TCP on loopback", ("size", "", *COLUMNS), rows, note)
    )
    rows = []
    for name, how in SHARED:
        port += 20
        rows.append((name, *measured(Members("bench.member", how, MEMBERS, port), SIZES[0])))
    tables.append(Table("What a second group of the same members costs", ("", *COLUMNS), rows))
    peers = ("", "100 B: k msg/s", "CPU µs", "1,000 B: MB/s", "p50 at a tenth")
    note = "Not of this run: 4 processes on 2 cores, loopback, medians of 3. Compare ratios."
    tables.append(Table("Others, as measured before", peers, list(PEERS), note))
    return tables


def measured(members: Members, size: int) -> tuple[str, ...]:
    try:
        members.phase(2000, size)
        rate, *_ = members.phase(20_000, size)
        count = max(1000, int(rate * SECONDS / members.n))
        runs, beside = [], []
        for _ in range(REPEATS):
            runs.append(members.phase(count, size))
            received = count * members.n * (members.n - 1)
            beside.append(members.sent / received - size)
        rate, cpu = (median(run[place] for run in runs) for place in (0, 1))
        latencies = []
        for load in LOADS:
            each = load * rate / members.n
            latencies.append(members.phase(int(each * SECONDS), size, each, 1)[2:])
        calm = members.phase(int(CALM * SECONDS), size, CALM, 1)[2]
    finally:
        members.close()
    shown = (f"{rate / 1e3:.0f}", f"{cpu:.2f}", f"{rate * size / 1e6:.0f}")
    extra = f"{median(beside):.2f}" if median(beside) > -size else "-"
    (p50, p99), (half, _) = latencies
    return (*shown, extra, *(f"{latency / 1e3:.2f}" for latency in (p50, p99, half, calm)))

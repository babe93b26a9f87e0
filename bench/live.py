"""Live groups on loopback: all members send, all deliver everything.

A process a member. In the same run a raw mesh without any ordering is measured as the limit, so
that the result is a ratio. CPU is summed over all processes: the steadiest figure on a machine
that has other things to do. `python -m bench live` takes some minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from bench.table import Table

GROUPS = (2, 4, 8)
SIZES = (100, 1000)
REPEATS = 3
SECONDS = 1.5
LOADS = (0.1, 0.5)  # of what was reached, when latencies are measured
LATENCIES = ("p50 10 %", "p99 10 %", "p50 half", "p99 half")
TICKS = os.sysconf("SC_CLK_TCK")


class Members:
    """The processes of one group, told what to do by lines."""

    def __init__(self, module: str, how: str, n: int, port: int) -> None:
        self.n = n
        command = [sys.executable, "-m", module, str(port), how]
        self.processes = [
            subprocess.Popen(
                [*command, str(rank), str(n)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for rank in range(n)
        ]
        for process in self.processes:
            assert self._hear(process)[0] == "READY"

    senders = 0  # who send, where not all do
    sent = 0  # bytes that all of them put on their links in the last phase

    def phase(self, count: int, size: int, rate: float = 0.0, stamp: int = 0) -> tuple[float, ...]:
        """Rate a member, CPU µs a delivery, and the latencies (median over members)."""
        before = sum(map(self._cpu, self.processes))
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"GO x {count} {size} {rate} {stamp}\n")
        heard = [self._hear(process) for process in self.processes]
        cpu = sum(map(self._cpu, self.processes)) - before
        seconds = max(float(words[2]) for words in heard)
        delivered = count * (self.senders or self.n)
        self.sent = sum(int(words[5]) for words in heard)
        p50, p99 = (median(float(words[place]) for words in heard) for place in (3, 4))
        return delivered / seconds, cpu / (delivered * self.n) * 1e6, p50, p99

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("QUIT\n")
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

    def _hear(self, process: subprocess.Popen[str]) -> list[str]:
        assert process.stdout is not None
        return process.stdout.readline().split()

    def _cpu(self, process: subprocess.Popen[str]) -> float:
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def measure() -> list[Table]:
    rows = []
    port = 21000
    for n in GROUPS:
        for size in SIZES:
            limit = None
            for name, module, how in (
                ("raw mesh, no order", "bench.raw_member", "batch"),
                ("fifo, a batch a call", "bench.member", "batch"),
                ("fifo, a message a call", "bench.member", "message"),
                ("causal, a batch a call", "bench.member", "causal-batch"),
                ("causal, a message a call", "bench.member", "causal-message"),
            ):
                port += 20
                row = measure_group(Members(module, how, n, port), size)
                limit = limit or row[0]
                rows.append((f"{n}", f"{size}", name, *_shown(row, limit, size)))
    columns = ("members", "bytes", "", "k msg/s", "of raw", "MB/s", "CPU µs", *LATENCIES)
    note = (
        "Delivered a second and member; CPU of all processes a delivery; latencies in ms, at a "
        "tenth and at half of what was reached."
    )
    return [Table("Live, TCP on loopback", columns, rows, note), measure_lone(port + 20)]


def measure_lone(port: int) -> Table:
    """One sender and one receiver, and no burst of messages to make a batch of."""
    rows = []
    for name, how in (
        ("a message a turn", "lone-batch"),
        ("the same, not gathered: batches of one", "single-batch"),
    ):
        port += 20
        members = Members("bench.member", how, 2, port)
        members.senders = 1
        try:
            members.phase(10_000, 100)
            rates = [members.phase(60_000, 100)[0] for _ in range(5)]
        finally:
            members.close()
        spread = (max(rates) - min(rates)) / median(rates)
        rows.append((name, f"{median(rates) / 1e3:.1f}", f"{spread:.0%}"))
    return Table("A lone stream, two members, 100 bytes", ("", "k msg/s", "spread"), rows)


def measure_group(members: Members, size: int) -> tuple[float, ...]:
    try:
        members.phase(2000, size)
        rate, *_ = members.phase(20_000, size)
        count = max(1000, int(rate * SECONDS / (members.senders or members.n)))
        runs = [members.phase(count, size) for _ in range(REPEATS)]
        rate, cpu = (median(run[place] for run in runs) for place in (0, 1))
        latencies: list[float] = []
        for load in LOADS:
            each = load * rate / (members.senders or members.n)
            latencies += members.phase(int(each * SECONDS), size, each, 1)[2:]
        return rate, cpu, *latencies
    finally:
        members.close()


def _shown(row: tuple[float, ...], limit: float, size: int) -> tuple[str, ...]:
    rate, cpu, *latencies = row
    shown = (f"{rate / 1e3:.0f}", f"{rate / limit:.0%}", f"{rate * size / 1e6:.0f}", f"{cpu:.2f}")
    return (*shown, *(f"{latency / 1e3:.2f}" for latency in latencies))

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
    columns = ("members", "bytes", "", "k msg/s", "of raw", "MB/s", "CPU µs", "p50 ms", "p99 ms")
    note = "Delivered a second and member; CPU of all processes a delivery; latency at half load."
    return [Table("Live, TCP on loopback", columns, rows, note)]


def measure_group(members: Members, size: int) -> tuple[float, float, float, float]:
    try:
        members.phase(2000, size)
        rate, *_ = members.phase(20_000, size)
        count = max(1000, int(rate * SECONDS / (members.senders or members.n)))
        runs = [members.phase(count, size) for _ in range(REPEATS)]
        rate, cpu = (median(run[place] for run in runs) for place in (0, 1))
        half = rate / (members.senders or members.n) / 2
        _, _, p50, p99 = members.phase(int(half * SECONDS), size, half, 1)
        return rate, cpu, p50, p99
    finally:
        members.close()


def _shown(row: tuple[float, float, float, float], limit: float, size: int) -> tuple[str, ...]:
    rate, cpu, p50, p99 = row
    shown = (f"{rate / 1e3:.0f}", f"{rate / limit:.0%}", f"{rate * size / 1e6:.0f}", f"{cpu:.2f}")
    return (*shown, f"{p50 / 1e3:.2f}", f"{p99 / 1e3:.2f}")

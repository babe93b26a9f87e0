"""A crowd: many live members of one causal cluster, each with its own sockets, on loopback.

Several nodes a process, or a machine would be full of interpreters. Everybody knows one seed. What
must not grow with the number of members: connections, CPU and memory of an idle node. Every event
is delivered by every member, or reported lost. `python -m bench crowd` measures 10 and 100 members,
`python -m bench.crowd 1000` others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.table import Table

SIZES = (10, 100)
NODES_A_PROCESS = 100
MESSAGES = 20  # by each updater
SETTLING_SECONDS = 45.0  # longer than an idle connection is kept
IDLE_SECONDS = 20.0
LONGEST_SECONDS = 180.0  # for all events to arrive
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
COLUMNS = (
    "members",
    "start s",
    "links a node",
    "most",
    "idle CPU ms/s",
    "MB a node",
    "sent",
    "delivered",
    "lost",
    "seconds",
)


class Hosts:
    """The processes of one crowd."""

    def __init__(self, members: int) -> None:
        self.members = members
        self._processes: list[subprocess.Popen[str]] = []
        seed = "-"
        for first in range(0, members, NODES_A_PROCESS):
            process = self._start(first, min(NODES_A_PROCESS, members - first), seed)
            if seed == "-":
                seed = self._hear(process, "READY")[0]
            self._processes.append(process)
        for process in self._processes[1:]:
            self._hear(process, "READY")

    def _start(self, first: int, count: int, seed: str) -> subprocess.Popen[str]:
        words = [str(first), str(count), seed]
        return subprocess.Popen(
            [sys.executable, "-m", "bench.crowd_host", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def ask(self, question: str, answer: str) -> list[list[int]]:
        """What each process answers."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(question + "\n")
        return [[int(word) for word in self._hear(each, answer)] for each in self._processes]

    def cpu(self) -> float:
        """Seconds that all have used so far."""
        return sum(map(_cpu, self._processes))

    def memory(self) -> int:
        """Bytes that are resident, of all."""
        return sum(map(_memory, self._processes))

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("QUIT\n")
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()

    def _hear(self, process: subprocess.Popen[str], word: str) -> list[str]:
        assert process.stdout is not None
        first, *rest = process.stdout.readline().split() or [""]
        assert first == word, f"a process of the crowd said {first!r} instead of {word}"
        return rest


def _cpu(process: subprocess.Popen[str]) -> float:
    stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii")
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _memory(process: subprocess.Popen[str]) -> int:
    pages = Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * PAGE


def measure_crowd(members: int) -> tuple[str, ...]:
    begin = time.monotonic()
    hosts = Hosts(members)
    try:
        started = time.monotonic() - begin
        time.sleep(SETTLING_SECONDS)
        before = hosts.cpu()
        time.sleep(IDLE_SECONDS)
        idle = (hosts.cpu() - before) / IDLE_SECONDS / members
        memory = hosts.memory() / members
        counted = hosts.ask("COUNT", "COUNTED")
        links, most = sum(each[2] for each in counted) / members, max(each[3] for each in counted)
        earlier = sum(each[1] for each in counted)
        begin = time.monotonic()
        sent = sum(each[0] for each in hosts.ask(f"SEND {MESSAGES}", "SENT"))
        while True:
            time.sleep(0.5)
            counted = hosts.ask("COUNT", "COUNTED")
            delivered = sum(each[0] for each in counted)
            lost = sum(each[1] for each in counted) - earlier
            seconds = time.monotonic() - begin
            if delivered + lost >= sent * members or seconds > LONGEST_SECONDS:
                break
    finally:
        hosts.close()
    return (
        f"{members}",
        f"{started:.1f}",
        f"{links:.1f}",
        f"{most}",
        f"{idle * 1e3:.2f}",
        f"{memory / 1e6:.2f}",
        f"{sent}",
        f"{delivered:,} of {sent * members:,}",
        f"{lost}",
        f"{seconds:.1f}",
    )


def measure(sizes: tuple[int, ...] = SIZES) -> list[Table]:
    rows = [measure_crowd(members) for members in sizes]
    note = (
        f"Five update, rounds of one second, up to {NODES_A_PROCESS} nodes a process; links "
        f"and CPU after {SETTLING_SECONDS:.0f} s without messages; seconds until every member has "
        "delivered every event, or reported it lost."
    )
    return [Table("One causal cluster from one seed, on loopback", COLUMNS, rows, note)]


if __name__ == "__main__":
    for table in measure(tuple(map(int, sys.argv[1:])) or SIZES):
        for shown in (table.columns, *table.rows):
            print("  ".join(word.rjust(13) for word in shown))

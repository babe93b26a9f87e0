"""A crowd: many live members of one causal cluster, each with its own sockets, on loopback.

Several nodes a process, or a machine would be full of interpreters. Everybody knows one seed. What
must not grow with the number of members: connections, CPU and memory of an idle node. Every event
is delivered by every member, or reported lost. `python -m bench crowd` measures 10, 100 and 1,000
members, `python -m bench.crowd 300` others, and with `--tls` each has a certificate.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.crowd_host import name_of
from bench.table import Table
from ordercast.net import authority

SIZES = (10, 100, 1000)
NODES_A_PROCESS = 100
MESSAGES = 20  # by each updater
LONGEST_JOINING_SECONDS = 300.0
SETTLING_SECONDS = 45.0  # longer than an idle connection is kept
IDLE_SECONDS = 20.0
LONGEST_SECONDS = 180.0  # for all events to arrive
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
COLUMNS = (
    "members",
    "all in, s",
    "links a node",
    "most",
    "idle CPU ms/s",
    "MB a node",
    "sent",
    "delivered",
    "told lost",
    "neither",
    "seconds",
)


class Hosts:
    """The processes of one crowd."""

    def __init__(self, members: int, keys: Path | None = None) -> None:
        """Keys: a folder with the certificates of all."""
        self.members = members
        self._keys = "-" if keys is None else str(keys)
        self._processes: list[subprocess.Popen[str]] = []
        self._processes.append(self._start(0, 1, "-"))  # the seed, whom all turn to
        [seed] = self._hear(self._processes[0], "OPEN")
        for first in range(1, members, NODES_A_PROCESS):
            count = min(NODES_A_PROCESS, members - first)
            self._processes.append(self._start(first, count, seed))
        for process in self._processes[1:]:
            self._hear(process, "OPEN")

    def _start(self, first: int, count: int, seed: str) -> subprocess.Popen[str]:
        words = [str(first), str(count), seed, self._keys]
        return subprocess.Popen(
            [sys.executable, "-m", "bench.crowd_host", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def wait_until_all_are_in(self) -> int:
        """How many are not, after a while, and which. The bench goes on with those that are."""
        ending = time.monotonic() + LONGEST_JOINING_SECONDS
        while True:
            answers = self._ask("READY", "READY")
            ready = sum(int(words[0]) for words in answers)
            if ready == self.members:
                return 0
            if time.monotonic() > ending:
                print(f"{self.members - ready} of {self.members} members are not in:")
                for words in answers:
                    if len(words) > 1:
                        print(" ", *words[1:])
                return self.members - ready
            time.sleep(0.2)

    def ask(self, question: str, answer: str) -> list[list[int]]:
        """What each process answers."""
        return [[int(word) for word in words] for words in self._ask(question, answer)]

    def _ask(self, question: str, answer: str) -> list[list[str]]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(question + "\n")
        return [self._hear(process, answer) for process in self._processes]

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


@contextmanager
def certificates(members: int) -> Iterator[Path]:
    """A folder with an authority, and a certificate for each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority.init(folder, "ordercast")
        for number in range(members):
            authority.issue(folder, name_of(number))
        yield folder


class Crowd(NamedTuple):
    row: tuple[str, ...]
    outside: int  # members that are not in
    neither: int  # events that a member neither delivered nor reported lost

    @property
    def wrong(self) -> str:
        if not self.outside and self.neither <= 0:
            return ""
        return f"of {self.row[0]} {self.outside} are not in, and {self.neither} events are missing"


def measure_crowd(members: int, secure: bool = False) -> Crowd:
    with certificates(members) if secure else nullcontext() as keys:
        return _measure_crowd(members, keys)


def _measure_crowd(members: int, keys: Path | None) -> Crowd:
    begin = time.monotonic()
    hosts = Hosts(members, keys)
    try:
        outside = hosts.wait_until_all_are_in()
        joining = time.monotonic() - begin
        time.sleep(SETTLING_SECONDS)
        before = hosts.cpu()
        time.sleep(IDLE_SECONDS)
        idle = (hosts.cpu() - before) / IDLE_SECONDS / members
        memory = hosts.memory() / members
        links = [count for counts in hosts.ask("LINKS", "LINKS") for count in counts]
        earlier = sum(lost for _, lost in hosts.ask("COUNT", "COUNTED"))
        begin = time.monotonic()
        sent = sum(each[0] for each in hosts.ask(f"SEND {MESSAGES}", "SENT"))
        while True:
            time.sleep(0.5)
            counted = hosts.ask("COUNT", "COUNTED")
            delivered = sum(each[0] for each in counted)
            lost = sum(each[1] for each in counted) - earlier
            neither = sent * members - delivered - lost
            seconds = time.monotonic() - begin
            if neither <= 0 or seconds > LONGEST_SECONDS:
                break
    finally:
        hosts.close()
    row = (
        f"{members}",
        f"{joining:.1f}",
        f"{median(links):g}",
        f"{max(links)}",
        f"{idle * 1e3:.2f}",
        f"{memory / 1e6:.2f}",
        f"{sent}",
        f"{delivered:,}",
        f"{lost}",
        f"{neither}",
        f"{seconds:.1f}",
    )
    return Crowd(row, outside, neither)


def measure(sizes: tuple[int, ...] = SIZES, secure: bool = False) -> list[Table]:
    crowds = [measure_crowd(members, secure) for members in sizes]
    rows = [crowd.row for crowd in crowds]
    wrong = "; ".join(crowd.wrong for crowd in crowds if crowd.wrong)
    note = (
        f"Five update, rounds of one second; the seed has a process of its own, "
        f"{NODES_A_PROCESS} others share one. Links (median and most), CPU and memory after "
        f"{SETTLING_SECONDS:.0f} s without messages, memory with the share of the interpreter; "
        "seconds until every member has delivered every event, or reported it lost."
    )
    return [Table("One causal cluster from one seed, on loopback", COLUMNS, rows, note, wrong)]


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word != "--tls"]
    tables = measure(tuple(numbers) or SIZES, "--tls" in sys.argv)
    for table in tables:
        for shown in (table.columns, *table.rows):
            print("  ".join(word.rjust(13) for word in shown))
    sys.exit(" ".join(table.wrong for table in tables) or 0)

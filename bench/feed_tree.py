"""A feed over a tree of 31 nodes: how long a post takes to the furthest node, what all sustain.

The root has three children, these have three each, and these two each: three hops. A post is on
the disk of each node before that node sends it on, so four commits are on its way to a leaf, its
own the last. Commits are measured in the same run, on the same disk: alone, and as many at once as
the tree makes at each depth. A chain of four nodes says what three hops take where nothing is
beside them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.feed_host import GROUP, SIZE
from bench.table import Table
from ordercast import Feed
from ordercast.kernel.log import Appended, Entry
from ordercast.protocol import families
from ordercast.store.group_log.log import GroupLog
from ordercast.wire.codec import Codec

FAN_OUT = 3
CHAIN = 4
"""Nodes that are three hops too, with nothing beside them."""
LONE = "lone"
WANTED_MS = 5.0
LEAST_SHARE = 1 / 3
IN_FLIGHT = 64
WINDOW = Feed().window
TICKS = os.sysconf("SC_CLK_TCK")


class Effort(NamedTuple):
    nodes: tuple[int, ...] = (31, 4)  # so many in a tree; 4 are a chain
    processes: int = 4
    posts: int = 100  # one after the other, for latencies
    rounds: int = 5  # of posts and of commits, in turns
    count: int = 10_000  # posts in a turn of throughput
    turns: int = 5


class Hosts:
    """Processes with nodes in them (`feed_host.py`)."""

    def __init__(self, folder: Path, processes: int) -> None:
        self.folder = folder
        self.where: dict[str, subprocess.Popen[str]] = {}  # by name
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.feed_host"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for _ in range(processes)
        ]

    def open(
        self,
        process: int,
        name: str,
        parent: str = "",
        seed: str = "",
        fan_out: int = 16,
        window: int = WINDOW,
    ) -> str:
        self.where[name] = self.processes[process % len(self.processes)]
        data = str(self.folder / name)
        how = {"name": name, "data": data, "parent": parent, "seed": seed}
        how |= {"fan_out": fan_out, "window": window}
        return str(self.ask(name, "open", how))

    def tell(self, process: subprocess.Popen[str], what: str, of: Any) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps({what: of}) + "\n")

    def hear(self, process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    def ask(self, name: str, what: str, of: Any) -> Any:
        process = self.where[name]
        self.tell(process, what, of)
        return self.hear(process)

    def read(self, count: int, names: list[str]) -> dict[str, dict[str, Any]]:
        """What each of them has read, once all have read so much."""
        for name in names:
            self.tell(self.where[name], "read", [name, count])
        return {name: self.hear(self.where[name]) for name in names}

    def cpu(self) -> list[float]:
        """Seconds that each process has used so far."""
        return [cpu(process) for process in self.processes]

    def memory(self, name: str) -> tuple[int, int]:
        """Bytes that are resident in the process of a node, and the most that ever were."""
        lines = Path(f"/proc/{self.where[name].pid}/status").read_text("ascii").splitlines()
        words = dict(line.split(":", 1) for line in lines)
        now, most = (int(words[word].split()[0]) << 10 for word in ("VmRSS", "VmHWM"))
        return now, most

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            assert process.stdout is not None
            process.stdout.close()


def cpu(process: subprocess.Popen[str]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def hosts(processes: int) -> Iterator[Hosts]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("ORDERCAST_BENCH")) as name:
        opened = Hosts(Path(name), processes)
        try:
            yield opened
        finally:
            opened.close()


class Tree:
    """Nodes at their places, and one that is alone."""

    def __init__(self, hosts: Hosts, nodes: int) -> None:
        self.hosts = hosts
        self.names = [f"n{number:02}" for number in range(nodes)]
        fan_out = 1 if nodes == CHAIN else FAN_OUT
        self.depths: dict[str, int] = {}
        seed = ""
        for number, name in enumerate(self.names):
            parent = self.names[(number - 1) // fan_out] if number else ""
            place = hosts.open(number, name, parent, seed, fan_out)
            self.depths[name] = len(hosts.ask(name, "placed", name))
            seed = seed or place
        hosts.open(0, LONE)
        hosts.ask(LONE, "placed", LONE)
        for process in hosts.processes:
            hosts.tell(process, "follow", [])
            hosts.hear(process)

    @property
    def depth(self) -> int:
        return max(self.depths.values())

    def at(self, depth: int) -> list[str]:
        return [name for name in self.names if self.depths[name] == depth]

    def post(self, name: str, count: int, in_flight: int, pause: float = 0.0) -> tuple[float, Any]:
        """Rate of posts that all who get them have read, and what they have read."""
        begin = self.hosts.ask(name, "post", [name, count, in_flight, pause])["begin"]
        found = self.hosts.read(count, [name] if name == LONE else self.names)
        return count / (max(one["last"] for one in found.values()) - begin) * 1e9, found


# --- commits alone -------------------------------------------------------------------------------


class Commits:
    """Logs on the same disk without nodes, one for each node of the tree."""

    def __init__(self, folder: Path, widths: list[int]) -> None:
        codec = Codec(families.FAMILIES.values())
        self._widths = widths
        self._logs = [GroupLog(folder / f"log{at}", GROUP, codec) for at in range(max(widths))]
        self._threads = ThreadPoolExecutor(max(widths))
        self._number = 0

    def commit(self, log: GroupLog) -> None:
        number = self._number
        entry = Entry("n1", 7, number, number - 1, 0, False, None, [bytes(SIZE)], SIZE, 0)
        log.append([Appended(GROUP, entry)])
        log.sync()

    def wave(self, widths: list[int]) -> list[float]:
        """Seconds for so many commits at once, at each depth."""
        found = []
        for width in widths:
            self._number += 1
            begin = time.perf_counter()
            list(self._threads.map(self.commit, self._logs[:width]))
            found.append(time.perf_counter() - begin)
        return found

    def close(self) -> None:
        self._threads.shutdown()
        for log in self._logs:
            log.close()


# --- tables --------------------------------------------------------------------------------------


def latency(tree: Tree, effort: Effort) -> Table:
    widths = [len(tree.at(depth)) for depth in range(tree.depth + 1)]
    commits = Commits(tree.hosts.folder, widths)
    alone: list[float] = []
    waves: list[list[float]] = []
    by_depth: dict[int, list[float]] = {}
    last: list[float] = []
    costs: list[float] = []  # seconds of CPU a post and node
    each = max(1, effort.posts // effort.rounds)
    for _ in range(effort.rounds):
        for _ in range(each):
            alone += commits.wave([1])
            waves.append(commits.wave(widths))
        before = sum(tree.hosts.cpu())
        _, found = tree.post(tree.names[0], each, 1, 0.02)
        costs.append((sum(tree.hosts.cpu()) - before) / each / len(tree.names))
        times = {name: [one / 1e6 for one in found[name]["latencies"]] for name in tree.names}
        for name, of_node in times.items():
            by_depth.setdefault(tree.depths[name], []).extend(of_node)
        last += map(max, zip(*times.values(), strict=True))
    commits.close()
    commit, rows = median(alone) * 1e3, []
    at_once = [median(one) * 1e3 for one in zip(*waves, strict=True)]
    for depth, found_times in sorted(by_depth.items()):
        hops = tree.depth if depth == tree.depth else depth
        rows.append(
            _row(f"depth {depth}, {widths[depth]} nodes", found_times, hops, commit, at_once)
        )
    rows.append(_row("the last of all", last, tree.depth, commit, at_once))
    furthest = median(by_depth[tree.depth])
    beyond = furthest - tree.depth * commit
    least = furthest - sum(at_once[: tree.depth])
    wrong = "" if min(beyond, least) < WANTED_MS else f"{beyond:.1f} ms beyond {tree.depth} commits"
    columns = ("", "p50 ms", "p99 ms", "commits", "beyond them", "beyond those at once")
    shown = ", ".join(
        f"{width} at once {ms:.1f}" for width, ms in zip(widths, at_once, strict=True)
    )
    cost = median(costs) * 1e6
    note = (
        f"{len(tree.names)} nodes in {len(tree.hosts.processes)} processes, one post after the "
        f"other at the root. A commit took {commit:.1f} ms; {shown}. CPU of all processes: "
        f"{cost:.0f} µs a post and node. Of the commits on the way to a node all but its own are "
        f"taken off. Wanted at the furthest: {WANTED_MS:.0f} ms beyond {tree.depth} commits."
    )
    return Table("A feed over a tree: from post to read", columns, rows, note, wrong)


def _row(
    title: str, times: list[float], commits: int, commit: float, at_once: list[float]
) -> tuple[str, ...]:
    p50, p99 = median(times), sorted(times)[int(len(times) * 0.99)]
    beyond, beyond_wave = p50 - commits * commit, p50 - sum(at_once[:commits])
    figures = (p50, p99, float(commits), beyond, beyond_wave)
    return (title, *(f"{one:.0f}" if one == commits else f"{one:.1f}" for one in figures))


def throughput(tree: Tree, effort: Effort) -> Table:
    kinds = {LONE: LONE, "all of them": tree.names[0]}
    rates: dict[str, list[float]] = {}
    for number in range(effort.turns + 1):
        for kind, name in kinds.items():
            rate, _ = tree.post(name, effort.count, IN_FLIGHT)
            if number:
                rates.setdefault(kind, []).append(rate)
    rows, wrong = [], ""
    for kind, found in rates.items():
        shares = sorted(one / other for one, other in zip(found, rates[LONE], strict=True))
        share = f"{median(shares):.0%} ({100 * shares[0]:.0f}-{100 * shares[-1]:.0f})"
        if median(shares) < LEAST_SHARE:
            wrong = f"{len(tree.names)} nodes sustain {share} of one"
        title = "one node" if kind == LONE else f"{len(tree.names)} nodes"
        figures = (f"{median(found):,.0f}", "" if kind == LONE else share)
        rows.append((title, f"{IN_FLIGHT}", *figures))
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    note = (
        f"Posts of {SIZE} bytes at the root until every node has read all {effort.count:,}, beside "
        f"a node without others in one of the same processes; medians of {effort.turns} turns, "
        f"shares by turn. Wanted: {LEAST_SHARE:.0%}. Load of the machine at the end: {load}."
    )
    columns = ("", "in flight", "posts/s", "of one node")
    return Table("A feed over a tree: what all sustain", columns, rows, note, wrong)


def measure(effort: Effort) -> Iterator[Table]:
    for nodes in effort.nodes:
        with hosts(effort.processes) as opened:
            tree = Tree(opened, nodes)
            yield latency(tree, effort)
            yield throughput(tree, effort)

"""The benches still fit the code that they measure: each can be loaded. They are run by hand.

Those of virtual synchrony and of feeds are also run, so briefly that their figures mean nothing.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from bench import feed, transis
from bench.table import Table

FILES = sorted((Path(__file__).resolve().parent.parent / "bench").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_every_benchmark_can_be_imported(name: str) -> None:
    assert import_module(f"bench.{name}").__doc__


def cells(table: Table, column: str) -> list[float]:
    place = table.columns.index(column)
    return [float(row[place].split()[0]) for row in table.rows]


def test_packets_of_virtual_synchrony_grow_with_the_members_and_not_faster() -> None:
    packets, idle = transis.measure(("packets",), transis.QUICK)
    for column in ("lone agreed", "lone safe", "agreed, all send"):
        assert all(2 <= multiple <= 3.1 for multiple in cells(packets, column))
    assert cells(idle, "packets/s") == [24]


@pytest.mark.slow
def test_view_changes_are_measured_to_their_end() -> None:
    (flow,) = transis.measure(("flow",), transis.QUICK._replace(members=3))
    assert len(flow.rows) == 3
    assert min(cells(flow, "ms")) > 0


@pytest.mark.long
def test_live_groups_are_measured_beside_each_other() -> None:
    throughput, latency, crash, merge = transis.measure(
        ("throughput", "latency", "crash", "merge"), transis.QUICK
    )
    assert min(cells(throughput, "k msg/s")) > 0
    kinds = [row[0] for row in latency.rows]
    assert kinds[:5] == ["fifo", "total", "causal", "agreed", "safe"]
    assert len(crash.rows) == 6
    assert [row[0] for row in merge.rows] == ["2", "4"]


def test_posts_of_a_feed_are_measured_beside_its_log() -> None:
    (posts,) = feed.measure(("posts",), feed.QUICK)
    assert [row[0] for row in posts.rows][:3] == ["bare log", "feed", "SQLite"]
    assert [row[0] for row in posts.rows].count("feed") == 2
    assert all(float(row[4].replace(",", "")) > 0 for row in posts.rows)


def test_memory_with_many_origins_is_measured() -> None:
    (memory,) = feed.measure(("origins",), feed.QUICK)
    assert [row[0] for row in memory.rows] == ["0", "20,000"]
    few, many = cells(memory, "resident MB")
    assert few < many


@pytest.mark.slow
def test_a_tree_and_a_return_are_measured() -> None:
    latency, throughput, recovery = feed.measure(("tree", "recovery"), feed.QUICK)
    assert [row[0] for row in latency.rows][3] == "depth 3, 1 nodes"
    assert min(cells(latency, "p50 ms")) > 0
    assert [row[0] for row in throughput.rows] == ["one node", "4 nodes"]
    assert recovery.rows[0][1] == "2,000"

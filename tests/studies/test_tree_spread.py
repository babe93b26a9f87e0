"""A message in a tree of millions of nodes, against slow and obvious ways to count the same."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
import pytest

from ordercast.errors import UsageError
from ordercast.studies import tree_spread
from ordercast.studies.tree_costs import costs_of
from ordercast.studies.tree_spread import TreeJourney, gossip, spread, spread_past_dead

SIZES = [(2, 1), (7, 2), (30, 3), (500, 8), (501, 8), (1000, 32), (40, 64)]


def neighbours(nodes: int, fan_out: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(nodes)]
    for node in range(1, nodes):
        parent = (node - 1) // fan_out
        found[node].append(parent)
        found[parent].append(node)
    return found


def reach(beside: list[list[int]], origin: int, lets: list[bool]) -> dict[int, int]:
    """Hops to each node that the message comes to, if these let it pass."""
    hops, frontier = {origin: 0}, [origin]
    while frontier:
        node = frontier.pop(0)
        for other in beside[node]:
            if other not in hops and lets[other]:
                hops[other] = hops[node] + 1
                frontier.append(other)
    return hops


@pytest.mark.parametrize(("nodes", "fan_out"), SIZES)
def test_hops_are_those_of_a_walk_through_the_tree(nodes: int, fan_out: int) -> None:
    fan_out = min(fan_out, nodes - 1)
    journey = TreeJourney(nodes=nodes, fan_out=fan_out, targets=1)
    origin = int(np.random.default_rng([journey.seed, 1]).integers(nodes))
    beside = neighbours(nodes, fan_out)
    hops = reach(beside, origin, [True] * nodes)
    found = spread(journey)
    assert found.hops_most == max(hops.values())
    assert found.hops_mean == pytest.approx(sum(hops.values()) / (nodes - 1))
    assert found.sends_most >= max(map(len, beside)) - (origin != 0)
    assert found.inner_share == sum(any(b > a for b in beside[a]) for a in range(nodes)) / nodes


def test_without_a_disk_and_with_equal_delays_time_is_hops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_spread, "SPREAD", 0.0)
    found = spread(TreeJourney(nodes=2000, fan_out=8, delay=0.5, sync=0.25, targets=1))
    assert found.seconds.all == pytest.approx(0.25 + found.hops_most * 0.75)


@pytest.mark.parametrize(("nodes", "fan_out"), SIZES[2:])
@pytest.mark.parametrize("dead", [0.0, 0.1, 0.4])
def test_who_is_behind_dead_nodes(nodes: int, fan_out: int, dead: float) -> None:
    fan_out = min(fan_out, nodes - 1)
    journey = TreeJourney(nodes=nodes, fan_out=fan_out, dead=dead, targets=1, seed=5)
    draw = np.random.default_rng([journey.seed, 2])
    origin = int(draw.integers(nodes))
    lives = draw.random(nodes, np.float32) >= dead
    lives[origin] = True
    alive = [bool(one) for one in lives]
    beside = neighbours(nodes, fan_out)
    passed = [alive[v] or all(alive[w] for w in beside[v]) for v in range(nodes)]
    count = sum(alive)
    plain = len(reach(beside, origin, alive)) / count
    bridged = sum(alive[v] for v in reach(beside, origin, passed)) / count
    found = spread_past_dead(journey, draws=1)
    assert found.plain == pytest.approx(1 - plain, abs=1e-9)
    assert found.published == pytest.approx(1 - bridged, abs=1e-9)
    orphans = [v for v in range(1, nodes) if alive[v] and not alive[(v - 1) // fan_out]]
    assert found.adopted == len(orphans)
    asked: dict[int, int] = {}
    for node in orphans:
        above = (node - 1) // fan_out
        while above and not alive[above]:
            above = (above - 1) // fan_out
        if alive[above]:
            asked[above] = asked.get(above, 0) + 1
    assert found.most_adopted == max(asked.values(), default=0)


def test_gossip_comes_by_the_shortest_way() -> None:
    journey = TreeJourney(nodes=300, fan_out=2, targets=4)
    origin = int(np.random.default_rng([journey.seed, 3]).integers(journey.nodes))
    times, waiting = {origin: 0.0}, [(0.0, origin)]
    while waiting:
        time, node = heapq.heappop(waiting)
        if time > times[node]:
            continue
        targets, delays = tree_spread.relays_of(journey, np.array([node]))
        for target, delay in zip(targets[0], delays[0], strict=True):
            assert target != node
            if time + delay < times.get(int(target), math.inf):
                times[int(target)] = time + float(delay)
                heapq.heappush(waiting, (time + float(delay), int(target)))
    found = gossip(journey)
    assert found.missed == journey.nodes - len(times)
    assert found.seconds.all == pytest.approx(max(times.values()), rel=1e-5)


def test_targets_of_gossip_are_even() -> None:
    journey = TreeJourney(nodes=1000, fan_out=2, targets=15)
    targets, delays = tree_spread.relays_of(journey, np.arange(1000))
    counts = np.bincount(targets.ravel(), minlength=1000)
    assert counts.min() > 0
    assert counts.var() == pytest.approx(15, rel=0.25)
    assert float(np.median(delays)) == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"nodes": 1}, "nodes must be 2"),
        ({"nodes": 1 << 25}, "nodes must be"),
        ({"fan_out": 0}, "fan-out"),
        ({"dead": 1.0}, "share of dead"),
        ({"dead": float("nan")}, "share of dead"),
        ({"delay": -1.0}, "delay"),
        ({"targets": 0}, "targets"),
        ({"nodes": 100_000, "fan_out": 1}, "chain"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        TreeJourney(**{"nodes": 100, "fan_out": 4, **given})


def test_the_tree_sends_each_message_once_and_carries_no_vector() -> None:
    by_name = {costs.scheme: costs for costs in costs_of(2_000_000, 32, 15)}
    tree, isis = by_name["feed"], by_name["ISIS, causal"]
    assert tree.copies == 1_999_999
    assert (tree.stamp, isis.stamp) == (0, 16_000_000)
    assert tree.repair < by_name["HPP as published"].repair < by_name["HARP"].repair
    assert by_name["gossip"].copies == 15 * 2_000_000

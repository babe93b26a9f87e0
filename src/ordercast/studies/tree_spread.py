"""One message in a tree of millions of nodes, beside gossip of the same message, with numpy.

    spread(TreeJourney(nodes=2_000_000, fan_out=32))

returns how many hops and seconds the message took to each node, what each node sent for it, and
who is not reached while a share of the nodes is dead.

The tree is that of the family `feed`: a node hands every message to all its correspondents (its
parent and its children) but the one that it came from, once it is on its disk.

Rules.
 1. The tree is full but for its last level: the parent of node v is (v - 1) // fan_out.
 2. An edge has one delay, lognormal around `delay`, the same both ways; each node that takes the
    message writes it to disk first, which takes `sync`. The origin does so too.
 3. Dead nodes are drawn by chance; the origin lives. Three ways to go on are compared:
    plain      whoever is behind a dead node gets nothing
    published  the message passes a dead node if its parent and all its children live: the paper
               promises no more, for the coordinator needs what each of them knows
    adoption   a node whose parent is dead is adopted by the next live node above it, or by one of
               its siblings if there is none: everybody who lives is reached
 4. Gossip relays at once: a process sends the message to `targets` others, drawn by chance, when it
    first has it. It writes nothing to disk.

It does not say how long adoption takes: that depends on the suspicion limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ordercast.errors import UsageError

MOST_NODES = 1 << 24
MOST_FAN_OUT = 1 << 12
MOST_TARGETS = 64
SPREAD = 0.3
"""The deviation of the logarithm of a delay: nine of ten are from 0.6 to 1.6 of the middle one."""
CHUNK = 1 << 18

Floats: TypeAlias = npt.NDArray[np.float32]
Flags: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]


class TreeJourney(msgspec.Struct, frozen=True, kw_only=True):
    """A message's journey. UsageError says what cannot be."""

    nodes: int
    fan_out: int
    dead: float = 0.01  # share of the nodes
    delay: float = 0.05  # seconds, the middle one
    sync: float = 0.004
    targets: int = 15  # of one process, in gossip
    seed: int = 1

    def __post_init__(self) -> None:
        _between("nodes", self.nodes, 2, MOST_NODES)
        _between("fan-out", self.fan_out, 1, min(MOST_FAN_OUT, self.nodes - 1))
        _between("gossip targets", self.targets, 1, min(MOST_TARGETS, self.nodes - 1))
        _between("seed", self.seed, 0, (1 << 63) - 1)
        if not 0 <= self.dead < 1:
            raise UsageError(f"the share of dead nodes must be from 0 to below 1, not {self.dead}")
        for name, value in (("delay", self.delay), ("sync", self.sync)):
            if not 0 <= value <= 3600:
                raise UsageError(f"{name} must be from nothing to an hour, not {value} s")
        if self.fan_out == 1 and self.nodes > 1 << 16:
            raise UsageError("a tree with a fan-out of 1 is a chain: give at most 65536 nodes")


class Percentiles(msgspec.Struct, frozen=True):
    p50: float
    p99: float
    all: float


class TreeSpread(msgspec.Struct, frozen=True):
    levels: int  # below the root
    hops_mean: float
    hops_most: int
    seconds: Percentiles
    sends_most: int  # of one message, by one node
    inner_share: float  # of the nodes: those that have children, and so send


class DeadSpread(msgspec.Struct, frozen=True):
    """What a share of dead nodes does."""

    plain: float  # share of those who live that is not reached
    published: float
    adopted: int  # nodes whose parent is dead, and which are adopted
    most_adopted: int  # by one node, if all of them ask the next one above them


class GossipSpread(msgspec.Struct, frozen=True):
    seconds: Percentiles
    missed: int  # processes
    sends: int  # of one message, by one process
    most_received: int  # copies of one message, at one process


def _between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UsageError(f"{name} must be {least} to {most}, not {value}")


def spread(journey: TreeJourney) -> TreeSpread:
    """A message of a node drawn by chance, while everybody lives."""
    draw = np.random.default_rng([journey.seed, 1])
    origin = int(draw.integers(journey.nodes))
    edges = _delays(draw, journey, journey.nodes)
    hops = np.zeros(journey.nodes, np.int32)
    times = np.zeros(journey.nodes, np.float32)
    times[origin] = journey.sync
    on_way = list(_upwards(origin, journey.fan_out))
    for below, above in on_way:
        hops[above] = hops[below] + 1
        times[above] = times[below] + edges[below] + journey.sync
    known = {origin, *(above for _, above in on_way)}
    for first, last in _levels(journey):
        nodes = _without(np.arange(first, last), known)
        parents = (nodes - 1) // journey.fan_out
        hops[nodes] = hops[parents] + 1
        times[nodes] = times[parents] + edges[nodes] + np.float32(journey.sync)
    others = np.delete(times, origin)
    inner = (journey.nodes - 2) // journey.fan_out + 1  # those with a child
    return TreeSpread(
        levels=len(list(_levels(journey))),
        hops_mean=float(hops.sum(dtype=np.int64)) / (journey.nodes - 1),
        hops_most=int(hops.max()),
        seconds=_percentiles(others),
        sends_most=journey.fan_out + (0 if inner == 1 else 1),
        inner_share=inner / journey.nodes,
    )


def spread_past_dead(journey: TreeJourney, draws: int = 8) -> DeadSpread:
    """The same while a share of the nodes is dead: means over several draws of dead and origin."""
    draw = np.random.default_rng([journey.seed, 2])
    plain_missed = published_missed = orphans = most = 0.0
    for _ in range(draws):
        origin = int(draw.integers(journey.nodes))
        alive = draw.random(journey.nodes, np.float32) >= journey.dead
        alive[origin] = True
        plain, published = _reached(journey, origin, alive)
        live = int(alive.sum())
        plain_missed += 1 - int(plain[alive].sum()) / live
        published_missed += 1 - int(published[alive].sum()) / live
        here, at_one = _adopted(journey, alive)
        orphans += here
        most = max(most, at_one)
    return DeadSpread(
        plain=plain_missed / draws,
        published=published_missed / draws,
        adopted=round(orphans / draws),
        most_adopted=int(most),
    )


def gossip(journey: TreeJourney) -> GossipSpread:
    """Gossip of one message to as many processes, all of which live."""
    count = journey.nodes
    times = np.full(count, np.inf, np.float32)
    received = np.zeros(count, np.int32)
    origin = int(np.random.default_rng([journey.seed, 3]).integers(count))
    times[origin] = 0
    # Each process has its targets and delays once, so a shorter way that is found later is the same
    # message. Those that have it soonest relay first: few are found to have had it sooner still.
    waiting = np.zeros(count, bool)  # its time has changed since it relayed
    relayed = np.zeros(count, bool)
    waiting[origin] = True
    until = np.float32(0)
    while waiting.any():
        until = max(until, times[waiting].min()) + np.float32(journey.delay / 3)
        while len(now := np.flatnonzero(waiting & (times <= until))):
            waiting[now] = False
            for start in range(0, len(now), CHUNK):
                senders = now[start : start + CHUNK]
                targets, delays = relays_of(journey, senders)
                np.add.at(received, targets[~relayed[senders]].ravel(), 1)
                relayed[senders] = True
                arrivals = (times[senders, None] + delays).ravel()
                targets = targets.ravel()
                sooner = arrivals < times[targets]
                targets = targets[sooner]
                np.minimum.at(times, targets, arrivals[sooner])
                waiting[targets] = True
    reached = np.isfinite(times)
    others = np.delete(times[reached], int(np.flatnonzero(reached).searchsorted(origin)))
    return GossipSpread(
        seconds=_percentiles(others),
        missed=count - int(reached.sum()),
        sends=journey.targets,
        most_received=int(received.max()),
    )


# --- the tree ----------------------------------------------------------------------------------


def _levels(journey: TreeJourney) -> Iterator[tuple[int, int]]:
    """First and one beyond the last node of each level below the root."""
    first, width = 1, journey.fan_out
    while first < journey.nodes:
        yield first, min(first + width, journey.nodes)
        first, width = first + width, width * journey.fan_out


def _upwards(origin: int, fan_out: int) -> Iterator[tuple[int, int]]:
    """Each node on the way from the origin to the root, with its parent."""
    node = origin
    while node:
        parent = (node - 1) // fan_out
        yield node, parent
        node = parent


def _without(nodes: Numbers, known: set[int]) -> Numbers:
    keep = np.ones(len(nodes), bool)
    for one in known:
        if nodes[0] <= one <= nodes[-1]:
            keep[one - nodes[0]] = False
    return nodes[keep]


def _delays(draw: np.random.Generator, journey: TreeJourney, count: int) -> Floats:
    normal = draw.standard_normal(count, np.float32)
    delays: Floats = np.exp(np.float32(SPREAD) * normal) * np.float32(journey.delay)
    return delays


def _reached(journey: TreeJourney, origin: int, alive: Flags) -> tuple[Flags, Flags]:
    """Through whom the message comes in the plain tree, and by the published diffusion."""
    passed = alive.copy()  # by the diffusion: dead ones too, if all their correspondents live
    parents = (np.arange(1, journey.nodes) - 1) // journey.fan_out
    dead_children = np.bincount(parents[~alive[1:]], minlength=journey.nodes)
    dead = np.flatnonzero(~alive)
    above_lives = alive[(np.maximum(dead, 1) - 1) // journey.fan_out] | (dead == 0)
    passed[dead] = above_lives & (dead_children[dead] == 0)
    return _passing(journey, origin, alive), _passing(journey, origin, passed)


def _passing(journey: TreeJourney, origin: int, lets: Flags) -> Flags:
    """Who gets the message, if these let it pass."""
    reached = np.zeros(journey.nodes, bool)
    reached[origin] = True
    known = {origin}
    for below, above in _upwards(origin, journey.fan_out):
        reached[above] = reached[below] and lets[above]
        known.add(above)
    for first, last in _levels(journey):
        nodes = _without(np.arange(first, last), known)
        reached[nodes] = reached[(nodes - 1) // journey.fan_out] & lets[nodes]
    return reached


def _adopted(journey: TreeJourney, alive: Flags) -> tuple[int, int]:
    """How many live nodes have a dead parent, and how many of them have the same live ancestor."""
    nearest = np.full(journey.nodes, -1, np.int64)  # the nearest ancestor that lives; -1: none
    for first, last in _levels(journey):
        nodes = np.arange(first, last)
        parents = (nodes - 1) // journey.fan_out
        nearest[nodes] = np.where(alive[parents], parents, nearest[parents])
    nodes = np.arange(1, journey.nodes)
    orphans = nodes[alive[nodes] & ~alive[(nodes - 1) // journey.fan_out]]
    adopters = nearest[orphans]
    adopters = adopters[adopters >= 0]
    most = int(np.bincount(adopters).max()) if len(adopters) else 0
    return len(orphans), most


# --- gossip ------------------------------------------------------------------------------------

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)


def relays_of(journey: TreeJourney, senders: Numbers) -> tuple[Numbers, Floats]:
    """The targets of these processes, and how long the message takes to each of them.

    Drawn from a hash of the process, so they are the same whenever they are asked for. Two of the
    targets of a process may be the same, which costs it one of them: in large groups, hardly ever.
    """
    seed = np.uint64(journey.seed * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
    own = senders.astype(np.uint64)[:, None] * np.uint64(MOST_TARGETS)
    words = _mixed(own + (np.arange(journey.targets, dtype=np.uint64) + seed))
    others = np.uint64(journey.nodes - 1)
    steps = (words >> _HALF) * others >> _HALF  # 0 to nodes - 2
    targets = (senders[:, None] + 1 + steps.astype(np.int64)) % journey.nodes
    # A normal number from two uniform ones.
    first = ((words & np.uint64(0xFFFF_FFFF)).astype(np.float32) + np.float32(1)) / 2**32
    second = (_mixed(words) >> _HALF).astype(np.float32) / 2**32
    normal = np.sqrt(-2 * np.log(np.minimum(first, 1))) * np.cos(2 * np.pi * second)
    delays = np.exp(np.float32(SPREAD) * normal) * np.float32(journey.delay)
    return targets, delays.astype(np.float32)


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = words + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def _percentiles(times: Floats) -> Percentiles:
    if not len(times):
        return Percentiles(0.0, 0.0, 0.0)
    p50, p99, most = np.percentile(times, [50, 99, 100])
    return Percentiles(float(p50), float(p99), float(most))

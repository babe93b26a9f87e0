"""Whom gossip is sent to: how even, how quick and how dear full and partial knowledge are.

Counts of a seeded run, not times: the same on every machine. Rounds stand for hops in the network:
what is sent in a round arrives in it, or, in the lossy rows, late by one or never.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, median, pstdev

import msgspec
from tests.protocol.cluster.rounds import Make, Town

from bench.table import Table
from ordercast.protocol.cluster.cyclon import Cyclon
from ordercast.protocol.cluster.lpbcast import Lpbcast
from ordercast.protocol.cluster.sampler import Everybody

SIZES = (100, 1000)
VIEW = 20
FAN_OUT = 4
RELAYS = 6
WARM_UP = 60
LOSSY = (0.1, 0.3)  # of all letters: lost, and late by a round
GOSSIPS = 10
JOINERS = 7
MOST = 100


def measure() -> list[Table]:
    rows = []
    for size in SIZES:
        names = [f"n{number}" for number in range(size)]
        makers: tuple[tuple[str, Make], ...] = (
            ("everybody", lambda me, _, chance, names=names: Everybody(me, names, chance)),
            ("lpbcast", lambda me, contacts, chance: Lpbcast(me, contacts, chance, VIEW)),
            ("cyclon", lambda me, contacts, chance: Cyclon(me, contacts, chance, VIEW)),
        )
        for loss, late in ((0, 0), LOSSY):
            for label, make in makers:
                town = Town(make, 1, fan_out=FAN_OUT, loss=loss, late=late).found(size)
                lossy = " lossy" if loss else ""
                rows.append((f"{label}{lossy}", f"{size:,}", *_figures(town, label != "everybody")))
    columns = (
        *("", "members", "in-degree", "least", "max/mean", "cv", "reached"),
        *("joiner", "crashed tenth", "bytes a round"),
    )
    note = (
        f"View {VIEW}, fan-out {FAN_OUT}; by how many a member is known (cv: deviation/mean); share"
        f" that a gossip of {RELAYS} relay rounds reaches; rounds until 9 of 10 that know a member"
        " on average know a joiner, and until nobody knows any of a tenth that crashed; bytes of"
        f" membership that a member sends. Lossy: {LOSSY[0]:.0%} lost, {LOSSY[1]:.0%} late."
    )
    return [Table("Samplers", columns, rows, note)]


def _figures(town: Town, partial: bool) -> tuple[str, ...]:
    town.run(WARM_UP if partial else 0)
    degrees = town.in_degrees() if partial else [len(town.members) - 1]
    average = mean(degrees)
    sent = _bytes_a_round(town)
    reached = mean(_reached(town) for _ in range(GOSSIPS)) / len(town.members)
    evenness = (
        f"{average:.1f}",
        str(min(degrees)),
        f"{max(degrees) / average:.2f}",
        f"{pstdev(degrees) / average:.2f}",
        f"{reached:.2%}",
    )
    if not partial:
        return (*evenness, "-", "-", f"{sent:.0f}")
    joined = _joined(town, 0.9 * average)
    return (*evenness, f"{joined:.0f}", _forgotten(town), f"{sent:.0f}")


def _bytes_a_round(town: Town) -> float:
    encode: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode
    town.weigh, town.bytes = lambda roster: len(encode(roster)), 0
    town.run(3)
    town.weigh = None
    return town.bytes / 3 / len(town.members)


def _reached(town: Town) -> int:
    return town.spread(town.chance.choice(list(town.members)), RELAYS)


def _joined(town: Town, wanted: float) -> float:
    """The median of a few that come at once."""
    took: dict[str, int] = {}
    for number in range(JOINERS):
        town.join(f"joiner{number}", ["n0", "n1", "n2"])
        took[f"joiner{number}"] = MOST
    for count in range(MOST):
        for name, before in took.items():
            if before == MOST and town.knowers(name) >= wanted:
                took[name] = count
        if MOST not in took.values():
            break
        town.run(1)
    return median(took.values())


def _forgotten(town: Town) -> str:
    crashed = list(town.members)[5 : 5 + len(town.members) // 10]
    for name in crashed:
        town.crash(name)
    return str(town.run_until(lambda: not town.any_known(crashed), MOST))

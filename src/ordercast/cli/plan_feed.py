"""`ordercast plan feed`: what a tree of so many nodes costs, and how quick it is.

Computes how a message spreads over a tree of this size and fan-out, what a node sends for it, who
is not reached while some nodes are dead, the same for gossip, and the costs of other schemes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from rich import box
from rich.table import Table

from ordercast.cli import screen
from ordercast.errors import UsageError
from ordercast.studies.tree_costs import SchemeCosts, costs_of
from ordercast.units import SECOND, Duration

if TYPE_CHECKING:
    from ordercast.studies.tree_spread import (
        DeadSpread,
        GossipSpread,
        Percentiles,
        TreeJourney,
        TreeSpread,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    number = parser.add_argument
    number("--nodes", type=int, required=True, metavar="N", help="in the tree")
    number("--fan-out", type=int, default=32, metavar="N", help="children of a node (32)")
    number("--dead", type=float, default=0.01, metavar="P", help="share of dead nodes (0.01)")
    number("--delay", default="50ms", metavar="TIME", help="of an edge, the middle one (50ms)")
    number("--sync", default="4ms", metavar="TIME", help="until a message is on disk (4ms)")
    number("--targets", type=int, default=15, metavar="N", help="of a process that gossips (15)")
    number("--seed", type=int, default=1, help="of what is drawn (1)")
    number("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    try:
        from ordercast.studies import tree_spread
    except ModuleNotFoundError as error:
        needed = f'plan feed needs {error.name}: pip install "ordercast[spark]"'
        raise UsageError(needed) from error
    journey = tree_spread.TreeJourney(
        nodes=arguments.nodes,
        fan_out=arguments.fan_out,
        dead=arguments.dead,
        delay=_seconds("--delay", arguments.delay),
        sync=_seconds("--sync", arguments.sync),
        targets=min(arguments.targets, max(1, arguments.nodes - 1)),
        seed=arguments.seed,
    )
    tree = tree_spread.spread(journey)
    dead = tree_spread.spread_past_dead(journey)
    gossip = tree_spread.gossip(journey)
    costs = costs_of(journey.nodes, journey.fan_out, journey.targets)
    if arguments.json:
        fields = {"journey": journey, "tree": tree, "dead": dead, "gossip": gossip, "costs": costs}
        screen.json_line(msgspec.to_builtins(fields))
    else:
        _print(journey, tree, dead, gossip, costs)
    return 0


def _seconds(option: str, text: str) -> float:
    try:
        return Duration.parse(text) / SECOND
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def _print(
    journey: TreeJourney,
    tree: TreeSpread,
    dead: DeadSpread,
    gossip: GossipSpread,
    costs: list[SchemeCosts],
) -> None:
    out = screen.stdout()
    out.print(f"One message to {journey.nodes:,} nodes, all alive")
    out.print(_table(("", "tree", "gossip"), _spread_rows(tree, gossip)))
    out.print(f"The same while {_share(journey.dead)} of the nodes are dead")
    out.print(_table(("", "tree"), _dead_rows(dead)))
    out.print("On paper")
    columns = ("scheme", "numbers a node holds", "copies of a message", "bytes on each copy",
               "numbers to compare")  # fmt: skip
    out.print(_table(columns, map(_cost_row, costs)))
    out.print(_table(("scheme", "lost or out of order"), [(e.scheme, e.loses) for e in costs]))


def _spread_rows(tree: TreeSpread, gossip: GossipSpread) -> list[tuple[str, ...]]:
    hops = f"{tree.hops_mean:.1f}, at most {tree.hops_most}"
    load = f"{tree.sends_most} at {_share(tree.inner_share)} of the nodes, else 1"
    return [
        ("hops", hops, ""),
        ("reaches half, 99 %, all", _times(tree.seconds), _times(gossip.seconds)),
        ("not reached", "0", f"{gossip.missed:,}"),
        ("sent by a node, at most", load, f"{gossip.sends}"),
        ("copies that come to a node, at most", "1", f"{gossip.most_received}"),
    ]


def _dead_rows(dead: DeadSpread) -> list[tuple[str, ...]]:
    return [
        ("not reached by a tree without repair", _share(dead.plain)),
        ("not reached by the published diffusion", _share(dead.published)),
        ("not reached where orphans are adopted", "0 %"),
        ("orphans", f"{dead.adopted:,}"),
        ("orphans that ask one node, at most", f"{dead.most_adopted:,}"),
    ]


def _cost_row(costs: SchemeCosts) -> tuple[str, ...]:
    numbers = (costs.state, costs.copies, costs.stamp, costs.repair)
    return costs.scheme, *(f"{number:,}" for number in numbers)


def _table(names: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for at, name in enumerate(names):
        is_words = not at or name.startswith("lost")
        table.add_column(name, justify="left" if is_words else "right", no_wrap=is_words)
    for row in rows:
        table.add_row(*row)
    return table


def _times(seconds: Percentiles) -> str:
    return f"{seconds.p50:.2f}, {seconds.p99:.2f}, {seconds.all:.2f} s"


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"

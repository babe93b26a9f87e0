"""What propagation costs on paper: state of a node and traffic of a message, scheme by scheme.

The schemes are those that Adly and Kumar (HPP, 1994) compare theirs with. Their Table 1 gives the
sizes of HPP's own variables; of the others they say what grows with what, and the numbers here are
the least that this allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

ENTRY_BYTES = 8
"""Of one entry of a vector: a number."""


class Tree(NamedTuple):
    nodes: int
    fan_out: int
    feeds: int  # that a node takes in schemes without a tree


class SchemeCosts(msgspec.Struct, frozen=True):
    scheme: str
    state: int  # numbers that a node holds, besides the messages
    copies: int  # of one message, that are sent to reach all nodes
    stamp: int  # bytes on each copy, besides the message and its number
    repair: int  # numbers that two neighbours exchange when one was away, nothing being missing
    loses: str  # a message can be lost or come before its original, and when


class Scheme(NamedTuple):
    name: str
    state: Callable[[Tree], int]
    copies: Callable[[Tree], int]
    stamp: Callable[[Tree], int]
    repair: Callable[[Tree], int]
    loses: str


def _published_state(tree: Tree) -> int:
    n = tree.fan_out
    view, vectors, queues = (n + 2) * (n + 1), 2 * (n + 3) + n, 2 * (n + 1)
    return view + vectors + queues + tree.nodes  # Table 1, MV among them


def _once(tree: Tree) -> int:
    return tree.nodes - 1


SCHEMES = (
    Scheme(
        name="feed",
        # The last number of each origin, and for each correspondent a name, a log, a session, a
        # cursor, and what it has acknowledged.
        state=lambda tree: tree.nodes + 5 * (tree.fan_out + 1),
        copies=_once,
        stamp=lambda tree: 0,
        repair=lambda tree: 2,
        loses="never, while the disk of its origin is there",
    ),
    Scheme(
        name="HPP as published",
        state=_published_state,
        copies=_once,
        stamp=lambda tree: 0,
        repair=lambda tree: 2 * (tree.fan_out + 3),
        loses="when a failure meets a reply, a move or another failure",
    ),
    Scheme(
        name="HARP",
        state=lambda tree: 2 * tree.nodes,  # a vector for all nodes, of itself and of its cluster
        copies=_once,
        stamp=lambda tree: 0,
        repair=lambda tree: tree.nodes,
        loses="never",
    ),
    Scheme(
        name="ISIS, causal",
        state=lambda tree: tree.nodes,
        copies=_once,
        stamp=lambda tree: tree.nodes * ENTRY_BYTES,
        repair=lambda tree: tree.nodes,
        loses="never; the view of the group is agreed by all",
    ),
    Scheme(
        name="Usenet, two feeds",
        state=lambda tree: tree.feeds,
        copies=lambda tree: tree.feeds * (tree.nodes - 1),
        stamp=lambda tree: 0,
        repair=lambda tree: 0,
        loses="when both feeds are down, or have deleted it; replies in any order",
    ),
    Scheme(
        name="gossip",
        state=lambda tree: tree.feeds,
        copies=lambda tree: tree.feeds * tree.nodes,
        stamp=lambda tree: 0,
        repair=lambda tree: 0,
        loses="with a small chance; replies in any order",
    ),
)


def costs_of(nodes: int, fan_out: int, targets: int) -> list[SchemeCosts]:
    """Of every scheme."""
    found = []
    for scheme in SCHEMES:
        tree = Tree(nodes, fan_out, targets if scheme.name == "gossip" else 2)
        found.append(
            SchemeCosts(
                scheme.name,
                scheme.state(tree),
                scheme.copies(tree),
                scheme.stamp(tree),
                scheme.repair(tree),
                scheme.loses,
            )
        )
    return found

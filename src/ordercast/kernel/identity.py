"""Which incarnation bears a name: what processes know of each other's numbers, and what follows.

A number counts the incarnations of a name. The folder of a process remembers the last one; a
process whose folder is empty asks, and if nobody knows its name it draws a number: so two
incarnations that know nothing of each other have different numbers, and different event numbers.

Rules.
 1. The newest incarnation of a name that we know is the one that we talk to.
 2. Processes that meet tell each other whom they know. A process that hears of a newer incarnation
    of its own name abandons its own, and opens as a newer one still: it never renumbers itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from ordercast.types import INCARNATION_BITS, NodeId

DRAWN_BITS = 20
SKIPPED_BITS = 10
assert DRAWN_BITS < INCARNATION_BITS


class Acquaintances:
    """The newest incarnation of every name that a process has heard of."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[str, NodeId] = {}

    def newer_than(self, node: NodeId) -> NodeId | None:
        known = self.known.get(node.name)
        return known if known is not None and known.incarnation > node.incarnation else None

    def note(self, nodes: Iterable[NodeId]) -> None:
        for node in nodes:
            if self.newer_than(node) is None:
                self.known[node.name] = node


def first_incarnation(
    name: str, reported: Iterable[NodeId | None], is_sure: bool, chance: Random
) -> NodeId:
    """Of a process whose folder is empty: above what others report, or drawn.

    Sure: everybody that anybody knows has answered. If not, somebody may have met a newer one than
    was reported: so a few numbers are skipped, and none is used twice but by rare chance.
    """
    numbers = [node.incarnation for node in reported if node is not None]
    if not numbers:
        return NodeId(name, 1 + chance.getrandbits(DRAWN_BITS))
    return NodeId(name, max(numbers) + 1 + (0 if is_sure else chance.getrandbits(SKIPPED_BITS)))

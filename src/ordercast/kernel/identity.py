"""Which incarnation bears a name: what processes know of each other's numbers, and what follows.

A number counts the incarnations of a name. The folder of a process remembers the last one; a
process whose folder is empty asks, and if nobody knows its name it draws a number: so two
incarnations that know nothing of each other have different numbers, and different event numbers.

No number is used twice, but by rare chance. A number could be taken again if no process that
answers has met it. There are three such numbers, and each has a remedy:
  - One that the lost folder had counted, and that nobody has met, or only processes that have
    restarted since. So a few numbers above the newest are left out.
  - One that was taken when a folder was empty, and lost again before anybody met it. So a process
    tells those that answered which number it takes.
  - One that only a process knows that does not answer. So more numbers are skipped, by chance.

No number can be taken back, and a report may be false. So one process alone is believed only so
far: as far as numbers are drawn, or as far as is known already, and then a sixteenth of the numbers
that are left (`believed`). A true report that goes further is followed in several steps. Two
processes that say the same are believed. What is skipped gets less as numbers run out.

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
COUNTED = 8
"""Numbers above the newest that others know of are left out: a folder may have counted them."""
SURE_BITS, UNSURE_BITS = 3, 10
"""As many more may be skipped, by chance: where everybody answered, and where somebody did not."""
assert DRAWN_BITS < INCARNATION_BITS
LAST = (1 << INCARNATION_BITS) - 1
"""The highest number that there is."""
BELIEVED_SHARE = 16
"""One process alone can make a name skip so large a part of the numbers that are left."""
SKIPPED_BITS = 11
"""A lost folder skips at most one in so many (as a power of two) of the numbers that are left."""


class Acquaintances:
    """The newest incarnation of every name that a process has heard of."""

    __slots__ = ("known", "taken")

    def __init__(self) -> None:
        self.known: dict[str, NodeId] = {}
        # By name: what a process with an empty folder said that it takes. It may never open, so
        # nobody is outdated by it.
        self.taken: dict[str, NodeId] = {}

    def newer_than(self, node: NodeId) -> NodeId | None:
        known = self.known.get(node.name)
        return known if known is not None and known.incarnation > node.incarnation else None

    def report(self, name: str) -> NodeId | None:
        """What to say to a process of this name whose folder is empty."""
        known, taken = self.known.get(name), self.taken.get(name)
        return max((one for one in (known, taken) if one is not None), default=None)

    def note(self, nodes: Iterable[NodeId]) -> None:
        for node in nodes:
            if self.newer_than(node) is None:
                self.known[node.name] = node


def most_believed(known: int) -> int:
    """Up to which number one process alone is believed, where the name is known to have used this
    one."""
    known = max(known, 1 << DRAWN_BITS)
    return known + (LAST - known) // BELIEVED_SHARE


def believed(numbers: Iterable[int], known: int = 0) -> int:
    """The highest of the numbers that as many processes report, as far as it is believed."""
    highest, second = sorted([0, 0, *numbers])[:-3:-1]
    return min(highest, most_believed(max(known, second)))


def first_incarnation(
    name: str, reported: Iterable[NodeId | None], is_sure: bool, chance: Random, known: int = 0
) -> NodeId:
    """Of a process whose folder is empty, or whose last number is `known`: above what others
    report, each of them once, or drawn.

    Sure: everybody that anybody knows has answered. If not, somebody may have met a newer one than
    was reported.
    """
    numbers = [node.incarnation for node in reported if node is not None]
    if not numbers:
        return NodeId(name, 1 + chance.getrandbits(DRAWN_BITS))
    newest = max(known, believed(numbers, known))
    skipped = COUNTED + chance.getrandbits(SURE_BITS if is_sure else UNSURE_BITS)
    most = max(1, (LAST - newest) >> SKIPPED_BITS)
    return NodeId(name, min(newest + min(skipped, most), LAST))

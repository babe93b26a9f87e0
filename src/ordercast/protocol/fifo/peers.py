"""The other members of a group: whether they hear us, fall silent, return, leave or restart.

Rules.
 1. A peer is connected while we hear it and it reports that it hears us. Heartbeats prove both
    directions, so a network cut of one direction counts as a cut of both.
 2. Silence is counted in our own heartbeats, never in clock time: a member that was stalled itself
    counts nothing for that time, and suspects nobody.
 3. A member that restarted, as a new incarnation of the same name, is not answered at once. First
    the other members relay to each other what they have of its earlier incarnation. The new one
    cannot send before it is answered, so its events come after the earlier ones. After half the
    suspicion limit it is answered in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum

from ordercast.types import NodeId


class Standing(Enum):
    """Whether the newest incarnation of a peer takes part.

    | standing | it hears us  | its event | it is silent | it leaves | a new incarnation |
    |----------|--------------|-----------|--------------|-----------|-------------------|
    | EXPECTED | PRESENT *    | PRESENT   | AWAY **      | LEFT      | EXPECTED          |
    | PRESENT  | -            | -         | AWAY         | LEFT      | EXPECTED          |
    | AWAY     | PRESENT *    | PRESENT   | -            | LEFT      | EXPECTED          |
    | LEFT     | ignored ***  | PRESENT   | -            | -         | EXPECTED          |

    * not while it is unanswered after a restart (rule 3)
    ** when the time to form the group is over
    *** heartbeats are datagrams, and may arrive after the `Leave`
    """

    EXPECTED = "expected"  # not connected yet
    PRESENT = "present"  # our events go to it, and we wait for its acknowledgements
    AWAY = "away"  # silent for too long; what it misses is retained for its return
    LEFT = "left"  # nobody waits for it, and nothing is retained for it


PRESENT = Standing.PRESENT  # looked up for every packet


class Peer:
    """One name of the group."""

    __slots__ = (
        "answer_in",
        "full",
        "hears",
        "name",
        "node",
        "received",
        "silent",
        "standing",
        "unheard",
        "was_restarted",
    )

    def __init__(self, name: str, node: NodeId | None = None, answer_in: int = 0) -> None:
        self.name = name
        self.node = node  # the newest incarnation that we heard of; None: none yet
        self.was_restarted = answer_in > 0  # we knew an earlier incarnation
        self.answer_in = answer_in  # own heartbeats until we answer it in any case; 0: we do
        self.standing = Standing.EXPECTED
        self.silent = 0  # own heartbeats since we last heard it
        self.unheard = 0  # own heartbeats since it last reported that it hears us
        self.received: dict[NodeId, int] = {}  # how far it reports to have received each stream
        self.hears: frozenset[NodeId] = frozenset()  # whom it reports to hear; never iterated
        self.full = False  # it reports that its application cannot take more

    def tick(self, silence_ticks: int) -> None:
        """One more of our heartbeats has passed. Beyond the limits nothing is counted."""
        self.silent = min(self.silent + 1, silence_ticks)
        self.unheard = min(self.unheard + 1, silence_ticks + silence_ticks // 2)

    def proves_contact(self) -> None:
        """It reported or showed that it hears us."""
        self.unheard = 0

    def note_received(self, received: list[tuple[NodeId, int]], each: int, most: int) -> None:
        """Notes what it reports to have received.

        Beyond `most` streams only the last `each` incarnations of every name are remembered.
        """
        for origin, up_to in received:
            if up_to >= self.received.get(origin, 0):
                self.received[origin] = up_to
        if len(self.received) > most:
            remembered: dict[NodeId, int] = {}
            seen: Counter[str] = Counter()
            for origin in sorted(self.received, reverse=True):
                seen[origin.name] += 1
                if seen[origin.name] <= each:
                    remembered[origin] = self.received[origin]
            self.received = remembered

    def is_heard(self, silence_ticks: int) -> bool:
        """Whether we report that we hear it: for half the limit, so that others learn in time."""
        return self.node is not None and not self.answer_in and self.silent <= silence_ticks // 2

    def is_lost(self, silence_ticks: int) -> bool:
        """Silent for too long, or deaf to us for as long as it would take it to notice."""
        return self.silent >= silence_ticks or self.unheard >= silence_ticks + silence_ticks // 2


class Peers:
    """All other members, and who of them is present."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.by_name = {name: Peer(name) for name in names}
        self.present: tuple[NodeId, ...] = ()  # the incarnations of the present peers, by name
        self.is_any_away = bool(names)  # some may return: what they miss is retained

    def __iter__(self) -> Iterator[Peer]:
        return iter(self.by_name.values())

    def set_standing(self, peer: Peer, standing: Standing) -> None:
        peer.standing = standing
        self._update()

    def replace(self, peer: Peer) -> None:
        """A new incarnation takes the place of an earlier one."""
        self.by_name[peer.name] = peer
        self._update()

    def _update(self) -> None:
        self.present = tuple(one.node for one in self if one.standing is PRESENT and one.node)
        self.is_any_away = any(one.standing not in (PRESENT, Standing.LEFT) for one in self)

    def is_present(self, node: NodeId) -> bool:
        peer = self.by_name.get(node.name)
        return peer is not None and peer.standing is PRESENT and peer.node == node

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
 4. In an open group a peer is whoever we have heard, or whom a member that welcomed us named. One
    that is away or has left, and is silent, is dropped after ten suspicion limits. If it comes
    back later, it is a newcomer, like one that was never there.
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


LIMITS_REMEMBERED = 10
"""Suspicion limits after which an open group drops a peer that is gone."""

PRESENT = Standing.PRESENT  # looked up for every packet


class Peer:
    """One name of the group."""

    __slots__ = (
        "absent",
        "answer_in",
        "full",
        "has_begun",
        "has_view",
        "hears",
        "members",
        "members_away",
        "name",
        "named",
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
        self.absent = 0  # open groups: own heartbeats for which it was not present, and silent
        self.members: tuple[NodeId, ...] = ()  # open groups: its roster
        self.members_away: tuple[NodeId, ...] = ()  # open groups: and whose return it awaits
        self.has_view = False  # open groups: and whether that is its view
        self.has_begun = False  # open groups: its stream has begun here
        # Open groups: its incarnation that was a member before us, by the rosters of the members
        # that welcomed us.
        self.named: NodeId | None = None

    def tick(self, silence_ticks: int) -> None:
        """One more of our heartbeats has passed. Beyond the limits nothing is counted."""
        self.silent = min(self.silent + 1, silence_ticks)
        self.unheard = min(self.unheard + 1, silence_ticks + silence_ticks // 2)

    def is_forgotten(self, silence_ticks: int, is_awaited: bool) -> bool:
        """Open groups: whether it is dropped. Asked once for each of our heartbeats.

        Awaited: another member lacks events of it, which takes longer only if that member is slow.
        """
        is_gone = self.standing is not PRESENT and self.silent >= silence_ticks
        self.absent = self.absent + 1 if is_gone else 0
        limits = LIMITS_REMEMBERED * (10 if is_awaited else 1)
        return self.absent >= limits * silence_ticks

    def proves_contact(self) -> None:
        """It reported or showed that it hears us."""
        self.unheard = 0

    def note_received(self, received: list[tuple[NodeId, int]], each: int, most: int) -> None:
        """Notes what it reports to have received.

        Beyond `most` streams only the last `each` incarnations of every name are remembered.
        """
        known = self.received
        for origin, up_to in received:
            if up_to >= known.get(origin, 0):
                known[origin] = up_to
        if len(known) > most:
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

    def __init__(self, names: tuple[str, ...], is_open: bool = False) -> None:
        self.by_name = {name: Peer(name) for name in names}
        self.is_open = is_open
        self.is_forming = is_open  # open groups: we have no view yet
        self.present: tuple[NodeId, ...] = ()  # the incarnations of the present peers, by name
        self.is_any_away = is_open or bool(names)  # some may return: what they miss is retained

    def __iter__(self) -> Iterator[Peer]:
        return iter(self.by_name.values())

    def set_standing(self, peer: Peer, standing: Standing) -> None:
        peer.standing = standing
        self._update()

    def replace(self, peer: Peer) -> None:
        """A new incarnation takes the place of an earlier one."""
        self.by_name[peer.name] = peer
        self._update()

    def drop(self, name: str) -> None:
        """It is no peer any more."""
        del self.by_name[name]
        self._update()

    def forget_reports(self, name: str) -> None:
        """What peers report about a name that we do not know any more."""
        for peer in self:
            for origin in [origin for origin in peer.received if origin.name == name]:
                del peer.received[origin]

    def formed(self) -> None:
        """We have a view: from now on only what a peer that was present misses is retained."""
        self.is_forming = False
        self._update()

    def _update(self) -> None:
        self.present = tuple(one.node for one in self if one.standing is PRESENT and one.node)
        if self.is_open:
            self.is_any_away = self.is_forming or any(one.standing is Standing.AWAY for one in self)
        else:
            self.is_any_away = any(one.standing not in (PRESENT, Standing.LEFT) for one in self)

    @property
    def away(self) -> tuple[NodeId, ...]:
        """Whose return is awaited, of those that we have met. What others name is not passed on:
        it would never be forgotten."""
        return tuple(one.node for one in self if one.standing is Standing.AWAY and one.node)

    def is_newcomer(self, peer: Peer) -> bool:
        """Whether it was never present since we have a view, nor named when we got it: then it is
        owed what is sent from now on."""
        return self.is_open and not self.is_forming and peer.standing is Standing.EXPECTED

    def is_present(self, node: NodeId) -> bool:
        peer = self.by_name.get(node.name)
        return peer is not None and peer.standing is PRESENT and peer.node == node

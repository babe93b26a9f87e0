"""Presence: which members a cluster without views has, as precisely as gossip can tell.

Rules.
 1. Names travel with ages (partial_view.py): how many rounds ago the member itself last sent. A
    name of which anything is heard is a member.
 2. A member that said farewell has left. An age from before that does not bring it back.
 3. A higher incarnation of a name replaces the lower one.
 4. A member of which no younger age comes for long is silent, and counts as gone. How long depends
    on how many there are: a round brings news of a few members only.

So members see one that crashed go at different times, and one that is only cut off go and come
back. Nothing is sent for it, and nothing depends on it.

What it does not do: doubt what members send. Invented names count until they are silent. Beyond
`MOST_PRESENT` no new one counts, so they cannot push out members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from ordercast.types import Joined, Left, NodeId

MOST_PRESENT = 4096
MOST_GONE = 256
"""Members that left or were silent, of which old news is not believed."""
UNDERWAY = 2
"""Rounds that a roster may be underway."""
NEWS_A_ROUND = 5
"""Other members of which a round brings news, about."""
CERTAINTY = 4
"""How many times longer than news of a member takes on average it may be silent."""


class Presence:
    """Who is there, as one member sees it. Each method returns what changed."""

    def __init__(self, me: NodeId, group: str, silence: int) -> None:
        """`silence`: rounds after which a member is taken for gone, at the least."""
        self._me = me
        self._group = group
        self._silence = silence
        self._now = 0
        self._spoke: dict[str, tuple[NodeId, int]] = {}  # in which round, of ours
        self._gone: dict[str, tuple[NodeId, int]] = {}

    def __len__(self) -> int:
        """Ourselves not included."""
        return len(self._spoke)

    def members(self) -> list[NodeId]:
        """Ourselves not included."""
        return [node for node, _ in self._spoke.values()]

    def has_heard(self, node: NodeId) -> bool:
        """Whether this member spoke in this round: that it spoke again changes nothing."""
        known = self._spoke.get(node.name)
        return known is not None and known[1] == self._now and known[0] is node

    def heard(self, here: Iterable[tuple[NodeId, int]]) -> list[Joined | Left]:
        """These members, so many rounds ago."""
        now, spoke_in = self._now, self._spoke
        news: list[Joined | Left] = []
        for node, age in here:
            name, spoke = node.name, now - age
            known = spoke_in.get(name)
            if known is None:
                if self._is_news(node, spoke):
                    spoke_in[name] = (node, spoke)
                    news.append(Joined(self._group, node))
            elif node.incarnation > known[0].incarnation:
                spoke_in[name] = (node, spoke)
                news += Left(self._group, known[0], "replaced"), Joined(self._group, node)
            elif spoke > known[1] and node == known[0]:
                spoke_in[name] = (node, spoke)
        return news

    def _is_news(self, node: NodeId, spoke: int) -> bool:
        if node.name == self._me.name or len(self._spoke) >= MOST_PRESENT:
            return False
        if spoke < self._now - self._patience():
            return False
        gone = self._gone.get(node.name)
        return gone is None or (node.incarnation, spoke) > (gone[0].incarnation, gone[1])

    def left(self, gone: Iterable[tuple[NodeId, int]]) -> Iterator[Left]:
        """These members said farewell, so many rounds ago."""
        for node, age in gone:
            known = self._spoke.get(node.name)
            # One that came again after it had left has spoken since.
            left_at = self._now - age + UNDERWAY
            if known is not None and known[0] == node and known[1] <= left_at:
                yield self._goes(node, "left")

    def round(self) -> Iterator[Left]:
        self._now += 1
        if self._now % max(1, self._silence // 8):
            return
        before = self._now - self._patience()
        for node, spoke in list(self._spoke.values()):
            if spoke < before:
                yield self._goes(node, "silent")

    def _patience(self) -> int:
        return max(self._silence, CERTAINTY * len(self._spoke) // NEWS_A_ROUND)

    def _goes(self, node: NodeId, why: Literal["left", "silent"]) -> Left:
        del self._spoke[node.name]
        self._gone.pop(node.name, None)
        # What it sent last may still be underway.
        self._gone[node.name] = (node, self._now + (UNDERWAY if why == "left" else 0))
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]
        return Left(self._group, node, why)

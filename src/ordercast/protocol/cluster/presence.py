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

from collections.abc import Iterable, Iterator, Sequence
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
        # By name the incarnation, and of each in which round, of ours, it last spoke. Two tables of
        # values that exist anyway: a member of a large group holds thousands.
        self._present: dict[str, NodeId] = {}
        self._spoke: dict[NodeId, int] = {}
        self._gone: dict[str, tuple[NodeId, int]] = {}

    def __len__(self) -> int:
        """Ourselves not included."""
        return len(self._present)

    def members(self) -> list[NodeId]:
        """Ourselves not included."""
        return list(self._present.values())

    def spoke(self, node: NodeId) -> Sequence[Joined | Left]:
        """This member, just now. Of one that is known there is no news: most packets cost that."""
        if node not in self._spoke:
            return self.heard([(node, 0)])
        self._spoke[node] = self._now
        return ()

    def heard(self, here: Iterable[tuple[NodeId, int]]) -> Sequence[Joined | Left]:
        """These members, so many rounds ago."""
        now, spoke_in = self._now, self._spoke
        news: list[Joined | Left] = []
        for node, age in here:
            before = spoke_in.get(node)
            if before is not None:
                if now - age > before:
                    spoke_in[node] = now - age
                continue
            known = self._present.get(node.name)
            if known is None:
                if not self._is_news(node, now - age):
                    continue
            elif node.incarnation > known.incarnation:
                del spoke_in[known]
                news.append(Left(self._group, known, "replaced"))
            else:
                continue
            self._present[node.name] = node
            spoke_in[node] = now - age
            news.append(Joined(self._group, node))
        return news

    def _is_news(self, node: NodeId, spoke: int) -> bool:
        present = len(self._spoke)
        if node.name == self._me.name or present >= MOST_PRESENT:
            return False
        # Most come as young as any member may be, and need no closer look.
        if self._now - spoke > self._silence and self._now - spoke > self._patience():
            return False
        if not self._gone:
            return True
        gone = self._gone.get(node.name)
        return gone is None or (node.incarnation, spoke) > (gone[0].incarnation, gone[1])

    def left(self, gone: Iterable[tuple[NodeId, int]]) -> Iterator[Left]:
        """These members said farewell, so many rounds ago."""
        for node, age in gone:
            spoke = self._spoke.get(node)
            # One that came again after it had left has spoken since.
            if spoke is not None and spoke <= self._now - age + UNDERWAY:
                yield self._goes(node, "left")

    def round(self) -> Iterator[Left]:
        self._now += 1
        if self._now % max(1, self._silence // 8):
            return
        before = self._now - self._patience()
        for node in self.members():
            if self._spoke[node] < before:
                yield self._goes(node, "silent")

    def _patience(self) -> int:
        return max(self._silence, CERTAINTY * len(self._spoke) // NEWS_A_ROUND)

    def _goes(self, node: NodeId, why: Literal["left", "silent"]) -> Left:
        del self._present[node.name], self._spoke[node]
        self._gone.pop(node.name, None)
        # What it sent last may still be underway.
        self._gone[node.name] = (node, self._now + (UNDERWAY if why == "left" else 0))
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]
        return Left(self._group, node, why)

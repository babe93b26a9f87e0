"""What a board lacks for ever: the gaps that its feed has told, and the posts that were in them."""

from __future__ import annotations

from collections import deque

from ordercast.board.keys import reference_of
from ordercast.kernel.wording import event_text
from ordercast.types import Gap

MOST_GAPS = 100
SHOWN_GAPS = 20


class LostPosts:
    """The last gaps; how many there were in all."""

    def __init__(self, most: int = MOST_GAPS) -> None:
        self._gaps: deque[Gap] = deque(maxlen=most)
        self.count = 0

    def add(self, gap: Gap) -> None:
        self._gaps.append(gap)
        self.count += 1

    def is_lost(self, key: str) -> bool:
        """Whether this post was in one of the last gaps."""
        post = reference_of(key)
        return any(
            (gap.origin, gap.birth) == post.stream and gap.after < post.number <= gap.up_to
            for gap in self._gaps
        )

    def sentences(self) -> list[str]:
        """The newest ones first."""
        return [sentence(gap) for gap in list(self._gaps)[: -SHOWN_GAPS - 1 : -1]]


def sentence(gap: Gap) -> str:
    if not gap.origin:
        return "an event is lost to this node, and nobody knows whose it was"
    last = event_text(gap.origin, gap.up_to)
    if not gap.after:
        return f"what {gap.origin} posted up to {last} is lost to this node"
    after = event_text(gap.origin, gap.after)
    return f"what {gap.origin} posted after {after}, up to {last}, is lost to this node"

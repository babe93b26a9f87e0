"""Stability: how far each follower of one numbered stream has acknowledged it.

What every follower has acknowledged is stable: no follower will ask for it again, and a member that
retains it for retransmission may discard it. The numbers may be counters, Newtop's order numbers or
log positions; they only have to grow.

What it does not do: decide which members follow. Members that leave or are excluded must be
unfollowed, or the stream is never stable again.
"""

from __future__ import annotations

from ordercast.types import NodeId


class Stability:
    """The acknowledgements of one stream. An acknowledgement never goes backwards."""

    __slots__ = ("_acknowledged", "_at_least", "_least")

    def __init__(self) -> None:
        self._acknowledged: dict[NodeId, int] = {}
        # The smallest acknowledgement and how many followers stand at it. It is searched anew
        # only after the last of them moved on, that is once in a round of acknowledgements.
        self._least = 0
        self._at_least = 0  # 0: `_least` is out of date

    def follow(self, follower: NodeId, up_to: int) -> None:
        """Adds a follower that has everything up to a number, or resets one, in its place."""
        self._left_behind(self._acknowledged.get(follower))
        self._acknowledged[follower] = up_to
        if self._at_least:
            if up_to < self._least:
                self._least = up_to
                self._at_least = 1
            elif up_to == self._least:
                self._at_least += 1

    def unfollow(self, follower: NodeId) -> None:
        """Waits for this follower no longer. A member that does not follow is ignored."""
        self._left_behind(self._acknowledged.pop(follower, None))

    def acknowledge(self, follower: NodeId, up_to: int) -> bool:
        """Notes that the follower has everything up to a number. True if that is news."""
        known = self._acknowledged.get(follower)
        if known is None or up_to <= known:
            return False
        self._acknowledged[follower] = up_to
        self._left_behind(known)
        return True

    def acknowledged(self, follower: NodeId) -> int | None:
        """How far this follower is; None: the member does not follow."""
        return self._acknowledged.get(follower)

    def stable_up_to(self, otherwise: int) -> int:
        """What every follower has, or `otherwise` if there are none."""
        if not self._acknowledged:
            return otherwise
        if not self._at_least:
            numbers = list(self._acknowledged.values())
            self._least = min(numbers)
            self._at_least = numbers.count(self._least)
        return self._least

    def behind(self, number: int) -> tuple[NodeId, ...]:
        """The followers that have not acknowledged this number, those that have least first."""
        lacking = [(up_to, one) for one, up_to in self._acknowledged.items() if up_to < number]
        return tuple(one for _, one in sorted(lacking))

    def _left_behind(self, number: int | None) -> None:
        """One follower no longer stands at this number."""
        if self._at_least and number == self._least:
            self._at_least -= 1

"""How soon a name that comes and goes is taken in again.

A newcomer stops its group for a moment: the group is re-formed. If the newcomer crashes then, it
stops the group for a suspicion limit more. A member that crashes in a loop would stop its group for
most of the time.

Rules.
 1. What counts is that all have agreed on a formation with another incarnation of a name.
 2. The first return of a name is not delayed. The next ones are, until 1, 2, 4 and 8 suspicion
    limits after the last. From then on a name is taken in at most once in `LONGEST` suspicion
    limits, and costs the group less than two of them: one to suspect it, and the rest of one to
    re-form the group and to agree on the failure.
 3. A name that was there for `FORGIVEN` suspicion limits begins anew.
 4. A request of the application is not delayed: `node.reform` says what it wants.

What it does not do: count names that leave and join again in one incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ordercast.types import NodeId

LONGEST = 8
FORGIVEN = 32
MOST_NAMES = 200
"""Names that are remembered: the one that was taken in longest ago gives way."""


class Admission(NamedTuple):
    node: NodeId
    at: int  # on our own clock
    returns: int  # in a row, none of which was long after the one before


class Admissions:
    """Of one group, as one member remembers them."""

    def __init__(self, suspicion_limit: int) -> None:
        self._limit = suspicion_limit
        self._last: dict[str, Admission] = {}  # by name, the latest last

    def note(self, now: int, nodes: Iterable[NodeId]) -> None:
        """All have agreed on a formation with these."""
        for node in nodes:
            last = self._last.get(node.name)
            if last is not None and last.node == node:
                continue
            returns = 0
            if last is not None and now - last.at < FORGIVEN * self._limit:
                returns = last.returns + 1
            self._last.pop(node.name, None)
            self._last[node.name] = Admission(node, now, returns)
            if len(self._last) > MOST_NAMES:
                del self._last[next(iter(self._last))]

    def may_come(self, now: int, node: NodeId) -> bool:
        """Whether the group is to be re-formed for it now."""
        last = self._last.get(node.name)
        if last is None or last.node == node or not last.returns:
            return True
        pause = min(1 << (last.returns - 1), LONGEST) * self._limit
        return now >= last.at + pause

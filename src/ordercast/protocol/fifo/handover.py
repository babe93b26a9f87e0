"""How a newcomer of an open group gets the state of the application, from one member.

Rules.
 1. A newcomer first meets the members of the group, as any other does. From then on it receives
    the events of each origin from some place on, and delivers none of them. Then it asks one member
    for its state, and says where the streams begin for it.
 2. That member answers when it has delivered as much of every stream: its state, and how far that
    goes in each of them, which is the cut. What its own state contained when it came counts too.
 3. The newcomer delivers what comes after the cut. What comes before is in the state; the newcomer
    holds it for others, as anybody does. What it misses between the cut and the place where a
    stream began is lost, and reported: that can happen only where the origin is gone.
 4. A member that is gone, or does not say within a suspicion limit that the state is coming, is
    given up, and the next one is asked. So is one that said so and has not sent it after some
    limits: its application may not read. Each time the newcomer is twice as patient, for a state
    may be large and a line slow. What has come until then is acknowledged, and dropped: so no
    sender has to wait for a newcomer that nobody can help. The next state must contain it.

What it does not do: merge the states of two groups that were founded apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from ordercast.protocol.fifo.packets import Cut
from ordercast.types import NodeId

COMING_LIMITS = 4
"""So many suspicion limits a state may be coming, the first time."""


class Taking:
    """At the newcomer."""

    def __init__(self) -> None:
        self.began: dict[NodeId, int] = {}  # where each stream begins here
        self.giver: NodeId | None = None  # whom we have asked
        self.is_coming = False  # and it has said that it will answer
        self.waited = 0  # own heartbeats for which we have waited for it
        self._limits = COMING_LIMITS

    def ask(self, givers: list[NodeId]) -> NodeId:
        """The next one to ask, of these, which are in the group."""
        later = [one for one in givers if self.giver is None or one > self.giver]
        self.giver, self.is_coming, self.waited = min(later or givers), False, 0
        return self.giver

    def is_over(self, givers: list[NodeId], patience: int) -> bool:
        """Whether the member that we asked is given up. Asked once for each of our heartbeats."""
        self.waited += 1
        if self.giver not in givers:
            return True
        if not self.is_coming:
            return self.waited >= patience
        if self.waited < self._limits * patience:
            return False
        self._limits *= 2
        return True

    def needed(self, present: tuple[NodeId, ...]) -> Cut:
        """Where the streams of these begin here: the state must go as far."""
        return [(origin, up_to) for origin, up_to in self.began.items() if origin in present]

    def fits(self, cut: Mapping[NodeId, int], present: tuple[NodeId, ...]) -> bool:
        return all(cut.get(origin, 0) >= up_to for origin, up_to in self.needed(present))


class Giving:
    """At a member that has the state."""

    def __init__(self) -> None:
        self.asked: dict[NodeId, Cut] = {}  # who needs a state, and how far it must go
        self.serving: dict[NodeId, None] = {}  # for whom our application is asked

    def due(self, present: tuple[NodeId, ...], received: Mapping[NodeId, int]) -> list[NodeId]:
        """Whom we serve now, having delivered so much. Those that are gone are forgotten."""
        due = []
        for node, needed in list(self.asked.items()):
            if node not in present:
                del self.asked[node]
            elif node not in self.serving and all(
                received.get(origin, 0) >= up_to for origin, up_to in needed
            ):
                del self.asked[node]
                self.serving[node] = None
                due.append(node)
        return due

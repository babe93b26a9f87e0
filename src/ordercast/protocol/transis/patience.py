"""Who is suspected: members that owe something, and neighbours, that are silent for too long.

Rules.
 1. A member owes something while it has not acknowledged all that we have, or while somebody has
    events of it that we lack.
 2. We watch the members that owe something and, always, our two neighbours in the sorted ring of
    members. Idle members send a heartbeat to their neighbours only. If any member is gone, a
    survivor watches it, and the change that this one starts makes the others noticed.
 3. A watched member of which nothing was heard for the suspicion limit is suspected. Members with a
    greater name than ours have three quarters of that time. So if only the path between two
    members is cut, the one with the smaller name says so first, and the other one alone goes.
 4. In large groups a member acknowledges to senders, who tell all. So one whose acknowledgements
    grow is there, even if it does not speak to us.
 5. A link that loses a packet is silent until it was sent again, and with it all that comes after.
    So a watched member whose link is silent for half of its time is probed by datagram, several
    times, and one that answers is there. Links are needed all the same: one that is silent for four
    times as long, and for three seconds, is taken for cut.
 6. Silence is measured on a patient clock: a member that was stalled itself suspects nobody.

What it does not do: ask others. That they reach a member is of no use where we do not.
"""

from __future__ import annotations

from ordercast.kernel.clocks import Vector
from ordercast.protocol.transis.graph import CausalGraph
from ordercast.protocol.transis.options import SynchronyOptions
from ordercast.types import NodeId
from ordercast.units import SECOND

PROBES = 16
"""Probes in a suspicion limit, or in a stage limit, once the first half of it is over."""
LIMITS_OF_LINKS, LEAST_OF_LINKS = 4, 3 * SECOND
"""How many of its limits a member that answers probes has, until its link must bring something; and
at least so long, for TCP waits 0.2 s before it sends again what was lost, and each time twice as
long, whatever our limits are."""


def limit_of_link(limit: int) -> int:
    return max(LIMITS_OF_LINKS * limit, LEAST_OF_LINKS)


class Patience:
    def __init__(
        self, me: NodeId, members: tuple[NodeId, ...], options: SynchronyOptions, time: int
    ) -> None:
        place, count = members.index(me), len(members)
        ring = dict.fromkeys((members[place - 1], members[(place + 1) % count]))
        self.neighbours = tuple(node for node in ring if node != me)
        self._limits = {
            node: options.suspicion_limit if node < me else options.suspicion_limit * 3 // 4
            for node in members
            if node != me
        }
        self._probe_every = options.suspicion_limit // PROBES
        self.heard = dict.fromkeys(self._limits, time)  # when by link, in patient time
        self.answered: dict[NodeId, int] = {}  # when by datagram, candidates too
        self._watched = dict.fromkeys(self.neighbours, time)  # since when
        self._acks: dict[NodeId, Vector] = {}  # what each had at the last look

    def watch(self, graph: CausalGraph, time: int) -> int | None:
        """Looks who owes something. Returns when this has to be looked at again; None: never."""
        soonest: int | None = None
        for node, limit in self._limits.items():
            owes = node in self.neighbours or graph.lacks(graph.places[node])
            if not owes:
                self._watched.pop(node, None)
                continue
            acks = graph.acks[graph.places[node]]
            if node not in self.neighbours and acks != self._acks.get(node):
                self._watched[node] = time  # it was heard by somebody who told us
            self._acks[node] = acks
            since = max(self._watched.setdefault(node, time), self.heard[node])
            probe_at = max(since + limit // 2, time + self._probe_every)
            look_at = min(probe_at, max(since, self.answered.get(node, 0)) + limit)
            if soonest is None or look_at < soonest:
                soonest = look_at
        return soonest

    def silent(self, time: int) -> list[NodeId]:
        """Those that are suspected now."""
        found = []
        for node, since in self._watched.items():
            limit, by_link = self._limits[node], max(since, self.heard[node])
            is_silent = time - max(by_link, self.answered.get(node, 0)) >= limit
            if is_silent or time - by_link >= limit_of_link(limit):
                found.append(node)
        return found

    def doubtful(self, time: int) -> list[NodeId]:
        """Those that are probed now."""
        return [
            node
            for node, since in self._watched.items()
            if 2 * (time - max(since, self.heard[node])) >= self._limits[node]
        ]

    def last_sign(self, node: NodeId) -> int:
        return max(self.heard.get(node, 0), self.answered.get(node, 0))

"""What of a causal graph is missing, where events may be lost, doubled and out of order.

Rules.
 1. An event that is there already, admitted or held, is dropped quietly. So is a stale
    acknowledgement: knowledge only grows.
 2. What a vector or an acknowledgement shows, and is neither admitted nor held, is missing. Who
    showed it last is remembered.
 3. An event must fit between its neighbours: numbers and heights of one origin grow with `seq`,
    in whichever order the events come.

What it does not do: ask anybody (`recovery.py`).
"""

from __future__ import annotations

from operator import gt

from ordercast.errors import PeerError
from ordercast.kernel.buffers import Limit
from ordercast.kernel.clocks import Vector
from ordercast.protocol.transis.graph import CausalGraph
from ordercast.protocol.transis.packets import Cast, Query, Status, Summary
from ordercast.types import NodeId

LOOKED_AT = 256
"""Events after the last admitted one of a member that are looked for at a time."""


class GappyGraph(CausalGraph):
    """A graph whose events come in any order."""

    def __init__(self, members: tuple[NodeId, ...], me: NodeId, window: Limit) -> None:
        super().__init__(members, me, window)
        self.shown_by: list[int] = [self.me] * len(members)  # by place: who raised `told` last
        self.numbers = [0] * len(members)  # by place: the number of its last admitted event
        # By place: the members that ask for our acknowledgement, and have not got it.
        self.queries: dict[int, Query] = {}
        self.overheard: dict[int, int] = {}  # by place: queries to all, since the last by link
        self.unheard_by: dict[int, None] = {}  # places that do not get what we multicast
        self._showing = self.me  # whose packet is looked at

    # --- what comes --------------------------------------------------------------------------

    def take(self, place: int, cast: Cast, admitted: list[tuple[int, Cast]]) -> None:
        """An event came from its origin."""
        if cast.seq > self.received[place] and place not in self.frozen:
            self._showing = place
            self._enter(place, cast, admitted)

    def admit(self, place: int, cast: Cast) -> None:
        super().admit(place, cast)
        self.numbers[place] = cast.number

    def take_status(self, place: int, status: Status) -> None:
        self._showing = place
        self.acknowledge(place, status.sent, status.clock, status.vector)
        self._note_told(status.vector)
        if isinstance(status, Query):
            self._take_query(place, status)

    def _take_query(self, place: int, query: Query) -> None:
        if not query.by_link:
            self.overheard[place] = self.overheard.get(place, 0) + 1
        elif not query.asks:
            self.unheard_by[place] = None
        if query.asks >> self.me & 1:
            self.queries[place] = query

    def take_summary(self, teller: int, summary: Summary) -> bool:
        self._showing = teller
        return super().take_summary(teller, summary)

    def _note_told(self, vector: Vector) -> None:
        told, showing = self.told, self._showing
        if any(map(gt, vector, told)):
            for place, up_to in enumerate(vector):
                if up_to > told[place]:
                    told[place], self.shown_by[place] = up_to, showing

    def reach(self, cut: Vector) -> None:
        """All members that come along have sent so much."""
        for place, up_to in enumerate(cut):
            if place not in self.frozen and up_to > self.told[place]:
                self.told[place], self.shown_by[place] = up_to, place

    # --- what does not -----------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether anything that somebody has shown is not admitted."""
        return any(map(gt, self.told, self.received))

    def missing(self, place: int) -> list[tuple[int, int]]:
        """Of one member: the events that we were shown and do not have, as (first, last)."""
        begin = self.received[place] + 1
        hold, found = self.hold[place], list[tuple[int, int]]()
        first = 0
        end = min(self.told[place] + 1, begin + LOOKED_AT)
        for seq in range(begin, end):
            if seq in hold:
                if first:
                    found.append((first, seq - 1))
                first = 0
            elif not first:
                first = seq
        if first:
            found.append((first, end - 1))
        return found

    def owing(self) -> list[int]:
        """Members that come along and, as far as we know, lack something that we have."""
        received = self.received
        return [
            place
            for place, acks in enumerate(self.acks)
            if place != self.me and place not in self.frozen and any(map(gt, received, acks))
        ]

    def refuse_misfit(self, sender: NodeId, place: int, cast: Cast) -> None:
        """PeerError: its neighbours say otherwise, and they are of the same origin."""
        hold, seq = self.hold[place], cast.seq
        before, after = hold.get(seq - 1), hold.get(seq + 1)
        height, number = 0, 0
        if before is not None:
            height, number = before.height, before.number
        elif seq == self.received[place] + 1:
            height, number = self.top[place], self.numbers[place]
        if cast.height <= height or cast.number <= number:
            raise PeerError(f"{sender} sent event {seq} as {cast.number}, after {number}")
        if after is not None and (cast.height >= after.height or cast.number >= after.number):
            raise PeerError(f"{sender} sent event {seq} as {cast.number}, before {after.number}")

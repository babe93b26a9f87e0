"""Entries that rotted on our disk: they are fetched again from those who have them.

Rules.
 1. A session that comes to a rotten entry which the other lacks waits. All correspondents are asked
    for the entry, again every beat.
 2. The first answer that fits its stream and number is put back, and the sessions read on.
 3. After `patience` a gap stands in its place, for the sessions that wait. It is repaired all the
    same if the entry still comes.

What it does not do: look for rot before somebody reads; nor doubt what a correspondent gives.
"""

from __future__ import annotations

from ordercast.errors import PeerError
from ordercast.kernel.log import Bad, Entry
from ordercast.kernel.step import Step
from ordercast.protocol.hpp.edges import Edge
from ordercast.protocol.hpp.packets import MOST_FETCHED, Fetch, Fetched, Wanted

MOST_ROTTEN = 10_000
"""Rotten entries that are remembered. Of more a gap is sent at once."""


class Rotten:
    def __init__(self, bad: Bad, since: int) -> None:
        self.bad = bad
        self.since = since  # by our clock
        self.given_up = False


class Repair:
    def __init__(self, group: str, patience: int) -> None:
        self.group = group
        self.patience = patience
        self.rotten: dict[int, Rotten] = {}  # by position
        self.repaired = 0
        self.given_up = 0

    def is_given_up(self, position: int) -> bool:
        found = self.rotten.get(position)
        return found.given_up if found is not None else len(self.rotten) >= MOST_ROTTEN

    def want(self, step: Step, position: int, bad: Bad, edges: list[Edge]) -> None:
        if position not in self.rotten:
            self.rotten[position] = Rotten(bad, step.now)
            self._ask(step, [bad], edges)

    def _ask(self, step: Step, wanted: list[Bad], edges: list[Edge]) -> None:
        events = [Wanted(*bad.stream, bad.number) for bad in wanted[:MOST_FETCHED]]
        peers = tuple(edge.peer for edge in edges)
        if events and peers:
            step.send(peers, Fetch(self.group, events))

    def beat(self, step: Step, floor: int, edges: list[Edge]) -> None:
        """Asks again, and gives up."""
        waiting = []
        for position, rotten in list(self.rotten.items()):
            if position < floor:
                del self.rotten[position]
            elif not rotten.given_up:
                if step.now - rotten.since >= self.patience:
                    rotten.given_up = True
                    self.given_up += 1
                else:
                    waiting.append(rotten.bad)
        self._ask(step, waiting, edges)
        for edge in edges:
            if edge.bad is not None and (edge.bad < floor or self.is_given_up(edge.bad)):
                edge.bad = None

    def refuse_invalid(self, edge: Edge, packet: Fetched) -> None:
        for item in packet.items:
            if item.is_gap or item.size != sum(map(len, item.payloads)):
                raise PeerError(f"{edge.peer} gives an entry that is none")

    def receive(self, step: Step, edge: Edge, packet: Fetched, edges: list[Edge]) -> None:
        for item in packet.items:
            for position, rotten in list(self.rotten.items()):
                bad = rotten.bad
                if item.stream == bad.stream and item.number == bad.number:
                    self._put_back(step, edge, position, item, edges)

    def _put_back(
        self, step: Step, giver: Edge, position: int, item: Entry, edges: list[Edge]
    ) -> None:
        del self.rotten[position]
        self.repaired += 1
        entry = Entry(
            *(item.origin, item.birth, item.number, item.prev, giver.log),
            reply=item.reply,
            payloads=item.payloads,
            size=item.size,
            at=item.at,
            is_late=item.is_late,
        )
        step.repair(self.group, position, entry)
        for edge in edges:
            if edge.bad == position:
                edge.bad = None

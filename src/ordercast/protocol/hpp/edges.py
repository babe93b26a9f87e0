"""Edges: the correspondents of a node, and what is remembered of those that were.

An edge is a session with one incarnation of another node, the parent or a child. What outlives it
is a place: the identity of the other log, how far each side has processed the log of the other, and
whether entries are held for it. Places are few and reused, the oldest first.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ordercast.kernel.log import Knowledge
from ordercast.kernel.step import Step
from ordercast.protocol.hpp.packets import Correspondent, Entries, SessionId
from ordercast.types import NodeId

SPARE_PLACES = 64
"""Places beyond those that children and the parent need: for those that were."""


class Queued(NamedTuple):
    """A packet of entries that was not processed yet, and when it came."""

    packet: Entries
    came: int


class Edge:
    """One session. The names of its fields are as seen from this node."""

    def __init__(
        self, peer: NodeId, session: SessionId, log: int, is_parent: bool, now: int, floor: int
    ) -> None:
        self.peer = peer
        self.session = session
        self.log = log  # the identity of its log
        self.is_parent = is_parent
        self.heard_at = now
        self.failed = ""  # why it ends with this step
        self.forgets = False  # the other must begin with a digest then
        self.place = -1  # what outlives it (`Places`)
        # Sending.
        self.is_ready = False  # we know where to begin
        self.cursor = floor  # what is below was sent, or need not be
        self.acked = floor  # what is below is durable there
        self.said = floor  # the position that the last packet went up to
        self.known: Knowledge | None = None  # what it has of what was there when it began
        self.known_until = 0  # the position up to which that matters
        self.is_reading = False  # a recall is under way
        self.bad: int | None = None  # the position of a rotten entry that it waits for
        self.fetching = 0  # recalls for what it lost
        # Receiving.
        self.through = 0  # what is below in its log is in ours
        self.queue: deque[Queued] = deque()
        self.queued = 0  # the position that the queue goes up to
        self.queued_size = 0  # bytes
        self.place_in_packet = 0  # of the first packet in the queue
        self.ahead: dict[int, int] = {}  # by key: the last number in the queue
        self.stalled = False  # it waits for somebody to fill a gap
        self.owes_ack = False
        self.kept_through = -1  # as the place has it on disk
        # What the other was told last.
        self.told_path: list[str] | None = None
        self.told_siblings: list[str] | None = None
        self.told_at = -(1 << 62)  # by our clock

    @property
    def token(self) -> tuple[str, NodeId, NodeId, int]:
        return "send", self.peer, self.session.opener, self.session.count


class RememberedLog:
    """What is remembered of a log that we correspond or corresponded with."""

    def __init__(self, log: int = 0, through: int = 0, acked: int = 0, used: int = 0) -> None:
        self.log = log
        self.through = through
        self.acked = acked
        self.held_until: int | None = None  # entries from `acked` on are held; None: by an edge
        self.used = used  # a count: the least was not used for longest


class Edges:
    def __init__(self, group: str, most_children: int) -> None:
        self.group = group
        self.by_name: dict[str, Edge] = {}
        self.parent: Edge | None = None
        self.places: list[RememberedLog] = []
        self._most_places = most_children + SPARE_PLACES
        self._uses = 0
        self.evicted = 0  # logs that were held and had to make room
        self.last_parent = 0  # the log of the last parent

    @property
    def children(self) -> list[Edge]:
        return [edge for edge in self.by_name.values() if not edge.is_parent]

    def all(self) -> list[Edge]:
        return list(self.by_name.values())

    def find(self, peer: NodeId, session: SessionId) -> Edge | None:
        edge = self.by_name.get(peer.name)
        return edge if edge is not None and edge.session == session else None

    def add(self, step: Step, edge: Edge) -> None:
        self.by_name[edge.peer.name] = edge
        if edge.is_parent:
            self.parent = edge
            self.last_parent = edge.log
        place = self._place_for(edge.log)
        edge.place = place
        self.places[place].held_until = None

    def remove(self, edge: Edge) -> None:
        if self.by_name.get(edge.peer.name) is edge:
            del self.by_name[edge.peer.name]
        if self.parent is edge:
            self.parent = None

    # --- places ------------------------------------------------------------------------------

    def load(self, record: Correspondent, held_until: int) -> None:
        while len(self.places) <= record.place < self._most_places:
            self.places.append(RememberedLog())
        if record.place >= self._most_places:  # the options had more room then
            return
        place = RememberedLog(record.log, record.through, record.acked)
        if record.held:
            place.held_until = held_until
        self.places[record.place] = place

    def heard_of(self, log: int) -> RememberedLog | None:
        return next((place for place in self.places if place.log == log != 0), None)

    def _place_for(self, log: int) -> int:
        self._uses += 1
        for number, place in enumerate(self.places):
            if place.log == log:
                place.used = self._uses
                return number
        if len(self.places) < self._most_places:
            self.places.append(RememberedLog(log, used=self._uses))
            return len(self.places) - 1
        used = {edge.place for edge in self.by_name.values()}
        free = [number for number in range(len(self.places)) if number not in used]
        number = min(
            free,
            key=lambda each: (self.places[each].held_until is not None, self.places[each].used),
        )
        self.evicted += self.places[number].held_until is not None
        self.places[number] = RememberedLog(log, used=self._uses)
        return number

    def keep(self, step: Step, edge: Edge) -> None:
        """How far the session came is durable with this step."""
        place = self.places[edge.place]
        place.through = max(place.through, edge.through)  # what was true once stays true
        place.acked = max(place.acked, edge.acked)
        edge.kept_through = edge.through
        self._persist(step, edge.place, True)

    def hold(self, step: Step, edge: Edge, until: int) -> None:
        """The session is over, and the other may come back."""
        self.keep(step, edge)
        self.places[edge.place].held_until = until

    def release(self, step: Step, edge: Edge) -> None:
        """The session is over, and the other needs nothing any more."""
        self.keep(step, edge)
        self._persist(step, edge.place, False)

    def expire(self, step: Step, now: int) -> None:
        """Entries were held for long enough."""
        for number, place in enumerate(self.places):
            if place.held_until is not None and now >= place.held_until:
                place.held_until = None
                self._persist(step, number, False)

    def release_log(self, step: Step, log: int) -> None:
        """Somebody else has what we held for this log."""
        for number, place in enumerate(self.places):
            if place.log == log and place.held_until is not None:
                place.held_until = None
                self._persist(step, number, False)

    def _persist(self, step: Step, number: int, held: bool) -> None:
        place = self.places[number]
        record = Correspondent(self.group, number, place.log, place.through, place.acked, held)
        step.persist(record)
